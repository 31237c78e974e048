"""Brackets: the tables of the paper."""

from __future__ import annotations

import pytest

from cerebro_db.decide.search.brackets import brackets, halving

# Table 1 of Li et al., with as many trials as its algorithm 1 has, by s.
PAPER = {
    4: [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    3: [(34, 3), (11, 9), (3, 27), (1, 81)],
    2: [(15, 9), (5, 27), (1, 81)],
    1: [(8, 27), (2, 81)],
    0: [(5, 81)],
}


def shown(found):
    return {one.s: [(rung.trials, rung.epochs) for rung in one.rungs] for one in found}


def test_the_table_of_the_paper() -> None:
    assert shown(brackets(81, 3)) == PAPER
    assert [one.s for one in brackets(81, 3)] == [4, 3, 2, 1, 0]


def test_last_rungs_are_left_out() -> None:
    found = shown(brackets(81, 3, skip_last=2))
    assert found == {s: rungs[:-2] for s, rungs in PAPER.items() if len(rungs) > 2}


@pytest.mark.parametrize(
    ("most", "eta", "expected"),
    [
        (1, 3, {0: [(1, 1)]}),
        (2, 3, {0: [(1, 2)]}),
        (9, 3, {2: [(9, 1), (3, 3), (1, 9)], 1: [(5, 3), (1, 9)], 0: [(3, 9)]}),
        (10, 3, {2: [(9, 1), (3, 3), (1, 10)], 1: [(5, 3), (1, 10)], 0: [(3, 10)]}),
        (4, 2, {2: [(4, 1), (2, 2), (1, 4)], 1: [(3, 2), (1, 4)], 0: [(3, 4)]}),
    ],
)
def test_any_number_of_epochs(most: int, eta: int, expected) -> None:
    assert shown(brackets(most, eta)) == expected


def test_epochs_are_not_made_twice() -> None:
    first = brackets(9, 3)[0]
    assert first.epochs == 9 * 1 + 3 * 2 + 1 * 6


def test_halving_ends_with_one_trial_or_all_epochs() -> None:
    assert shown([halving(9, 1, 27, 3)])[0] == [(9, 1), (3, 3), (1, 9)]
    assert shown([halving(20, 2, 10, 3)])[0] == [(20, 2), (6, 6), (2, 10)]
