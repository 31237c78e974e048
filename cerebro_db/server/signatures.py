"""SQL functions of this package as their declarations in ``sql/objects`` say: arguments, and the entries that they call.

The text that an installation is made of is read, and not the server: that would need a statement, in a session whose
transaction may have failed, and which on some servers may run none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cerebro_db.install.sources import sql_directory, udfs_directory

_DEFINITION = re.compile(
    r"^CREATE OR REPLACE FUNCTION cerebro\.(\w+)\((.*?)\)\s*(?=RETURNS|LANGUAGE)(.*?)(?=^CREATE |\Z)",
    re.M | re.S,
)
_OUTPUT = re.compile(r",?\s*OUT [^,]*")
_COMMA = re.compile(r", ?(?![^(\[]*[)\]])")
_ARGUMENT = re.compile(r"(\w+) (.+?)(?: DEFAULT (.+))?")
_BODY = re.compile(r"\{\{ udf\('(\w+)'\) \}\}")
_CALLED = re.compile(r"cerebro\.(_\w+)\(")
_ENTRY = re.compile(r'relay\.(?:driver|trainer)\(\s*"([\w.]+)"')


@dataclass(frozen=True)
class Argument:
    """An argument of a function.

    Attributes:
        text: as it is declared.
        default: SQL of it; None where the argument must be given.
    """

    name: str
    type: str
    text: str
    default: str | None


@dataclass(frozen=True)
class Signature:
    """One function of a name.

    Attributes:
        arguments: by name, in their order.
        entry: module and function below ``cerebro_db.server``, such as ``packing.pack``; None where none is called.
        is_immutable: whether it depends on nothing but its arguments.
    """

    arguments: Mapping[str, Argument]
    entry: str | None
    is_immutable: bool


@functools.cache
def signatures() -> Mapping[str, tuple[Signature, ...]]:
    """The functions by name; empty where the folder of the SQL has gone since."""
    try:
        texts = [
            path.read_text("utf-8") for path in sorted((sql_directory() / "objects").glob("*"))
        ]
        bodies = udfs_directory()
    except (OSError, StopIteration):
        return {}
    definitions = _DEFINITION.findall("\n".join(texts))
    entries = {name: _entry(rest, bodies) for name, _, rest in definitions if name.startswith("_")}
    found: dict[str, tuple[Signature, ...]] = {}
    for name, arguments, rest in definitions:
        entry = _entry(rest, bodies) or _entry_of_called(rest, entries)
        signature = Signature(_arguments(arguments), entry, " IMMUTABLE " in rest)
        found[name] = (*found.get(name, ()), signature)
    return found


def _arguments(text: str) -> Mapping[str, Argument]:
    shown = [one for one in _COMMA.split(" ".join(_OUTPUT.sub("", text).split())) if one]
    matches = [(one, _ARGUMENT.fullmatch(one)) for one in shown]
    return {
        match[1]: Argument(match[1], match[2], one, match[3])
        for one, match in matches
        if match is not None
    }


def _entry(rest: str, bodies: Path) -> str | None:
    """The entry that the body of a function calls."""
    body = _BODY.search(rest)
    try:
        text = (bodies / f"{body[1]}.py").read_text("utf-8") if body else ""
    except OSError:
        return None
    found = _ENTRY.search(text)
    return found[1] if found else None


def _entry_of_called(rest: str, entries: Mapping[str, str | None]) -> str | None:
    """The entry of the first internal function that a function of plain SQL calls."""
    if "LANGUAGE sql" not in rest:
        return None
    return next((entries[name] for name in _CALLED.findall(rest) if entries.get(name)), None)
