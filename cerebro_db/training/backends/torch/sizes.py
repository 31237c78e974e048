"""Refuses programs that are too large, before any memory is taken for them: a run with tensors that have only shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import (
    ArchitectureFacts,
    Load,
    check_worker_memory,
    worker_memory,
)
from cerebro_db.configs.aten.check import names_of
from cerebro_db.configs.aten.graph import Graph, Node
from cerebro_db.configs.aten.operations import ATEN, DIVISIONS, VIEWS, draws
from cerebro_db.configs.messages import shown
from cerebro_db.errors import CerebroError, InvalidArchitecture
from cerebro_db.training.backends import ModelSize
from cerebro_db.training.backends.torch.environment import without_compiler
from cerebro_db.training.backends.torch.interpreter import Plan, plan_of
from cerebro_db.training.backends.torch.net import META, Net
from cerebro_db.training.causes import short

# Rows of the batch that is traced: a prime, so that a size that is a multiple of it tells that a tensor
# grows with the batch.
_PROBE_ROWS = 7919
_FEW_ROWS = 2
_RECURRENT = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
_EINSUM = f"{ATEN}einsum.default"
_ATTENTION = f"{ATEN}scaled_dot_product_attention.default"
# Operations whose layers multiply, with the place of their weight.
_PRODUCTS = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "convolution",
)
_MOST_STEPS = 100


def check_size(
    config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None = None
) -> ModelSize:
    """Refuse a checked architecture that is too large, without taking memory for it.

    Args:
        config: of the architecture, checked.
        limits: of its size.
        memory_mb: megabytes that this process may use; None for any.

    Raises:
        InvalidArchitecture: it has too many parameters, a tensor is too large or has no elements, or an
            operation cannot be computed.
        InvalidArgument: a model that only predicts may need more memory.
    """
    return Measured(config, limits, memory_mb).size


def facts_of(
    config: Mapping[str, Any],
    limits: ArchitectureLimits,
    memory_mb: int | None,
    weights: bytes | None,
) -> ArchitectureFacts:
    """Size, work and shapes of an architecture that is not too large.

    Raises:
        InvalidState: the weights are not those of the architecture.
    """
    measured = Measured(config, limits, memory_mb)
    if weights is not None:
        measured.net.from_weights(weights)
    return measured.facts()


class Measured:
    """A net that was run with tensors that have only shapes.

    Args:
        config, limits, memory_mb: as of ``check_size``.
    """

    def __init__(
        self, config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None
    ) -> None:
        self._limits = limits
        with _refused("the architecture"):
            self.net = Net(config, limits, META)
        self._check_parameters()
        self._each_row, self._largest, self._fixed = 0, 0, 0
        self._products, self._is_unsure = 0, False
        graph = self.net.graph
        with without_compiler():
            self._run(plan_of(graph, training=True, flags=True, device=META), graph)
            self._check_evaluation()
        parameters = sum(math.prod(one.shape) for one in self.net.entries)
        self.size = ModelSize(parameters, self._each_row, self._largest, self._fixed)
        if memory_mb is not None:
            load = Load(
                None, optimizer="", compiled=False, framework="torch", **self.size._asdict()
            )
            check_worker_memory(worker_memory([load], 0, 0), memory_mb, "a model")

    def _check_evaluation(self) -> None:
        """Check a graph of evaluation, too; training, which takes more, is what is measured."""
        graph = self.net.evaluation
        if graph is not self.net.graph:
            measured = self._each_row, self._largest, self._fixed, self._products
            self._run(plan_of(graph, training=True, flags=True, device=META), graph)
            self._each_row, self._largest, self._fixed, self._products = measured

    def facts(self) -> ArchitectureFacts:
        """Size, work and shapes."""
        net = self.net
        architecture = net.architecture
        layers = {one.name.rpartition(".")[0] for one in architecture.parameters}
        return ArchitectureFacts(
            multiply_adds=self._products,
            has_convolution=any("conv" in node.target for node in net.graph.nodes),
            has_random=net.draws,
            layers=max(1, len(layers)),
            input_shapes=net.shapes,
            output_shapes=tuple(
                tuple(int(size or 0) for size in net.graph.sizes[name][1][1:])
                for name in net.graph.outputs
            ),
            **self.size._asdict(),
        )

    def _check_parameters(self) -> None:
        count = sum(math.prod(one.shape) for one in self.net.entries)
        if count > self._limits.parameters:
            raise InvalidArchitecture(
                f"model architecture: got {count} parameters; at most {self._limits.parameters} are allowed",
                hint="An administrator may raise the setting max_parameters.",
            )

    def _run(self, plan: Plan, graph: Graph) -> None:
        """Run a plan, and look at each value as it is made."""
        values = list(self.net._base(plan, graph))
        for (slot, _), tensor in zip(plan.inputs, self.net.probe(_PROBE_ROWS), strict=True):
            values[slot] = tensor
        for node, (step, dead) in zip(graph.nodes, plan.steps, strict=True):
            with torch.no_grad(), _refused(node.target):
                self._check_before(node, values, plan.slots)
                step(values)
                for name in names_of(node.outputs):
                    self._take(node, name, values[plan.slots[name]])
                self._count_products(node, values, plan.slots)
                self._count_attention(node, values, plan.slots)
            for slot in dead:
                values[slot] = None
        for name in graph.outputs:
            self._check_output(name, values[plan.slots[name]], graph)
        if self._is_unsure:
            self._check_few_rows(plan, graph)

    def _check_few_rows(self, plan: Plan, graph: Graph) -> None:
        """Run a plan again: what has a multiple of the rows may be that large whatever their number."""
        values = list(self.net._base(plan, graph))
        for (slot, _), tensor in zip(plan.inputs, self.net.probe(_FEW_ROWS), strict=True):
            values[slot] = tensor
        for node, (step, dead) in zip(graph.nodes, plan.steps, strict=True):
            with torch.no_grad(), _refused(node.target):
                step(values)
            made = (values[plan.slots[name]] for name in names_of(node.outputs))
            counts = [one.numel() for one in made if isinstance(one, torch.Tensor)]
            if max(counts, default=0) > _FEW_ROWS * self._limits.elements:
                what = f"{max(counts)} numbers for {_FEW_ROWS} rows"
                raise _too_large(node, what, _FEW_ROWS * self._limits.elements)
            for slot in dead:
                values[slot] = None

    def _check_before(self, node: Node, values: list[Any], slots: dict[str, int]) -> None:
        """Refuse what may end the process, or take long, even without numbers."""
        if node.target in DIVISIONS:
            self._check_division(node, values, slots)
        if node.target.removeprefix(ATEN) in _RECURRENT:
            self._check_steps(node, values, slots)
        if node.target == _EINSUM:
            self._check_product(node, values, slots)

    def _check_product(self, node: Node, values: list[Any], slots: dict[str, int]) -> None:
        """Bound the products of three tensors or more, of which two at a time are multiplied."""
        equation, tensors = node.value("equation", 0), node.value("tensors", 1)
        if len(tensors) < 3:
            return
        labels = "".join(equation.partition("->")[0].split()).split(",")
        sizes: dict[str, int] = {}
        for names, one in zip(labels, tensors, strict=False):
            sizes |= zip(names, values[slots[one.name]].shape, strict=False)
        count = math.prod(size for size in sizes.values() if size != _PROBE_ROWS)
        if "." in sizes or count > self._limits.elements:
            raise _too_large(node, f"{shown(equation)} of {len(tensors)} tensors", "two at a time")

    def _check_steps(self, node: Node, values: list[Any], slots: dict[str, int]) -> None:
        shape = _first(node, values, slots).shape
        steps = shape[1 if node.value("batch_first", 8) else 0]
        allowed = _MOST_STEPS * self._limits.steps
        if steps > allowed and steps != _PROBE_ROWS:  # rows of a batch may be the steps
            raise _too_large(node, f"{steps} time steps", allowed)

    def _check_division(self, node: Node, values: list[Any], slots: dict[str, int]) -> None:
        """Whole numbers are divided by positive constants only."""
        divisor = node.arguments[1].value if len(node.arguments) > 1 else None
        # A larger one may be -1 in 32 bits, by which the least number cannot be divided.
        constant = isinstance(divisor, int | float) and 0 < divisor < 2**31
        if not constant and not _first(node, values, slots).is_floating_point():
            raise InvalidArchitecture(
                f"model architecture: got {node.target} of whole numbers; allowed: numbers with a "
                "fraction, or a positive constant to divide by"
            )

    def _take(self, node: Node, name: str, value: Any) -> None:
        """Count the bytes of a tensor that a node has made."""
        if not isinstance(value, torch.Tensor):
            return
        multiples = [size for size in value.shape if size and size % _PROBE_ROWS == 0]
        self._is_unsure |= any(size > _PROBE_ROWS for size in multiples)
        grows = bool(multiples)
        count = value.numel() // (_PROBE_ROWS if grows else 1)
        if count > self._limits.elements:
            raise _too_large(node, f"{count} numbers for one row", self._limits.elements)
        if node.target in VIEWS and value._is_view():
            return
        size = count * value.element_size()
        if grows:
            self._each_row += size
            self._largest = max(self._largest, size)
        else:
            self._fixed += size

    def _count_products(self, node: Node, values: list[Any], slots: dict[str, int]) -> None:
        """Multiply-adds of a row: the numbers of a weight times the places where it is applied."""
        name = node.target.removeprefix(ATEN).partition(".")[0]
        if name not in _PRODUCTS:
            return
        weight = values[slots[node.arguments[1].value.name]]
        (output,) = names_of(node.outputs)
        found = values[slots[output]]
        places = found.numel() // max(1, found.shape[1 if "conv" in name else -1])
        self._products += weight.numel() * places // _PROBE_ROWS

    def _count_attention(self, node: Node, values: list[Any], slots: dict[str, int]) -> None:
        """Bytes of the scores of attention with dropout, of its mask, and of their product, which gradients need."""
        if node.target != _ATTENTION or not draws(node):
            return
        query, key = (values[slots[node.arguments[place].value.name]] for place in (0, 1))
        scores = query.numel() // query.shape[-1] * key.shape[-2] // _PROBE_ROWS
        if scores > self._limits.elements:
            raise _too_large(node, f"{scores} scores for one row", self._limits.elements)
        self._each_row += 3 * scores * query.element_size()

    def _check_output(self, name: str, value: Any, graph: Graph) -> None:
        if value.dim() < 2 or value.shape[0] != _PROBE_ROWS or 0 in value.shape:
            raise InvalidArchitecture(
                f"model architecture: got an output of the shape {tuple(value.shape)} for "
                f"{_PROBE_ROWS} rows; allowed: the rows of a batch, each with one number or more"
            )
        dtype, sizes = graph.sizes[name]
        if tuple(value.shape[1:]) != sizes[1:] or value.dtype != getattr(torch, dtype):
            raise InvalidArchitecture(
                f"model architecture: got {value.dtype}{tuple(value.shape[1:])} in the output "
                f"{shown(name)}; allowed: {dtype}{sizes[1:]}, as the program says"
            )


def _first(node: Node, values: list[Any], slots: dict[str, int]) -> torch.Tensor:
    found: torch.Tensor = values[slots[node.arguments[0].value.name]]
    return found


def _too_large(node: Node, what: str, allowed: int | str) -> InvalidArchitecture:
    return InvalidArchitecture(
        f"model architecture: operation {shown(node.target)}: got {what}; at most {allowed} are allowed",
        hint="Give it a smaller input, or fewer units or filters.",
    )


class _refused:
    """Turn whatever torch raises into an error about the architecture."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, CerebroError) or not isinstance(error, Exception):
            return
        raise InvalidArchitecture(
            f"the architecture cannot be computed: {self._what}: {short(error)}"
        ) from None
