"""Documents that are changed at random places."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

Place = tuple[Any, ...]
# Values that have broken something, somewhere; and names that mean something in a graph.
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 7, 5, 2**31, 2**62, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, "",
    "a", "..", "../../etc/passwd", "\0", "\ud800", "x" * 2000, "Infinity", "NaN", [], {}, [[]], [None],
    [2**31 - 1] * 4, [0], [-1, -1], {"a": {"b": {}}}, "os.system", "eval", "train", "float32", "int64", "bool",
    {"as_none": True}, {"as_int": 2**62}, {"as_int": -1}, {"as_int": 0}, {"as_float": 1e308}, {"as_bool": True},
    {"as_ints": [2**40, 2**40]}, {"as_ints": [0, 0]}, {"as_ints": []}, {"as_tensors": []},
    {"as_string": "none"}, {"as_tensor": {"name": "x"}}, {"as_sym_int": {"as_name": "x"}},
    {"as_scalar_type": 5}, {"as_scalar_type": 12}, {"as_scalar_type": 99}, {"as_memory_format": 2},
    {"as_graph": {"name": "g", "graph": {}}}, {"as_operator": "os.system"}, {"as_custom_obj": {"name": "x"}},
    "torch.ops.aten.linear.default", "torch.ops.aten.add_.Tensor", "torch.ops.aten.zeros.default",
    "torch.ops.aten.repeat.default", "torch.ops.aten.view.default", "torch.ops.aten.floor_divide.default",
    "torch.ops.aten.embedding.default", "torch.ops.aten.index.Tensor", "torch.ops.aten.gather.default",
    "torch.ops.aten.copy_.default", "torch.ops.aten.set_.source_Tensor", "torch.ops.aten.as_strided.default",
    "torch.ops.aten.empty.memory_format", "torch.ops.aten.cat.default", "torch.ops.aten.arange.default",
    "torch.ops.higher_order.cond", "torch.ops.mine.op.default", "_operator.mul", "_operator.pow", "builtins.eval",
]  # fmt: skip


def places(value: Any, start: Place = ()) -> Iterator[Place]:
    """Where something can be changed."""
    if start:
        yield start
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*start, key))


def mutated(document: Any, every: list[Place], generator: random.Random) -> Any:
    """A document, changed at one to three places."""
    found = copy.deepcopy(document)
    for _ in range(generator.randint(1, 3)):
        place = generator.choice(every)
        try:
            _change(found, place, generator, every)
        except (KeyError, IndexError, TypeError):
            continue
    return found


def _at(document: Any, place: Place) -> Any:
    for key in place:
        document = document[key]
    return document


def _change(document: Any, place: Place, generator: random.Random, every: list[Place]) -> None:
    parent, key = _at(document, place[:-1]), place[-1]
    kind = generator.randrange(6)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[generator.randrange(len(parent))]))
    elif kind == 2:
        parent[key] = copy.deepcopy(_at(document, generator.choice(every)))
    elif kind == 3 and isinstance(parent[key], int):
        parent[key] += generator.choice((-1, 1, 10, 2**20))
    else:
        parent[key] = copy.deepcopy(generator.choice(HOSTILE))
