"""Faults of rows that cannot be used, and remedies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_db.columns.values import Column
from cerebro_db.configs.messages import shortened
from cerebro_db.errors import CerebroError, InvalidData
from cerebro_db.packing.layout import parse_addresses
from cerebro_db.postgres.dialects.statements.packing import PackingStatements
from cerebro_db.postgres.dialects.statements.packing_extras import FAULTS_SHOWN
from cerebro_db.postgres.names import QualifiedName, shown_identifier
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.parallel import Statement, gather
from cerebro_db.postgres.sessions.session import Session

NULL, ELEMENT, VALUE, SHAPE = "null", "element", "value", "shape"


def reason(fault: str, got: Sequence[int] | None, shape: Sequence[int], of: str) -> str:
    """The fault, to be put behind the name of the column.

    Args:
        fault: one of those above, or what is wrong with an image.
        got: the shape of the row, None where it has no element.
        shape: that is wanted.
        of: whose shape that is.
    """
    if fault == NULL:
        return "is NULL; allowed: no NULL"
    if fault == ELEMENT:
        return "holds a NULL; allowed: no NULL"
    if fault == VALUE:
        return "holds a value that is NaN, infinite or too large; allowed: finite float32 numbers"
    if fault != SHAPE:
        return fault  # of an image, which tells more
    if got is None:
        return "is an empty array; allowed: at least one element"
    return f"has shape {tuple(got)}; allowed: {tuple(shape)}, {of}"


def remedy(
    fault: str, got: Sequence[int] | None, shape: Sequence[int], column: Column | str
) -> str:
    """The hint, for a column of single values or arrays."""
    is_array = isinstance(column, Column) and column.is_array
    name = shown_identifier(column.name if isinstance(column, Column) else column)
    if fault == NULL or (fault == ELEMENT and not is_array):
        return without_nulls([column.name if isinstance(column, Column) else column])
    if fault == ELEMENT:
        return f"a view can replace it: SELECT array_replace({name}, NULL, 0)"
    if fault == VALUE:
        nan = f"'NaN' <> ALL ({name})" if is_array else f"{name} <> 'NaN'"
        return f"{_without(nan)}; infinite and too large values can be replaced in a view, too"
    if fault != SHAPE:
        return (
            "store that image anew, or leave its row out with on_error := 'ignore'; image_shape and "
            "image_format must be those of the stored bytes"
        )
    if got is None:
        return _without(f"array_length({name}, 1) > 0")
    sizes = (f"array_length({name}, {place}) = {size}" for place, size in enumerate(shape, 1))
    return _without(" AND ".join(sizes))


def left_out(rows: int, table: QualifiedName, column: str, first: Sequence[tuple[str, str]]) -> str:
    """The notice of rows whose images cannot be read.

    Args:
        rows: how many.
        table: whose they are.
        column: of the images.
        first: some of the rows, each with what is wrong.
    """
    are = "row is" if rows == 1 else "rows are"
    told = [
        f"on_error: {rows} {are} left out of {table}, as the images of column {column!r} cannot be read"
    ]
    return "\n".join(told + [f"{where}: {reason(fault, None, (), '')}" for where, fault in first])


def unseen(label: Any, name: str, values: str | None) -> tuple[str, str]:
    """Message and hint for a class that the training table does not have."""
    if label is None:
        return "is NULL; allowed: no NULL, as in the training table", remedy(NULL, None, (), name)
    return (
        f"holds the class {label!r}; allowed: {values}",
        "leave such rows out in a view, or pack a training table that has this class",
    )


def not_one_hot(label: Any, column: Column, places: int) -> tuple[str, str]:
    """Message and hint for an array that is none of a class.

    Args:
        label: what stands for its class; None for NULL.
        column: of the arrays.
        places: numbers of an array.
    """
    if label is None:
        return "is NULL; allowed: no NULL, as in the training table", remedy(NULL, None, (), column)
    return (
        f"is not one-hot; allowed: arrays of {places} numbers, one of them 1 and all others 0, as the "
        "training table has classes",
        "arrays of real numbers are no classes: cast the column, in the source of the training table too, "
        "as in SELECT value::real[] AS value",
    )


Reading = tuple[str, str]


def unreadable(
    run: Callable[[str], object], table: str, readings: Sequence[Reading], failure: CerebroError
) -> CerebroError:
    """The error that names the column whose values the server cannot read, or compute with.

    Args:
        run: runs a statement, and leaves the session usable where that fails.
        table: SQL of the rows and their alias.
        readings: names of columns, and expressions over that alias.
        failure: what is returned where no column alone fails.
    """
    for name, expression in readings:
        try:
            run(f"SELECT pg_catalog.count({expression}) FROM {table}")
        except StatementFailed as one:
            if one.sqlstate.startswith("22"):
                return InvalidData(
                    f"column {name!r}: got a value that cannot be computed with "
                    f"({shortened(one.message)}); allowed: numbers of double precision",
                    hint="leave such rows out in a view, or put another value there",
                )
    return failure


def attempted(session: Session) -> Callable[[str], None]:
    """A function that runs a statement in a transaction, which goes on where that fails."""

    def run(statement: str) -> None:
        with session.attempt():
            session.run(statement)

    return run


@contextmanager
def columns_named(session: Session, table: str, readings: Sequence[Reading]) -> Iterator[None]:
    """Name the column where a statement that is run inside fails because of the data.

    Args:
        session: in a transaction, which goes on.
        table, readings: as of ``unreadable``.
    """
    try:
        with session.attempt():
            yield
    except StatementFailed as failure:
        # Class 22: something about the data.
        if not failure.sqlstate.startswith("22"):
            raise
        raise unreadable(attempted(session), table, readings, failure) from None


def without_nulls(names: Sequence[str]) -> str:
    """The hint where one of these columns is NULL."""
    return _without(" AND ".join(f"{shown_identifier(name)} IS NOT NULL" for name in names))


def _without(condition: str) -> str:
    return f"leave such rows out in a view: SELECT ... WHERE {condition}"


_PIECES_A_WORKER = 4


@dataclass(frozen=True)
class Damaged:
    """Rows that are left out.

    Attributes:
        rows: how many.
        addresses: of them, sorted; none where they were deleted from a copy.
        faults: what is wrong with the first ones.
    """

    rows: int = 0
    addresses: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    faults: tuple[str, ...] = ()

    def first_among(self, kept: NDArray[np.int64]) -> Iterator[tuple[int, str, str]]:
        """The first ones: number among all rows, address, what is wrong.

        Args:
            kept: addresses of the other rows.
        """
        shown = self.addresses[: len(self.faults)]
        places = np.searchsorted(np.union1d(kept, self.addresses), shown)
        for place, number, fault in zip(places.tolist(), shown.tolist(), self.faults, strict=True):
            yield place + 1, f"({number >> 16},{number & 0xFFFF})", fault


def find_damaged(
    sql: PackingStatements,
    workers: Sequence[Session],
    table: QualifiedName,
    damage: str,
    blocks: int,
) -> Damaged:
    """Read all images, side by side.

    Args:
        sql: of the dialect.
        workers: sessions of one snapshot.
        table: plain.
        damage: SQL over the alias ``s`` of why a row is left out.
        blocks: of the table.
    """
    statement = sql.damaged(table, damage)
    size = max(1, -(-blocks // (_PIECES_A_WORKER * len(workers))))
    pieces: list[Statement] = [
        (statement, (f"({first},0)", f"({first + size},0)")) for first in range(0, blocks, size)
    ]
    found = [row for ((row),) in gather(workers, pieces) if row[0] is not None]
    addresses = parse_addresses([bytes(listed) for listed, _ in found])
    faults = [fault for _, listed in found for fault in listed]
    return Damaged(len(addresses), addresses, tuple(faults[:FAULTS_SHOWN]))
