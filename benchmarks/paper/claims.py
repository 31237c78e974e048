"""Claims of the literature, beside the figures that were measured here: whether the direction agrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# What a case has found, by the name of a strategy: figures as plain values.
Found = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Claim:
    """A claim, and how it is looked at.

    Attributes:
        text: of the claim.
        source: who makes it.
        measured: makes the figure, as text, and whether the direction agrees; None where there is no figure.
    """

    text: str
    source: str
    measured: Callable[[Found], tuple[str, bool] | None]


def _of(found: Found, name: str, key: str) -> float | None:
    value = found.get(name, {}).get(key)
    return None if value is None else float(value)


def _ratio(key: str, one: str, other: str, least: float) -> Callable[[Found], tuple[str, bool] | None]:  # fmt: skip
    """A figure of one strategy in multiples of that of another."""

    def measured(found: Found) -> tuple[str, bool] | None:
        above, below = _of(found, one, key), _of(found, other, key)
        if above is None or not below:
            return None
        return f"{above / below:,.2f} times", above / below >= least

    return measured


def _least_moved(found: Found) -> tuple[str, bool] | None:
    others = {name: one["moved"] for name, one in found.items() if one["exchanges"] != "state"}
    own = _of(found, "hopper", "moved")
    if own is None or not others:
        return None
    name = min(others, key=lambda one: float(others[one]))
    return f"{others[name] / own:,.1f} times as much by {name}, the next", others[name] > own


def _behind(worse: str, better: str) -> Callable[[Found], tuple[str, bool] | None]:
    """Mean accuracy over the epochs of the best model: points that one strategy is behind another."""

    def measured(found: Found) -> tuple[str, bool] | None:
        low, high = _of(found, worse, "mean_best"), _of(found, better, "mean_best")
        if low is None or high is None:
            return None
        return f"{100 * (high - low):+.2f} points behind", high > low

    return measured


def _as_well(one: str, other: str, points: float) -> Callable[[Found], tuple[str, bool] | None]:
    def measured(found: Found) -> tuple[str, bool] | None:
        low, high = _of(found, one, "best"), _of(found, other, "best")
        if low is None or high is None:
            return None
        return f"{100 * (low - high):+.2f} points at the end", low >= high - points

    return measured


CLAIMS = (
    Claim("hopping moves least", "Cerebro (VLDB 2020)", _least_moved),
    Claim(
        "hopping converges as sequential SGD (here: as all-reduce with as many rows an update, at the end)",
        "Cerebro (VLDB 2020)",
        _as_well("hopper", "allreduce", 0.01),
    ),
    Claim(
        "task parallelism converges as hopping",
        "Cerebro (VLDB 2020)",
        _as_well("task", "hopper", 0.0),
    ),
    Claim(
        "averaging converges worse than hopping (mean over the epochs)",
        "Cerebro (VLDB 2020); local SGD",
        _behind("averaging", "hopper"),
    ),
    Claim(
        "hopping trains more rows a second than all-reduce",
        "Cerebro (VLDB 2020)",
        _ratio("rows_per_second", "hopper", "allreduce", 1.0),
    ),
    Claim(
        "a synchronous parameter server is below all-reduce in rows a second",
        "Pipe-SGD (NeurIPS 2018)",
        _ratio("rows_per_second", "allreduce", "parameter server", 1.0),
    ),
    Claim(
        "asynchrony without correction of momentum converges worse (mean over the epochs)",
        "Omnivore; Asynchrony begets momentum (2016)",
        _behind("parameter server, asynchronous", "allreduce"),
    ),
    Claim(
        "asynchrony with correction converges better than without (mean over the epochs)",
        "Omnivore; Asynchrony begets momentum (2016)",
        _behind("parameter server, asynchronous", "4 groups"),
    ),
)


def looked_at(found: Found) -> list[tuple[str, str, str, str]]:
    """For each claim: its text, its source, the figure, and whether the direction agrees."""
    rows = []
    for claim in CLAIMS:
        measured = claim.measured(found)
        text, agrees = ("not measured", None) if measured is None else measured
        told = "" if agrees is None else "yes" if agrees else "no"
        rows.append((claim.text, claim.source, text, told))
    return rows
