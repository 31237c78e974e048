"""How values look in messages: short, whatever was handed in."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.errors import InvalidArgument

_SHOWN = 80


def shown(value: object) -> str:
    """The beginning of a value's ``repr``."""
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _SHOWN else text[:_SHOWN] + "..."


def check_choice(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """Refuse a word that is none of the allowed ones."""
    if value not in allowed:
        got = "NULL" if value is None else shown(value)
        raise InvalidArgument(f"{name}: got {got}; allowed: {', '.join(map(repr, allowed))}")


def check_range(
    name: str, value: int | None, low: int, high: int, *, optional: bool = True
) -> None:
    """Refuse a number that is out of range, or missing where it must not."""
    if value is None and optional:
        return
    if value is None or not low <= value <= high:
        got = "NULL" if value is None else value
        raise InvalidArgument(f"{name}: got {got}; allowed: {low} to {high}")
