"""Request of a caller for a training run."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from cerebro_db.configs.messages import (
    MAX_DESCRIPTION,
    MAX_NAME,
    check_choice,
    check_range,
    check_text,
)
from cerebro_db.core.spec import EVERY_EPOCH, EVERY_HOP
from cerebro_db.core.strategies import Strategy
from cerebro_db.decide.strategies import DEFAULT, DEFAULT_OF_ONE, SCHEDULES, parse_strategy
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.one_model import OneModel
from cerebro_db.postgres.control import MAX_WORKERS
from cerebro_db.postgres.relations import CallerPath

MAX_ITERATIONS = 1_000_000
MAX_SECONDS = 10 * 365 * 86_400.0
DURABILITIES = (EVERY_HOP, EVERY_EPOCH)


@dataclass(frozen=True)
class FitRequest:
    """The arguments of ``cerebro_fit_multiple``, as given.

    Attributes:
        deterministic: whether a call like this one always has the same results; None for what the
            strategy does.
        schedule: an older name of ``strategy``, for the first two of them.
        one: the configuration, where it is not in a table.
        search_path: for the names; None leaves the sessions' own.
        cores: of the server, from which defaults of workers and threads come.
    """

    source_table: str | None
    model_output_table: str | None
    model_selection_table: str | None
    num_iterations: int | None
    use_gpus: bool | None = False
    validation_table: str | None = None
    metrics_compute_frequency: int | None = None
    warm_start: bool | None = False
    name: str | None = None
    description: str | None = None
    use_caching: bool | None = True
    seed: int | None = 0
    num_workers: int | None = None
    durability: str | None = EVERY_HOP
    max_seconds: float | None = None
    schedule: str | None = DEFAULT
    replace: bool | None = False
    search_path: CallerPath | None = None
    cores: int = 1
    one: OneModel | None = None

    @property
    def epochs(self) -> int:
        """Epochs of each configuration."""
        return self.num_iterations or 1

    strategy: str | None = None
    strategy_params: str | None = None
    deterministic: bool | None = None

    @functools.cached_property
    def chosen(self) -> Strategy:
        """The strategy that is asked for, with its parameters.

        Raises:
            InvalidArgument: there is no such strategy, or it has no such parameter.
        """
        check_choice("schedule", self.schedule, SCHEDULES)
        if self.strategy is not None and self.schedule not in (DEFAULT, self.strategy):
            raise InvalidArgument(
                f"schedule: got {self.schedule!r} beside strategy := {self.strategy!r}; allowed: one of "
                "them",
                hint="leave schedule out: strategy has all of its values, and more",
            )
        is_default = self.one is not None and self.schedule == DEFAULT
        default = DEFAULT_OF_ONE if is_default else self.schedule
        name = default if self.strategy is None else self.strategy
        return parse_strategy(name, self.strategy_params)

    def check(self) -> None:
        """Refuse what no table could make right."""
        iterations = self.num_iterations
        check_range("num_iterations", iterations, 1, MAX_ITERATIONS, optional=False)
        assert iterations is not None
        check_range("metrics_compute_frequency", self.metrics_compute_frequency, 1, iterations)
        check_range("num_workers", self.num_workers, 1, MAX_WORKERS)
        check_range("seed", self.seed, 0, 2**63 - 1, optional=False)
        check_seconds(self.max_seconds)
        check_text("name", self.name, MAX_NAME)
        check_text("description", self.description, MAX_DESCRIPTION)
        check_choice("durability", self.durability, DURABILITIES)
        check_workers(self.chosen, self.num_workers)
        self._check_deterministic()

    def _check_deterministic(self) -> None:
        """Refuse to promise what asynchronous workers cannot keep."""
        chosen = self.chosen
        if self.deterministic and chosen.asynchrony.is_any:
            given = f", strategy_params := {chosen.text!r}" if chosen.text else ""
            raise InvalidArgument(
                f"deterministic: got true beside strategy := {chosen.name!r}{given}, whose workers do not "
                "wait for each other; allowed: false, or NULL",
                hint=f"strategy_params := '{chosen.deterministic_params}' is deterministic; cerebro.cerebro_replay makes a run again in the "
                "order that it has recorded",
            )


@dataclass(frozen=True)
class Limits:
    """Limits of one driver of a run.

    Attributes:
        max_seconds: until it pauses the run; None for any time.
        num_workers: how many; None for as many as the run began with.
        any_version: whether it may go on with other versions of what computes.
        model_output_table: another name for the output; None for the one that the run began with.
        search_path: for that name.
    """

    max_seconds: float | None = None
    num_workers: int | None = None
    any_version: bool = False
    model_output_table: str | None = None
    search_path: CallerPath | None = None


def check_workers(strategy: Strategy, num_workers: int | None) -> None:
    """Refuse a number of workers where one session drives all segments."""
    if strategy.drives_segments and num_workers is not None:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed with schedule := {strategy.name!r}: NULL, as one "
            "session drives all segments"
        )


def check_seconds(max_seconds: float | None) -> None:
    """Refuse a budget that is none."""
    if max_seconds is not None and not 0 < max_seconds <= MAX_SECONDS:  # also where it is NaN
        raise InvalidArgument(
            f"max_seconds: got {max_seconds}; allowed: above 0, up to {MAX_SECONDS:.0f}"
        )
