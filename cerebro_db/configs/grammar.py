"""Reads the Python-like texts of grids and parameters without ever evaluating them."""

from __future__ import annotations

import ast
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

MAX_LENGTH = 64 * 1024
MAX_DEPTH = 32
MAX_INTEGER = 2**63 - 1
_SHOWN = 80
# Values that are a word without quotes.
_WORDS = re.compile(r"=\s*([a-z]+)\s*(?=[,)\]}]|$)")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_PUNCTUATION = frozenset("_.,:=()[]{}+- \t\r\n")


@dataclass(frozen=True, repr=False)
class Call:
    """A name with arguments, such as ``Adam(0.1, beta_1=0.8)`` or just ``Adam``.

    Attributes:
        arguments: those with a name.
        values: those without, which come first.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    values: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        """The text that it came from, so that it can be written back and parsed again."""
        named = [f"{key}={value!r}" for key, value in self.arguments]
        return f"{self.name}({', '.join([*map(repr, self.values), *named])})"


def parse_dict(text: str, what: str) -> dict[str, Any]:
    """Parses a grid: a dictionary with texts as keys."""
    body = _expression(text, what)
    if not isinstance(body, ast.Dict):
        raise _refused(what, text, "a dictionary such as {'batch_size': [32, 64]}")
    value = _value(body, what, 0)
    wrong = [key for key in value if not isinstance(key, str)]
    if wrong:
        raise InvalidArgument(f"{what}: got the key {shown(wrong[0])}; keys must be quoted names")
    return dict(value)


def parse_keywords(text: str, what: str) -> dict[str, Any]:
    """Parses a parameter string such as ``batch_size=16,epochs=1``."""
    # The text becomes the arguments of a call only so that Python's parser accepts it.
    body = _expression(f"f({_checked(text, what)}\n)", what, original=text)
    if not isinstance(body, ast.Call) or not isinstance(body.func, ast.Name):
        raise _refused(what, text, "name=value pairs separated by commas")
    if body.args:
        raise _without_name(_shown(body.args[0]), what)
    return dict(_arguments(body, what, 0))


def parse_call(text: str, what: str) -> Call:
    """Parses the text of an optimizer, a loss or a metric: a name, perhaps with arguments."""
    call = _value(_expression(text, what), what, 0)
    if not isinstance(call, Call):
        raise _refused(what, text, "a name, or a name with arguments such as Adam(lr=0.1)")
    return call


def parse_names(text: str, what: str) -> list[Call]:
    """Parses names separated by commas, some perhaps with arguments or in quotes."""
    body = _expression(f"[{_checked(text, what)}\n]", what, original=text)
    found = _value(body, what, 0) if isinstance(body, ast.List) else None
    names = [Call(one) if isinstance(one, str) and one else one for one in found or ()]
    if not names or not all(isinstance(one, Call) for one in names):
        raise _refused(what, text, "names separated by commas")
    return names


def renamed(text: str, what: str, keys: Sequence[str], rename: Callable[[str, str], str]) -> str:
    """A parameter string, or a grid, with other names at some of its keys; all else stays as it is written.

    Args:
        text: of keywords, or of a dictionary, in which dictionaries in lists are grids of the same keys.
        what: for messages.
        keys: under which names stand, alone, in lists, or in dictionaries by output.
        rename: gets a key and a name there, and returns the name to write.
    """
    is_grid = _checked(text, what).lstrip().startswith("{")
    source = text.strip() if is_grid else f"f({text}\n)"
    lines = source.encode().splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    found: list[tuple[int, int, str]] = []
    for key, node in _at_keys(_expression(source, what, original=text), keys):
        name = str(node.value) if isinstance(node, ast.Constant) else node.id
        if (new := rename(key, name)) != name:
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
            found.append((first, last, repr(new) if isinstance(node, ast.Constant) else new))
    written = source.encode()
    for first, last, new in sorted(found, reverse=True):
        written = written[:first] + new.encode() + written[last:]
    return written.decode() if is_grid else written.decode()[len("f(") : -len("\n)")]


def _at_keys(
    node: ast.expr | None, keys: Sequence[str]
) -> Iterator[tuple[str, ast.Constant | ast.Name]]:
    """The names under some keys of keywords or of a dictionary, and of the dictionaries in its lists."""
    pairs: Iterable[tuple[Any, ast.expr]] = ()
    if isinstance(node, ast.Call):
        pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
    elif isinstance(node, ast.Dict):
        pairs = [
            (getattr(key, "value", None), value)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
    for key, value in pairs:
        if key in keys:
            yield from ((str(key), one) for one in _names(value))
        elif isinstance(value, ast.List | ast.Tuple):
            for element in value.elts:
                if isinstance(element, ast.Dict):
                    yield from _at_keys(element, keys)


def _names(node: ast.expr) -> Iterator[ast.Constant | ast.Name]:
    """Names without arguments: in quotes or not, in lists, as values of dictionaries."""
    if isinstance(node, ast.List | ast.Tuple):
        yield from itertools.chain.from_iterable(map(_names, node.elts))
    elif isinstance(node, ast.Dict):
        yield from itertools.chain.from_iterable(map(_names, node.values))
    elif isinstance(node, ast.Name) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    ):
        yield node


def call_of(value: object, kind: str, what: str) -> Call:
    """A call, or what its text says."""
    if isinstance(value, Call):
        return value
    if isinstance(value, str):
        return parse_call(value, f"{what}: {kind}")
    raise InvalidArgument(f"{what}: got the {kind} {shown(value)}; it must be one name")


def named_values(call: Call, places: tuple[str, ...], what: str) -> dict[str, Any]:
    """The arguments of a call by name.

    Args:
        call: whose.
        places: names of those that may be given without one, in their order.
        what: for messages.
    """
    if len(call.values) > len(places):
        raise _without_name(repr(call.values[len(places)]), what)
    found = dict(zip(places, call.values, strict=False))
    for name, value in call.arguments:
        if name in found:
            raise InvalidArgument(f"{what}: got {name!r} twice, once without its name")
        found[name] = value
    return found


def _without_name(value: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"{what}: got the value {value} without a name; write name=value")


def _expression(text: str, what: str, original: str | None = None) -> ast.expr:
    given = text if original is None else original
    source = _checked(text, what).strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser warns about texts such as "1or 2"
            body = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        word = next((one for one in _WORDS.findall(given) if iskeyword(one)), None)
        quoted = "" if word is None else f"; {word} is a keyword of Python, which only quotes allow"
        raise _refused(what, given, f"Python-like literals{quoted}") from error
    for node in ast.walk(body):
        if isinstance(node, ast.Constant) and node.value == math.inf:
            node.kind = source  # the value does not tell how it was written
    return body


def _checked(text: object, what: str) -> str:
    """Refuses what could harm or confuse the parser before it sees the text."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{what}: got {_kind(text)}; it must be a text")
    if len(text) > MAX_LENGTH:
        raise InvalidArgument(
            f"{what}: got a text of {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    _check_characters(text, what)
    return text


def _check_characters(text: str, what: str) -> None:
    quote, depth, signs = "", 0, 0
    for character in text:
        if character == "\\" or (character < " " and character not in "\t\r\n"):
            raise InvalidArgument(f"{what}: got the character {character!r}, which is not allowed")
        if quote:
            quote = "" if character == quote else quote
            continue
        if character in "'\"":
            quote = character
            continue
        if not (character.isalnum() and character.isascii()) and character not in _PUNCTUATION:
            raise InvalidArgument(
                f"{what}: got the character {character!r} outside quotes; allowed are names, "
                "numbers, quoted texts, lists, tuples, dictionaries and calls"
            )
        depth += _BRACKETS.get(character, 0)
        signs = signs + 1 if character in "+-" else signs * character.isspace()
        if depth > MAX_DEPTH or signs > 2:
            raise InvalidArgument(f"{what}: nested deeper than the {MAX_DEPTH} levels allowed")


def _value(node: ast.expr, what: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"{what}: nested deeper than the {MAX_DEPTH} levels allowed")
    reader = _READERS.get(type(node))
    if reader is None:
        raise InvalidArgument(
            f"{what}: got {_shown(node)}; allowed are numbers, quoted texts, True, False, None, "
            "lists, tuples, dictionaries and names with arguments"
        )
    return reader(node, what, depth)


def _constant(node: ast.Constant, what: str, depth: int) -> Any:
    value = node.value
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise InvalidArgument(
        f"{what}: got {_written(node)}; allowed are whole numbers of 64 bits, finite decimal "
        "numbers, quoted texts, True, False and None"
    )


def _minus(node: ast.UnaryOp, what: str, depth: int) -> Any:
    value = _value(node.operand, what, depth + 1)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not isinstance(node.op, ast.USub | ast.UAdd):
        raise InvalidArgument(f"{what}: got {_shown(node)}; only a number may have a sign")
    return -value if isinstance(node.op, ast.USub) else value


def _list(node: ast.List, what: str, depth: int) -> list[Any]:
    return [_value(element, what, depth + 1) for element in node.elts]


def _tuple(node: ast.Tuple, what: str, depth: int) -> tuple[Any, ...]:
    return tuple(_value(element, what, depth + 1) for element in node.elts)


def _dict(node: ast.Dict, what: str, depth: int) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        key = None if key_node is None else _value(key_node, what, depth + 1)
        if not isinstance(key, str | int):
            raise InvalidArgument(f"{what}: a key of a dictionary must be a text or a number")
        if key in result:
            raise InvalidArgument(f"{what}: the key {shown(key)} is given twice")
        result[key] = _value(value_node, what, depth + 1)
    return result


def _call(node: ast.Call, what: str, depth: int) -> Call:
    values = tuple(_value(element, what, depth + 1) for element in node.args)
    return Call(_dotted(node.func, what), _arguments(node, what, depth), values)


def _name(node: ast.Name | ast.Attribute, what: str, depth: int) -> Call:
    return Call(_dotted(node, what))


def _dotted(node: ast.expr, what: str) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or len(parts) > MAX_DEPTH:
        raise InvalidArgument(f"{what}: only a plain name such as Adam can have arguments")
    return ".".join([node.id, *reversed(parts)])


def _arguments(node: ast.Call, what: str, depth: int) -> tuple[tuple[str, Any], ...]:
    result: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in result:
            raise InvalidArgument(f"{what}: got the parameter {shown(keyword.arg)} twice")
        result[keyword.arg] = _value(keyword.value, what, depth + 1)
    return tuple(result.items())


_READERS: dict[type[ast.expr], Callable[[Any, str, int], Any]] = {
    ast.Constant: _constant,
    ast.UnaryOp: _minus,
    ast.List: _list,
    ast.Tuple: _tuple,
    ast.Dict: _dict,
    ast.Call: _call,
    ast.Name: _name,
    ast.Attribute: _name,
}


def _written(node: ast.Constant) -> str:
    """A constant as it was given, also where it is beyond what a number can be."""
    found = (
        ast.get_source_segment(node.kind, node) if node.value == math.inf and node.kind else None
    )
    return _shown(node) if found is None else found[:_SHOWN]


def _shown(node: ast.expr) -> str:
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError, MemoryError):
        return f"an expression of kind {type(node).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _kind(value: object) -> str:
    return "NULL" if value is None else f"a value of type {type(value).__name__}"


def _refused(what: str, text: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{what}: got {shown(text)}; it must be {allowed}")
