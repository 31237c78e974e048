"""A graph as a loop over closures: all that can be found out before is found out once.

Values have numbered slots in a list. Each node becomes a closure that calls one operation of ATen with the values of
its slots and its constants, and puts the result into its own slot. Slots are emptied after their last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from cerebro_db.configs.aten.check import changed, names_of, references, roots
from cerebro_db.configs.aten.graph import Graph, Node, Reference
from cerebro_db.configs.aten.operations import CHECKS, flag_of, is_in_place
from cerebro_db.training.backends.torch.operations import (
    check_outputs,
    constant,
    function_of,
    placed,
)

Step = Callable[[list[Any]], None]


class Plan(NamedTuple):
    """A graph that is ready to run.

    Attributes:
        steps: each with the slots that nobody needs after it.
        slots: of all values, by name.
        inputs: slots of the inputs, and whether each is changed in place.
        outputs: slots of the outputs.
        updates: slots of values that become buffers, each with the name of the buffer.
        copied: slots of buffers that a run changes and that stay as they are.
    """

    steps: tuple[tuple[Step, tuple[int, ...]], ...]
    slots: dict[str, int]
    inputs: tuple[tuple[int, bool], ...]
    outputs: tuple[int, ...]
    updates: tuple[tuple[int, str], ...]
    copied: tuple[int, ...]

    def run(self, base: Sequence[Any], given: Sequence[torch.Tensor]) -> list[Any]:
        """The outputs.

        Args:
            base: values of the slots of parameters, buffers and constants; None in the others.
            given: the inputs.
        """
        values = list(base)
        for (slot, copies), tensor in zip(self.inputs, given, strict=True):
            values[slot] = tensor.clone() if copies else tensor
        for slot in self.copied:
            values[slot] = values[slot].clone()
        for step, dead in self.steps:
            step(values)
            for slot in dead:
                values[slot] = None
        return [values[slot] for slot in self.outputs]


def plan_of(graph: Graph, training: bool, flags: bool, device: str) -> Plan:
    """Compile a graph.

    Args:
        graph: checked.
        training: whether buffers may change.
        flags: whether operations that know training from evaluation keep their flags; else they evaluate.
        device: where tensors are made.
    """
    nodes = graph.nodes if flags else tuple(map(_evaluating, graph.nodes))
    if not training:
        nodes = tuple(_without_effects(graph, nodes))
    graph = graph._replace(nodes=nodes)
    slots = _slots(graph)
    updates = graph.updates if training else ()
    kept = {*graph.outputs, *graph.sources, *(value for value, _ in updates)}
    last = _last_uses(graph)
    steps = tuple(
        (_step(node, slots, device), _dead(node, place, last, kept, slots))
        for place, node in enumerate(graph.nodes)
    )
    touched = _touched(graph)
    return Plan(
        steps=steps,
        slots=slots,
        inputs=tuple((slots[name], name in touched) for name in graph.inputs),
        outputs=tuple(slots[name] for name in graph.outputs),
        updates=tuple((slots[value], buffer) for value, buffer in updates),
        copied=() if training else _copied(graph, touched, slots),
    )


def _evaluating(node: Node) -> Node:
    """The node with the flag of evaluation."""
    flag = flag_of(node)
    if flag is None:
        return node
    changed = [
        one._replace(value=flag.off) if one.name == flag.name else one for one in node.arguments
    ]
    return node._replace(arguments=tuple(changed))


def _without_effects(graph: Graph, nodes: Sequence[Node]) -> Iterable[Node]:
    """The nodes but those that only change a buffer, such as a count of batches."""
    used = {name for node in nodes for one in node.arguments for name in references(one.value)}
    used.update(graph.outputs)
    buffers = {value for value, (kind, _) in graph.sources.items() if kind == "buffer"}
    for node in nodes:
        first = next(iter(references(node.arguments[0].value)), "") if node.arguments else ""
        useless = is_in_place(node.target) and first in buffers
        if not useless or not used.isdisjoint(names_of(node.outputs)):
            yield node


def _touched(graph: Graph) -> set[str]:
    """Inputs of the graph that a node changes."""
    known = roots(graph)
    return {root for node in graph.nodes for name in changed(node) for root in known.get(name, ())}


def _copied(graph: Graph, touched: set[str], slots: dict[str, int]) -> tuple[int, ...]:
    return tuple(slots[name] for name in touched if graph.sources[name][0] == "buffer")


def _slots(graph: Graph) -> dict[str, int]:
    names = [*graph.sources, *(name for node in graph.nodes for name in names_of(node.outputs))]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _last_uses(graph: Graph) -> dict[str, int]:
    """The place of the last node that makes or takes a value."""
    found: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        taken = (name for one in node.arguments for name in references(one.value))
        found |= dict.fromkeys([*names_of(node.outputs), *taken], place)
    return found


def _dead(
    node: Node, place: int, last: dict[str, int], kept: set[str], slots: dict[str, int]
) -> tuple[int, ...]:
    taken = (name for one in node.arguments for name in references(one.value))
    names = {*names_of(node.outputs), *taken}
    return tuple(sorted(slots[name] for name in names if last[name] == place and name not in kept))


def _step(node: Node, slots: dict[str, int], device: str) -> Step:
    by_place, by_name = placed(node, device)
    check_outputs(node)
    function = function_of(node.target)
    call = _call(getattr(function, "_op", function), by_place, by_name, slots)
    if node.target in CHECKS:
        return lambda values: call(values)
    return _stored(call, node.outputs, slots)


def _stored(
    call: Callable[[list[Any]], Any], outputs: Sequence[Any], slots: dict[str, int]
) -> Step:
    """A step that puts what a call returns into its slots."""
    if len(outputs) == 1 and isinstance(outputs[0], str):
        (only,) = (slots[name] for name in outputs)

        def store(values: list[Any]) -> None:
            values[only] = call(values)

        return store
    listed = outputs[0] if len(outputs) == 1 else outputs
    places = [(number, slots[name]) for number, name in enumerate(listed or ()) if name is not None]

    def store_each(values: list[Any]) -> None:
        found = call(values)
        for number, slot in places:
            values[slot] = found[number]

    return store_each


def _call(
    function: Any, by_place: list[Any], by_name: dict[str, Any], slots: dict[str, int]
) -> Callable[[list[Any]], Any]:
    """A call of a function with the values of slots; the usual forms have closures of their own."""
    leading = [slots[one.name] for one in by_place if isinstance(one, Reference)]
    rest = by_place[len(leading) :]
    simple = all(isinstance(one, Reference) for one in by_place[: len(leading)])
    fixed = not any(True for one in (*rest, *by_name.values()) for _ in references(one))
    if not simple or not fixed or len(leading) not in _FORMS:
        return _general(function, by_place, by_name, slots)
    constants = tuple(map(_constants, rest))
    named = {name: _constants(value) for name, value in by_name.items()}
    return _FORMS[len(leading)](function, leading, constants, named)


def _constants(value: Any) -> Any:
    return [constant(one) for one in value] if isinstance(value, list) else constant(value)


def _of_one(function: Any, slots: list[int], rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
    (a,) = slots
    if named:
        return lambda values: function(values[a], *rest, **named)
    return lambda values: function(values[a], *rest)


def _of_two(function: Any, slots: list[int], rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
    a, b = slots
    if named:
        return lambda values: function(values[a], values[b], *rest, **named)
    return lambda values: function(values[a], values[b], *rest)


def _of_three(function: Any, slots: list[int], rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
    a, b, c = slots
    if named:
        return lambda values: function(values[a], values[b], values[c], *rest, **named)
    return lambda values: function(values[a], values[b], values[c], *rest)


_FORMS = {1: _of_one, 2: _of_two, 3: _of_three}


def _general(
    function: Any, by_place: list[Any], by_name: dict[str, Any], slots: dict[str, int]
) -> Callable[[list[Any]], Any]:
    resolvers = [_resolver(one, slots) for one in by_place]
    named = [(name, _resolver(value, slots)) for name, value in by_name.items()]

    def call(values: list[Any]) -> Any:
        given = {name: resolve(values) for name, resolve in named}
        return function(*[resolve(values) for resolve in resolvers], **given)

    return call


def _resolver(value: Any, slots: dict[str, int]) -> Callable[[list[Any]], Any]:
    """A function from the values of slots to an argument."""
    if isinstance(value, Reference):
        slot = slots[value.name]
        return lambda values: values[slot]
    if isinstance(value, list) and any(True for _ in references(value)):
        each = [_resolver(one, slots) for one in value]
        return lambda values: [resolve(values) for resolve in each]
    found = _constants(value)
    return lambda values: found
