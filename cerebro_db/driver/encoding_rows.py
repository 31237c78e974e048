"""Rows of a table as arrays of numbers, by the encoding that a training table has recorded."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.configs.encodings import Encoding
from cerebro_db.database.encoding import write_rows
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.packed import SUMMARY_SUFFIX, recorded_encoding
from cerebro_db.database.relations import column, find, new_table
from cerebro_db.database.sessions import Session, SessionPool, Tick, no_tick
from cerebro_db.driver.control import control_session, transaction
from cerebro_db.driver.encoding_plan import matched
from cerebro_db.driver.packing_source import FEATURES, check_source
from cerebro_db.errors import InvalidArgument, UndefinedTable, WrongObjectType

_HINT = "cerebro_pack_columns makes such tables, and training on them makes tables of models"


@dataclass(frozen=True)
class EncodeRequest:
    """The arguments of ``cerebro_encode``, as given; search_path is for the names."""

    source_table: str | None
    training_table: str | None
    output_table: str | None
    id_col: str | None
    search_path: str | None = None


def encode(pool: SessionPool, request: EncodeRequest, tick: Tick = no_tick) -> QualifiedName:
    """Make a table with a row for each row of the source; returns its name.

    Args:
        pool: of sessions of the role whose rights count.
        request: what to encode.
        tick: called while waiting; may raise to cancel.

    Raises:
        WrongObjectType: the training table has no encoding.
        UndefinedColumn: the source lacks a column that the encoding needs.
    """
    with control_session(pool, request.search_path, tick) as session:
        source = find(session, request.source_table, "source_table", tick)
        check_source(source)
        encoding = matched(source, None, _recorded(session, request, tick), "source_table")
        id_column = column(source, request.id_col, "id_col")
        if id_column.name == FEATURES:
            raise InvalidArgument(
                f"id_col: got {FEATURES!r}, which is a column of the output table",
                hint="select it under another name in a view",
            )
        output = new_table(session, request.output_table, "output_table", (), tick)
        with transaction(session, tick):
            session.run(write_rows(output, source.name, id_column.name, encoding), (), tick)
    return output


def _recorded(session: Session, request: EncodeRequest, tick: Tick) -> Encoding:
    role = "training_table"
    training = find(session, request.training_table, role, tick).name
    encoding = None
    try:
        summary = find(session, training.suffixed(SUMMARY_SUFFIX).text, role, tick)
        encoding = recorded_encoding(session, summary, role, tick)
    except UndefinedTable:
        pass
    if not isinstance(encoding, Encoding):
        raise WrongObjectType(f"{role}: {training} has no encoding of columns", hint=_HINT)
    return encoding
