"""Reading of a graph's JSON: each value as what it stands for, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.aten.graph import (
    DTYPES,
    Argument,
    Dtype,
    Graph,
    MemoryFormat,
    Node,
    Reference,
)
from cerebro_db.configs.messages import shown

_STRIDED = 7
_MEMORY_FORMATS = {
    1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format",
}  # fmt: skip
_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_LARGEST = 2**63 - 1
_OTHERS = {9: "complex32", 10: "complex64", 11: "complex128"}


def graph_of(part: Mapping[str, Any], limit: int) -> Graph:
    """A graph from the JSON of its part of an archive.

    Args:
        part: with ``graph``, ``signature``, ``range_constraints`` and ``guards_code``.
        limit: of the number of nodes.
    """
    try:
        return _Reader(part, limit).graph()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        refuse(
            f"got a graph that torch.export does not write: {type(error).__name__} {shown(str(error))}"
        )


class _Reader:
    """Reads one graph; what is not as it should be raises one of Python's errors."""

    def __init__(self, part: Mapping[str, Any], limit: int) -> None:
        self._part, self._limit = part, limit
        self._graph = _mapping(part["graph"])

    def graph(self) -> Graph:
        nodes = _list(self._graph["nodes"])
        if len(nodes) > self._limit:
            refuse(
                f"got a graph of {len(nodes)} operations; at most {self._limit} are allowed",
                "An administrator may raise the setting max_layers.",
            )
        values = _mapping(self._graph["tensor_values"])
        inputs, sources = self._sources()
        outputs, updates = self._results()
        return Graph(
            nodes=tuple(map(_node, nodes)),
            sources=sources,
            inputs=inputs,
            outputs=outputs,
            updates=updates,
            sizes={_text(name): _meta(meta) for name, meta in values.items()},
            ranges=tuple(map(_range, _mapping(self._part["range_constraints"]).values())),
            batch=tuple(_rows(values[name]) for name in inputs),
            guards=tuple(map(_text, _list(self._part.get("guards_code", [])))),
        )

    def _sources(self) -> tuple[tuple[str, ...], dict[str, tuple[str, str]]]:
        inputs, sources = [], {}
        for spec in _list(self._part["signature"]["input_specs"]):
            kind, value = _only(spec)
            if kind == "user_input":
                form, argument = _only(value["arg"])
                if form == "as_none":
                    continue
                if form != "as_tensor":
                    refuse(f"got an input of the kind {shown(form)}; allowed: tensors")
                name, source = argument["name"], ("input", argument["name"])
                inputs.append(_text(name))
            elif kind in _SOURCES:
                name, source = value["arg"]["name"], (_SOURCES[kind], value[f"{kind}_name"])
            elif kind == "constant_input":
                name, source = value["name"], ("none", "")
            else:
                refuse(
                    f"got an input of the kind {shown(kind)}; allowed: tensors, parameters and buffers"
                )
            if _text(name) in sources:
                raise ValueError(f"two inputs {name!r}")
            sources[name] = (source[0], _text(source[1]))
        return tuple(inputs), sources

    def _results(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        outputs, updates = [], []
        for spec in _list(self._part["signature"]["output_specs"]):
            kind, value = _only(spec)
            if kind == "user_output":
                form, argument = _only(value["arg"])
                if form != "as_tensor":
                    refuse(
                        f"got an output of the kind {shown(form)}; allowed: tensors",
                        "let the module's forward return only tensors",
                    )
                outputs.append(_text(argument["name"]))
            elif kind == "buffer_mutation":
                updates.append((_text(value["arg"]["name"]), _text(value["buffer_name"])))
            else:
                refuse(f"got the effect {shown(kind)}; allowed: changes of buffers")
        return tuple(outputs), tuple(updates)


_SOURCES = {"parameter": "parameter", "buffer": "buffer", "tensor_constant": "constant"}


def _node(node: Any) -> Node:
    target = _text(node["target"])
    arguments = []
    for one in _list(node["inputs"]):
        value = read_argument(one["arg"], target)
        arguments.append(Argument(_text(one["name"]), value, one.get("kind") == 2))
    return Node(target, tuple(arguments), tuple(map(_output, _list(node["outputs"]))))


def _output(value: Any) -> Any:
    form, given = _only(value)
    if form in ("as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"):
        return _text(given["name"] if form == "as_tensor" else given["as_name"])
    if form == "as_tensors":
        return [_text(one["name"]) for one in _list(given)]
    if form == "as_none":
        return None
    return refuse(f"got an operation with an output of the kind {shown(form)}; allowed: tensors")


def read_argument(value: Any, target: str) -> Any:
    """A value of an argument: a constant, a reference, or a list of such."""
    form, given = _only(value)
    reader = _READERS.get(form)
    if reader is None:
        refuse(
            f"got an argument of the kind {shown(form)} in {shown(target)}; allowed: {', '.join(_READERS)}"
        )
    return reader(given)


def _reference(given: Any) -> Reference:
    return Reference(_text(given["name"]))


def _symbolic(plain: str) -> Any:
    read = {"as_int": _int, "as_float": _float, "as_bool": _bool}[plain]

    def reader(given: Any) -> Any:
        form, value = _only(given)
        return Reference(_text(value)) if form == "as_name" else read(_same(form, plain, value))

    return reader


def _same(form: str, wanted: str, value: Any) -> Any:
    if form != wanted:
        raise ValueError(form)
    return value


def _optional(given: Any) -> Reference | None:
    form, value = _only(given)
    return None if form == "as_none" else _reference(_same(form, "as_tensor", value))


def _each(read: Any) -> Any:
    return lambda given: [read(one) for one in _list(given)]


def _dtype(given: Any) -> Dtype:
    if _int(given) not in DTYPES:
        refuse(
            f"got the type of numbers {_OTHERS.get(given, shown(given))}; allowed: {', '.join(DTYPES.values())}"
        )
    return Dtype(DTYPES[given])


def _memory_format(given: Any) -> MemoryFormat:
    return MemoryFormat(_MEMORY_FORMATS[_int(given)])


def _layout(given: Any) -> None:
    if given != _STRIDED:
        refuse(f"got the layout {shown(given)}; allowed: {_STRIDED}, that of plain tensors")


def _device(given: Any) -> None:
    """Computation is on the device of the trainer, wherever the module was exported."""
    _text(given["type"])


_READERS: dict[str, Any] = {}


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
    return value


def _float(value: Any) -> float:
    if isinstance(value, str):
        return _INFINITIES[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError(f"{shown(value)} is no text")
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is no list")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is no object")
    return value


def _only(value: Any) -> tuple[str, Any]:
    """Name and value of an object that has one of several fields."""
    ((name, inner),) = _mapping(value).items()
    return _text(name), inner


_READERS.update(
    as_none=lambda given: None,
    as_tensor=_reference,
    as_tensors=_each(_reference),
    as_int=_int,
    as_ints=_each(_int),
    as_float=_float,
    as_floats=_each(_float),
    as_string=_text,
    as_sym_int=_symbolic("as_int"),
    as_sym_ints=_each(_symbolic("as_int")),
    as_scalar_type=_dtype,
    as_memory_format=_memory_format,
    as_layout=_layout,
    as_device=_device,
    as_bool=_bool,
    as_bools=_each(_bool),
    as_sym_bool=_symbolic("as_bool"),
    as_sym_float=_symbolic("as_float"),
    as_sym_floats=_each(_symbolic("as_float")),
    as_optional_tensors=_each(_optional),
    as_optional_tensor=_optional,
)


def _meta(meta: Any) -> tuple[str, tuple[int | None, ...]]:
    return _dtype(meta["dtype"]).name, tuple(map(_size, _list(meta["sizes"])))


def _size(value: Any) -> int | None:
    form, given = _only(value)
    if form == "as_expr":
        _text(given["expr_str"])
        return None
    size = _int(_same(form, "as_int", given))
    if size < 0:
        raise ValueError(f"{size} is no size")
    return size


def _rows(meta: Any) -> str:
    """The expression of the first size of an input, empty where that is fixed."""
    sizes = _list(meta["sizes"])
    if not sizes:
        return ""
    form, given = _only(sizes[0])
    return _text(given["expr_str"]) if form == "as_expr" else ""


def _range(value: Any) -> tuple[int | None, int | None]:
    low, high = value["min_val"], value["max_val"]
    return (None if low is None else _int(low)), (None if high is None else _int(high))
