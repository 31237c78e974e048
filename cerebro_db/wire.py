"""JSON between driver, trainers, workers and catalog: each message is a struct, declared once, checked when it is read.

A struct derives from :class:`Wire`, or from one of its kinds; ``encode`` writes it and ``decode`` reads it back. What
is read may be anything: a row that somebody has changed, a message of another version. What is wrong is reported with its
path, what was got, and what is allowed; unknown fields are left out, so that a later version may add some.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from cerebro_db.errors import CerebroError, InvalidArgument, InvalidData

_T = TypeVar("_T")
_LONGEST = 60


class Wire(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message, or a part of one; in JSON what has its default is left out."""


def encode(value: Any) -> str:
    """The JSON of a struct, or of what is made of structs, lists, dictionaries, texts and numbers."""
    return msgspec.json.encode(value).decode()


def plain(value: Any) -> Any:
    """A struct as the dictionaries and lists of its JSON."""
    return json.loads(encode(value))


def as_json(value: Any) -> Any:
    """A value as JSON gives it back; what JSON does not know, such as a call in a grid, is its text there."""
    return json.loads(json.dumps(value, default=repr))


def decode(kind: type[_T], text: str | bytes | None, what: str) -> _T:
    """Read a JSON text as a struct, or as another type.

    Args:
        kind: of the value, such as a struct or ``list[int]``.
        text: the JSON.
        what: names the whole in messages.

    Raises:
        InvalidArgument: it is something else.
    """
    try:
        return msgspec.json.decode(text or "", type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        path, allowed, found = _fault(str(error), text)
        raise InvalidArgument(f"{what}{path}: got {found}; allowed: {allowed}") from None


def decode_stored(kind: type[_T], text: str | bytes | None, what: str, hint: str) -> _T:
    """Read a JSON text that Cerebro-DB has written into the catalog.

    Args:
        kind, text, what: as of :func:`decode`.
        hint: what to do where somebody has changed it.

    Raises:
        InvalidData: it is something else.
    """
    try:
        return msgspec.json.decode(text or "", type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _not_ours(error, text, what, hint) from None


def convert(kind: type[_T], value: Any, what: str) -> _T:
    """Read dictionaries and lists, which were JSON, as a struct.

    Raises:
        InvalidArgument: it is something else.
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.MsgspecError, RecursionError) as error:
        path, allowed, found = _fault(str(error), value)
        raise InvalidArgument(f"{what}{path}: got {found}; allowed: {allowed}") from None


def _not_ours(error: Exception, given: Any, what: str, hint: str) -> CerebroError:
    path, _, found = _fault(str(error), given)
    return InvalidData(
        f"{what}{path}: the catalog has {found} there; allowed: what Cerebro-DB has written",
        hint=hint,
    )


def _fault(message: str, given: Any) -> tuple[str, str, str]:
    """Path of what is wrong, what is allowed there, and what there is."""
    text, _, place = message.partition(" - at `$")
    path = place.rstrip("`")
    missing = re.search(r"missing required field `([^`]*)`", text)
    if missing:
        return f"{path}.{missing[1]}", "a value, which must be given", "nothing"
    return path, _allowed(text), _shown(_at(given, path))


def _allowed(text: str) -> str:
    """The first part of a message of msgspec, in words."""
    expected = re.match(r"Expected (.*?)(?:, got .*)?$", text)
    if expected is None:
        return next((word for name, word in _FAULTS if name in text), f"another value ({text})")
    words = expected[1]
    for name, word in _WORDS:
        words = words.replace(f"`{name}`", word)
    return words.replace("`", "").replace(" | ", " or ")


_FAULTS = (
    ("malformed", "JSON"),
    ("truncated", "JSON"),
    ("out of range", "a number that is not too large"),
)
_WORDS = (
    ("int", "a whole number"),
    ("float", "a number"),
    ("str", "a text"),
    ("bool", "true or false"),
    ("null", "null"),
    ("array", "a list"),
    ("object", "an object"),
    ("object | null", "an object, or null"),
    ("array | null", "a list, or null"),
    ("str | null", "a text, or null"),
    ("int | null", "a whole number, or null"),
    ("float | null", "a number, or null"),
)


def _at(given: Any, path: str) -> Any:
    """The part of a text of JSON, or of a value, that a path of msgspec names; all of it where there is none."""
    try:
        found = json.loads(given) if isinstance(given, str | bytes) else given
        for key, place in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", path):
            if place == "...":  # of some key, which msgspec does not tell
                break
            found = found[key] if key else found[int(place)]
    except (ValueError, RecursionError, LookupError, TypeError):
        return given
    return found


def _shown(value: Any) -> str:
    """A value, not too much of it."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
