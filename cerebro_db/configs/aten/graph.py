"""Graph of an exported program: what its JSON says, as values, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.messages import shown
from cerebro_db.wire import Wire

FRAMEWORK = "torch"
FORMAT = 1
TRAIN, EVAL = "train", "eval"
# Numbers of types in the schema of torch.export, and their names; those of weights come first.
DTYPES: Mapping[int, str] = {
    7: "float32", 8: "float64", 6: "float16", 5: "int64", 4: "int32", 1: "uint8", 12: "bool",
    2: "int8", 3: "int16", 13: "bfloat16",
}  # fmt: skip
FLOATS = frozenset(["float16", "float32", "float64", "bfloat16"])
BYTES: Mapping[str, int] = {
    "float32": 4, "float64": 8, "float16": 2, "int64": 8, "int32": 4, "uint8": 1, "bool": 1,
    "int8": 1, "int16": 2, "bfloat16": 2,
}  # fmt: skip
_LONGEST = 200


class Entry(Wire, frozen=True):
    """A weight, a buffer, or an input."""

    name: str
    shape: list[int]
    dtype: str
    trainable: bool = True
    persistent: bool = True


class Constant(Wire, frozen=True):
    """A tensor that belongs to the graph; ``data`` is base64 of its little-endian numbers."""

    dtype: str
    shape: list[int]
    data: str


class Architecture(Wire, frozen=True):
    """An exported program, as the architecture table has it.

    Attributes:
        train, evaluation: parts of an archive's ``models/*.json``; without the second one, the first serves both.
        mode: of the module when ``train`` was exported.
        parameters, buffers: in the order of their numbers in the weights.
        shared: names of further parameters and buffers, each with the one that it is.
        constants: by name.
        outputs: names, in their order.
    """

    framework: str
    format: int
    train: dict[str, Any]
    mode: str
    parameters: list[Entry]
    buffers: list[Entry]
    inputs: list[Entry]
    outputs: list[str]
    evaluation: dict[str, Any] | None = msgspec.field(default=None, name="eval")
    shared: dict[str, str] = msgspec.field(default_factory=dict)
    constants: dict[str, Constant] = msgspec.field(default_factory=dict)
    torch_version: str = ""
    schema: list[int] = msgspec.field(default_factory=list)
    opset: dict[str, int] = msgspec.field(default_factory=dict)


class Reference(NamedTuple):
    """A value of the graph, by its name."""

    name: str


class Dtype(NamedTuple):
    """A type of numbers."""

    name: str


class MemoryFormat(NamedTuple):
    """Order of a tensor's dimensions in memory."""

    name: str


class Argument(NamedTuple):
    """An argument of an operation: constants are plain values; references may be in a list."""

    name: str
    value: Any
    by_name: bool


class Node(NamedTuple):
    """A step of a graph.

    Attributes:
        target: such as ``torch.ops.aten.linear.default``.
        arguments: in their order.
        outputs: names, or lists of names; None for what is no value.
    """

    target: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Any, ...]

    def value(self, name: str, place: int) -> Any:
        """An argument by its name or place; None where it is not given."""
        for number, argument in enumerate(self.arguments):
            if argument.name == name or (not argument.name and number == place):
                return argument.value
        return None


class Graph(NamedTuple):
    """Steps with what goes in and out.

    Attributes:
        nodes: in their order.
        sources: kind and name (``parameter``, ``buffer``, ``constant``, ``input``, ``none``) by name of a value.
        inputs: names of the values that are a batch, in their order.
        outputs: names of the values that come out.
        updates: names of values that become buffers, each with the buffer.
        sizes: the declared dtype and sizes of tensors; None for a size that depends on the batch.
        ranges: least and largest value of each symbol.
        batch: expressions of the sizes of the inputs along the rows.
        guards: texts of conditions.
    """

    nodes: tuple[Node, ...]
    sources: dict[str, tuple[str, str]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updates: tuple[tuple[str, str], ...]
    sizes: dict[str, tuple[str, tuple[int | None, ...]]]
    ranges: tuple[tuple[int | None, int | None], ...]
    batch: tuple[str, ...]
    guards: tuple[str, ...]


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """An architecture from its JSON; the graphs in it are not read."""
    try:
        found = msgspec.convert(dict(config), Architecture)
    except (msgspec.MsgspecError, RecursionError) as error:
        refuse(f"got JSON that is no exported program of PyTorch: {str(error)[:_LONGEST]}")
    if found.framework != FRAMEWORK or found.format != FORMAT:
        refuse(
            f"got framework {shown(found.framework)} and format {found.format}; "
            f"allowed: {FRAMEWORK!r} and {FORMAT}"
        )
    if found.mode not in (TRAIN, EVAL):
        refuse(f"got mode {shown(found.mode)}; allowed: {TRAIN!r} or {EVAL!r}")
    return found
