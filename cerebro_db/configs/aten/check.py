"""Check of an exported program: its operations are allowed, and it changes nothing but its own buffers."""

from __future__ import annotations

import ast
import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from typing import Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits, refuse
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.aten import graph as graphs
from cerebro_db.configs.aten.graph import Architecture, Entry, Graph, Node, Reference
from cerebro_db.configs.aten.operations import (
    ALLOWED,
    ATEN,
    BOUNDS,
    FLAGS,
    draws,
    is_drawing,
    is_in_place,
    is_on,
    may_be_view,
)
from cerebro_db.configs.aten.reading import graph_of
from cerebro_db.configs.messages import shown

# A layer of a usual net is a few operations; of an attention layer some twenty.
OPERATIONS_OF_A_LAYER = 20
_BATCH_HINT = (
    "export the module with a free batch size: "
    "torch.export.export(module, args, dynamic_shapes=({0: torch.export.Dim('batch')},))"
)
_NORMS = ("batch_norm", "instance_norm", "_native_batch_norm_legit", "native_batch_norm")
_RUNNING = (("running_mean", 3), ("running_var", 4))


def check_architecture(config: Mapping[str, Any], limits: ArchitectureLimits) -> dict[str, Any]:
    """Check the JSON of an exported program.

    Returns:
        The same.

    Raises:
        InvalidArchitecture: with the name of an operation that is not allowed, or what else is wrong.
    """
    architecture = graphs.architecture_of(config)
    _check_entries(architecture, limits)
    _check_constants(architecture, limits)
    graphs_ = read_graphs(architecture, limits)
    for graph in graphs_:
        check_graph(graph, architecture)
    _check_evaluation(graphs_[-1], keeps_flags=len(graphs_) > 1)
    return dict(config)


def _check_evaluation(graph: Graph, keeps_flags: bool) -> None:
    """Refuse a graph that draws random numbers in evaluation, as one of a module with stochastic depth does.

    Args:
        graph: of evaluation.
        keeps_flags: whether it evaluates as it was exported, so that a dropout that is on stays on.
    """
    for node in graph.nodes:
        if draws(node) if keeps_flags else is_drawing(node.target):
            refuse(
                f"got the operation {shown(node.target)}, which draws random numbers in evaluation, too; "
                "allowed: with a second program, of the module in eval mode",
                "db.load_model of the Python client exports a module in both modes",
            )


def read_graphs(architecture: Architecture, limits: ArchitectureLimits) -> tuple[Graph, ...]:
    """The graph, and that of evaluation where there is one of its own."""
    limit = limits.layers * OPERATIONS_OF_A_LAYER
    first = graph_of(architecture.train, limit)
    return (
        (first,)
        if architecture.evaluation is None
        else (first, graph_of(architecture.evaluation, limit))
    )


def _check_entries(architecture: Architecture, limits: ArchitectureLimits) -> None:
    held = [*architecture.parameters, *architecture.buffers]
    _check_unique([one.name for one in held] + list(architecture.shared), "weights")
    _check_unique([one.name for one in architecture.inputs], "inputs")
    _check_unique(architecture.outputs, "outputs")
    for entry in [*held, *architecture.inputs]:
        _check_shape(entry.name, entry.shape, entry.dtype)
        if len(entry.name) > limits.text or not entry.name:
            refuse(f"got a weight or input of the name {shown(entry.name)}")
    _check_dtypes(architecture)
    for one in architecture.inputs:
        if math.prod(one.shape) > limits.elements:
            refuse(
                f"got the input {shown(one.name)} of the shape {shown(one.shape)}; allowed: at most "
                f"{limits.elements} numbers in a row"
            )
    count = sum(math.prod(one.shape) for one in held)
    if count > limits.parameters:
        refuse(
            f"got {count} parameters; at most {limits.parameters} are allowed",
            "An administrator may raise the setting max_parameters.",
        )
    if not architecture.inputs or not architecture.outputs:
        refuse("got a program without inputs or outputs; allowed: one of each or more")
    _check_shared(architecture, {one.name for one in held})


def _check_dtypes(architecture: Architecture) -> None:
    for one in architecture.parameters:
        if one.dtype not in ("float32", "float64"):
            refuse(
                f"got the parameter {shown(one.name)} of type {one.dtype}; allowed: float32 and float64",
                "module.float() makes all parameters float32",
            )
    for one in architecture.buffers:
        if one.dtype == "bfloat16":  # which NumPy lacks
            refuse(f"got the buffer {shown(one.name)} of type bfloat16; allowed: other types")


