"""Answers about each row that is predicted on, and the SQL of them over a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cerebro_db.postgres.dialects.statements.orders import Statement

CLASS_COLUMNS = "class_value text, prob double precision, rank integer"
VALUE_COLUMNS = "estimated double precision"
ARRAY_COLUMNS = "estimated double precision[]"
CONTRIBUTION_COLUMNS = (
    "class_value text, column_name text, contribution double precision, base double precision, "
    "prediction double precision"
)


@dataclass(frozen=True)
class Classes:
    """Classes of each row that become rows of the output.

    Attributes:
        name: of the target.
        values: of all classes, in the order of their ids.
        ranks: so many of the best.
        above: those of a higher probability.
    """

    name: str
    values: tuple[str | None, ...]
    ranks: int
    above: float = -math.inf

    columns = CLASS_COLUMNS

    @property
    def numbers(self) -> int:
        """Count of the numbers that a worker returns for a row."""
        return self.ranks

    @property
    def rows_each(self) -> int | None:
        """Rows of the output for each row of the source; None where the row decides."""
        return self.ranks if self.above == -math.inf else None


@dataclass(frozen=True)
class Values:
    """The value of a float target becomes a row of the output.

    Attributes:
        name: of the target.
        shape: of one target.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def columns(self) -> str:
        """Columns of the output table, behind the id and the name of the target."""
        return ARRAY_COLUMNS if self.shape else VALUE_COLUMNS

    @property
    def numbers(self) -> int:
        """Count of the numbers that a worker returns for a row."""
        return math.prod(self.shape)

    ranks = 0
    rows_each = 1


class Several(NamedTuple):
    """Values of each of several outputs that become rows of the output table.

    Attributes:
        answers: of the outputs, in their order.
    """

    answers: tuple[Classes | Values, ...]

    @property
    def columns(self) -> str:
        """Columns of the output table, behind the id and the name of the target."""
        classes = [CLASS_COLUMNS] if self.has_classes else []
        return ", ".join([*classes, *self.estimates])

    @property
    def has_classes(self) -> bool:
        """True if one of the targets has classes."""
        return any(isinstance(answer, Classes) for answer in self.answers)

    @property
    def estimates(self) -> tuple[str, ...]:
        """The column of values, if one of the targets is a float one."""
        values = [answer for answer in self.answers if isinstance(answer, Values)]
        if not values:
            return ()
        return (ARRAY_COLUMNS if any(answer.shape for answer in values) else VALUE_COLUMNS,)

    @property
    def rows_each(self) -> int | None:
        """Rows of the output for each row of the source; None where the row decides."""
        each = [answer.rows_each for answer in self.answers]
        return None if None in each else sum(one or 0 for one in each)

    @property
    def numbers(self) -> int:
        """Count of the numbers that a worker returns for a row."""
        return sum(answer.numbers for answer in self.answers)

    def rows(self, of_row: str = "i.place") -> Statement:
        """The rows of one row of the source, over the batch ``p`` and the place of the row there.

        Columns: class_name, then those of the table. A worker tells all of a row side by side.
        """
        classes = sum(answer.ranks for answer in self.answers)
        parts, parameters = [], []
        ranks = numbers = 0
        for answer in self.answers:
            place = f"(({of_row} - 1) * {self.numbers} + {numbers}"
            if isinstance(answer, Values):
                parts.append(self._values(answer, numbers, of_row))
                parameters.append(answer.name)
            else:
                of_class = f"(({of_row} - 1) * {classes} + {ranks} + r.rank)::integer"
                sql, given = self._classes(answer, of_class, f"{place} + r.rank)::integer")
                parts.append(sql)
                parameters += given
            ranks, numbers = ranks + answer.ranks, numbers + answer.numbers
        return " UNION ALL ".join(parts), parameters

    def _values(self, answer: Values, offset: int, of_row: str) -> str:
        missing = "NULL::text, NULL::double precision, NULL::integer, " if self.has_classes else ""
        found = estimate(answer.shape, offset, self.numbers, of_row)
        if not answer.shape and self.estimates == (ARRAY_COLUMNS,):
            found = f"ARRAY[{found}]"
        return f"SELECT %s::text, {missing}{found}"

    def _classes(self, answer: Classes, of_class: str, of_number: str) -> Statement:
        kind = "double precision[]" if self.estimates == (ARRAY_COLUMNS,) else "double precision"
        missing = f", NULL::{kind}" if self.estimates else ""
        sql = (
            f"SELECT %s::text, (%s::text[])[p.classes[{of_class}] + 1], p.numbers[{of_number}], "
            f"r.rank{missing} FROM pg_catalog.generate_series(1, %s) AS r(rank)"
        )
        given: list[Any] = [answer.name, list(answer.values), answer.ranks]
        if answer.above == -math.inf:
            return sql, given
        return f"{sql} WHERE p.numbers[{of_number}] > %s", [*given, answer.above]


class Contributions(NamedTuple):
    """Contributions of columns to the prediction of a row; each becomes a row of the output table.

    Attributes:
        name: of the target.
        values: of all classes, in the order of their ids; none of numbers.
        names: of the columns.
    """

    name: str
    values: tuple[str | None, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> str:
        """Columns of the output table, behind the id and the name of the target."""
        return CONTRIBUTION_COLUMNS

    @property
    def ranks(self) -> int:
        """Classes of a row."""
        return 1 if self.values else 0

    @property
    def rows_each(self) -> int:
        """Rows of the output for each row of the source."""
        return len(self.names)

    @property
    def numbers(self) -> int:
        """Count of the numbers that a worker returns for a row: behind the contributions, the base and the prediction."""
        return len(self.names) + 2

    def rows(self, of_row: str = "i.place") -> Statement:
        """The rows of one row of the source, over the batch ``p`` and the place of the row there."""
        first, size = f"({of_row} - 1) * {self.numbers}", self.numbers
        sql = (
            f"SELECT %s::text, (%s::text[])[p.classes[({of_row})::integer] + 1], (%s::text[])[r.n], "
            f"p.numbers[({first} + r.n)::integer], p.numbers[({first} + {size - 1})::integer], "
            f"p.numbers[({first} + {size})::integer] "
            "FROM pg_catalog.generate_series(1, %s) AS r(n)"
        )
        return sql, [self.name, list(self.values), list(self.names), len(self.names)]


Answer = Classes | Values | Several | Contributions


def estimate(
    shape: Sequence[int],
    offset: int = 0,
    size: int | None = None,
    place: str = "i.place",
) -> str:
    """The numbers of the row at a place out of its batch ``p``, in the shape of the target."""
    size = math.prod(shape) if size is None else size
    first = f"(({place} - 1) * {size} + {offset + 1})::integer"
    if not shape:
        return f"p.numbers[{first}]"
    if len(shape) == 1:
        return f"p.numbers[{first}:(({place} - 1) * {size} + {offset + shape[0]})::integer]"
    step = math.prod(shape[1:])
    parts = (estimate(shape[1:], offset + n * step, size, place) for n in range(shape[0]))
    return f"ARRAY[{', '.join(parts)}]"
