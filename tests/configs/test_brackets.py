"""The brackets of Hyperband are those of the paper."""

from __future__ import annotations

import pytest

from cerebro_db.configs.grids.brackets import brackets, halving, largest_bracket

# Table 1 of the paper, R=81 and eta=3: n_i and r_i of the rungs, from s=4 to s=0.
OF_THE_PAPER = {
    4: [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    3: [(34, 3), (11, 9), (3, 27), (1, 81)],
    2: [(15, 9), (5, 27), (1, 81)],
    1: [(8, 27), (2, 81)],
    0: [(5, 81)],
}


def rungs(r: int, eta: int, skip_last: int = 0) -> dict[int, list[tuple[int, int]]]:
    return {
        one.s: [(rung.configurations, rung.epochs) for rung in one.rungs]
        for one in brackets(r, eta, skip_last)
    }


def test_the_table_of_the_paper() -> None:
    assert rungs(81, 3) == OF_THE_PAPER
    assert list(rungs(81, 3)) == [4, 3, 2, 1, 0]


def test_of_madlibs_example() -> None:
    assert rungs(9, 3) == {2: [(9, 1), (3, 3), (1, 9)], 1: [(5, 3), (1, 9)], 0: [(3, 9)]}


def test_rungs_that_are_skipped() -> None:
    assert rungs(9, 3, 1) == {2: [(9, 1), (3, 3)], 1: [(5, 3)]}
    assert rungs(9, 3, 2) == {2: [(9, 1)]}


def test_epochs_that_eta_does_not_divide() -> None:
    assert rungs(10, 3) == {2: [(9, 1), (3, 3), (1, 10)], 1: [(5, 3), (1, 10)], 0: [(3, 10)]}
    assert rungs(1, 2) == {0: [(1, 1)]}
    assert rungs(2, 3) == {0: [(1, 2)]}


@pytest.mark.parametrize("eta", [2, 3, 4, 10])
def test_powers_of_eta_are_not_lost_by_rounding(eta: int) -> None:
    """``floor(log(243, 3))`` is 4 in floating point."""
    for s in range(12):
        assert largest_bracket(eta**s, eta) == s
        assert largest_bracket(eta ** (s + 1) - 1, eta) == s


def test_halving_ends_with_one_configuration_or_all_epochs() -> None:
    def shown(*given: int) -> list[tuple[int, int]]:
        return [(rung.configurations, rung.epochs) for rung in halving(*given).rungs]

    assert shown(9, 1, 27, 3) == [(9, 1), (3, 3), (1, 9)]
    assert shown(20, 2, 10, 3) == [(20, 2), (6, 6), (2, 10)]


def test_epochs_are_not_made_twice() -> None:
    assert brackets(9, 3)[0].epochs == 9 * 1 + 3 * 2 + 1 * 6
