"""What a caller asks of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.configs.messages import shown
from cerebro_db.configs.plain_texts import MAX_DESCRIPTION, MAX_NAME, check_text
from cerebro_db.database.relations import CallerPath
from cerebro_db.driver.one_model import OneModel
from cerebro_db.errors import InvalidArgument

MAX_WORKERS = 256
MAX_ITERATIONS = 1_000_000
MAX_SECONDS = 10 * 365 * 86_400.0
DURABILITIES = ("hop", "epoch")
HOPPER, ROTATION = "hopper", "rotation"
SCHEDULES = (HOPPER, ROTATION)


@dataclass(frozen=True)
class FitRequest:
    """The arguments of ``cerebro_fit_multiple``, as given.

    Attributes:
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
    durability: str | None = "hop"
    max_seconds: float | None = None
    schedule: str | None = HOPPER
    replace: bool | None = False
    search_path: CallerPath | None = None
    cores: int = 1
    one: OneModel | None = None

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
        check_choice("schedule", self.schedule, SCHEDULES)
        check_workers(self.schedule, self.num_workers)

    @property
    def frequency(self) -> int:
        """Epochs between metrics; by default only the last epoch has them."""
        return self.metrics_compute_frequency or self.num_iterations or 1

    def metric_epochs(self) -> list[int]:
        """Epochs after which metrics are computed, the last always among them."""
        last = self.num_iterations or 1
        return [
            epoch for epoch in range(1, last + 1) if epoch % self.frequency == 0 or epoch == last
        ]


def check_choice(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """Refuse a word that is none of the allowed ones."""
    if value not in allowed:
        got = "NULL" if value is None else shown(value)
        raise InvalidArgument(f"{name}: got {got}; allowed: {', '.join(map(repr, allowed))}")


def check_workers(schedule: str | None, num_workers: int | None) -> None:
    """Refuse a number of workers where one session drives all segments."""
    if schedule == ROTATION and num_workers is not None:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed with schedule := {ROTATION!r}: NULL, as one "
            "session drives all segments"
        )


def check_seconds(max_seconds: float | None) -> None:
    """Refuse a budget that is none."""
    if max_seconds is not None and not 0 < max_seconds <= MAX_SECONDS:  # also where it is NaN
        raise InvalidArgument(
            f"max_seconds: got {max_seconds}; allowed: above 0, up to {MAX_SECONDS:.0f}"
        )


def check_range(
    name: str, value: int | None, low: int, high: int, *, optional: bool = True
) -> None:
    """Refuse a number that is out of range, or missing where it must not."""
    if value is None and optional:
        return
    if value is None or not low <= value <= high:
        got = "NULL" if value is None else value
        raise InvalidArgument(f"{name}: got {got}; allowed: {low} to {high}")
