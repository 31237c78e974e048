"""A net: tensors of an architecture, and its graphs for training and for evaluation."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.aten.check import changed, read_graphs, roots
from cerebro_db.configs.aten.graph import FLOATS, Constant, Entry, Graph, architecture_of
from cerebro_db.configs.aten.operations import ATEN, draws, is_in_place
from cerebro_db.errors import InvalidState
from cerebro_db.training.backends.torch.interpreter import Plan, plan_of
from cerebro_db.training.buffers import Shapes, width
from cerebro_db.training.state import WEIGHTS, State

META, CPU = "meta", "cpu"


class Net:
    """A net that computes.

    Args:
        config: of the architecture, checked.
        limits: those that it was checked with.
        device: ``meta`` for one without numbers.
        mixed: whether operations compute in bfloat16 where ``torch.autocast`` has them so.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        limits: ArchitectureLimits | None = None,
        device: str = CPU,
        mixed: bool = False,
    ) -> None:
        self._mixed = mixed
        self.architecture = architecture_of(config)
        self.device = device
        graphs = read_graphs(self.architecture, limits or _UNLIMITED)
        if mixed:
            graphs = tuple(map(_of_any_precision, graphs))
        self.graph, self.evaluation = graphs[0], graphs[-1]
        self.draws = any(map(draws, self.graph.nodes))
        self.shapes: Shapes = tuple(tuple(one.shape) for one in self.architecture.inputs)
        self._dtypes = [dtype_of(one.dtype) for one in self.architecture.inputs]
        self.tensors = {one.name: _tensor(one, device) for one in self.entries}
        self.parameters = {one.name: self.tensors[one.name] for one in self.architecture.parameters}
        self._training = plan_of(self.graph, training=True, flags=True, device=device)
        alone = len(graphs) == 1
        self._evaluating = plan_of(self.evaluation, training=False, flags=not alone, device=device)
        self._overwritten = [self.tensors[self._owner(name)] for name in _overwritten(self.graph)]
        self._bases = {id(plan): self._base(plan, graph) for plan, graph in self._plans()}

    @property
    def entries(self) -> list[Entry]:
        """Parameters and buffers, in the order of their numbers."""
        return [*self.architecture.parameters, *self.architecture.buffers]

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of a row as a worker holds it: of several inputs, their numbers side by side."""
        return self.shapes[0] if len(self.shapes) == 1 else (width(self.shapes),)

    def units(self) -> tuple[int, ...]:
        """Last dimension of each output."""
        sizes = (self.graph.sizes[name][1][-1] for name in self.graph.outputs)
        return tuple(int(size or 0) for size in sizes)

    # -- computing ---------------------------------------------------------------------
    def train(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs in training; buffers change."""
        plan = self._training
        for one in self._overwritten:
            if one.requires_grad:  # gradients end with a batch, as they do with a hop
                one.detach_()
        with self._precision():
            found = (
                self._with_updates(plan, inputs)
                if plan.updates
                else plan.run(self._bases[id(plan)], inputs)
            )
        return self._as_floats(found)

    def _with_updates(self, plan: Plan, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        slots = tuple(slot for slot, _ in plan.updates)
        found = plan._replace(outputs=plan.outputs + slots).run(self._bases[id(plan)], inputs)
        count = len(plan.outputs)
        with torch.no_grad():
            for (_, name), value in zip(plan.updates, found[count:], strict=True):
                self.tensors[self._owner(name)].copy_(value)
        return found[:count]

    def evaluate(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs in evaluation; nothing changes."""
        plan = self._evaluating
        with self._precision():
            found = plan.run(self._bases[id(plan)], inputs)
        return self._as_floats(found)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(CPU, torch.bfloat16) if self._mixed else nullcontext()

    def _as_floats(self, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs for losses, which are computed in float32."""
        return [one.float() for one in outputs] if self._mixed else outputs

    def split(self, features: np.ndarray) -> list[torch.Tensor]:
        """Rows as tensors of the inputs' shapes and types."""
        rows = torch.from_numpy(features)
        if len(self.shapes) == 1:
            return [rows if rows.dtype == self._dtypes[0] else rows.to(self._dtypes[0])]
        found, start = [], 0
        for shape, dtype in zip(self.shapes, self._dtypes, strict=True):
            stop = start + math.prod(shape)
            found.append(rows[:, start:stop].reshape(-1, *shape).to(dtype))
            start = stop
        return found

    def probe(self, rows: int) -> list[torch.Tensor]:
        """Inputs of so many rows, of zeros."""
        return [
            torch.zeros((rows, *shape), dtype=dtype, device=self.device)
            for shape, dtype in zip(self.shapes, self._dtypes, strict=True)
        ]

    # -- numbers -----------------------------------------------------------------------
    def load(self, state: State) -> None:
        """Take the weights of a state that fits."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(tensor_of(state[WEIGHTS + name]))

    def save(self) -> State:
        """The weights, copied."""
        return {
            WEIGHTS + name: tensor.detach().numpy().copy() for name, tensor in self.tensors.items()
        }

    def described(self) -> State:
        """Arrays of the shapes and types of the weights, without memory."""
        return {
            WEIGHTS + one.name: np.broadcast_to(np.zeros((), one.dtype), one.shape)
            for one in self.entries
        }

    def set_weights(self, weights: bytes) -> None:
        """Take weights as ``model_weights`` has them."""
        self.load(self.from_weights(weights))

    def from_weights(self, weights: bytes) -> State:
        """The arrays of weights as ``model_weights`` has them.

        Raises:
            InvalidState: there are more or fewer numbers.
        """
        sizes = [math.prod(one.shape) for one in self.entries]
        if len(weights) != 4 * sum(sizes):
            raise InvalidState(
                f"got weights of {len(weights)} bytes; allowed: {4 * sum(sizes)}, float32 of the "
                f"{sum(sizes)} parameters and buffers of the model"
            )
        parts = np.split(np.frombuffer(weights, np.float32), np.cumsum(sizes)[:-1])
        return {
            WEIGHTS + one.name: part.reshape(one.shape).astype(one.dtype)
            for one, part in zip(self.entries, parts, strict=True)
        }

    # -- inside --------------------------------------------------------------------------
    def _plans(self) -> list[tuple[Plan, Graph]]:
        return [(self._training, self.graph), (self._evaluating, self.evaluation)]

    def _owner(self, name: str) -> str:
        return self.architecture.shared.get(name, name)

    def _base(self, plan: Plan, graph: Graph) -> list[Any]:
        """Values of the slots of parameters, buffers and constants."""
        values: list[Any] = [None] * len(plan.slots)
        for value, (kind, name) in graph.sources.items():
            if kind in ("parameter", "buffer"):
                values[plan.slots[value]] = self.tensors[self._owner(name)]
            elif kind == "constant":
                found = _constant(self.architecture.constants[name])
                values[plan.slots[value]] = found.to(self.device)
        return values


def _overwritten(graph: Graph) -> set[str]:
    """The buffers that operations overwrite, other than averages of normalizations."""
    known = roots(graph)
    values = (
        root
        for node in graph.nodes
        if is_in_place(node.target)
        for name in changed(node)
        for root in known.get(name, ())
    )
    sources = (graph.sources[one] for one in values if graph.sizes.get(one, ("",))[0] in FLOATS)
    return {name for kind, name in sources if kind == "buffer"}


def _of_any_precision(graph: Graph) -> Graph:
    """A graph that does not ask in which precision its values come."""
    return graph._replace(nodes=tuple(one for one in graph.nodes if one.target != _ASSERT_DTYPE))


_ASSERT_DTYPE = f"{ATEN}_assert_tensor_metadata.default"
_UNLIMITED = ArchitectureLimits(layers=2**31)


def dtype_of(name: str) -> torch.dtype:
    """A type of numbers by its name."""
    found: torch.dtype = getattr(torch, name)
    return found


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor; one that cannot be written is copied."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _tensor(entry: Entry, device: str) -> torch.Tensor:
    return torch.zeros(entry.shape, dtype=dtype_of(entry.dtype), device=device)


def _constant(constant: Constant) -> torch.Tensor:
    data = bytearray(base64.b64decode(constant.data))
    if not data:  # such as what a cache of keys begins with
        return torch.zeros(constant.shape, dtype=dtype_of(constant.dtype))
    return torch.frombuffer(data, dtype=dtype_of(constant.dtype)).reshape(constant.shape)
