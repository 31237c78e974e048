"""Event files for TensorBoard, by TensorFlow's own writer: a file for each epoch and data set."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import SummaryMetadata

from cerebro_db.configs.functions.callbacks import LOG_DIR
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.folders import Folder
from cerebro_db.training.messages import EventsTask

_OF_VALIDATION = "val_"
_SCALARS = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))


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
    name = f"events.out.tfevents.{epoch:010d}.cerebro"
    with folder.below(*parts) as place:
        if not place.has(name):
            place.write(name, _events(epoch, values))


def _events(epoch: int, values: Mapping[str, float]) -> bytes:
    """The bytes of an event file, which TensorFlow writes to a path only."""
    with tempfile.TemporaryDirectory(prefix="cerebro-") as scratch:
        writer = tf.summary.create_file_writer(scratch)
        with writer.as_default(step=epoch):
            for name, value in values.items():
                tf.summary.write(f"epoch_{name}", tf.constant(value, tf.float32), metadata=_SCALARS)
        writer.close()
        (written,) = Path(scratch).iterdir()
        return written.read_bytes()


def _checked(log_dir: str) -> str:
    if not LOG_DIR.fullmatch(log_dir):
        raise InvalidArgument(f"log_dir: got {shown(log_dir)}; allowed: a relative path")
    return log_dir
