"""Nets, rows and strategies of the comparison: an update of weights is always made from as many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.architectures import cnn
from benchmarks.workload import Workload
from benchmarks.workloads import images, tabular
from benchmarks.workloads.digits import CLASSES, SHAPE

PARTITIONS = 4
# Rows of an update, whoever computes the gradients of it.
ROWS = 64
# Of the rows, those that no model is trained on.
HELD_OUT = 0.2
MOMENTUM = 0.9


@dataclass(frozen=True)
class Strategy:
    """A strategy as it is compared.

    Attributes:
        name: of it in the tables.
        strategy, params: arguments of ``cerebro_fit_multiple``.
        sharers: trainers that share the rows of an update.
        exchanges: moves between workers: ``state``, ``data``, ``replica``, ``gradient`` (all to all), ``server``.
        bits: of a number that is exchanged.
        rounds: of an epoch, after each of which replicas are averaged.
        lost: when a worker dies.
    """

    name: str
    strategy: str
    params: str | None
    exchanges: str
    lost: str
    sharers: int = 1
    bits: int = 32
    rounds: int = 1

    @property
    def batch(self) -> int:
        """``batch_size`` of a trainer."""
        return ROWS // self.sharers


_HOP, _ROUND = "its hop", "the round (an epoch) of one model"
STRATEGIES = (
    Strategy("hopper", "hopper", None, "state", _HOP),
    Strategy("task", "task", None, "data", _HOP),
    Strategy("averaging", "averaging", None, "replica", "its replica's part of an epoch"),
    Strategy(
        "averaging, 4 rounds", "averaging", "rounds=4", "replica",
        "its replica's part of a round", rounds=4,
    ),
    Strategy("allreduce", "allreduce", None, "gradient", _ROUND, sharers=4),
    Strategy("pipe", "pipe", None, "gradient", _ROUND, sharers=4),
    Strategy("pipe, 8 bits", "pipe", "bits=8", "gradient", _ROUND, sharers=4, bits=8),
    Strategy("parameter server", "parameter_server", None, "server", _ROUND, sharers=4),
    Strategy(
        "parameter server, asynchronous", "parameter_server", "mode=asynchronous", "server", _ROUND
    ),
    Strategy("2 groups", "groups", "groups=2", "server", _ROUND, sharers=2),
    Strategy("4 groups", "groups", "groups=4", "server", _ROUND),
    Strategy("auto", "auto", None, "state", _HOP),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Rows and a net, trained with several learning rates.

    Attributes:
        title: for people.
        workload: rows, architecture, learning rates of SGD with momentum, epochs.
    """

    title: str
    workload: Workload

    @property
    def held_out(self) -> int:
        """Rows of the validation table, the last ones."""
        return round(len(self.workload.features) * HELD_OUT)


def cases(scale: float) -> Sequence[Case]:
    """The nets of the comparison.

    Args:
        scale: of the rows.
    """
    of_images, of_rows = images.workload(0.3 * scale), tabular.workload(0.1 * scale)
    common = {"partitions": PARTITIONS, "batch_sizes": (ROWS,)}
    rates = (0.003, 0.01, 0.03, 0.06)
    larger = cnn(SHAPE, (64, 128), 256, CLASSES)
    few = max(500, round(1000 * scale))
    return (
        Case("images", replace(of_images, learning_rates=rates, epochs=8, **common)),
        Case("tabular", replace(of_rows, learning_rates=rates, epochs=10, **common)),
        Case(
            "a larger convolutional net",
            replace(
                of_images, name="larger", architectures=(larger,), learning_rates=rates, epochs=6,
                features=of_images.features[:few], labels=of_images.labels[:few], **common,
            ),
        ),
    )  # fmt: skip
