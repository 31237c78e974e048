"""Rows as arrays of numbers, by the encoding that a training table or a model has recorded."""

from __future__ import annotations

from cerebro_db.configs.encodings import Encoding, Recorded
from cerebro_db.configs.registry import is_registered, model_reference
from cerebro_db.errors import DuplicateFunction, UndefinedTable, WrongObjectType
from cerebro_db.models.registered import registered
from cerebro_db.packing.columns import id_columns
from cerebro_db.packing.encoding_plan import matched
from cerebro_db.packing.row_faults import columns_named
from cerebro_db.packing.source import FEATURES, check_source
from cerebro_db.postgres.control import Notify
from cerebro_db.postgres.encoding import FUNCTION, expressions, write_function, write_rows
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import new_outputs, publish
from cerebro_db.postgres.packed import SUMMARY_SUFFIX, recorded_encoding
from cerebro_db.postgres.relations import Relation, find, new_name
from cerebro_db.postgres.session_settings import notify_of_other_styles, read_as
from cerebro_db.postgres.sessions import Session, StatementFailed
from cerebro_db.postgres.table_kinds import ENCODED
from cerebro_db.requests.packing import EncodeRequest, EncoderRequest

# Parameters: schema, name, oid of the table. Whether it is a function that was made here, and the
# caller's.
_FUNCTION = (
    "SELECT pg_catalog.obj_description(p.oid, 'pg_proc'), "
    "pg_catalog.pg_has_role(p.proowner, 'USAGE') FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
    "JOIN pg_catalog.pg_class c ON p.proargtypes = ARRAY[c.reltype]::oidvector "
    "WHERE n.nspname = %s AND p.proname = %s AND c.oid = %s"
)
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
        notify: is told of settings that may make other features.

    Raises:
        WrongObjectType: the training table has no encoding.
        UndefinedColumn: the source lacks a column that the encoding needs.
    """
    source, encoding = _read(session, request, notify)
    ids = [one.name for one in id_columns(source, request.id_col, (FEATURES,))]
    outputs = new_outputs(
        session,
        request.output_table,
        "output_table",
        ENCODED,
        replace=request.replace,
        inputs=[source.oid],
    )
    columns = [*ids, *(one.name for one in encoding.columns)]
    rows = read_as(session, source, columns, "s")
    with columns_named(session, rows, expressions(encoding, "s")):
        session.run(write_rows(outputs.draft(), rows, ids, encoding))
    publish(session, outputs)
    return outputs.name


def create_encoder(session: Session, request: EncoderRequest, notify: Notify) -> QualifiedName:
    """Make a function that gives the features of a row of the source; returns its name.

    Args:
        session: in a transaction; knows where the names are looked for.
        request: which encoding, of which rows.
        notify: is told of settings that may make other features.

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
    if rows and not (request.replace and rows[0] == (FUNCTION, True)):
        raise DuplicateFunction(
            f"{role}: got {request.function_name!r}; the function {name} of rows of "
            f"{source.name} exists already",
        )
    try:
        text = write_function(name, source.name, encoding, bool(request.replace))
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
