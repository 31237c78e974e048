"""How values look in messages: short, whatever was handed in."""

from __future__ import annotations

_SHOWN = 80


def shown(value: object) -> str:
    """The beginning of a value's ``repr``."""
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _SHOWN else text[:_SHOWN] + "..."