def _check_shared(architecture: Architecture, names: set[str]) -> None:
    for alias, name in architecture.shared.items():
        if name not in names:
            refuse(f"got {shown(alias)} as another name of {shown(name)}, which is no weight")


def _check_unique(names: Iterable[str], what: str) -> None:
    listed = list(names)
    if len(set(listed)) < len(listed):
        refuse(f"got two {what} of one name")


def _check_shape(name: str, shape: list[int], dtype: str, least: int = 1) -> None:
    if dtype not in graphs.BYTES:
        refuse(f"got {shown(name)} of the type {shown(dtype)}; allowed: {', '.join(graphs.BYTES)}")
    if len(shape) > 16 or any(size < least for size in shape):
        refuse(f"got {shown(name)} of the shape {shown(shape)}; allowed: every size from {least}")


def _check_constants(architecture: Architecture, limits: ArchitectureLimits) -> None:
    for name, one in architecture.constants.items():
        _check_shape(name, one.shape, one.dtype, least=0)
        try:
            size = len(base64.b64decode(one.data, validate=True))
        except (binascii.Error, ValueError):
            size = -1
        if size != math.prod(one.shape) * graphs.BYTES[one.dtype]:
            refuse(f"got the constant {shown(name)} whose data do not fit its shape {one.shape}")


def check_graph(graph: Graph, architecture: Architecture) -> None:
    """Refuse a graph that has an operation, an effect, or a name that is not allowed."""
    for node in graph.nodes:  # first, as other refusals follow from an operation
        _check_target(node.target)
    _check_sources(graph, architecture)
    _check_batch(graph)
    for guard in graph.guards:
        _check_guard(guard, graph)
    known = set(graph.sources)
    for node in graph.nodes:
        _check_bounds(node)
        _check_known(node, known)
        for name in names_of(node.outputs):
            if name in known and name:
                refuse(f"got two values of the name {shown(name)}")
            known.add(name)
    for name in [*graph.outputs, *(value for value, _ in graph.updates)]:
        if name not in known:
            refuse(f"got the output {shown(name)}, which no operation makes")
    _check_outputs(graph, architecture)
    _check_effects(graph)


def _check_target(target: str) -> None:
    if target in ALLOWED:
        return
    if not target.startswith((ATEN, "_operator.", "torch.sym", "math.")):
        refuse(
            f"got the operation {shown(target)}; allowed: those of ATen that are on the list",
            "operators of one's own, those of other libraries and higher-order operators are not",
        )
    refuse(f"got the operation {shown(target)}, which is not on the list", nearest(target, ALLOWED))


def _check_bounds(node: Node) -> None:
    for bound in BOUNDS.get(node.target, ()):
        value = node.value(bound.name, bound.place)
        if value is not None and not (type(value) is int and 0 <= value <= bound.most):
            refuse(
                f"got {bound.name}={shown(value)} in the operation {shown(node.target)}; allowed: 0 to {bound.most}"
            )


def _check_known(node: Node, known: set[str]) -> None:
    for argument in node.arguments:
        for name in references(argument.value):
            if name not in known:
                refuse(
                    f"got the operation {shown(node.target)} of {shown(name)}, which comes from nowhere"
                )


def references(value: Any) -> Iterable[str]:
    """The names of values that an argument is made of."""
    if isinstance(value, Reference):
        yield value.name
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def names_of(outputs: Iterable[Any]) -> Iterable[str]:
    """The names of what a node gives."""
    for output in outputs:
        if isinstance(output, list):
            yield from output
        elif output is not None:
            yield output


def _check_sources(graph: Graph, architecture: Architecture) -> None:
    """Refuse a graph whose inputs are not those of the architecture, with their sizes and types."""
    held = {one.name: one for one in (*architecture.parameters, *architecture.buffers)}
    held |= {alias: held[name] for alias, name in architecture.shared.items()}
    given = {one.name: one for one in architecture.inputs}
    for value, (kind, name) in graph.sources.items():
        if kind in ("parameter", "buffer"):
            _check_source(graph, value, held.get(name))
        elif kind == "input":
            _check_source(graph, value, given.get(name))
        elif kind == "constant" and name not in architecture.constants:
            refuse(f"got the constant {shown(name)}, which the architecture lacks")
    names = [graph.sources[value][1] for value in graph.inputs]
    if names != [one.name for one in architecture.inputs]:
        refuse(f"got a graph of the inputs {shown(names)}; allowed: {shown([*given])}")


