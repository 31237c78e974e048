"""Runs side by side."""

from __future__ import annotations

from cerebro_db.watching.comparing import sides
from cerebro_db.watching.reading import Standing


def standing(key: int, rank: int, rate: float, loss: float) -> Standing:
    params = f"optimizer='SGD(lr={rate})',loss='mse'"
    return Standing(key, rank, 1, params, "", "finished", 1, (), (), None, (), loss, None)


def test_the_same_configuration_stands_side_by_side() -> None:
    first = [standing(1, 2, 0.1, 0.5), standing(2, 1, 0.2, 0.4), standing(3, 3, 0.1, 0.6)]
    second = [standing(7, 1, 0.1, 0.3), standing(8, 2, 0.9, 0.7)]
    found = sides([first, second])
    assert [one.keys for one in found] == [(2, None), (1, 7), (3, None), (None, 8)]
    assert [one.ranks for one in found] == [(1, None), (2, 1), (3, None), (None, 2)]
    assert found[1].results == ({"loss": 0.5}, {"loss": 0.3})
    assert found[1].parameters["learning_rate"] == 0.1
