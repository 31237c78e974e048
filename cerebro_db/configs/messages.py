"""Checks of words, numbers and texts, and how values look in messages: short, whatever was handed in."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from cerebro_db.errors import InvalidArgument

_SHOWN = 80


def shown(value: object) -> str:
    """The beginning of a value's ``repr``."""
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _SHOWN else text[:_SHOWN] + "..."


def shortened(message: str, most: int = 2 * _SHOWN) -> str:
    """A message whose middle is left out if it is long, as one that quotes a number of many digits is."""
    half = most // 2
    return message if len(message) <= most else f"{message[:half]}...{message[-half:]}"


def duration(seconds: float | None) -> str:
    """Time span as text, such as ``1 h 05 min``, ``3 min 20 s`` or ``4.2 s``; a dash for None."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


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


# As the catalog allows them at most, see the migration of its bounds.
MAX_NAME, MAX_DESCRIPTION, MAX_ERROR = 1000, 10_000, 10_000
# All but tabs and ends of lines.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_text(name: str, text: str | None, most: int) -> None:
    """Refuse a text that the catalog does not take.

    Raises:
        InvalidArgument: it is too long, or has control characters.
    """
    if text is not None and (len(text) > most or _CONTROL.search(text)):
        raise InvalidArgument(
            f"{name}: got a text of {len(text)} characters, {shown(text)}; allowed: up to {most}, "
            "no control characters but tabs and ends of lines"
        )


def plain_text(text: str | None, most: int = MAX_ERROR) -> str | None:
    """The beginning of a text, its control characters replaced."""
    return None if text is None else _CONTROL.sub("?", text[:most])


def check_divisor(divisor: float | None) -> float:
    """The constant, where it is one.

    Raises:
        InvalidArgument: it is NULL, 0 or not finite.
    """
    if divisor is None or not math.isfinite(divisor) or divisor == 0.0:
        raise InvalidArgument(
            f"normalizing_const: got {'NULL' if divisor is None else repr(divisor)}; "
            "allowed: a finite number except 0"
        )
    return divisor


# Controls but tabs and ends of lines, those of the upper half, what turns the direction of a text around, and
# halves of characters, which no terminal can be sent.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """A text for a terminal: what would move the cursor, recolor, rename or reorder there is shown as its code."""
    return _CONTROLS.sub(lambda found: _code_of(found[0]), text)


def visible_json(text: str) -> str:
    """JSON of the same value for a terminal: its strings have codes in the place of such characters."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _code_of(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
