"""The order of trials with several values is that of its definition, and is found fast."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence

import pytest
from pace import stretched

from cerebro_db.decide.search.ranking import Ranking, Values, fronts, ranked


def dominates(ours: Values, theirs: Values) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def by_definition(values: Mapping[int, Values]) -> list[list[int]]:
    """Front by front, those that no other of the rest dominates."""
    left, found = dict(values), []
    while left:
        front = [
            key
            for key, ours in sorted(left.items())
            if not any(dominates(theirs, ours) for theirs in left.values())
        ]
        found.append(front)
        left = {key: value for key, value in left.items() if key not in front}
    return found


def apart(front: Sequence[int], values: Mapping[int, Values]) -> list[int]:
    """A front by the distances of NSGA-II."""
    distance = dict.fromkeys(front, 0.0)
    for place in range(len(values[front[0]])):
        order = sorted(front, key=lambda key: (values[key][place], key))
        low, high = values[order[0]][place], values[order[-1]][place]
        distance[order[0]] = distance[order[-1]] = math.inf
        if 0 < high - low < math.inf:
            for before, key, after in zip(order, order[1:], order[2:], strict=False):
                distance[key] += (values[after][place] - values[before][place]) / (high - low)
    return sorted(front, key=lambda key: (-distance[key], key))


def drawn(count: int, width: int, seed: int, steps: int) -> dict[int, Values]:
    """Values of which some are equal, and some infinite."""
    draw = random.Random(seed)
    keys = draw.sample(range(1, 10 * count), count)
    return {
        key: tuple(
            math.inf if draw.random() < 0.03 else draw.randrange(steps) / steps
            for _ in range(width)
        )
        for key in keys
    }


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [4, 1000])
def test_fronts_and_order_are_those_of_the_definition(width: int, steps: int) -> None:
    for seed in range(12):
        values = drawn(5 + 7 * seed, width, seed, steps)
        wanted = by_definition(values)
        assert fronts(values) == wanted
        if width == 1:
            assert ranked(values) == [key for _, key in sorted((v, k) for k, v in values.items())]
        else:
            assert ranked(values) == [key for one in wanted for key in apart(one, values)]


def test_nothing_has_an_order() -> None:
    assert ranked({}) == fronts({}) == Ranking().best(3) == []


@pytest.mark.parametrize("width", [1, 2])
def test_what_becomes_known_one_by_one_is_the_same(width: int) -> None:
    values, ranking = drawn(60, width, 1, 20), Ranking()
    known: dict[int, Values] = {}
    for key, value in [*values.items(), *drawn(20, width, 1, 20).items()]:
        ranking.add(key, value)
        known[key] = value
        assert len(ranking) == len(known)
        assert ranking.best(len(known)) == ranked(known)
        assert ranking.best(2) == ranked(known)[:2]


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_a_thousand_trials_are_ordered_within_a_decision(width: int) -> None:
    values, ranking = drawn(1000, width, 2, 10**9), Ranking()
    for key, value in values.items():
        ranking.add(key, value)
    spent = []
    for _ in range(5):
        began = time.process_time()
        assert len(ranking.best(333)) == 333
        spent.append(time.process_time() - began)
    # Where all pairs are compared it takes far longer.
    assert min(spent) < stretched(0.03)
