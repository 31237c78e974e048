"""The SQL that makes the functions that are declared, for the templates of ``sql/objects``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cerebro_db.requests import FUNCTIONS
from cerebro_db.requests.declared import Argument, Function


def created(name: str, quoted: Callable[[str], str]) -> str:
    """The statements that make the functions of a name, and say what each does.

    Args:
        name: of the functions.
        quoted: makes the body of a function of its Python.
    """
    found = []
    for function in FUNCTIONS[name]:
        rest = f" LANGUAGE plpython3u {function.volatility}".rstrip()
        comments = [function.comment, *(one.comment for one in function.overloads)]
        for arguments, comment in zip(function.signatures, comments, strict=True):
            body = quoted(body_of(function))
            found.append(f"{_head(function, arguments)}{rest} AS {body};")
            found.append(_comment(function, arguments, comment))
    return "\n".join(found)


def variants(name: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Of each signature of a function whose body is SQL: its head, the types of its arguments, and the COMMENT."""
    (function,) = FUNCTIONS[name]
    comments = [function.comment, *(one.comment for one in function.overloads)]
    return [
        (_head(function, one), tuple(each.type for each in one), _comment(function, one, text))
        for one, text in zip(function.signatures, comments, strict=True)
    ]


def head(name: str) -> str:
    """The beginning of the statement that makes a function whose body is SQL, up to what it returns."""
    (function,) = FUNCTIONS[name]
    return _head(function, function.signatures[0])


def comment(name: str) -> str:
    """The statement that says what such a function does."""
    (function,) = FUNCTIONS[name]
    return _comment(function, function.signatures[0], function.comment)


def body_of(function: Function) -> str:
    """The Python of a function: it hands its arguments by name to its entry."""
    if function.body:
        return function.body
    given = (f"{name}={name}" for name in function.arguments)
    return f'return relay.{function.by}("{function.entry}", dict({", ".join(given)}))'


def _head(function: Function, arguments: Sequence[Argument]) -> str:
    listed = [one.text for one in arguments]
    listed += [f"OUT {one}" for one in function.out.split(", ") if one]
    text = f"CREATE OR REPLACE FUNCTION cerebro.{function.name}({', '.join(listed)})"
    return f"{text}\nRETURNS {function.returns}" if function.returns else text


def _comment(function: Function, arguments: Sequence[Argument], text: str) -> str:
    types = ", ".join(one.type for one in arguments)
    quoted = text.replace("'", "''")
    return f"COMMENT ON FUNCTION cerebro.{function.name}({types}) IS\n'{quoted}';"
