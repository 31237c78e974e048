"""The static estimates agree with what was measured, and their rules with what is documented."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.decide.cost import hop_seconds, steps_per_call, use_jit
from cerebro_db.errors import InvalidArgument

DENSE = ArchitectureFacts(26_122, 25_856, False, False, 3, ((64,),), ((10,),))
CONVOLUTION = ArchitectureFacts(225_034, 2_630_000, True, False, 6, ((28, 28, 1),), ((10,),))


@pytest.mark.parametrize(
    ("facts", "batch_size", "milliseconds"),
    [(DENSE, 32, 0.15), (DENSE, 256, 0.85), (CONVOLUTION, 32, 19.0), (CONVOLUTION, 256, 110.0)],
)
def test_measured(facts: ArchitectureFacts, batch_size: int, milliseconds: float) -> None:
    steps = 100
    estimated = hop_seconds(facts, steps * batch_size, batch_size, 1) / steps * 1000
    assert estimated == pytest.approx(milliseconds, rel=0.15)


def test_hop_seconds() -> None:
    assert hop_seconds(DENSE, 100, 32, 3) == pytest.approx(3 * hop_seconds(DENSE, 100, 32, 1))
    assert hop_seconds(DENSE, 97, 32, 1) > hop_seconds(DENSE, 96, 32, 1)


def test_steps_per_call() -> None:
    assert steps_per_call(DENSE, 32, 256) == pytest.approx(1600, rel=0.1)
    assert steps_per_call(DENSE, 1, 4) == 2048
    assert steps_per_call(CONVOLUTION, 32, 3136) == pytest.approx(13, abs=2)
    assert steps_per_call(DENSE, 32, 2**20) == 1
    assert steps_per_call(DENSE, 32, 2**17) == 4


def test_use_jit() -> None:
    assert not use_jit(DENSE, 23_000)
    assert use_jit(DENSE, 23_100)
    assert not use_jit(CONVOLUTION, 10**9)
    assert not use_jit(replace(DENSE, has_random=True), 10**9)


def test_json() -> None:
    facts = ArchitectureFacts(1, 2, True, True, 3, ((None, 4), (2,)), ((1,),))
    assert ArchitectureFacts.from_json(facts.to_json()) == facts
    for text in ("", "[]", "{}", "null", '{"layers": 1}'):
        with pytest.raises(InvalidArgument):
            ArchitectureFacts.from_json(text)
