"""Kinds of columns with any number of categories: ids for embeddings, and what the target is on average."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.categories import Categorical
from cerebro_db.columns.encoded import described_row, registered
from cerebro_db.columns.options import Option, Whole
from cerebro_db.columns.surveys import NAMES_ROWS, Fitting, Group, Groups, Survey, Target
from cerebro_db.postgres.names import quote

# They are recorded, and part of the SQL of features; averages are computed one by one.
MOST_CATEGORIES, _MOST_AVERAGED = 1_000_000, 50_000
# The input of ids.
IDS = "ids"


class Many(Categorical, frozen=True, omit_defaults=False, eq=False):
    """A column of any number of categories, of which the rare ones count as one with those that no row had.

    Attributes:
        least: rows of a category that is not rare.
        most: categories at most.
    """

    most: ClassVar[int] = MOST_CATEGORIES

    least: int = 2

    @property
    def is_fitted(self) -> bool:
        """True: a column may have rare categories only."""
        return True

    @property
    def categories_listed(self) -> int:
        """None of those that ``max_categories`` limits."""
        return 0

    def _limits(self, survey: Survey) -> tuple[int, int]:
        return self.most, self.least

    def _check_coverage(self, survey: Survey, covered: int, known: int) -> None:
        """Remark a column most of whose values are rare."""
        if covered < survey.min_coverage * known:
            survey.remark(NAMES_ROWS, self.name)

    @property
    def width(self) -> int:
        """One."""
        return 1

    @property
    def places(self) -> int:
        """Number of places: of the categories, of missing and of unseen values."""
        return len(self.categories) + 2


@registered
class Ids(Many, frozen=True, omit_defaults=False, eq=False):
    """The number of the category, for an embedding: 0 where the value is missing, 1 where the category is rare or none
    that the training rows have, from 2 on the others. Ids are an input of their own."""

    method: ClassVar[str] = "ids"
    options: ClassVar[tuple[Option, ...]] = (Whole("least", 1, MOST_CATEGORIES),)
    part: ClassVar[str] = IDS

    @property
    def ids(self) -> int:
        """How many ids there are, the rows of an embedding."""
        return self.places

    def features(self, alias: str) -> list[str]:
        """SQL of the id."""
        return [self.place(alias)]

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        yield described_row(position, f"{self.name} is missing", code=0)
        yield described_row(position, f"{self.name} is none of these", code=1)
        for code, category in enumerate(self.categories, 2):
            yield described_row(position, f"{self.name} = {category}", category=category, code=code)

    def _missing_row(self, position: int) -> None:
        return None


@registered
class TargetMean(Many, frozen=True, omit_defaults=False, eq=False):
    """What the target is on average in the rows of the category, drawn to the mean of all rows where these are few.

    The training rows themselves get the averages of the rows that are not in their fold, so that a net does not read
    the target from them. Averages are less the mean, and by the deviation, of the target.

    As ``sklearn.preprocessing.TargetEncoder`` (Micci-Barreca 2001), with folds by a hash of the row in place of chance.

    Attributes:
        folds: how many.
        smooth: rows of the mean of all that are added to those of a category.
        classes: of the target, each of which has a feature; of two the second one only. Empty of a number.
        means: for each feature the average at each ``place``.
        folded: the same for each fold, of the training rows while they are packed.
        hashed: the columns that decide about the fold of a row.
    """

    method: ClassVar[str] = "target"
    most: ClassVar[int] = _MOST_AVERAGED
    options: ClassVar[tuple[Option, ...]] = (Whole("folds", 2, 50), Whole("smooth", 0, 1_000_000))
    beside: ClassVar[frozenset[str]] = Many.beside | {"means", "folded", "hashed"}
    unrecorded: ClassVar[frozenset[str]] = Many.unrecorded | {"folded", "hashed"}

    folds: int = 5
    smooth: int = 20
    classes: tuple[str | None, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()
    folded: tuple[tuple[float, ...], ...] = ()
    hashed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in self.means:
            if len(one) != self.places or not all(map(math.isfinite, one)):
                raise ValueError(one)

    @property
    def is_fitted(self) -> bool:
        """True once there are averages."""
        return bool(self.means)

    @property
    def meaning(self) -> object:
        """The meaning of the features: the classes."""
        return (self.name, self.method, self.classes)

    @property
    def width(self) -> int:
        """The number of classes, or one."""
        return max(1, len(self.means))

    def fitting(self, survey: Survey) -> Fitting:
        """The categories, and the target in each of them and each fold."""
        target = survey.target(self.name)
        listed = yield from super().fitting(survey)
        assert isinstance(listed, TargetMean)
        hashed = replace(listed, hashed=tuple(survey.read))
        groups: Mapping[int, Group] = yield Groups(hashed.cell("s"))
        return hashed.averaged(target, groups)

    def cell(self, alias: str) -> str:
        """SQL of the fold and the place of a row as one number."""
        listed = ", ".join(f"{alias}.{quote(name)}" for name in self.hashed)
        digits = f"pg_catalog.substr(pg_catalog.md5(ROW({listed})::text), 1, 7)"
        fold = f"('x' || {digits})::bit(28)::integer %% {self.folds}"
        return f"({fold}) * {self.places} + {self.place(alias)}"

    def averaged(self, target: Target, groups: Mapping[int, Group]) -> Self:
        """The encoding with its averages.

        Args:
            target: the dependent variable.
            groups: it in the rows of each ``cell``.
        """
        nothing = Group(0, (0.0,) * len(target.priors))
        cells = [groups.get(number, nothing) for number in range(self.folds * self.places)]
        rows = [cells[first : first + self.places] for first in range(0, len(cells), self.places)]
        whole = [_sum(column, nothing) for column in zip(*rows, strict=True)]
        without = [[_less(a, b) for a, b in zip(whole, fold, strict=True)] for fold in rows]
        outputs = range(len(target.priors))
        # Of two classes the second one tells all.
        outputs = range(1, 2) if len(target.classes) == 2 else outputs
        classes = tuple(
            target.classes[output] if output < len(target.classes) else "others"
            for output in outputs
            if target.classes
        )
        averages = [self._averages(each, target) for each in (whole, *without)]
        means = tuple(tuple(row[output] for row in averages[0]) for output in outputs)
        folded = tuple(
            tuple(row[output] for fold in averages[1:] for row in fold) for output in outputs
        )
        return replace(self, classes=classes, means=means, folded=folded)

    def _averages(self, cells: Sequence[Group], target: Target) -> list[list[float]]:
        """The averages of each cell, in the unit of the target."""
        whole = _sum(cells, Group(0, (0.0,) * len(target.priors)))
        deviations = [
            math.sqrt(prior * (1 - prior)) or 1.0 if target.is_class else 1.0
            for prior in target.priors
        ]
        priors = [one / whole.rows if whole.rows else 0.0 for one in whole.sums]
        found = []
        for cell in cells:
            weight = cell.rows + self.smooth
            drawn = [
                (one + self.smooth * prior) / weight if weight else prior
                for one, prior in zip(cell.sums, priors, strict=True)
            ]
            found.append(
                [
                    (one - prior) / deviation
                    for one, prior, deviation in zip(drawn, target.priors, deviations, strict=True)
                ]
            )
        return found

    def features(self, alias: str) -> list[str]:
        """SQL of the averages; out of the fold of the row while the training rows are packed."""
        place = self.cell(alias) if self.folded else self.place(alias)
        return [f"({_array(one)})[1 + {place}]" for one in (self.folded or self.means)]

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        names = [f"share of {name}" for name in self.classes] or ["mean of the target"]
        for place, name in enumerate(names, position):
            yield described_row(place, f"{self.name}: {name}")

    def _missing_row(self, position: int) -> None:
        return None


def _sum(groups: Sequence[Group], nothing: Group) -> Group:
    for one in groups:
        nothing += one
    return nothing


def _less(whole: Group, part: Group) -> Group:
    pairs = zip(whole.sums, part.sums, strict=True)
    return Group(whole.rows - part.rows, tuple(a - b for a, b in pairs))


def _array(numbers: Sequence[float]) -> str:
    return f"'{{{','.join(map(repr, numbers))}}}'::double precision[]"
