"""Replicas of a configuration, and the mean of their states."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cerebro_db.core.strategies import rows_of_round
from cerebro_db.errors import InvalidState
from cerebro_db.training.averaging import StateMean, of_replica
from cerebro_db.training.state import from_bytes, to_bytes
from tests.training.conftest import Data, net, order_of


def mean(parts: list[dict[str, np.ndarray]], weights: list[float]) -> dict[str, np.ndarray]:
    made = StateMean(weights)
    for part in parts:
        made.add(to_bytes(part))
    return from_bytes(made.finish())


def test_the_mean_is_that_of_numpy() -> None:
    generator = np.random.default_rng(1)
    parts = [
        {
            "weights/0/kernel": generator.normal(size=(5, 3)).astype(np.float32),
            "optimizer/0/iteration": np.asarray(number, np.int64),
            "others/0/seed": np.asarray([7, number], np.uint32),
        }
        for number in range(3)
    ]
    weights = [31.0, 40.0, 9.0]
    found = mean(parts, weights)
    stacked = np.stack([part["weights/0/kernel"] for part in parts]).astype(np.float64)
    wanted = np.average(stacked, axis=0, weights=weights).astype(np.float32)
    np.testing.assert_allclose(found["weights/0/kernel"], wanted, rtol=1e-7)
    assert found["optimizer/0/iteration"] == 1  # of the one with the most rows
    assert found["others/0/seed"].tolist() == [7, 1]
    assert list(found) == list(parts[0])
    alike = mean(parts, [0.0, 0.0, 0.0])["weights/0/kernel"]
    np.testing.assert_allclose(alike, stacked.mean(axis=0), rtol=1e-6)
    assert (mean(parts[:1] * 3, weights)["weights/0/kernel"] == parts[0]["weights/0/kernel"]).all()


def test_what_is_no_round_is_refused() -> None:
    one, other = {"a": np.zeros(2, np.float32)}, {"a": np.zeros(3, np.float32)}
    with pytest.raises(InvalidState, match="another model as number 2"):
        mean([one, other], [1.0, 1.0])
    with pytest.raises(InvalidState, match="got 1 of 2 states"):
        mean([one], [1.0, 1.0])
    with pytest.raises(InvalidState, match="more than 1"):
        mean([one, one], [1.0])


def test_replicas_draw_other_numbers_and_the_first_one_those_of_the_state() -> None:
    state = {
        "weights/0/kernel": np.ones(2, np.float32),
        "others/0/seed_generator_state": np.asarray([2**32 - 1, 5], np.uint32),
    }
    assert of_replica(state, 0) is state
    seeds = {
        int(of_replica(state, place)["others/0/seed_generator_state"][0]) for place in range(9)
    }
    assert len(seeds) == 9
    assert of_replica(state, 3)["others/0/seed_generator_state"][1] == 5
    back = of_replica(of_replica(state, 3), -3)
    assert back["others/0/seed_generator_state"].tolist() == [2**32 - 1, 5]


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 7])
def test_rounds_deal_all_batches_of_a_pass(rounds: int) -> None:
    for rows in (37, 40, 20, 3):
        found = [rows_of_round(rows, 40, 8, number, rounds) for number in range(rounds)]
        assert found[0][0] == 0
        assert found[-1][1] == rows
        assert all(a[1] == b[0] for a, b in pairwise(found))
        assert all(start % 8 == 0 or start == rows for start, _ in found)


def part_of(
    recipe: Any, data: Data, state: bytes | None, part: Any, cache_bytes: int = 2**20
) -> tuple[bytes, Any]:
    """A hop over partition 1 that trains on a part of its rows."""
    from cerebro_db.training.hop import Hop, HopTask
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs

    order = order_of(5, 1, 1)
    task = HopTask(recipe, order, data.buffers, (1, "training", 1), 7, state is None, part=part)
    hop = Hop(task, state, None, Programs(), PartitionCache(cache_bytes), lambda: None)
    pieces = data.pieces(1)
    for subepoch in range(recipe.fit_params.epochs):
        for buffer_id in order.buffers(subepoch, data.buffers.ids):
            hop.feed(subepoch, buffer_id, *pieces[buffer_id])
    state, (report,) = hop.finish()
    return state, report


@pytest.mark.parametrize("cache_bytes", [2**20, 0], ids=["in memory", "streamed"])
def test_the_parts_of_a_pass_are_the_pass(
    recipe: Callable[..., Any], data: Data, cache_bytes: int
) -> None:
    from cerebro_db.training.hop import RoundPart

    given, state, rows = recipe(net()), None, 0
    whole, _ = part_of(given, data, None, None)
    for number in range(3):
        part = RoundPart(0, rows_of_round(37, 37, 8, number, 3))
        state, report = part_of(given, data, state, part, cache_bytes)
        rows += report.rows
    assert state == whole
    assert rows == 37


def test_a_part_without_rows_changes_nothing(recipe: Callable[..., Any], data: Data) -> None:
    from cerebro_db.training.hop import RoundPart

    for cache_bytes in (2**20, 0):
        given = recipe(net())
        state, _ = part_of(given, data, None, None)
        same, report = part_of(given, data, state, RoundPart(0, (37, 37)), cache_bytes)
        assert same == state
        assert report.rows == 0


@pytest.mark.parametrize("rate", ["0.01", "ExponentialDecay(0.01,10,0.5)"])
def test_an_optimizer_that_is_reset_begins_anew(
    recipe: Callable[..., Any], data: Data, full_net: str, rate: str
) -> None:
    from cerebro_db.training.hop import RoundPart

    given = recipe(full_net, f"loss='categorical_crossentropy',optimizer='Adam(lr={rate})'")
    state, _ = part_of(given, data, None, None)
    same, _ = part_of(given, data, state, RoundPart(0, (37, 37), resets=True))
    before, after = from_bytes(state), from_bytes(same)
    kept = [name for name in before if (before[name] == after[name]).all()]
    slots = [name for name in before if name.startswith("optimizer/") and name not in kept]
    assert slots
    assert all((after[name] == 0).all() for name in slots)
    steps = next(name for name in before if name.endswith("/iteration"))
    assert after[steps] == (0 if rate == "0.01" else before[steps])
    assert all(name in kept for name in before if not name.startswith("optimizer/"))
