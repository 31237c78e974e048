"""Brackets of Hyperband: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter
Optimization, JMLR 2018, algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """A round of a bracket.

    Attributes:
        trials: how many are in it.
        epochs: that each has been trained for at its end.
    """

    trials: int
    epochs: int


@dataclass(frozen=True)
class Bracket:
    """Rungs, of which each keeps the best of the one before."""

    s: int
    rungs: tuple[Rung, ...]

    @property
    def epochs(self) -> int:
        """Of all its trials together: what a trial has been trained for is not trained again."""
        before, total = 0, 0
        for rung in self.rungs:
            total += rung.trials * (rung.epochs - before)
            before = rung.epochs
        return total


def brackets(most: int, eta: int, skip_last: int = 0) -> list[Bracket]:
    """The brackets of Hyperband, the one that explores most first.

    Args:
        most: R, epochs of one trial at most.
        eta: one of so many trials goes on to the next rung.
        skip_last: rungs that are left out at the end of each bracket.
    """
    s_max = 0
    while eta ** (s_max + 1) <= most:
        s_max += 1
    found = []
    for s in range(s_max, -1, -1):
        trials = -(-(s_max + 1) * eta**s // (s + 1))
        rungs = tuple(
            Rung(trials // eta**i, max(1, most * eta**i // eta**s))
            for i in range(s + 1 - skip_last)
        )
        if rungs:
            found.append(Bracket(s, rungs))
    return found


def halving(trials: int, least: int, most: int, eta: int) -> Bracket:
    """The bracket of successive halving: rungs until one trial is left, or all epochs are made.

    Args:
        trials: in the first rung.
        least: epochs of the first rung.
        most: epochs of the last one.
        eta: one of so many trials goes on to the next rung.
    """
    rungs = [Rung(trials, min(least, most))]
    while rungs[-1].epochs < most and rungs[-1].trials >= eta:
        rungs.append(Rung(rungs[-1].trials // eta, min(rungs[-1].epochs * eta, most)))
    return Bracket(0, tuple(rungs))
