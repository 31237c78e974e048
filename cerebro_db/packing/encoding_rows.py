"""Rows as arrays of numbers, by the encoding that a training table or a model has recorded."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.columns.encoded import Encoding, Recorded
from cerebro_db.configs.names import is_registered, model_reference
from cerebro_db.errors import DuplicateFunction, UndefinedTable, WrongObjectType
from cerebro_db.models.registered import registered
from cerebro_db.packing.features import id_columns, matched
from cerebro_db.packing.resolve import check_source
from cerebro_db.packing.survey import columns_named
from cerebro_db.postgres.calls.host import Notify
from cerebro_db.postgres.calls.settings import notify_of_other_styles, read_as
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import ENCODED
from cerebro_db.postgres.tables.outputs import new_outputs, publish
from cerebro_db.postgres.tables.packed import SUMMARY_SUFFIX, recorded_encoding
from cerebro_db.postgres.tables.relations import Relation, find, new_name
from cerebro_db.requests.packing import EncodeRequest, EncoderRequest

# Parameters: schema, name, oid of the table. Whether it is a function that was made here, and the
# caller's.
_FUNCTION = (
    "SELECT pg_catalog.obj_description(p.oid, 'pg_proc'), "
    "pg_catalog.pg_has_role(p.proowner, 'USAGE') FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
    "JOIN pg_catalog.pg_class c ON p.proargtypes = ARRAY[c.reltype]::oidvector "
    "WHERE n.nspname = %s AND p.proname = %s AND c.oid = %s"
)
# The comment of such a function.
_COMMENT = "Cerebro-DB: the features of a row"
# What decides how values are written as texts, how texts are read, and what names mean.
_DECIDING = (
    "search_path", "standard_conforming_strings", "extra_float_digits", "DateStyle", "IntervalStyle",
    "TimeZone",
)  # fmt: skip
# The error of a function whose name is that of a column of the row that it takes.
_LIKE_A_COLUMN = "42701"
_HINT = (
    "cerebro.cerebro_pack_columns makes such tables, and training on them makes tables of models"
)


def encode(session: Session, request: EncodeRequest, notify: Notify) -> QualifiedName:
    """Make a table with a row for each row of the source; returns its name.

    Args:
        session: in a transaction; knows where the names are looked for.
        request: what to encode.
        notify: gets notices of settings that may make other features.

    Raises:
        WrongObjectType: the training table has no encoding.
        UndefinedColumn: the source lacks a column that the encoding needs.
    """
    source, encoding = _read(session, request, notify)
    ids = [one.name for one in id_columns(source, request.id_col, encoding.parts)]
    outputs = new_outputs(
        session,
        request.output_table,
        "output_table",
        ENCODED,
        replace=request.replace,
        inputs=[source.oid],
    )
    columns = [*ids, *encoding.names]
    rows = read_as(session, source, columns, "s")
    with columns_named(session, rows, encoding.readings("s")):
        session.run(_write_rows(outputs.draft(), rows, ids, encoding, session.anywhere))
    publish(session, outputs)
    return outputs.name


def create_encoder(session: Session, request: EncoderRequest, notify: Notify) -> QualifiedName:
    """Make a function that gives the features of a row of the source; returns its name.

    Args:
        session: in a transaction; knows where the names are looked for.
        request: which encoding, of which rows.
        notify: gets notices of settings that may make other features.

    Raises:
        WrongObjectType: the training table has no encoding.
        UndefinedColumn: the source lacks a column that the encoding needs.
        DuplicateFunction: there is such a function, or, on an old server, such a column.
    """
    role = "function_name"
    source, encoding = _read(session, request, notify)
    # The type of a row may be used without the right to read rows.
    session.run(f"SELECT FROM {source.name.sql} LIMIT 0")
    name = new_name(session, request.function_name, role)
    rows = session.run(_FUNCTION, (name.schema, name.name, source.oid))
    if rows and not (request.replace and rows[0] == (_COMMENT, True)):
        raise DuplicateFunction(
            f"{role}: got {request.function_name!r}; the function {name} of rows of "
            f"{source.name} exists already",
        )
    try:
        text = _write_function(name, source.name, encoding, bool(request.replace))
        session.run(text)
    except StatementFailed as error:
        if error.sqlstate != _LIKE_A_COLUMN:
            raise
        raise DuplicateFunction(
            f"{role}: got {request.function_name!r}; on this server no function of rows of "
            f"{source.name} can have the name of one of their columns",
            hint="choose another name",
        ) from None
    return name


def _read(
    session: Session, request: EncodeRequest | EncoderRequest, notify: Notify
) -> tuple[Relation, Encoding]:
    """The source of a request, and the encoding that fits it."""
    role = "source_table"
    source = find(session, request.source_table, role)
    check_source(source)
    recorded = _recorded(session, request.training_table)
    notify_of_other_styles(session, source, recorded, notify)
    return source, matched(source, None, recorded, role)


def _recorded(session: Session, text: str | None) -> Encoding:
    """The encoding of a packed table, of a table of models, or of a registered model."""
    role = "training_table"
    if is_registered(text):
        model = registered(session, model_reference(text, role))
        encoding, training = model.encoding, text
    else:
        encoding, training = _of_table(session, text, role)
    if not isinstance(encoding, Encoding):
        raise WrongObjectType(f"{role}: {training} has no encoding of columns", hint=_HINT)
    return encoding


def _of_table(session: Session, text: str | None, role: str) -> tuple[Recorded | None, str]:
    training = find(session, text, role).name
    try:
        summary = find(session, training.suffixed(SUMMARY_SUFFIX).text, role)
        return recorded_encoding(session, summary, role), str(training)
    except UndefinedTable:
        return None, str(training)


def _write_rows(
    output: QualifiedName, source: str, ids: Sequence[str], encoding: Encoding, anywhere: str
) -> str:
    """SQL of a table of the features of all rows of a source, each with what names it.

    Args:
        source: what stands behind FROM to read it, with the alias ``s``.
        anywhere: what ends CREATE TABLE.
    """
    listed = [f"s.{quote(name)}" for name in ids]
    listed += [f"{encoding.part(name).expression('s')} AS {name}" for name in encoding.parts]
    return (
        f"CREATE TABLE {output.sql} AS SELECT {', '.join(listed)} FROM {source}{anywhere}; "
        f"{ENCODED.comment(output)}"
    )


def _write_function(
    name: QualifiedName, source: QualifiedName, encoding: Encoding, replace: bool
) -> str:
    """SQL of a function from a row of a source to its features, whatever the settings of a session are."""
    create = "CREATE OR REPLACE" if replace else "CREATE"
    kept = " ".join(f"SET {setting} FROM CURRENT" for setting in _DECIDING)
    # A tag of a quoted body that is in none of the categories.
    body = f"SELECT {encoding.expression('$1')}"
    tag = "$features$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return (
        f"{create} FUNCTION {name.sql}({source.sql}) RETURNS double precision[] LANGUAGE sql STABLE "
        f"{kept} AS {tag}{body}{tag}; "
        f"COMMENT ON FUNCTION {name.sql}({source.sql}) IS '{_COMMENT}'"
    )
