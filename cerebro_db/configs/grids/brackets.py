"""The brackets of Hyperband: how many configurations each begins with, and what each rung leaves.

Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar: Hyperband: A Novel Bandit-Based Approach to
Hyperparameter Optimization, JMLR 18 (2018), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Bracket", "Rung", "brackets", "halving", "largest_bracket"]


@dataclass(frozen=True)
class Rung:
    """The configurations of a bracket that are trained until so many epochs are done.

    Attributes:
        configurations: how many come here.
        epochs: of each when it is compared with the others, those of earlier rungs among them.
    """

    configurations: int
    epochs: int


@dataclass(frozen=True)
class Bracket:
    """A run of successive halving.

    Attributes:
        s: number of the bracket, which is the number of its last rung in the paper.
        rungs: in their order.
    """

    s: int
    rungs: tuple[Rung, ...]

    @property
    def epochs(self) -> int:
        """Of all its configurations together: those of earlier rungs are not trained again."""
        before, total = 0, 0
        for rung in self.rungs:
            total += rung.configurations * (rung.epochs - before)
            before = rung.epochs
        return total


def largest_bracket(r: int, eta: int) -> int:
    """The largest whole number s with eta ** s <= r."""
    s = 0
    while eta ** (s + 1) <= r:
        s += 1
    return s


def brackets(r: int, eta: int, skip_last: int = 0) -> list[Bracket]:
    """The brackets, that with the most configurations first.

    Args:
        r: most epochs of a configuration, R of the paper.
        eta: of so many configurations one comes to the next rung.
        skip_last: rungs at the end of each bracket that are left out, as MADlib has it; a bracket
            of which nothing is left is left out too.
    """
    s_max = largest_bracket(r, eta)
    found = []
    for s in range(s_max, -1, -1):
        first = -(-((s_max + 1) * eta**s) // (s + 1))
        rungs = tuple(
            Rung(first // eta**i, max(1, round(Fraction(r, eta ** (s - i)))))
            for i in range(s + 1 - skip_last)
        )
        if rungs:
            found.append(Bracket(s, rungs))
    return found


def halving(configurations: int, least: int, most: int, eta: int) -> Bracket:
    """The bracket of successive halving: rungs until one configuration is left, or all epochs are made.

    Args:
        configurations: of the first rung.
        least: epochs of the first rung.
        most: epochs of the last one.
        eta: of so many configurations one comes to the next rung.
    """
    rungs = [Rung(configurations, min(least, most))]
    while rungs[-1].epochs < most and rungs[-1].configurations >= eta:
        rungs.append(Rung(rungs[-1].configurations // eta, min(rungs[-1].epochs * eta, most)))
    return Bracket(0, tuple(rungs))