def _check_source(graph: Graph, value: str, entry: Entry | None) -> None:
    dtype, sizes = graph.sizes.get(value, ("", ()))
    found = list(sizes[1:]) if value in graph.inputs else list(sizes)
    if entry is None or [dtype, found] != [entry.dtype, entry.shape]:
        refuse(
            f"got {shown(value)} of {dtype} {shown(list(sizes))}, which is no weight or input of the model"
        )


def _check_batch(graph: Graph) -> None:
    for name, expression in zip(graph.inputs, graph.batch, strict=True):
        if not expression:
            refuse(f"got the input {shown(name)} with a fixed batch size", _BATCH_HINT)
    if len(set(graph.batch)) > 1:
        refuse("got inputs with batch sizes of their own; allowed: one for all", _BATCH_HINT)
    for low, high in graph.ranges:
        if (low or 0) > 1 or (high is not None and high < 2**20):
            refuse(
                f"got a program for {low} to {high} rows; allowed: for any number from 1",
                "Dim('batch') has no bounds; a bound of 2 comes from Dim.AUTO and Dim.DYNAMIC",
            )


def _check_guard(text: str, graph: Graph) -> None:
    """Refuse a condition, unless it says that inputs have the same rows."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        refuse(f"got the condition {shown(text)}, which cannot be read")
    good = isinstance(tree, ast.Compare) and all(isinstance(one, ast.Eq) for one in tree.ops)
    sides = [tree.left, *tree.comparators] if isinstance(tree, ast.Compare) else []
    if not good or not all(_is_batch(side) for side in sides):
        refuse(
            f"got a program that holds under the condition {shown(text)}; allowed: conditions that all "
            "rows meet, whatever their number",
            _BATCH_HINT,
        )


def _is_batch(side: ast.expr) -> bool:
    """True for ``L['x'].size()[0]``, or for an input within a list."""
    try:
        text = ast.unparse(side)
    except RecursionError:
        return False
    return text.startswith("L[") and text.endswith(".size()[0]") and text.count("(") == 1


def _check_outputs(graph: Graph, architecture: Architecture) -> None:
    if len(graph.outputs) != len(architecture.outputs):
        refuse(f"got {len(graph.outputs)} outputs; allowed: {len(architecture.outputs)}, as named")
    for name in graph.outputs:
        dtype, sizes = graph.sizes.get(name, ("", ()))
        if len(sizes) < 2 or sizes[0] is not None or None in sizes[1:]:
            refuse(
                f"got an output of the shape {shown(list(sizes))}; allowed: the rows of a batch, each with "
                "one number or more",
                "unsqueeze(-1) gives each row a dimension of its own",
            )
        if dtype not in graphs.FLOATS:
            refuse(f"got an output of the type {shown(dtype)}; allowed: numbers with a fraction")


def _check_effects(graph: Graph) -> None:
    """Refuse a graph that changes parameters or constants."""
    known = roots(graph)
    for node in graph.nodes:
        for name in changed(node):
            kinds = {
                graph.sources[root][0] for root in known.get(name, ()) if root in graph.sources
            }
            if kinds & {"parameter", "constant"}:
                refuse(
                    f"got the operation {shown(node.target)} that changes {shown(name)}, a parameter or "
                    "a constant; allowed: changes of buffers",
                    "register what the module changes while it runs as a buffer",
                )
    buffers = {name for kind, name in graph.sources.values() if kind == "buffer"}
    for _, name in graph.updates:
        if name not in buffers:
            refuse(f"got a change of {shown(name)}, which is no buffer")


def changed(node: Node) -> list[str]:
    """The values that a node changes in place."""
    found: list[str] = []
    if is_in_place(node.target) and node.arguments:
        found += references(node.arguments[0].value)
    name = node.target.removeprefix(ATEN).partition(".")[0]
    if name in _NORMS and (is_on(node) or node.target not in FLAGS):
        for argument, place in _RUNNING:
            found += references(node.value(argument, place))
    return found


def roots(graph: Graph) -> dict[str, frozenset[str]]:
    """For each value the inputs of the graph whose memory it may be."""
    found = {name: frozenset([name]) for name in graph.sources}
    for node in graph.nodes:
        passed: frozenset[str] = frozenset()
        if may_be_view(node) or is_in_place(node.target):
            names = (name for argument in node.arguments for name in references(argument.value))
            passed = passed.union(*(found.get(name, frozenset()) for name in names))
        found |= dict.fromkeys(names_of(node.outputs), passed)
    return found
