"""Kinds of columns that place a number among the training rows by quantiles of these, or by a tree on the target."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.encoded import INDICATOR, described_row, registered
from cerebro_db.columns.numbers import Numeric, is_constant, number, stepped
from cerebro_db.columns.options import Option, Whole, Word
from cerebro_db.columns.surveys import Fitting, Group, Groups, Survey, remark_of_leak

# Bins of which a tree makes leaves.
_FINE = 256
# A leaf of a tree has so many rows where there are enough, else this part of those that it would have on average.
_ROWS_OF_A_LEAF, _PART_OF_AVERAGE = 64, 4
# Of a normal distribution: nothing lies farther out.
_LEAST_SHARE = 1e-7
# Points of the normal curve in its outermost bins, each at half the share of the next one.
_HALVINGS = 10
# Squares of what is below are numbers of double precision.
_FAR = 1e100


class Quantiles(Numeric, frozen=True, omit_defaults=False, eq=False):
    """A number by its place among quantiles; the median is taken where it is missing."""

    sorts: ClassVar[int] = 1

    @property
    def shares(self) -> list[float]:
        """The shares of the rows below the quantiles that are wanted."""
        raise NotImplementedError

    def by_quantiles(self, quantiles: Sequence[float]) -> Self:
        """The encoding that follows from them."""
        raise NotImplementedError

    def facts(self) -> list[str]:
        """Count, the quantiles, and the median, between values as NumPy has them."""
        value = self.number("s")
        shares = ",".join(map(repr, [*self.shares, 0.5]))
        quantiles = f"pg_catalog.percentile_cont('{{{shares}}}'::double precision[])"
        return [f"pg_catalog.count({value})", f"{quantiles} WITHIN GROUP (ORDER BY {value})"]

    def measured(self, survey: Survey, known: int, facts: Sequence[Any]) -> Self:
        """The encoding by the quantiles."""
        *quantiles, median = facts[0]
        low, high = quantiles[0], quantiles[-1]
        if not math.isfinite(high - low):
            raise self.beyond(f"from {low!r} to {high!r}")
        if low == high or (not self.is_whole and is_constant(low, high)):
            quantiles = [low] * len(quantiles)
        return replace(self, fill=median).by_quantiles(quantiles)

    def refinements(self) -> list[str]:
        """Nothing else."""
        return []


@registered
class Robust(Quantiles, frozen=True, omit_defaults=False, eq=False):
    """A number less the median, by the distance of the quartiles, and clipped smoothly: ``x / sqrt(1 + (x / 3)^2)``.

    As in RealMLP (Holzmueller et al. 2024, "Better by Default"): nothing is farther from 0 than 3.
    """

    method: ClassVar[str] = "robust"

    @property
    def shares(self) -> list[float]:
        """The extremes and the quartiles."""
        return [0.0, 0.25, 0.75, 1.0]

    def by_quantiles(self, quantiles: Sequence[float]) -> Self:
        """Median and distance; where the quartiles are equal half the distance of the extremes."""
        low, lower, upper, high = quantiles
        return replace(self, center=self.fill, scale=upper - lower or (high - low) / 2 or 1.0)

    def features_of(self, value: float) -> list[float]:
        """The clipped number."""
        (far,) = super().features_of(value)
        return [far / math.hypot(1.0, far / 3.0)]

    def scaled(self, value: str) -> list[str]:
        """SQL of it."""
        (far,) = super().scaled(value)
        far = f"LEAST(GREATEST({far}, {-_FAR!r}), {_FAR!r})"
        return [f"{far} / pg_catalog.sqrt(1 + ({far} / 3) ^ 2)"]


@registered
class Quantile(Quantiles, frozen=True, omit_defaults=False, eq=False):
    """A number as the share of the training rows below it, or as the normal deviate of that share.

    Between quantiles it is linear. A value that many rows have is in the middle of its share.

    Attributes:
        quantiles: how many parts the quantiles make.
        to: ``normal`` or ``uniform``.
        points: values of the column, sorted; one that has a share of its own is there twice.
        places: what they become.
    """

    method: ClassVar[str] = "quantile"
    options: ClassVar[tuple[Option, ...]] = (
        Whole("quantiles", 2, 1000), Word("to", ("normal", "uniform")), INDICATOR,
    )  # fmt: skip

    quantiles: int = 64
    to: str = "normal"
    points: tuple[float, ...] = ()
    places: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.points) != len(self.places) or not _are_sorted(self.points, self.places):
            raise ValueError(self.points)
        super().__post_init__()

    @property
    def is_fitted(self) -> bool:
        """True once there are points."""
        return bool(self.points)

    @property
    def shares(self) -> list[float]:
        """Equal steps."""
        return _steps(self.quantiles)

    def by_quantiles(self, quantiles: Sequence[float]) -> Self:
        """The points of the curve."""
        points = _without_inner(list(zip(quantiles, self.shares, strict=True)))
        if self.to == "normal":
            points = [(at, _deviate(share)) for at, share in _with_tails(points)]
        return replace(
            self, points=tuple(at for at, _ in points), places=tuple(to for _, to in points)
        )

    def features_of(self, value: float) -> list[float]:
        """The place of a number."""
        if not self.points:
            return [0.0]
        first, last = bisect_left(self.points, value), bisect_right(self.points, value)
        if first < last:
            return [(self.places[first] + self.places[last - 1]) / 2]
        if first in (0, len(self.points)):
            return self.features_of(self.points[0 if first == 0 else -1])
        start, slope = self.points[first - 1], self._slope(first)
        return [self.places[first - 1] + (value - start) * slope]

    def _slope(self, after: int) -> float:
        """The steepness of the curve before a point."""
        run = self.points[after] - self.points[after - 1]
        slope = (self.places[after] - self.places[after - 1]) / run
        return slope if math.isfinite(slope) else 0.0

    def scaled(self, value: str) -> list[str]:
        """SQL of the place."""
        edges = sorted(set(self.points))
        leaves = [repr(self.features_of(edges[0])[0])]
        leaves += [self._between(value, at) for at in edges]
        return [f"({stepped(value, edges, leaves)})::double precision"]

    def _between(self, value: str, edge: float) -> str:
        """SQL of the place of what is not less than a point, and less than the next one."""
        at, to = repr(edge), repr(self.features_of(edge)[0])
        first, after = bisect_left(self.points, edge), bisect_right(self.points, edge)
        if after == len(self.points):
            return to
        line = f"{self.places[after - 1]!r} + ({value} - {at}) * {self._slope(after)!r}"
        return line if after - first == 1 else f"CASE WHEN {value} = {at} THEN {to} ELSE {line} END"

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        yield described_row(position, self.name, fill=self.fill)


@registered
class PiecewiseLinear(Quantiles, frozen=True, omit_defaults=False, eq=False):
    """A number as how much of each of several bins lies below it, from 0 to 1.

    As the encoding of Gorishniy et al. 2022, "On Embeddings for Numerical Features in Tabular Deep Learning". What lies
    beyond the training rows is taken for their extreme.

    Attributes:
        bins: most of them.
        by: ``quantiles``: bins have equally many rows; ``target``: they are the leaves of a decision tree.
        edges: of the bins.
    """

    method: ClassVar[str] = "ple"
    options: ClassVar[tuple[Option, ...]] = (
        Whole("bins", 2, 256), Word("by", ("quantiles", "target")), INDICATOR,
    )  # fmt: skip

    bins: int = 32
    by: str = "quantiles"
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (
            len(self.edges) == 1
            or not _are_sorted(self.edges)
            or len(set(self.edges)) < len(self.edges)
        ):
            raise ValueError(self.edges)
        super().__post_init__()

    @property
    def is_fitted(self) -> bool:
        """True once there are bins."""
        return bool(self.edges)

    @property
    def meaning(self) -> object:
        """The meaning of the features: how many bins there are, wherever they lie."""
        return (super().meaning, len(self.edges))

    @property
    def shares(self) -> list[float]:
        """Equal steps."""
        return _steps(self.bins if self.by == "quantiles" else _FINE)

    def by_quantiles(self, quantiles: Sequence[float]) -> Self:
        """Bins between the quantiles that differ."""
        edges = sorted(set(quantiles))
        # A column that is the same everywhere: one bin, at whose end it is.
        return replace(self, edges=tuple(edges if len(edges) > 1 else [edges[0], edges[0] + 1.0]))

    def fitting(self, survey: Survey) -> Fitting:
        """Quantiles, and the target between them where a tree is wanted."""
        if self.by == "target":
            survey.target(self.name)  # or refused
        fine = yield from super().fitting(survey)
        if self.by == "quantiles":
            return fine
        assert isinstance(fine, PiecewiseLinear)
        return fine.by_tree(survey, (yield Groups(fine.bin("s"))))

    def by_tree(self, survey: Survey, groups: Mapping[int, Group]) -> Self:
        """Bins that are joined to the leaves of a tree."""
        from cerebro_db.columns.trees import cuts  # with NumPy, which few need

        rows = sum(one.rows for one in groups.values())
        least = min(_ROWS_OF_A_LEAF, rows // (_PART_OF_AVERAGE * self.bins))
        found = cuts(groups, len(self.edges) - 1, self.bins, max(1, least))
        leaves: dict[int, Group] = {}
        for place, group in groups.items():
            leaf = bisect_right(found, place)
            leaves[leaf] = leaves[leaf] + group if leaf in leaves else group
        remark_of_leak(survey, self.name, leaves)
        inner = (self.edges[place] for place in found)
        return replace(self, edges=(self.edges[0], *inner, self.edges[-1]))

    def bin(self, alias: str) -> str:
        """SQL of the bin of a row, from 0; NULL where its number is missing."""
        inner = self.edges[1:-1]
        found = stepped(self.value(alias), inner, list(map(str, range(len(inner) + 1))))
        return f"CASE WHEN {self.is_finite(alias)} THEN {found} END"

    @property
    def _bins(self) -> list[tuple[float, float]]:
        return list(itertools.pairwise(self.edges))

    def features_of(self, value: float) -> list[float]:
        """How much of each bin is below a number."""
        return [min(max((value - low) / (high - low), 0.0), 1.0) for low, high in self._bins] or [
            0.0
        ]

    def scaled(self, value: str) -> list[str]:
        """SQL of it."""
        return [
            f"LEAST(GREATEST(({value} - {number(low)}) / {number(high - low)}, 0), 1)"
            for low, high in self._bins
        ]

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        for place, (low, high) in enumerate(self._bins, position):
            feature = f"{self.name} from {low:.6g} to {high:.6g}"
            yield described_row(place, feature, center=low, scale=high - low, fill=self.fill)


def _steps(parts: int) -> list[float]:
    """The ends of equal parts, from 0 to 1."""
    return [place / parts for place in range(parts + 1)]


def _are_sorted(*lists: Sequence[float]) -> bool:
    return all(list(one) == sorted(one) and all(map(math.isfinite, one)) for one in lists)


def _without_inner(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a curve, of several at one place the first and the last one."""
    found = []
    for _, group in itertools.groupby(points, key=lambda point: point[0]):
        first, *_, last = [*(same := list(group)), same[-1]]
        found += [first] if first == last else [first, last]
    return found


def _with_tails(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """With more points in the outermost bins, where the normal curve is bent most."""
    if len(points) < 2:
        return points
    first, last = _halved(points[0], points[1]), _halved(points[-1], points[-2])
    return sorted([*points, *first, *last]) if len(points) > 2 else sorted({*points, *first, *last})


def _halved(end: tuple[float, float], inner: tuple[float, float]) -> list[tuple[float, float]]:
    """Points that come nearer to an end by halves."""
    if end[0] == inner[0]:
        return []
    parts = [2.0**-step for step in range(1, _HALVINGS + 1)]
    return [
        (end[0] + part * (inner[0] - end[0]), end[1] + part * (inner[1] - end[1])) for part in parts
    ]


def _deviate(share: float) -> float:
    return NormalDist().inv_cdf(min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE))
