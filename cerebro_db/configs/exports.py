"""The formats that models are exported to."""

from __future__ import annotations

from enum import StrEnum

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument


class Format(StrEnum):
    """File formats of an exported model: Keras' own file, ONNX, NumPy's arrays."""

    KERAS = "keras"
    ONNX = "onnx"
    NPZ = "npz"


def export_format(text: str | None) -> Format:
    """Reads ``format``."""
    name = (text or "").strip().lower().removeprefix(".")
    if name in list(Format):
        return Format(name)
    got = "NULL" if text is None else shown(text)
    allowed = ", ".join(repr(str(known)) for known in Format)
    hint = nearest(name[:80], Format) if name else None
    raise InvalidArgument(f"format: got {got}; allowed: {allowed}", hint=hint)
