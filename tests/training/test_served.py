"""Hops whose weights a parameter server holds: results, orders that are made again, probes, ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from cerebro_db.errors import ConfigurationFailed, InvalidState, PeerLost
from cerebro_db.training.peers import updates
from tests.training.conftest import Data, net, order_of
from tests.training.test_group import LOSS, initial, meetings, parts_of, side_by_side

MOMENTUM = f"{LOSS},optimizer='SGD(lr=0.05,momentum=0.9)'"


def served(
    recipe: Any,
    data: Data,
    state: bytes,
    groups: int | None,
    rows: Sequence[int] = (),
    cache_bytes: int = 2**20,
    is_root: int = -1,
    **more: Any,
) -> tuple[bytes, Any]:
    """A round over all partitions of some data: the state, and the record."""
    from cerebro_db.training.hop import HopTask, RoundPart
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.peers.group import ParameterServerHop
    from cerebro_db.training.peers.parameter_server import ServedRound
    from cerebro_db.training.programs import Programs

    total, size = data.buffers.total, len(data.features)
    counts, given = list(rows) or [total] * size, meetings(size, is_root)
    steps = [math.ceil(count / recipe.fit_params.batch_size) for count in counts]
    passes = recipe.fit_params.epochs
    asked = ServedRound(groups, tuple(steps), passes, **more)

    def work(rank: int) -> Any:
        order = order_of(5, 1, rank, shuffle=recipe.fit_params.shuffle)
        part = RoundPart(
            rank, (0, counts[rank]), process_group=given[rank], steps=max(steps), served=asked
        )
        task = HopTask(recipe, order, data.buffers, (1, "training", rank), 7, False, part=part)
        hop = ParameterServerHop(
            task, state, None, Programs(), PartitionCache(cache_bytes), lambda: None
        )
        pieces = data.pieces(rank)
        for subepoch in range(passes):
            for buffer_id in order.buffers(subepoch, data.buffers.ids):
                hop.feed(subepoch, buffer_id, *pieces[buffer_id])
        return hop.finish()[0], hop.course

    found = side_by_side(work, size)
    (left,) = [one for one in found if one[0]]
    assert [record for one, record in found if not one] == [None] * (size - 1)
    return left


@pytest.mark.parametrize(
    ("optimizer", "is_root", "cache_bytes"),
    [("SGD(lr=0.05,momentum=0.9)", -1, 2**20), ("Adam(lr=0.01)", 0, 0)],
)
def test_a_synchronous_server_equals_allreduce_to_the_bit(
    recipe: Callable[..., Any], full_net: str, optimizer: str, is_root: int, cache_bytes: int
) -> None:
    data, counts = Data((20, 17), partitions=3), [37, 37, 21]
    given = recipe(full_net, f"{LOSS},optimizer='{optimizer}'", "batch_size=8,epochs=2")
    start = initial(given, data)
    wanted, _ = parts_of(given, data, start, counts)
    found, record = served(given, data, start, 1, counts, is_root=is_root, cache_bytes=cache_bytes)
    assert found == wanted
    assert (record.groups, record.momentum, record.probes) == (1, None, "")
    assert record.stalest == [0] * 3
    assert updates.from_bytes(record.updates, 10) == [0] * 10


def test_a_recorded_order_gives_the_same_bits(recipe: Callable[..., Any], full_net: str) -> None:
    data, counts, groups = Data((20, 17), partitions=3), [37, 30, 16], 2
    given = recipe(full_net, MOMENTUM, "batch_size=4,epochs=2")
    start = initial(given, data)
    first, record = served(given, data, start, groups, counts, momentum=0.4)
    again, repeated = served(
        given,
        data,
        start,
        groups,
        counts,
        momentum=0.4,
        order=record.updates,
        is_root=0,
        cache_bytes=0,
    )
    assert first == again
    assert record == repeated
    steps = [20, 8]
    order = updates.from_bytes(record.updates, sum(steps))
    assert [order.count(group) for group in range(groups)] == steps
    assert max(record.stalest) > 0
    one_by_one = [0] * steps[0] + [1] * steps[1]
    other, told = served(
        given, data, start, groups, counts, momentum=0.4, order=updates.to_bytes(one_by_one)
    )
    assert (other == first) == (one_by_one == order)
    assert told.stalest == [0, 0, steps[0]]


def test_an_order_of_another_round_is_refused(recipe: Callable[..., Any]) -> None:
    data = Data((20, 17), partitions=2)
    given = recipe(net(), MOMENTUM)
    start = initial(given, data)
    with pytest.raises((InvalidState, PeerLost)) as caught:
        served(given, data, start, 2, order=updates.to_bytes([0] * 10))
    assert isinstance(caught.value, PeerLost) or "order of 10 updates" in caught.value.message


def test_momentum_and_rate_are_those_of_the_task(recipe: Callable[..., Any]) -> None:
    data = Data((20, 17), partitions=2)
    asked = recipe(net(), MOMENTUM)
    other = recipe(net(), f"{LOSS},optimizer='SGD(lr=0.01,momentum=0.3)'")
    start = initial(asked, data)
    wanted, _ = parts_of(other, data, initial(other, data))
    found, record = served(asked, data, start, 1, momentum=0.3, rate=float(np.float32(0.01)))
    assert found == wanted
    assert (record.momentum, record.learning_rate) == (0.3, float(np.float32(0.01)))


def test_probes_choose_and_leave_no_trace(recipe: Callable[..., Any], full_net: str) -> None:
    import json

    data = Data((20, 17), partitions=3)
    given = recipe(full_net, MOMENTUM, "batch_size=8,epochs=2")
    start = initial(given, data)
    left, record = served(given, data, start, None, [37, 37, 0], probe_steps=4)
    probes = json.loads(record.probes)
    assert len(probes) >= len(updates.MOMENTA) * len(updates.FACTORS)
    chosen = {"groups": record.groups, "momentum": record.momentum}
    (best,) = [
        one
        for one in probes
        if chosen.items() <= one.items()
        and record.learning_rate == np.float32(np.float32(0.05) * one["factor"])
    ]
    alike = [one for one in probes if one["groups"] == record.groups]
    assert best["loss"] == min(one["loss"] for one in alike)
    again, _ = served(
        given, data, start, record.groups, [37, 37, 0],
        momentum=record.momentum, rate=record.learning_rate, order=record.updates,
    )  # fmt: skip
    assert left == again


def test_a_trainer_without_rows_is_no_hindrance(recipe: Callable[..., Any]) -> None:
    data = Data((20, 17), partitions=3)
    given = recipe(net(), MOMENTUM)
    start = initial(given, data)
    wanted, _ = parts_of(given, data, start, [37, 37, 0])
    assert served(given, data, start, 1, [37, 37, 0])[0] == wanted
    _, record = served(given, data, start, 3, [37, 37, 0])
    assert record.counts == [5, 5, 0]


def test_of_a_loss_that_is_not_finite_one_tells_and_the_others_have_lost_a_peer(
    recipe: Callable[..., Any],
) -> None:
    data = Data((20, 17), partitions=2)
    data.features[1] = 1e30
    given = recipe(net(activation="linear"), "loss='mse',optimizer='SGD(lr=1e30)'")
    with pytest.raises((ConfigurationFailed, PeerLost)):
        served(given, data, initial(given, data), 2)


def test_replicas_of_different_sizes_leave_the_generators_of_the_first(
    recipe: Callable[..., Any], full_net: str
) -> None:
    data, counts = Data((20, 17), partitions=2), [37, 21]
    given = recipe(full_net)
    start = initial(given, data)
    assert (
        parts_of(given, data, start, counts, is_root=0)[0]
        == parts_of(given, data, start, counts, is_root=1)[0]
    )
