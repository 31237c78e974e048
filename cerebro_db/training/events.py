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
from cerebro_db.training.fields import Fields
from cerebro_db.training.folders import Folder

_OF_VALIDATION = "val_"
_SCALARS = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
_MAX_EPOCH = 2**31 - 1


@dataclass(frozen=True)
class Series:
    """Folder for the epochs of a configuration, and what was measured after each.

    Attributes:
        folder: below that of the role, such as ``fit/run_7/configuration_1``.
    """

    folder: str
    epochs: tuple[tuple[int, Mapping[str, float]], ...]


def series_of(task: Fields) -> list[Series]:
    """The series in a task.

    Raises:
        InvalidArgument: something in it is not what it must be.
    """
    run_id = task.integer("run_id", 0)
    return [
        Series(
            f"{_log_dir(given)}/run_{run_id}/configuration_{given.integer('mst_key')}",
            tuple(_epoch(pair) for pair in _pairs(given)),
        )
        for given in task.objects("configurations")
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


def _log_dir(given: Fields) -> str:
    text = given.text("log_dir")
    if not LOG_DIR.fullmatch(text):
        raise InvalidArgument(f"log_dir: got {shown(text)}; allowed: a relative path")
    return text


def _pairs(given: Fields) -> list[object]:
    pairs = given.raw("epochs")
    if not isinstance(pairs, list):
        raise InvalidArgument(f"epochs: got {shown(pairs)}; allowed: a list")
    return pairs


def _epoch(value: object) -> tuple[int, dict[str, float]]:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], dict):
        raise InvalidArgument("epochs: got something else than pairs of an epoch and an object")
    pair = Fields({"epoch": value[0], "logs": value[1]})
    logs = pair.object("logs")
    return pair.integer("epoch", 1, _MAX_EPOCH), {name: logs.number(name) for name in value[1]}
