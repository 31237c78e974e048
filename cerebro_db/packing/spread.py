"""Packing where tables are spread over segments: one transaction of one session does all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cerebro_db.errors import InvalidArgument
from cerebro_db.packing.damaged import Damaged
from cerebro_db.packing.layout import Layout, lay_out
from cerebro_db.packing.row_faults import left_out
from cerebro_db.packing.source import Feature
from cerebro_db.packing.survey import Survey, Surveyor
from cerebro_db.postgres.dialects.choice import Spreading, SpreadPacking
from cerebro_db.postgres.dialects.packing_extras import add_columns
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions import Session, StatementFailed


@dataclass(frozen=True)
class SpreadWork:
    """Data to be spread over segments.

    Attributes:
        source: the table or view.
        build: the packed table to be made.
        columns: of the source, those that are read.
        names: of features and target in the packed table.
        seed: of the shuffle; None keeps the order.
        partitions: how many; None for one on each of the segments.
        segments: those that are used, in their order; None for all.
        like: segment keys whose segments are used instead, if any.
        survey: looks at the rows of the stage.
        buffer_size: most rows in a buffer, once the rows are known.
        ignored: images; rows of those that cannot be read are left out.
        notify: is told of these.
    """

    source: QualifiedName
    build: QualifiedName
    columns: tuple[str, ...]
    names: tuple[str, str]
    seed: int | None
    partitions: int | None
    segments: Sequence[int] | None
    like: Sequence[int]
    survey: Callable[[Surveyor], Survey]
    buffer_size: Callable[[Survey], int]
    ignored: Feature | None
    notify: Callable[[str], None]


def spread(
    sql: SpreadPacking, control: Session, work: SpreadWork
) -> tuple[Survey, Layout, list[int]]:
    """Fill the packed table; also returns the segments of its partitions.

    The transaction stays open, and is the caller's to end.

    Args:
        sql: of the dialect.
        control: the session.
        work: what to do.
    """
    control.run(sql.begin)
    all_keys = dict(control.run(sql.segment_keys))
    segments = _segments(sql, control, work, sorted(all_keys))
    keys = [all_keys[segment] for segment in segments]
    source = work.source
    if control.run(sql.needs_copy, (source.text,))[0][0]:
        text, source = sql.copy(source, work.columns)
        control.run(text)
    seeds = () if work.seed is None else (work.seed,)
    control.run(sql.shuffle(source, work.columns, bool(seeds)), seeds)
    control.run(sql.create(work.build, *work.names))
    surveyor = Surveyor(sql, control, _left_out(sql, control, work))
    survey = work.survey(surveyor)
    if survey.scan.extras:
        control.run(add_columns(work.build, survey.scan.extras))
    partitions = _partitions(work.partitions, keys, len(survey.addresses))
    layout = lay_out(survey.addresses, partitions, work.buffer_size(survey), None)
    spreading = Spreading(len(survey.addresses), keys[:partitions], work.buffer_size(survey))
    control.run("SAVEPOINT before_filling")
    try:
        control.run(sql.rank)
        statement = sql.fill_all(work.build, survey.scan, work.names, spreading)
        control.run(statement, _parameters(survey))
    except StatementFailed as failure:
        # Class 22: something about the data, which is still there to be looked at.
        if not failure.sqlstate.startswith("22"):
            raise
        control.run("ROLLBACK TO SAVEPOINT before_filling")
        raise surveyor.explained(survey, failure) from None
    return survey, layout, segments[:partitions]


def _left_out(sql: SpreadPacking, control: Session, work: SpreadWork) -> Damaged | None:
    """Delete the rows whose images cannot be read, and tell of them."""
    feature = work.ignored
    if feature is None or feature.image is None:
        return None
    control.run(sql.mark_damaged(feature.expression("s"), feature.image))
    rows, addresses, faults = control.run(sql.marked)[0]
    if not rows:
        return None
    control.run(sql.delete_marked)
    where = [sql.named_row(0, work.source, address) for address in addresses]
    told = left_out(rows, work.source, feature.column.name, list(zip(where, faults, strict=True)))
    work.notify(told)
    return Damaged(rows, faults=tuple(faults))


def _segments(
    sql: SpreadPacking, control: Session, work: SpreadWork, every: list[int]
) -> list[int]:
    """Those that are used, in the order of the partitions."""
    if work.like:
        found: dict[int, int] = dict(control.run(sql.segments_of, (list(work.like),)))
        # Keys of a cluster that had other segments may be unknown here.
        return list(dict.fromkeys(found[key] for key in work.like if key in found)) or every
    return every if work.segments is None else list(work.segments)


def _partitions(wanted: int | None, keys: list[int], rows: int) -> int:
    if wanted is not None and wanted > len(keys):
        raise InvalidArgument(
            f"num_partitions: got {wanted}; allowed: at most {len(keys)}, the number of segments that are used"
        )
    return min(wanted or len(keys), rows)


def _parameters(survey: Survey) -> list[object]:
    shape = list(survey.feature.shape)
    return [shape, survey.divisor, shape, *survey.values]
