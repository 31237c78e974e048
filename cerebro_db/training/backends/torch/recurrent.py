"""Recurrent operations of ATen, which end a process where their states and weights do not fit: they are checked before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from cerebro_db.errors import InvalidArchitecture

# How many gates the weights of each have.
_GATES = {"lstm.input": 4, "gru.input": 3, "rnn_tanh.input": 1, "rnn_relu.input": 1}
RECURRENT = frozenset(_GATES)


def operation(name: str) -> Any:
    """The operation of ATen, as it is."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def checked(name: str) -> Callable[..., Any]:
    """The operation, which refuses states and weights that do not fit it."""
    call, gates = operation(name)._op, _GATES[name]

    def run(
        input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        states = list(hx) if gates == _GATES["lstm.input"] else [hx]
        rows = input.shape[0 if batch_first else 1] if input.dim() == 3 else -1
        parts = num_layers * (2 if bidirectional else 1)
        if not _states_fit(states, parts, rows, gates) or not _weights_fit(
            input, states, params, has_biases, num_layers, bidirectional, gates
        ):
            raise InvalidArchitecture(
                f"model architecture: got {name} of {num_layers} layers with states of the shapes "
                f"{[tuple(one.shape) for one in states[:2]]} and {len(params)} weights for rows of the shape "
                f"{tuple(input.shape)}; allowed: those of its layers"
            )
        return call(
            input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )

    return run


def _states_fit(states: Sequence[Any], parts: int, rows: int, gates: int) -> bool:
    wanted = 2 if gates == _GATES["lstm.input"] else 1
    shapes = [tuple(one.shape) for one in states]
    return (
        parts > 0
        and len(states) == wanted
        and all(len(one) == 3 and one[:2] == (parts, rows) and one[2] > 0 for one in shapes)
    )


def _weights_fit(
    rows: Any,
    states: Sequence[Any],
    params: Sequence[Any],
    biases: bool,
    layers: int,
    both: bool,
    gates: int,
) -> bool:
    wanted = _shapes(rows.shape[2], states, biases, layers, both, gates)
    # One more than there are, as a number of layers may be very large.
    found = [shape for shape, _ in zip(wanted, range(len(params) + 1), strict=False)]
    return found == [tuple(one.shape) for one in params]


def _shapes(
    features: int, states: Sequence[Any], biases: bool, layers: int, both: bool, gates: int
) -> Iterator[tuple[int, ...]]:
    """The shapes of the weights, of each layer in each direction."""
    outputs, hidden = states[0].shape[2], states[-1].shape[2]
    directions = 2 if both else 1
    for layer in range(layers):
        inputs = outputs * directions if layer else features
        for _ in range(directions):
            yield gates * hidden, inputs
            yield gates * hidden, outputs
            yield from [(gates * hidden,)] * (2 if biases else 0)
            if outputs != hidden:
                yield outputs, hidden
