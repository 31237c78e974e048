"""Order of updates of shared weights: staleness, the momentum that asynchrony brings, the choice of groups."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cerebro_db.errors import InvalidState
from cerebro_db.training.peers.updates import (
    FACTORS,
    MOMENTA,
    GroupModel,
    Setting,
    Updates,
    choose,
    described,
    explicit_momentum,
    from_bytes,
    groups_of,
    halved,
    implicit_momentum,
    to_bytes,
)


def test_groups_differ_in_size_by_one_at_most() -> None:
    for ranks in range(1, 12):
        for groups in range(1, ranks + 1):
            found = groups_of(ranks, groups)
            sizes = [found.count(group) for group in range(groups)]
            assert list(found) == sorted(found)
            assert max(sizes) - min(sizes) <= 1
    with pytest.raises(ValueError, match="got 3; allowed: 1 to 2"):
        groups_of(2, 3)


def test_one_group_waits_for_all_and_is_never_stale() -> None:
    made = Updates(groups_of(3, 1), [2])
    for _ in range(2):
        for rank in (2, 0, 1):
            assert made.next() is None
            assert made.awaits(rank)
            made.pushed(rank)
            assert not made.awaits(rank)
        assert made.next() == 0
        assert made.applied(0) == 0
    assert made.is_done
    assert made.order == [0, 0]


def test_staleness_is_the_number_of_updates_that_a_gradient_has_not_seen() -> None:
    made = Updates(groups_of(4, 2), [3, 2])
    found = []
    for rank in (0, 1, 0, 1, 2, 3, 0, 1, 3, 2):
        made.pushed(rank)
        while (group := made.next()) is not None:
            found.append((group, made.applied(group)))
    assert found == [(0, 0), (0, 0), (1, 2), (0, 1), (1, 1)]
    assert [(one.updates, one.mean, one.most) for one in made.staleness] == [
        (3, 1 / 3, 1),
        (2, 1.5, 2),
    ]


def test_a_recorded_order_is_followed_whoever_comes_first() -> None:
    made = Updates(groups_of(2, 2), [2, 1], order=[1, 0, 0])
    made.pushed(0)
    assert made.next() is None
    made.pushed(1)
    assert made.next() == 1
    made.applied(1)
    assert made.next() == 0
    made.applied(0)
    assert made.next() is None
    made.pushed(0)
    made.applied(0)
    assert made.is_done
    with pytest.raises(InvalidState, match="got an order of 2 updates"):
        Updates(groups_of(2, 2), [2, 1], order=[1, 0])


def test_an_order_is_stored_in_little_and_checked_when_it_is_read() -> None:
    order = np.random.default_rng(0).integers(0, 4, 10_000).tolist()
    data = to_bytes(order)
    assert len(data) < 5_000
    assert from_bytes(data, len(order)) == order
    for wrong, updates in ((data, 9_999), (data, 10_001), (b"x", 1), (b"", 1)):
        with pytest.raises(InvalidState):
            from_bytes(wrong, updates)


# -- Asynchrony begets momentum ----------------------------------------------------------------------
CURVATURES = np.array([0.25, 0.5, 1.0, 2.0])


def course(workers: int, steps: int, rate: float, seed: int) -> np.ndarray:
    """Weights on quadratics after each update, of workers that take random times: float64[steps + 1, n]."""
    generator = np.random.default_rng(seed)
    made = Updates(groups_of(workers, workers), [steps] * workers)
    weights = np.ones(len(CURVATURES))
    read, found = [weights] * workers, [weights]
    for rank in generator.integers(0, workers, steps):  # of exponential times, the next is any
        made.pushed(int(rank))
        group = made.next()
        assert group == rank
        weights = weights - rate * CURVATURES * read[group]
        made.applied(group)
        read[group] = weights
        found.append(weights)
    return np.asarray(found)


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_asynchrony_begets_the_momentum_of_the_paper(workers: int) -> None:
    """In the mean w[t+1] - w[t] = m (w[t] - w[t-1]) - a c w[t]: m is 1 - 1/M, and a the rate / M."""
    steps, rate = 30, 0.2
    mean = np.mean([course(workers, steps, rate, seed) for seed in range(2000)], axis=0)
    moved = np.diff(mean, axis=0)
    regressors = [moved[:-1].reshape(-1), -(CURVATURES * mean[1:-1]).reshape(-1)]
    found, *_ = np.linalg.lstsq(np.stack(regressors, axis=1), moved[1:].reshape(-1), rcond=None)
    assert found[0] == pytest.approx(implicit_momentum(workers), abs=0.02)
    assert found[1] == pytest.approx(rate / workers, rel=0.1)


def test_momentum_is_corrected_by_what_groups_bring() -> None:
    assert [implicit_momentum(groups) for groups in (1, 2, 4)] == [0.0, 0.5, 0.75]
    assert explicit_momentum(0.9, 1) == 0.9
    assert explicit_momentum(0.9, 4) == pytest.approx(0.15)
    assert explicit_momentum(0.5, 8) == pytest.approx(-0.375)
    assert explicit_momentum(-0.2, 2) == pytest.approx(-0.7)


# -- Omnivore ----------------------------------------------------------------------------------------
def chosen(begins: int, loss: Callable[[Setting], float]) -> tuple[Setting, list[Setting]]:
    """The setting that comes of probes with such losses, and all that were tried."""
    asks, tried = choose(begins, 0.9), []
    setting, ended = next(asks), None
    while ended is None:
        tried.append(setting)
        try:
            setting = asks.send(loss(setting))
        except StopIteration as stop:
            ended = stop.value
    assert [one.setting for one in ended[1]] == tried
    return ended[0], tried


def test_groups_are_halved_until_momentum_is_wanted() -> None:
    def loss(one: Setting) -> float:
        total = implicit_momentum(one.groups) + one.momentum
        return abs(total - 0.6) + (one.factor != 1.0)

    best, tried = chosen(8, loss)
    assert best == Setting(1, 0.6, 1.0)
    assert [one.groups for one in tried[:: len(MOMENTA) * len(FACTORS)]] == [8, 4, 2, 1]


def test_the_first_groups_are_kept_where_momentum_helps() -> None:
    best, tried = chosen(4, lambda one: abs(one.momentum - 0.3) + abs(one.factor - 0.1))
    assert best == Setting(4, 0.3, 0.1)
    assert len(tried) == len(MOMENTA) * len(FACTORS)


def test_where_no_loss_is_a_number_what_was_requested_is_kept() -> None:
    best, tried = chosen(2, lambda one: math.nan)
    assert best == Setting(1, 0.9, 1.0)
    assert {one.groups for one in tried} == {1, 2}
    assert described([]) == []


@pytest.mark.parametrize(
    ("update", "push", "cores", "groups"),
    [(0.0, 0.0, 8, 1), (0.0, 0.1, 8, 8), (0.5, 0.05, 8, 2), (0.001, 0.0, 1, 1)],
)
def test_as_few_groups_as_keep_server_or_processors_at_work(
    update: float, push: float, cores: int, groups: int
) -> None:
    model = GroupModel(ranks=8, cores=cores, gradient=1.0, update=update, push=push)
    assert model.saturating == groups
    assert model.throughput(model.saturating) >= 0.95 * max(map(model.throughput, halved(8)))


def test_a_model_tells_again_what_it_was_measured_by() -> None:
    """Four workers on two processors: ten updates, each of two waves of gradients."""
    model = GroupModel.of_one_group(4, 2, 4, 10, working=0.05, updating=0.02, waiting=0.2)
    assert (model.gradient, model.update, model.push) == pytest.approx((0.01, 0.002, 0.00075))
    assert model.seconds(1) == pytest.approx((0.2 + 0.05) / 10)


def test_places_without_rows_make_no_wave() -> None:
    """Two of four workers have rows, and each a processor."""
    model = GroupModel.of_one_group(4, 2, 2, 10, working=0.05, updating=0.02, waiting=0.1)
    assert (model.gradient, model.update, model.push) == pytest.approx((0.01, 0.002, 0.00075))
