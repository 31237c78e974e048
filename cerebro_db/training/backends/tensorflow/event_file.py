"""Event files for TensorBoard, by TensorFlow's own writer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import SummaryMetadata

_SCALARS = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))


def event_file(step: int, values: Mapping[str, float]) -> bytes:
    """The bytes of an event file, which TensorFlow writes to a path only."""
    with tempfile.TemporaryDirectory(prefix="cerebro-") as scratch:
        writer = tf.summary.create_file_writer(scratch)
        with writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALARS)
        writer.close()
        (written,) = Path(scratch).iterdir()
        return written.read_bytes()
