"""Learning curves as event files for TensorBoard: the tasks that write them, a file for each epoch and data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from cerebro_db.configs.functions.callbacks import LOG_DIR
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.environment import computing
from cerebro_db.training.folders import Folder
from cerebro_db.wire import Wire

_OF_VALIDATION = "val_"

Value = float | Literal["nan", "inf", "-inf"]
"""A number, as JSON has none for those that are not finite."""


class LoggedEpoch(Wire, frozen=True, array_like=True):
    """Measured values of a configuration after an epoch, by the names in the logs of Keras."""

    epoch: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    logs: dict[str, Value]


class LoggedConfiguration(Wire, frozen=True):
    """Epochs of a configuration that are written for TensorBoard, below its folder."""

    mst_key: int
    log_dir: str
    epochs: tuple[LoggedEpoch, ...]


class EventsTask(Wire, frozen=True, omit_defaults=False):
    """Task that writes event files for TensorBoard; without configurations it only checks that it could."""

    run_id: Annotated[int, Meta(ge=0)]
    configurations: tuple[LoggedConfiguration, ...] = ()


def value_of(number: float) -> Value:
    """A number as a message has it."""
    if math.isnan(number):
        return "nan"
    return number if math.isfinite(number) else "inf" if number > 0 else "-inf"


@dataclass(frozen=True)
class Series:
    """Folder for the epochs of a configuration, and what was measured after each.

    Attributes:
        folder: below that of the role, such as ``fit/run_7/configuration_1``.
    """

    folder: str
    epochs: tuple[tuple[int, Mapping[str, float]], ...]


def series_of(task: EventsTask) -> list[Series]:
    """The series in a task.

    Raises:
        InvalidArgument: a folder is none that a configuration may have.
    """
    return [
        Series(
            f"{_checked(one.log_dir)}/run_{task.run_id}/configuration_{one.mst_key}",
            tuple(
                (each.epoch, {name: float(value) for name, value in each.logs.items()})
                for each in one.epochs
            ),
        )
        for one in task.configurations
    ]


def write(folder: Folder, series: Iterable[Series]) -> None:
    """Write the epochs that are not there yet.

    Raises:
        OSError: a file cannot be written, or something below the folder is a link.
    """
    for one in series:
        for epoch, logs in one.epochs:
            ours = {name: v for name, v in logs.items() if not name.startswith(_OF_VALIDATION)}
            theirs = {
                name.removeprefix(_OF_VALIDATION): v for name, v in logs.items() if name not in ours
            }
            for name, values in (("train", ours), ("validation", theirs)):
                if values:
                    _write_epoch(folder, (*one.folder.split("/"), name), epoch, values)


def _write_epoch(
    folder: Folder, parts: Iterable[str], epoch: int, values: Mapping[str, float]
) -> None:
    # TensorBoard reads files of a folder in the order of their names.
    file = f"events.out.tfevents.{epoch:010d}.cerebro"
    with folder.below(*parts) as place:
        if not place.has(file):
            named = {f"epoch_{name}": value for name, value in values.items()}
            place.write(file, computing().event_file(epoch, named))


def _checked(log_dir: str) -> str:
    if not LOG_DIR.fullmatch(log_dir):
        raise InvalidArgument(f"log_dir: got {shown(log_dir)}; allowed: a relative path")
    return log_dir
