"""Losses, metrics and activations as expressions: read, checked, never run as Python.

An expression is arithmetic on tensors: ``K.mean(K.square(y_true - y_pred), axis=-1)``. Python's parser reads
it, and what it found is walked over: a node that is not on the list here refuses the whole text.
What comes out is a tree of calls, which a worker computes with the operations of Keras.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from cerebro_db.configs.arguments import Argument, Declaration, is_number, is_whole, nearest
from cerebro_db.configs.functions.expression_functions import FAMILIES, TENSOR, TENSORS
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

LONGEST = 4000
MOST_NODES = 500
DEEPEST = 40
_MOST_AXES = 32
_SHOWN = 80
_MOST_SIGNS = 3
# Their names decide what an expression is for.
OF_LOSSES = ("y_true", "y_pred")
OF_ACTIVATIONS = ("x",)
_NAMES = {"pi": math.pi, "e": math.e}


class Number(Struct, frozen=True):
    """A number."""

    value: float | int


class Name(Struct, frozen=True):
    """A parameter, or what an earlier line has named."""

    name: str


class Apply(Struct, frozen=True):
    """A call: of tensors, and of constants by name."""

    operation: str
    tensors: tuple[Node, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    listed: bool = False


class Index(Struct, frozen=True):
    """Parts of a tensor: whole numbers, slices as three of them, None for a new axis, ... for the rest."""

    of: Node
    keys: tuple[Any, ...]


Node = Number | Name | Apply | Index


class Expression(Struct, frozen=True):
    """A checked expression.

    Attributes:
        text: as it was written.
        parameters: names of its parameters, in their order.
        steps: what is computed, with the name of each; the last one is the result.
    """

    text: str
    parameters: tuple[str, ...]
    steps: tuple[tuple[str, Node], ...]

    @property
    def places(self) -> int:
        """Number of tensors that it takes: two of a loss or metric, one of an activation."""
        return len(self.parameters)


def parse_expression(text: str | None, what: str = "expression") -> Expression:
    """Read an expression.

    It is one expression, or lines that name what the last one uses: ``d = y_true - y_pred``. A function
    around it, with ``return``, and the imports in it are understood: its parameters are then
    those of the expression.

    Args:
        text: of at most ``LONGEST`` characters.
        what: for messages.

    Raises:
        InvalidArgument: it is none, is too large, or has something in it that is not allowed.
    """
    if text is None:
        raise InvalidArgument(f"{what}: got NULL; allowed: {_ALLOWED}")
    if len(text) > LONGEST:
        raise InvalidArgument(
            f"{what}: got a text of {len(text)} characters; at most {LONGEST} are allowed"
        )
    return _Reader(text, what).read()


_ALLOWED = "an expression of y_true and y_pred, or of x for an activation, such as 'square(y_true - y_pred)'"


class _Reader:
    """Reads one text."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._known: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._used: list[str] = []
        self._nodes = 0

    def read(self) -> Expression:
        lines = self._without_imports(_lines(self._text, self._what))
        parameters = self._head(lines[0]) if lines else None
        if parameters is not None:
            lines = self._without_imports(lines[2 if _is_text(lines[1:2]) else 1 :])
        if not lines:
            raise self._refuse(None)
        self._known = {name: name for name in parameters or (*OF_LOSSES, *OF_ACTIVATIONS)}
        steps = [self._named(line) for line in lines[:-1]]
        steps.append(("", self._line(_RETURN.sub("", lines[-1]))))
        found = parameters or self._parameters()
        if found[-1] not in self._used:
            raise self._refuse(None, f"it must use {found[-1]}")
        return Expression(self._text, found, tuple(steps))

    def _refuse(self, node: ast.AST | str | None, why: str = "") -> InvalidArgument:
        got = _source(node) if isinstance(node, ast.AST) else shown(node or self._text)
        return InvalidArgument(
            f"{self._what}: got {got}; {why or f'allowed: {_ALLOWED}'}",
            hint="arithmetic, comparisons, indices and the functions that docs/sql/configurations.md lists under Expressions",
        )

    def _head(self, line: str) -> tuple[str, ...] | None:
        """The parameters of the function that a text begins with, if it does."""
        found = _HEAD.fullmatch(line)
        if found is None:
            return None
        names = tuple(name.strip() for name in found[1].split(","))
        if len(names) not in (1, 2) or len(set(names)) < len(names) or not all(names):
            raise self._refuse(line, "allowed: a function of y_true and y_pred, or of x")
        return names

    def _without_imports(self, lines: list[str]) -> list[str]:
        """Imports are not done: they only tell what a module is called."""
        rest = []
        for line in lines:
            found = _IMPORT.fullmatch(line)
            if found is None:
                rest.append(line)
                continue
            before = f"{found[1]}." if found[1] else ""
            self._import(line, before + found[2], found[3] or found[2])
        return rest

    def _import(self, line: str, module: str, name: str) -> None:
        plain = module.replace("tensorflow.python.", "tensorflow.").replace("tensorflow", "tf")
        if plain not in FAMILIES and plain not in ("keras", "tf.keras"):
            allowed = sorted(one for one in FAMILIES if "." in one)
            raise self._refuse(line, f"allowed: {', '.join(allowed)}, tensorflow")
        self._prefixes[name] = plain

    def _parameters(self) -> tuple[str, ...]:
        """The parameters of an expression that names none: those that it uses."""
        of_losses = any(name in self._used for name in OF_LOSSES)
        of_activations = any(name in self._used for name in OF_ACTIVATIONS)
        if of_losses == of_activations:
            raise self._refuse(None)
        return OF_LOSSES if of_losses else OF_ACTIVATIONS

    def _named(self, line: str) -> tuple[str, Node]:
        """A line before the last one."""
        found = _ASSIGNMENT.fullmatch(line)
        if found is None or keyword.iskeyword(found[1]):
            raise self._refuse(line, "allowed: name = expression, and the result last")
        name, node = found[1], self._line(found[2])
        inner = f"{name}'{len(self._known)}" if name in self._known else name
        self._known[name] = inner
        return inner, node

    def _line(self, text: str) -> Node:
        return self._node(_parsed(text, self._what), 0)

    # -- nodes -------------------------------------------------------------------
    def _node(self, node: ast.expr, depth: int) -> Node:
        self._nodes += 1
        if depth > DEEPEST or self._nodes > MOST_NODES:
            raise self._refuse(
                None, f"at most {MOST_NODES} parts, nested {DEEPEST} deep, are allowed"
            )
        reader = _NODES.get(type(node))
        if reader is None:
            raise self._refuse(node)
        return reader(self, node, depth + 1)

    def _constant(self, node: ast.Constant, depth: int) -> Node:
        value = node.value
        if not is_number(value):
            raise self._refuse(node, "allowed here: numbers")
        return Number(value)  # type: ignore[arg-type]

    def _name(self, node: ast.Name, depth: int) -> Node:
        if node.id in self._known:
            self._used.append(node.id)
            return Name(self._known[node.id])
        if node.id in _NAMES:
            return Number(_NAMES[node.id])
        raise self._refuse(
            node, f"allowed: {', '.join(self._known)}, and what an earlier line names"
        )

    def _unary(self, node: ast.UnaryOp, depth: int) -> Node:
        of = self._node(node.operand, depth)
        if isinstance(node.op, ast.UAdd):
            return of
        if isinstance(node.op, ast.USub):
            return Number(-of.value) if isinstance(of, Number) else Apply("negative", (of,))
        if isinstance(node.op, ast.Invert):
            return Apply("logical_not", (of,))
        raise self._refuse(node, "not is written ~ or logical_not(...)")

    def _binary(self, node: ast.BinOp, depth: int) -> Node:
        if type(node.op) not in _BINARY:
            raise self._refuse(node, "allowed: + - * / ** @ & | and comparisons")
        name, fold = _BINARY[type(node.op)]
        left, right = self._node(node.left, depth), self._node(node.right, depth)
        if fold and isinstance(left, Number) and isinstance(right, Number):
            return self._folded(node, fold, left.value, right.value)
        return Apply(name, (left, right))

    def _folded(
        self, node: ast.BinOp, fold: Callable[[Any, Any], Any], left: float, right: float
    ) -> Node:
        """A number from two, computed as Python computes it."""
        try:
            value = fold(left, right)
        except (ArithmeticError, ValueError):
            value = math.inf
        if not is_number(value):
            raise self._refuse(node, "allowed: what is a finite number")
        return Number(value)

    def _compare(self, node: ast.Compare, depth: int) -> Node:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            raise self._refuse(node, "allowed: one comparison by < <= > >= == or !=")
        left, right = self._node(node.left, depth), self._node(node.comparators[0], depth)
        return Apply(_COMPARE[type(node.ops[0])], (left, right))

    def _subscript(self, node: ast.Subscript, depth: int) -> Node:
        of = self._node(node.value, depth)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) > _MOST_AXES:
            raise self._refuse(node)
        return Index(of, tuple(self._key(part) for part in parts))

    def _key(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            return tuple(
                None if one is None else self._whole(one)
                for one in (node.lower, node.upper, node.step)
            )
        if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
            return node.value
        return self._whole(node)

    def _whole(self, node: ast.expr) -> int:
        value = _literal(node)
        if not is_whole(value):
            raise self._refuse(node, "allowed in an index: whole numbers, slices, None and ...")
        return int(value)

    # -- calls -------------------------------------------------------------------
    def _call(self, node: ast.Call, depth: int) -> Node:
        function = self._known_function(node)
        if any(one.arg is None for one in node.keywords) or any(
            isinstance(one, ast.Starred) for one in node.args
        ):
            raise self._refuse(node, "allowed: arguments one by one")
        given = self._bound(function, node)
        tensors: list[Node] = []
        constants: list[tuple[str, Any]] = []
        listed = False
        for parameter in function.arguments:
            value = given.get(parameter.name)
            if parameter.kind is TENSORS:
                assert value is not None
                tensors += [self._node(one, depth) for one in self._listed(value)]
                listed = True
            elif parameter.kind is TENSOR:
                if value is not None:
                    tensors.append(self._node(value, depth))
            else:
                found = parameter.default if value is None else self._checked(parameter, value)
                constants.append((parameter.name, found))
        tensors += [self._node(one, depth) for one in node.args[len(function.arguments) :]]
        return Apply(function.name, tuple(tensors), tuple(constants), listed)

    def _known_function(self, node: ast.Call) -> Declaration:
        name = _dotted(node.func)
        if name is None:
            raise self._refuse(node, "allowed: calls of functions by their names")
        prefix, _, bare = name.rpartition(".")
        functions = FAMILIES.get(self._prefix(prefix))
        if functions is None or bare not in functions:
            known = FAMILIES[""] if functions is None else functions
            raise InvalidArgument(
                f"{self._what}: got the function {name[:_SHOWN]!r}, which is not allowed",
                hint=f"{nearest(bare[:_SHOWN], known)} docs/sql/configurations.md lists all under Expressions",
            )
        return functions[bare]

    def _prefix(self, prefix: str) -> str:
        """The module that a name is of, by the imports that were written."""
        head, _, rest = prefix.partition(".")
        if prefix in self._prefixes:
            return self._prefixes[prefix]
        if head in self._prefixes:
            return ".".join(filter(None, (self._prefixes[head], rest)))
        return prefix.replace("tensorflow.", "tf.")

    def _bound(self, function: Declaration, node: ast.Call) -> Mapping[str, ast.expr]:
        """The arguments of a call by the names of parameters."""
        names = [parameter.name for parameter in function.arguments]
        if len(node.args) > len(names) and not function.open_ended:
            raise self._refuse(node, f"allowed arguments: {', '.join(names) or 'none'}")
        given = dict(zip(names, node.args, strict=False))
        for one in node.keywords:
            assert one.arg is not None
            if one.arg not in names or one.arg in given:
                raise self._refuse(node, f"allowed arguments, each once: {', '.join(names)}")
            given[one.arg] = one.value
        for parameter in function.arguments:
            if parameter.required and parameter.name not in given:
                raise self._refuse(node, f"it lacks the argument {parameter.name}")
        return given

    def _listed(self, node: ast.expr) -> list[ast.expr]:
        if not isinstance(node, ast.List | ast.Tuple) or not node.elts:
            raise self._refuse(node, "allowed: a list of tensors")
        return node.elts

    def _checked(self, parameter: Argument, node: ast.expr) -> Any:
        value = _dtype_name(node) if parameter.name == "dtype" else _literal(node)
        try:
            parameter.kind.read(value)
        except ValueError:
            raise self._refuse(node, f"{parameter.name} must be {parameter.kind.words}") from None
        return value


# -- literals --------------------------------------------------------------------
_NONE_SUCH = object()


def _literal(node: ast.expr) -> Any:
    """A constant, a signed number, or a flat list or tuple of whole numbers."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return -value if number else _NONE_SUCH
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) <= _MOST_AXES:
        values = [_literal(one) for one in node.elts]
        return tuple(values) if all(map(is_whole, values)) else _NONE_SUCH
    return _NONE_SUCH


def _dtype_name(node: ast.expr) -> Any:
    """The name of a type: a text, or one such as ``tf.float32``."""
    name = _dotted(node)
    return _literal(node) if name is None else name.rpartition(".")[2]


def _power(left: float, right: float) -> float:
    return left * left if right == 2 else math.pow(left, right)


_BINARY: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any] | None]] = (
    MappingProxyType(
        {
            ast.Add: ("add", operator.add),
            ast.Sub: ("subtract", operator.sub),
            ast.Mult: ("multiply", operator.mul),
            ast.Div: ("divide", operator.truediv),
            ast.Pow: ("power", _power),
            ast.MatMult: ("matmul", None),
            ast.BitAnd: ("logical_and", None),
            ast.BitOr: ("logical_or", None),
        }
    )
)
_COMPARE: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {
        ast.Lt: "less",
        ast.LtE: "less_equal",
        ast.Gt: "greater",
        ast.GtE: "greater_equal",
        ast.Eq: "equal",
        ast.NotEq: "not_equal",
    }
)
_NODES: Mapping[type[ast.expr], Callable[[_Reader, Any, int], Node]] = MappingProxyType(
    {
        ast.BinOp: _Reader._binary,
        ast.Call: _Reader._call,
        ast.Compare: _Reader._compare,
        ast.Constant: _Reader._constant,
        ast.Name: _Reader._name,
        ast.Subscript: _Reader._subscript,
        ast.UnaryOp: _Reader._unary,
    }
)


# -- parsing ---------------------------------------------------------------------
_HEAD = re.compile(r"def\s+[A-Za-z_]\w*\s*\(([\w\s,]*)\)\s*:", re.ASCII)
_MODULE = r"[A-Za-z_][\w.]*"
_IMPORT = re.compile(
    rf"(?:from\s+({_MODULE})\s+)?import\s+({_MODULE})(?:\s+as\s+([A-Za-z_]\w*))?", re.ASCII
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.+)", re.ASCII | re.DOTALL)
_RETURN = re.compile(r"^return\b\s*")
_QUOTES = ('"""', "'''", '"', "'")


def _lines(text: str, what: str) -> list[str]:
    """The lines of a text: what is in brackets or quotes is one; without comments and empty ones."""
    _check_characters(text, what)
    lines, line, quote, depth, place = [], "", "", 0, 0
    while place < len(text):
        piece = text[place]
        if quote:
            piece = quote if text.startswith(quote, place) else piece
            quote = "" if piece == quote else quote
        elif piece in "\"'":
            quote = piece = next(one for one in _QUOTES if text.startswith(one, place))
        elif piece == "#":
            piece = text[place:].partition("\n")[0]
        place += len(piece)
        depth += 0 if quote else _BRACKETS.get(piece, 0)
        if not quote and depth <= 0 and (piece in "\n;" or _opens_body(line + piece)):
            lines.append(line + piece.strip("\n;"))
            line = ""
        elif not piece.startswith("#"):
            line += piece
    return [one.strip() for one in (*lines, line) if one.strip()]


_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def _opens_body(line: str) -> bool:
    return line.endswith(":") and _HEAD.fullmatch(line.strip()) is not None


def _is_text(lines: list[str]) -> bool:
    """True for the text that describes a function."""
    return bool(lines) and lines[0][0] in "\"'"


def _parsed(text: str, what: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        raise InvalidArgument(f"{what}: got {shown(text)}; allowed: {_ALLOWED}") from None


def _check_characters(text: str, what: str) -> None:
    """Refuse what is no part of an expression, and what the parser would go too deep for."""
    depth, signs = 0, 0
    for character in text:
        if character == "\\" or (character < " " and character not in "\t\r\n"):
            raise InvalidArgument(f"{what}: got the character {character!r}, which is not allowed")
        depth += _BRACKETS.get(character, 0)
        signs = signs + 1 if character in "+-~" else signs * character.isspace()
        if depth > DEEPEST or signs > _MOST_SIGNS:
            raise InvalidArgument(
                f"{what}: got {shown(text)}; nested deeper than the {DEEPEST} levels allowed"
            )


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < DEEPEST:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _source(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError, MemoryError):
        return f"an expression of kind {type(node).__name__}"
    return shown(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def names_in(expression: Expression) -> Iterator[str]:
    """The operations that an expression is made of."""

    def within(node: Node) -> Iterator[str]:
        if isinstance(node, Apply):
            yield node.operation
            for one in node.tensors:
                yield from within(one)
        elif isinstance(node, Index):
            yield from within(node.of)

    for _, node in expression.steps:
        yield from within(node)
