"""Recurrent operations with states or weights that do not fit, which would end the process, are refused."""

from __future__ import annotations

from typing import Any

import pytest
from training.torch.nets import torch

from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.backends.torch.recurrent import checked, operation

nn = torch.nn
LAYERS: dict[str, tuple[str, Any]] = {
    "lstm": ("lstm.input", lambda: nn.LSTM(4, 3, 2, batch_first=True)),
    "projected": ("lstm.input", lambda: nn.LSTM(4, 3, 2, proj_size=2, bidirectional=True, batch_first=True)),
    "gru": ("gru.input", lambda: nn.GRU(4, 3, 2, bias=False, bidirectional=True, batch_first=True)),
    "rnn": ("rnn_tanh.input", lambda: nn.RNN(4, 3, batch_first=True)),
}  # fmt: skip


def arguments(layer: Any) -> list[Any]:
    """The arguments of the operation of a layer, for five rows."""
    parts = layer.num_layers * (2 if layer.bidirectional else 1)
    states = [torch.zeros(parts, 5, layer.proj_size or 3), torch.zeros(parts, 5, 3)]
    held = states if isinstance(layer, nn.LSTM) else states[0]
    return [torch.randn(5, 6, 4), held, list(layer.parameters()), layer.bias, layer.num_layers, 0.0, False,
            layer.bidirectional, True]  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_what_fits_is_computed(name: str) -> None:
    target, build = LAYERS[name]
    given = arguments(build())
    for ours, theirs in zip(checked(target)(*given), operation(target)(*given), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", LAYERS)
def test_what_does_not_fit_is_refused(name: str) -> None:
    target, build = LAYERS[name]
    given = arguments(build())
    states = given[1] if target == "lstm.input" else [given[1]]
    more = [torch.cat([one, one]) for one in states]
    for place, wrong in (
        (0, given[0][:4]),  # of fewer rows
        (0, given[0][0]),
        (1, more if target == "lstm.input" else more[0]),
        (2, given[2][:-1]),
        (2, [*given[2][1:], given[2][0]]),
        (3, not given[3]),
        (4, 0),
        (4, 2**40),
    ):
        changed = [*given[:place], wrong, *given[place + 1 :]]
        with pytest.raises(InvalidArchitecture, match="allowed: those of its layers"):
            checked(target)(*changed)
