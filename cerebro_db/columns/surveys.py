"""The survey of training rows: what kinds of columns want to know of them, and what they get.

The encoding of each column is a generator (``EncodedColumn.fitting``): it yields what it wants to know, gets the answer,
and returns the encoding when it knows enough. The survey answers all columns together, round by round, so that a table
is read a few times, however many columns it has.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from cerebro_db.columns.encoded import EncodedColumn


@dataclass(frozen=True)
class Aggregates:
    """Values over all rows, in one statement with those of other columns. The answer is a list of them.

    Attributes:
        sql: aggregates over the alias ``s``.
        sorts: how many of them sort the values of the column.
    """

    sql: Sequence[str]
    sorts: int = 0


@dataclass(frozen=True)
class Groups:
    """The target in groups of rows. The answer is a dictionary from groups to their :class:`Group`.

    Attributes:
        sql: expression over the alias ``s``: the whole number of the group of a row, NULL where it is in none.
    """

    sql: str


class Group(NamedTuple):
    """The target in some rows.

    Attributes:
        rows: how many.
        sums: how many of them there are of each class; of a number the sum of ``(target - mean) / deviation``.
    """

    rows: int
    sums: tuple[float, ...]

    def __add__(self, other: Group) -> Group:  # type: ignore[override]
        """The target in both."""
        pairs = zip(self.sums, other.sums, strict=True)
        return Group(self.rows + other.rows, tuple(a + b for a, b in pairs))

    @property
    def explained(self) -> float:
        """How much of the target's impurity, or variance, times rows vanishes where one value stands for the group,
        but for a constant."""
        return sum(one * one for one in self.sums) / self.rows


Answer = Any
Fitting = Generator[Aggregates | Groups, Answer, "EncodedColumn"]


class Target(NamedTuple):
    """The dependent variable as the survey sees it.

    Attributes:
        classes: as texts, the most frequent ones first where there are too many; empty of a number.
        mean, deviation: of a number.
        priors: the share of each class; of a number ``(0.0,)``.
    """

    classes: tuple[str | None, ...]
    mean: float
    deviation: float
    priors: tuple[float, ...]

    @property
    def is_class(self) -> bool:
        """True for classes."""
        return bool(self.classes)


class Survey(Protocol):
    """The training rows, while their columns are measured.

    Attributes:
        table: what stands behind FROM, with the alias ``s``.
        rows: how many there are, once any aggregate is known.
        columns: how many columns are encoded.
        max_categories: most categories of a column.
        min_coverage: least share of the values that these have.
        zone: the time zone of the caller's session.
        read: the columns of the table that are read.
        notify: gets what a user should know.
    """

    table: str
    rows: int
    columns: int
    max_categories: int
    min_coverage: float
    zone: str
    read: Sequence[str]
    notify: Callable[[str], None]

    def remark(self, what: str, column: str) -> None:
        """Remember what a user should know about a column; columns of which the same is true share a notice.

        Args:
            what: the columns that are named before it are.
        """

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement about the training rows."""

    @property
    def has_target(self) -> bool:
        """True if the dependent variable is a number or a class, so that kinds may depend on it."""

    def target(self, column: str) -> Target:
        """The dependent variable.

        Args:
            column: that depends on it, for messages.

        Raises:
            InvalidArgument: it is neither a number nor a class.
        """


# What may be remarked of columns.
CONSTANT = "the same in all rows: they tell nothing"
NAMES_ROWS = "other in most rows: if they name rows, exclude them"
LEAK = "enough to know the dependent variable: if they are not known before it, exclude them"
# From such a share of what there is to explain on, and so many rows in a group, a column is enough.
_ENOUGH, _ROWS_OF_A_GROUP = 0.99, 5


def remark_of_leak(survey: Survey, column: str, groups: Mapping[int, Group]) -> None:
    """Remark a column whose groups of rows tell the target."""
    rows = sum(one.rows for one in groups.values())
    if len(groups) * _ROWS_OF_A_GROUP <= rows and share_explained(groups) >= _ENOUGH:
        survey.remark(LEAK, column)


def share_explained(groups: Mapping[int, Group]) -> float:
    """The share of the target's impurity, or variance, that vanishes where one value stands for each group; from 0 to 1.

    Of classes it is Gini's impurity, of numbers the variance.
    """
    if not groups:
        return 0.0
    whole = _total(list(groups.values()))
    is_number = len(whole.sums) == 1
    # Of a number that has been standardized the squares sum up to the rows.
    left = whole.rows - whole.explained
    if left <= 0 or (is_number and whole.rows < 2):
        return 0.0
    within = whole.rows - sum(one.explained for one in groups.values())
    return max(0.0, min(1.0, 1 - within / left))


def _total(groups: Sequence[Group]) -> Group:
    whole = groups[0]
    for one in groups[1:]:
        whole += one
    return whole
