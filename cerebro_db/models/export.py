"""Export: a trained model, of a table or registered, as the bytes of a file, which come in parts."""

from __future__ import annotations

import json

from cerebro_db.configs.frameworks import check_format
from cerebro_db.configs.names import Format, export_format
from cerebro_db.models.registered import named_models, stored_facts
from cerebro_db.models.trained import ROLE, ModelTable, load_models, no_state, recipe
from cerebro_db.postgres.calls.host import control_session, preparation
from cerebro_db.postgres.names import HERE
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.search_path import CallerPath
from cerebro_db.requests.models import ExportRequest


def export(pool: SessionPool, request: ExportRequest, path: CallerPath | None) -> list[bytes]:
    """The parts of the file of a model.

    Args:
        request: what to export.
        path: for the name of the table; None leaves the sessions' own.

    Raises:
        InvalidArgument: several models and no mst_key, or a format that is not known.
        UndefinedModel: there is no such registered model that the caller may use.
    """
    wanted = export_format(request.format)
    with control_session(pool, path) as session:
        table = named_models(session, request.model_table)
        mst_key = table.only_key() if request.mst_key is None else request.mst_key
        table.check_key(mst_key)
        return _exported(session, table, mst_key, wanted)


def _exported(session: Session, table: ModelTable, mst_key: int, wanted: Format) -> list[bytes]:
    model = load_models(session, table, [mst_key])[0]
    check_format(json.loads(model.architecture), wanted)
    task = json.dumps(recipe(model, table) | {"facts": stored_facts(table)})
    session.run(*preparation(use_gpus=False))
    rows = session.run(
        "SELECT cerebro._export_model(%s, %s, "
        "cerebro.cerebro_joined_state(s.state ORDER BY s.chunk)) "
        f"FROM {table.states.sql} s, {HERE} WHERE s.mst_key = %s "
        "HAVING pg_catalog.count(*) > 0",
        (task, wanted.value, mst_key),
    )
    if not rows:
        raise no_state(f"{ROLE}: {table.states}", mst_key)
    parts = []
    while (part := rows[0][0]) is not None:
        parts.append(bytes(part))
        rows = session.run("SELECT cerebro._export_model(NULL, NULL, NULL)")
    return parts
