"""Drift: how far new rows have moved from those that an encoding was computed from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from cerebro_db.columns.encoded import EncodedColumn, Encoding, Statistics
from cerebro_db.postgres.catalog import drift as sql
from cerebro_db.postgres.catalog.drift import ColumnDrift, Read
from cerebro_db.postgres.sessions.session import Session

# The server returns at most 1664 values a row, and there are two of a column.
_COLUMNS_AT_ONCE = 400
# Instead of a smaller share of a bin, whose logarithm would be all that there is.
LEAST_SHARE = 0.0001
# As usual: a shift from here on is a large one.
LARGE_SHIFT = 0.25
# Of fewer rows a shift is large by chance.
LEAST_ROWS = 200
_COLUMNS_SHOWN = 5


def stability_index(trained: Sequence[float], found: Sequence[float]) -> float:
    """The population stability index: over all bins the sum of (q - p) ln(q / p).

    Args:
        trained: the share p of each bin in the training rows.
        found: its share q in the new rows.
    """
    pairs = (
        (max(p, LEAST_SHARE), max(q, LEAST_SHARE)) for p, q in zip(trained, found, strict=True)
    )
    return sum((q - p) * math.log(q / p) for p, q in pairs)


@dataclass(frozen=True)
class Observed:
    """New rows as an encoding sees them.

    Attributes:
        rows: how many there are.
        columns: the columns beside those of the training rows.
        encoding: the same encoding with the statistics of the new rows.
    """

    rows: int
    columns: tuple[ColumnDrift, ...]
    encoding: Encoding

    @property
    def unseen(self) -> list[ColumnDrift]:
        """The columns with categories that the encoding does not know."""
        return [one for one in self.columns if one.unseen]

    def notices(self, encoding_of: str) -> Iterator[str]:
        """The notices about the rows.

        Args:
            encoding_of: whose encoding it is.
        """
        for one in self.unseen[:_COLUMNS_SHOWN]:
            yield (
                f"column {one.name!r}: {one.unseen} of {self.rows} rows have a category that the encoding of "
                f"{encoding_of} does not know; they are encoded as unseen"
            )
        if len(self.unseen) > _COLUMNS_SHOWN:
            more = len(self.unseen) - _COLUMNS_SHOWN
            yield f"{more} more columns have categories that the encoding of {encoding_of} does not know"
        moved = [one for one in self.columns if one.shift is not None and one.shift >= LARGE_SHIFT]
        if moved and self.rows >= LEAST_ROWS:
            listed = ", ".join(f"{one.name} {one.shift:.2f}" for one in moved[:_COLUMNS_SHOWN])
            listed += ", ..." if len(moved) > _COLUMNS_SHOWN else ""
            yield (
                f"numbers have moved since the encoding of {encoding_of} was computed (population stability "
                f"index, {LARGE_SHIFT} or more is a large shift): {listed}"
            )
        if any(one.trained_missing is None for one in self.columns):
            yield (
                f"the encoding of {encoding_of} was recorded without statistics of its rows, by an earlier "
                "version: how far numbers have moved is not known; pack its source anew to have them"
            )


def with_statistics(session: Session, read: Read, encoding: Encoding) -> Encoding:
    """The encoding whose numbers have bins, and the share of each; the counts are there already."""
    numbers = [one for one in encoding.columns if one.number("s") is not None]
    found: dict[str, EncodedColumn] = {}
    for part in _parts(numbers):
        rows = _statistics(part[0]).rows
        edged = [
            replace(one, statistics=replace(_statistics(one), edges=_edges(values)))
            for one, values in zip(part, session.run(sql.deciles(read, part, rows))[0], strict=True)
        ]
        for one, shares in zip(edged, _shares(session, read, edged, rows), strict=True):
            statistics = _statistics(one)
            if not statistics.edges or shares is None:
                statistics = replace(statistics, edges=(), shares=())
            else:
                statistics = replace(statistics, shares=shares)
            found[one.name] = replace(one, statistics=statistics)
    return replace(encoding, columns=tuple(found.get(one.name, one) for one in encoding.columns))


def observe(session: Session, read: Read, encoding: Encoding) -> Observed:
    """Look at new rows through an encoding that was computed from others."""
    rows = 0
    counted: dict[str, tuple[int, int]] = {}
    for part in _parts(encoding.columns):
        rows, *counts = session.run(sql.counts(read, part))[0]
        pairs = zip(counts[::2], counts[1::2], strict=True)
        counted.update(zip((one.name for one in part), pairs, strict=True))
    shifts = _shifts(session, read, encoding, rows)
    drifts = tuple(
        _drift(one, *counted[one.name], shifts.get(one.name)) for one in encoding.columns
    )
    known = tuple(
        replace(one, statistics=Statistics(rows, *counted[one.name])) for one in encoding.columns
    )
    return Observed(rows, drifts, replace(encoding, columns=known))


def _drift(column: EncodedColumn, missing: int, unseen: int, shift: float | None) -> ColumnDrift:
    known, method = column.statistics, column.method
    if known is None:
        return ColumnDrift(column.name, method, missing, unseen)
    shares = (known.missing / max(known.rows, 1), known.unseen / max(known.rows, 1))
    return ColumnDrift(column.name, method, missing, unseen, *shares, shift)


def _shifts(session: Session, read: Read, encoding: Encoding, rows: int) -> dict[str, float]:
    """The stability index of each column whose bins are recorded, and that has a value."""
    columns = [one for one in encoding.columns if one.statistics and one.statistics.edges]
    found = {}
    for part in _parts(columns):
        for one, shares in zip(part, _shares(session, read, part, rows), strict=True):
            if shares is not None:
                found[one.name] = stability_index(_statistics(one).shares, shares)
    return found


def _shares(
    session: Session, read: Read, columns: Sequence[EncodedColumn], rows: int
) -> list[tuple[float, ...] | None]:
    """The share of each bin, of each column; None of a column without a value."""
    return [_shared(counts) for counts in session.run(sql.cumulated(read, columns, rows))[0]]


def _shared(counts: Sequence[int]) -> tuple[float, ...] | None:
    *_, total = counts
    if not total:
        return None
    before = [0, *counts[:-1]]
    return tuple((up_to - less) / total for up_to, less in zip(counts, before, strict=True))


def _edges(deciles: Sequence[float] | None) -> tuple[float, ...]:
    """The upper ends of the bins; where all deciles are one value, of what is below it, too."""
    found = tuple(sorted(set(deciles or ())))
    if len(found) != 1:
        return found
    below = math.nextafter(found[0], -math.inf)
    return (below, *found) if math.isfinite(below) else found


def _statistics(column: EncodedColumn) -> Statistics:
    assert column.statistics is not None
    return column.statistics


def _parts(columns: Sequence[Any]) -> Iterator[Sequence[EncodedColumn]]:
    for first in range(0, len(columns), _COLUMNS_AT_ONCE):
        yield columns[first : first + _COLUMNS_AT_ONCE]
