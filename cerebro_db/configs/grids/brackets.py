"""The brackets of Hyperband: how many configurations each begins with, and what each rung leaves.

Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar: Hyperband: A Novel Bandit-Based Approach to
Hyperparameter Optimization, JMLR 18 (2018), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from cerebro_db.configs.messages import check_range
from cerebro_db.errors import InvalidArgument

_MOST_EPOCHS, _MOST_CONFIGURATIONS = 1_000_000, 100_000


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


def schedule_of(r: int | None, eta: int | None, skip_last: int | None) -> list[Bracket]:
    """The brackets of Hyperband for what someone asks.

    Raises:
        InvalidArgument: a number is out of its range, or the brackets are too large.
    """
    check_range("r", r, 1, _MOST_EPOCHS, optional=False)
    check_range("eta", eta, 2, _MOST_EPOCHS, optional=False)
    check_range("skip_last", skip_last, 0, _MOST_EPOCHS, optional=False)
    numbers = int(r or 0), int(eta or 0), int(skip_last or 0)
    check_brackets(*numbers)
    return brackets(*numbers)


def check_brackets(r: int, eta: int, skip_last: int, what: str = "") -> None:
    """Refuse brackets of no rungs, or too many.

    Args:
        r, eta, skip_last: of the brackets.
        what: whose parameters they are; empty where they are arguments of their own.
    """
    most = largest_bracket(r, eta)
    if skip_last > most:
        got = f"{what}: got skip_last={skip_last}" if what else f"skip_last: got {skip_last}"
        raise InvalidArgument(
            f"{got}; allowed: 0 to {most}, as the largest bracket of "
            f"R={r}, eta={eta} has {most + 1} rungs"
        )
    # The first bracket alone may be too many to write down.
    count = eta**most
    if count <= _MOST_CONFIGURATIONS:
        count = sum(one.rungs[0].configurations for one in brackets(r, eta, skip_last))
    if count > _MOST_CONFIGURATIONS:
        got = f"{what}: got R={r}, eta={eta}," if what else f"r: got {r} with eta := {eta},"
        raise InvalidArgument(
            f"{got} whose brackets have {count} configurations or more; allowed: {_MOST_CONFIGURATIONS}",
            hint="a larger eta makes smaller brackets",
        )
