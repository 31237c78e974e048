"""Nets, spaces and budgets of a search, by the rows of a table and the seconds that there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.runs.automl.tasks import Task

# From so many rows to train with on, and for the budget in seconds below which fewer nets are tried.
_MANY_ROWS, _SOME_ROWS = 20_000, 2_000
_SHORT, _MEDIUM = 30.0, 120.0
_ETA = 3
# Trials of all epochs that a search should have time for.
_FULL_TRIALS = 6
# A net of the space takes so many times as long as the smallest one, about.
_SLOWER = 2.5
_MOST_CONFIGS, _LEAST_CONFIGS = 200, 4
# Learning rates of the first epoch.
_RATES, _LEAST_PATIENCE = (0.0005, 0.001, 0.002, 0.004, 0.008), 3
_TABM, _MEMBERS = "tabm", 16
_LITTLE = 0.2  # of dropout, which numbers go without


@dataclass(frozen=True)
class Net:
    """Arguments of cerebro_tabular."""

    kind: str
    units: int
    depth: int
    dropout: float

    @property
    def name(self) -> str:
        """Name in the table of architectures."""
        return f"{self.kind} {self.units} x {self.depth}, dropout {self.dropout:g}"

    @property
    def given(self) -> dict[str, Any]:
        """The arguments by name."""
        found = {name: getattr(self, name) for name in ("kind", "units", "depth", "dropout")}
        return {**found, "members": _MEMBERS} if self.kind == _TABM else found


@dataclass(frozen=True)
class Design:
    """Nets and training parameters that fit a table.

    Attributes:
        nets: the smallest one first.
        batch_sizes: to try.
        first_epochs: of the first model.
        most_epochs: of any model.
    """

    nets: tuple[Net, ...]
    batch_sizes: tuple[int, ...]
    first_epochs: int
    most_epochs: int


def design_of(
    rows: int,
    is_number: bool,
    seconds: float,
    most_configs: int | None = None,
    most_epochs: int | None = None,
) -> Design:
    """The design of a search.

    Args:
        rows: to train with.
        is_number: whether the target is one, which dropout blurs.
        seconds: of the call.
        most_configs, most_epochs: trials, and epochs of each, that the caller wants at most.
    """
    if rows >= _MANY_ROWS:
        nets = (
            Net("mlp", 128, 2, 0.0), Net("mlp", 256, 3, 0.1), Net("resnet", 128, 2, 0.1), Net(_TABM, 128, 2, 0.1),
            Net("mlp", 512, 2, 0.3), Net("resnet", 192, 3, 0.3),
        )  # fmt: skip
        batches, first, most = (128, 256, 512), 1, 24
    elif rows >= _SOME_ROWS:
        nets = (
            Net("mlp", 128, 1, 0.1), Net("mlp", 128, 2, 0.3), Net("resnet", 96, 2, 0.2), Net(_TABM, 128, 2, 0.1),
            Net("mlp", 256, 3, 0.3), Net("resnet", 128, 3, 0.3),
        )  # fmt: skip
        batches, first, most = (64, 128, 256), 2, 36
    else:
        nets = (
            Net("mlp", 64, 1, 0.1), Net("mlp", 128, 2, 0.3), Net("resnet", 64, 1, 0.2), Net(_TABM, 96, 2, 0.2),
            Net("mlp", 256, 2, 0.5), Net("resnet", 64, 2, 0.3),
        )  # fmt: skip
        batches, first, most = (32, 16, 64), 4, 54
    # Each pair of a net and a batch size is compiled once by each worker.
    count, sizes = (2, 1) if seconds < _SHORT else (4, 1) if seconds < _MEDIUM else (6, 2)
    count = min(count, most_configs or count)
    most = min(most, most_epochs or most)
    chosen = [_without_little(net) if is_number else net for net in nets[:count]]
    return Design(tuple(chosen), batches[:sizes], min(first, most), most)


def _without_little(net: Net) -> Net:
    return net if net.dropout > _LITTLE else replace(net, dropout=0.0)


@dataclass(frozen=True)
class Search:
    """Size of a search by successive halving.

    Attributes:
        epochs: of the last rung.
        first: epochs of the first rung.
        configs: trials.
        seconds: that it may take.
    """

    epochs: int
    first: int
    configs: int
    seconds: float

    @property
    def params(self) -> str:
        """Parameters of the method."""
        return f"num_configs={self.configs}, R={self.epochs}, r={self.first}, eta={_ETA}"


def search_of(
    design: Design,
    seconds: float,
    epoch_seconds: float,
    workers: int,
    most_configs: int | None = None,
) -> Search:
    """The search that there is time for.

    Args:
        design: of the nets.
        seconds: that are left for it.
        epoch_seconds: that the smallest net takes for an epoch, on one worker.
        workers: that train at once.
        most_configs: trials that the caller wants at most.
    """
    affordable = seconds * workers / max(epoch_seconds * _SLOWER, 1e-3)
    epochs = int(max(1, min(design.most_epochs, affordable / _FULL_TRIALS)))
    first = max(1, epochs // _ETA**2)
    # A trial takes the first rung; one of three goes on, to three times as many epochs.
    of_trial, rung = float(first), first
    share = 1.0
    while rung < epochs:
        share /= _ETA
        longer = min(rung * _ETA, epochs)
        of_trial += share * (longer - rung)
        rung = longer
    configs = int(max(_LEAST_CONFIGS, min(_MOST_CONFIGS, affordable / of_trial)))
    return Search(epochs, first, min(configs, most_configs or configs), seconds)


def compile_grid(task: Task, nets: Sequence[Net]) -> str:
    """Compile parameters of the space."""
    metrics = ", ".join(map(repr, task.metrics))
    members = "'loss_per_member': [True], " if any(net.kind == _TABM for net in nets) else ""
    return (
        f"{{'loss': ['{task.loss}'], 'metrics': [[{metrics}]], {members}'optimizer_params_list': [{{'optimizer': ['AdamW'], "
        "'weight_decay': [0.0003, 0.1, 'log']}]}"
    )


def fit_grid(task: Task, batch_sizes: Sequence[int], epochs: int) -> str:
    """Fit parameters of the space: rates that sink by a cosine until the last epoch; the best epoch is the model."""
    patience = max(_LEAST_PATIENCE, epochs // 2)
    stopping = f"EarlyStopping('{task.objective}', patience={patience}, restore_best_weights=True)"
    callbacks = ", ".join(
        f"[LearningRateScheduler(CosineDecay({rate}, {epochs})), {stopping}]" for rate in _RATES
    )
    return f"{{'batch_size': [{', '.join(map(str, batch_sizes))}], 'callbacks': [{callbacks}]}}"


def first_compile(task: Task) -> str:
    """Compile parameters of the first model."""
    metrics = ", ".join(map(repr, task.metrics))
    return f"loss='{task.loss}', optimizer='AdamW(learning_rate=0.002, weight_decay=0.01)', metrics=[{metrics}]"
