"""Survey of the rows of a source: addresses, shapes, classes, rows that are left out, and the first bad row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from cerebro_db.columns.inputs import NULL, Block, Input
from cerebro_db.columns.values import all_whole
from cerebro_db.configs.messages import shortened
from cerebro_db.errors import NO_ROWS, CerebroError, InvalidData
from cerebro_db.packing.earlier import Earlier
from cerebro_db.packing.layout import parse_addresses, tid_array
from cerebro_db.packing.targets import ClassTarget, FloatTarget, OneHotTarget, Target
from cerebro_db.postgres.dialects.statements.packing import (
    BLOCKS_PER_FETCH,
    FAULTS_SHOWN,
    PackingStatements,
    Scan,
)
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.parallel import Statement, gather
from cerebro_db.postgres.sessions.session import Session

B = TypeVar("B", bound=Block)


class Surveyor:
    """Reads a source in a session whose snapshot is held.

    Args:
        sql: of the dialect.
        control: the session.
        source: the table as the user knows it.
        damaged: rows that are left out.
    """

    def __init__(
        self,
        sql: PackingStatements,
        control: Session,
        source: QualifiedName,
        damaged: Damaged | None = None,
    ) -> None:
        self._sql, self._control, self._source = sql, control, source
        self._damaged = damaged or Damaged()

    def survey(
        self, scan: Scan[Target], classes: Sequence[int | None], earlier: Earlier | None
    ) -> tuple[Scan[Target], NDArray[np.int64]]:
        """The scan with shapes and classes, and the addresses of all rows, sorted.

        Args:
            scan: as far as the columns alone tell.
            classes: as the caller wants, of each target.
            earlier: the earlier packing whose shapes and classes count.

        Raises:
            InvalidData: there are no rows, or the first one cannot be packed.
        """
        scan = replace(
            scan,
            inputs=tuple(self._looked_at(scan, one) for one in scan.inputs),
            targets=tuple(self._looked_at(scan, one) for one in scan.targets),
            weight=scan.weight and self._looked_at(scan, scan.weight),
        )
        with columns_named(self._control, scan.rows, _readings(scan)):
            return self._surveyed(scan, classes, earlier)

    def _looked_at(self, scan: Scan[Target], block: B) -> B:
        return looked_at(self._control, scan.rows, "s", block)

    def _surveyed(
        self, scan: Scan[Target], classes: Sequence[int | None], earlier: Earlier | None
    ) -> tuple[Scan[Target], NDArray[np.int64]]:
        addresses = self._addresses(scan.table)
        if len(self._damaged.addresses):
            scan = replace(scan, left_out=tid_array(self._damaged.addresses))
            addresses = np.setdiff1d(addresses, self._damaged.addresses, assume_unique=True)
        if not len(addresses):
            raise self._empty()
        if earlier is None:
            scan = replace(scan, targets=tuple(self._recognized(scan, one) for one in scan.targets))
        scan = self._shaped(scan)
        if earlier is not None:
            for one in scan.inputs:
                one.check_rows(self._control.run, scan.rows, "s")
            given: list[Block] = [*scan.inputs, *scan.targets]
            wanted = [
                *(one.shape for one in earlier.inputs),
                *(one.shape for one in earlier.targets),
            ]
            for block, shape in zip(given, wanted, strict=True):
                _check_shape(block, shape, earlier)
            return scan, addresses
        pairs = zip(scan.targets, classes, strict=True)
        return replace(scan, targets=tuple(self._classed(scan, *one) for one in pairs)), addresses

    def _recognized(self, scan: Scan[Target], target: Target) -> Target:
        """The target as classes, if it is an array that is one-hot in every row."""
        if not isinstance(target, FloatTarget) or not target.may_be_one_hot:
            return target
        alone = replace(scan, inputs=scan.inputs[:1], targets=(target,))
        ((_, shape),) = self._control.run(self._sql.shapes(alone))
        if shape is None or len(shape) > 1 or shape[0] < 2:
            return target
        one_hot = target.one_hot(shape[0])
        is_one_hot = self._control.run(self._sql.all_one_hot(scan, one_hot))[0][0]
        return one_hot if is_one_hot else target

    def _shaped(self, scan: Scan[Target]) -> Scan[Target]:
        """The scan with the shape of each block."""
        (found,) = self._control.run(self._sql.shapes(scan))
        if None in found:
            pairs = zip(scan.inputs, found[:1] + found[2 : len(scan.inputs) + 1], strict=True)
            known = tuple(structs.replace(one, shape=tuple(shape or ())) for one, shape in pairs)
            fault = self._fault(replace(scan, inputs=known))
            raise fault or InvalidData(f"source_table: {self._source} is unusable")
        shapes = {one.name: tuple(shape) for one, shape in zip(scan.blocks, found, strict=True)}
        return replace(
            scan,
            inputs=tuple(structs.replace(one, shape=shapes[one.name]) for one in scan.inputs),
            targets=tuple(structs.replace(one, shape=shapes[one.name]) for one in scan.targets),
        )

    def _classed(self, scan: Scan[Target], target: Target, wanted: int | None) -> Target:
        """The target with its classes, where it has any."""
        target.check_wanted(wanted)
        if not isinstance(target, ClassTarget):
            return target
        if isinstance(target, OneHotTarget):
            return target.with_classes(target.values or "", target.places, False, wanted)
        classes = self._sql.classes(scan, target, target.cast, target.varies)
        values, count, has_null = self._control.run(classes)[0]
        return target.with_classes(values, count, has_null, wanted)

    def _empty(self) -> InvalidData:
        if self._damaged.rows:
            return InvalidData(
                f"source_table: {self._source} has no image that can be read; allowed: at least one. The "
                f"first one {_of_image(self._damaged.faults[0])}",
                hint="image_shape and image_format must be those of the stored bytes",
            )
        return InvalidData(
            f"source_table: {self._source} has no rows; allowed: at least one row", NO_ROWS
        )

    def _addresses(self, table: QualifiedName) -> NDArray[np.int64]:
        if self._sql.in_one_statement:  # where rows have none that another session could use
            count = self._control.run(self._sql.count(table))[0][0]
            return np.arange(int(count), dtype=np.int64)
        blocks = self._control.run(self._sql.blocks, (table.schema, table.name))[0][0]
        whole = blocks <= BLOCKS_PER_FETCH
        statement = self._sql.addresses(table, whole)
        pieces = []
        for first in range(0, max(blocks, 1), BLOCKS_PER_FETCH):
            ends = () if whole else (f"({first},0)", f"({first + BLOCKS_PER_FETCH},0)")
            pieces.append(self._control.run(statement, ends)[0][0] or b"")
        return parse_addresses(pieces)

    # -- the first bad row -------------------------------------------------------------------------
    def explained(self, scan: Scan[Target], failure: CerebroError) -> CerebroError:
        """The error that names the row because of which a worker failed."""
        try:
            with self._control.attempt():
                return self._fault(scan) or failure
        except StatementFailed:  # the server already fails on reading that row
            return unreadable(attempted(self._control), scan.rows, _readings(scan), failure)
        except CerebroError:
            return failure

    def _fault(self, scan: Scan[Target]) -> InvalidData | None:
        """The error of the first row that cannot be packed."""
        rows = self._control.run(self._sql.culprit(scan))
        if not rows:
            return None
        number, address, place, fault, got, label = rows[0]
        of_copy = scan.table != self._source and not self._sql.in_one_statement
        where = self._sql.named_row(number, self._source, None if of_copy else address)
        block = scan.read[place]
        if isinstance(block, Input) and label is not None:
            where += f", {scan.targets[0].name} = {label!r}"
        what, hint = block.refusal(fault, got, label, "the shape of the first row")
        return InvalidData(f"{where}: column {block.column.name!r} {what}", hint)


def looked_at(session: Session, rows: str, alias: str, block: B) -> B:
    """The block, and whether the values of its column are whole where its type does not tell.

    Args:
        rows: what stands behind FROM, with that alias.
    """
    if not block.column.may_be_whole:
        return block
    value = Block(block.column).value(alias)
    value = f"pg_catalog.unnest({value})" if block.column.is_array else value
    is_whole = session.run(all_whole(rows, value)) == [(True,)]
    return structs.replace(block, column=replace(block.column, has_whole_values=is_whole))


def _readings(scan: Scan[Target]) -> list[Reading]:
    """The columns, each with SQL of what is read of it."""
    blocks = (*scan.inputs, *scan.targets, *((scan.weight,) if scan.weight else ()))
    return [reading for one in blocks for reading in one.readings("s")]


def _check_shape(block: Block, wanted: tuple[int, ...], training: Earlier) -> None:
    if block.shape != wanted:
        raise InvalidData(
            f"column {block.name!r}: got rows of shape {block.shape}; "
            f"those of {training.name} have shape {wanted}",
            hint="give arrays of that shape, or pack the training table anew",
        )


# -- values that the server cannot read --------------------------------------------------------------
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


# -- rows that are left out --------------------------------------------------------------------------
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


def left_out(rows: int, table: QualifiedName, column: str, first: Sequence[tuple[str, str]]) -> str:
    """The notice of rows whose images cannot be read.

    Args:
        rows: how many.
        table: whose they are.
        column: of the images.
        first: some of the rows, each with what is wrong.
    """
    are = "row is" if rows == 1 else "rows are"
    what = f"on_error: {rows} {are} left out of {table}, as the images of column {column!r} cannot be read"
    return "\n".join([what, *(f"{where}: {_of_image(fault)}" for where, fault in first)])


def _of_image(fault: str) -> str:
    return "is NULL; allowed: no NULL" if fault == NULL else fault


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
