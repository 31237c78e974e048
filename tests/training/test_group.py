"""Hops that are made together: their gradients are averaged at each step, through shared memory."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cerebro_db.errors import ConfigurationFailed, PeerLost
from cerebro_db.training.averaging import of_replica
from cerebro_db.training.peers.peers import Peers, ProcessGroup
from cerebro_db.training.scores.targets import TargetFacts
from tests.training.conftest import CLASSES, Data, net, order_of, weights_of

LOSS = "loss='categorical_crossentropy'"


def meetings(size: int, is_root: int = -1) -> list[ProcessGroup]:
    """A process_group, as each of its members knows it."""
    name, secret = f"test-{secrets.token_hex(8)}", secrets.token_bytes(16)
    leader = is_root % size
    return [ProcessGroup(name, secret, size, rank, rank == leader) for rank in range(size)]


def side_by_side(work: Callable[[int], Any], size: int) -> list[Any]:
    """What comes of as many threads."""
    with ThreadPoolExecutor(size) as pool:
        return [one.result() for one in [pool.submit(work, rank) for rank in range(size)]]


# -- peers -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_root", [0, 2])
def test_peers_agree_on_a_mean_to_the_bit(is_root: int) -> None:
    generator = np.random.default_rng(0)
    own, rows = generator.normal(size=(3, 5, 101)).astype(np.float32), [8, 3, 0]
    given = meetings(3, is_root)

    def work(rank: int) -> list[np.ndarray]:
        peers = Peers(given[rank], 101, lambda: None)
        means = [peers.mean(one if rows[rank] else None, rows[rank], 101) for one in own[rank]]
        told = peers.gather(rank * 10)
        assert told == ([0, 10, 20] if rank == is_root else [])
        peers.close()
        return means

    found = side_by_side(work, 3)
    for rank in (1, 2):
        np.testing.assert_array_equal(found[0], found[rank])
    wanted = np.average(own.astype(np.float64), axis=0, weights=rows).astype(np.float32)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)


def test_a_peer_that_leaves_is_missed_at_once() -> None:
    given = meetings(3)

    def work(rank: int) -> str:
        peers = Peers(given[rank], 4, lambda: None)
        try:
            peers.mean(np.ones(4, np.float32), 1, 4)
            if rank == 0:
                return "left"
            peers.mean(np.ones(4, np.float32), 1, 4)
        except PeerLost as error:
            return error.message
        finally:
            peers.close()
        return "went on"

    assert side_by_side(work, 3) == ["left", "a peer has ended", "a peer has ended"]


def test_nobody_meets_without_the_secret() -> None:
    one, other = meetings(2)
    stranger = ProcessGroup(one.name, b"guessed", 2, one.rank, one.is_root)

    def work(rank: int) -> str:
        try:
            Peers([stranger, other][rank], 4, lambda: None).close()
        except PeerLost as error:
            return error.message
        return "met"

    assert all("did not meet" in told for told in side_by_side(work, 2))


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_for_peers_can_be_stopped(rank: int) -> None:
    def tick() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Peers(meetings(2)[rank], 4, tick)


def initial(recipe: Any, data: Data) -> bytes:
    """The state before the first hop. Keras seeds it for all threads, so it is made in one of them."""
    from cerebro_db.training.hop import Hop, HopTask, RoundPart
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs

    order, none = order_of(5, 1, 0), RoundPart(0, (0, 0))
    task = HopTask(recipe, order, data.buffers, (1, "training", 0), 7, True, part=none)
    hop = Hop(task, None, None, Programs(), PartitionCache(2**20), lambda: None)
    for buffer_id, piece in enumerate(data.pieces(0)):
        hop.feed(0, buffer_id, *piece)
    return hop.finish()[0]


# -- hops --------------------------------------------------------------------------------------------
def parts_of(
    recipe: Any,
    data: Data,
    state: bytes | None,
    rows: Sequence[int] = (),
    cache_bytes: int = 2**20,
    is_root: int = -1,
    bits: int = 32,
    is_pipelined: bool = False,
    shares: Sequence[int] = (),
) -> tuple[bytes, list[Any]]:
    """A round over all partitions of some data, of which those of so many rows count; state, reports."""
    from cerebro_db.training.hop import HopTask, RoundPart
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.peers.group import GroupHop
    from cerebro_db.training.programs import Programs

    total, size = data.buffers.total, len(data.features)
    state = initial(recipe, data) if state is None else state
    counts, given = list(rows) or [total] * size, meetings(size, is_root)
    sizes = list(shares) or [recipe.fit_params.batch_size] * size
    steps = max(math.ceil(count / own) for count, own in zip(counts, sizes, strict=True))

    def work(rank: int) -> Any:
        order = order_of(5, 1, rank, shuffle=recipe.fit_params.shuffle)
        part = RoundPart(
            rank,
            (0, counts[rank]),
            process_group=replace(given[rank], bits=bits),
            steps=steps,
            is_pipelined=is_pipelined,
            batch_size=sizes[rank] if shares else None,
        )
        task = HopTask(recipe, order, data.buffers, (1, "training", rank), 7, False, part=part)
        hop = GroupHop(task, state, None, Programs(), PartitionCache(cache_bytes), lambda: None)
        pieces = data.pieces(rank)
        for subepoch in range(recipe.fit_params.epochs):
            for buffer_id in order.buffers(subepoch, data.buffers.ids):
                hop.feed(subepoch, buffer_id, *pieces[buffer_id])
        return hop.finish()

    found = side_by_side(work, size)
    ((leader, left),) = [(rank, one) for rank, one in enumerate(found) if one[0]]
    assert all(
        reports == [left[1][rank]] for rank, (_, reports) in enumerate(found) if rank != leader
    )
    return left


def batches_of(
    data: Data, counts: Sequence[int], size: int, epoch: int = 1, shares: Sequence[int] = ()
) -> list[Any]:
    """The rows of each step, of all partitions one after another, in the order of their hops."""
    ordered = []
    for rank, count in enumerate(counts):
        order, pieces = order_of(5, epoch, rank), data.pieces(rank)
        rows = [
            (x[index], y[index])
            for buffer_id in order.buffers(0, data.buffers.ids)
            for x, y in [pieces[buffer_id]]
            for index in [order.rows(0, buffer_id, len(x))]
        ]
        x, y = (np.concatenate(part)[:count] for part in zip(*rows, strict=True))
        ordered.append((x, y))
    sizes = list(shares) or [size] * len(counts)
    steps = max(math.ceil(count / own) for count, own in zip(counts, sizes, strict=True))
    return [
        tuple(
            np.concatenate(
                [
                    part[which][step * own : (step + 1) * own]
                    for part, own in zip(ordered, sizes, strict=True)
                ]
            )
            for which in (0, 1)
        )
        for step in range(steps)
    ]


@pytest.mark.parametrize("cache_bytes", [2**20, 0], ids=["in memory", "streamed"])
def test_who_shares_a_batch_takes_its_rows_together(
    recipe: Callable[..., Any], cache_bytes: int
) -> None:
    """As plain Keras with batches of that size, of rows of all partitions."""
    import keras

    from cerebro_db.core.strategies import shares_of
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.state import from_bytes

    data, shares = Data((20, 17), partitions=3), shares_of(8, 3)
    assert shares == [3, 3, 2]
    given = recipe(net(), f"{LOSS},optimizer='SGD(lr=0.1)'")
    state, reports = parts_of(given, data, None, shares=shares, cache_bytes=cache_bytes)
    model = models.build(given.architecture, 7)
    model.compile(
        optimizer=models.make_optimizer(given.compile_params.optimizer),
        loss=keras.losses.CategoricalCrossentropy(),
    )
    for x, y in batches_of(data, [37] * 3, 8, shares=shares):
        model.train_on_batch(x, keras.utils.to_categorical(y, CLASSES))
    for ours, theirs in zip(weights_of(state), model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [report.rows for report in reports] == [37] * 3
    steps = next(one for name, one in from_bytes(state).items() if name.endswith("/iteration"))
    assert steps == 19


@pytest.mark.parametrize("optimizer", ["SGD(lr=0.1)", "SGD(lr=0.05,momentum=0.9)", "Adam(lr=0.01)"])
def test_together_they_equal_plain_keras_with_all_their_rows_in_a_batch(
    recipe: Callable[..., Any], optimizer: str
) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.state import from_bytes

    data, counts = Data((20, 17), partitions=3), [37, 37, 21]  # one has ended before the others
    given = recipe(net(), f"{LOSS},optimizer='{optimizer}'")
    state, reports = parts_of(given, data, None, counts)
    model = models.build(given.architecture, 7)
    model.compile(
        optimizer=models.make_optimizer(given.compile_params.optimizer),
        loss=keras.losses.CategoricalCrossentropy(),
    )
    for x, y in batches_of(data, counts, 8):
        model.train_on_batch(x, keras.utils.to_categorical(y, CLASSES))
    for ours, theirs in zip(weights_of(state), model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [report.rows for report in reports] == counts
    steps = next(one for name, one in from_bytes(state).items() if name.endswith("/iteration"))
    assert steps == 5


@pytest.mark.parametrize("cache_bytes", [2**20, 0], ids=["in memory", "streamed"])
def test_the_bits_do_not_depend_on_who_leads_or_how_rows_come(
    recipe: Callable[..., Any], full_net: str, cache_bytes: int
) -> None:
    data = Data((20, 17), partitions=2)
    given = recipe(full_net, fit_params="batch_size=8,epochs=2")
    first, _ = parts_of(given, data, None)
    again, _ = parts_of(given, data, None, cache_bytes=cache_bytes, is_root=0)
    assert first == again
    assert parts_of(given, data, first)[0] != first


def test_averages_of_batches_are_averaged_and_generators_are_those_of_the_first(
    recipe: Callable[..., Any], full_net: str
) -> None:
    from cerebro_db.training.state import from_bytes

    data = Data((20, 17), partitions=2)
    given = recipe(full_net)
    start = initial(given, data)
    both = from_bytes(parts_of(given, data, start, [37, 21])[0])
    before = from_bytes(start)
    seeds = [name for name in both if name.startswith("others/")]
    assert seeds
    assert all(both[name][0] == before[name][0] for name in seeds)
    replica = of_replica(before, 1)
    assert all(replica[name][0] != before[name][0] for name in seeds)
    moving = [name for name in both if "moving" in name]
    assert moving
    assert all((both[name] != before[name]).any() for name in moving)


@pytest.mark.parametrize("is_root", [0, 1])
def test_counts_of_batches_are_those_of_the_first(recipe: Callable[..., Any], is_root: int) -> None:
    """A module counts the batches that its replica has seen, which are not as many in each."""
    torch = pytest.importorskip("torch")
    from cerebro_db.client.exporting import exported
    from cerebro_db.training.state import from_bytes

    layers = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, CLASSES)
    text, _ = exported(torch.nn.Sequential(*layers), (torch.zeros(2, 6),))
    given = recipe(text, "loss='cross_entropy',optimizer='SGD(lr=0.1)'")
    state, _ = parts_of(given, Data((20, 17), partitions=2), None, [37, 21], is_root=is_root)
    assert from_bytes(state)["weights/1.num_batches_tracked"] == 5


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_of_a_loss_that_is_not_finite_one_tells_and_the_others_have_lost_a_peer(
    recipe: Callable[..., Any], is_pipelined: bool
) -> None:
    data = Data((20, 17), partitions=2)
    data.features[1] = 1e30
    given = recipe(net(activation="linear"), "loss='mse',optimizer='SGD(lr=1e30)'")
    with pytest.raises((ConfigurationFailed, PeerLost)):
        parts_of(given, data, None, is_pipelined=is_pipelined)


# -- Pipe-SGD ----------------------------------------------------------------------------------------
def linear() -> str:
    """The JSON of a linear model."""
    import keras

    return str(keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)]).to_json())


def truncated(gradient: np.ndarray) -> np.ndarray:
    return (gradient.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def quantised(gradient: np.ndarray) -> np.ndarray:
    scale = np.abs(gradient).max() / 127
    return np.rint(gradient / scale) * scale


def pipe(weights: np.ndarray, steps: Any, rate: float, compressed: Callable[..., Any]) -> Any:
    """The algorithm of the paper with a pipeline of width 2, on the squared error of a linear model."""
    before = None
    for parts in steps:  # of each step, the rows of each worker
        gradients = []
        for x, y in parts:
            ones = np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)
            gradient = 2 / len(x) * ones.T @ (ones @ weights - y[:, 0])
            gradients.append(compressed(gradient.astype(np.float32)))
        if before is not None:
            weights = weights - rate * before
        before = np.average(gradients, axis=0, weights=[len(x) for x, _ in parts])
    return weights - rate * before


@pytest.mark.parametrize(
    ("bits", "compressed"), [(32, lambda one: one), (16, truncated), (8, quantised)]
)
def test_pipelined_they_equal_ten_lines_of_numpy(
    recipe: Callable[..., Any], bits: int, compressed: Callable[..., Any]
) -> None:
    data, rows = Data((20, 20), partitions=3), 40
    generator = np.random.default_rng(4)
    truth = generator.normal(size=(6, 1))
    noise = generator.normal(size=(3, rows, 1))
    targets: Any = (data.features @ truth + noise).astype(np.float32)
    data.targets = targets
    given = recipe(
        linear(), "loss='mse',optimizer='SGD(lr=0.05)'", targets=TargetFacts("float", 0, (1,))
    )
    start = initial(given, data)
    state, _ = parts_of(given, data, start, bits=bits, is_pipelined=True)
    apart = [
        batches_of(data, [rows if one == rank else 0 for one in range(3)], 8) for rank in range(3)
    ]
    first = np.concatenate([one.reshape(-1) for one in weights_of(start)])
    wanted = pipe(first, list(zip(*apart, strict=True)), 0.05, compressed)
    found = np.concatenate([one.reshape(-1) for one in weights_of(state)])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    together, _ = parts_of(given, data, start)
    assert (
        np.abs(found - np.concatenate([one.reshape(-1) for one in weights_of(together)])).max()
        > 1e-3
    )
