"""``<out>_history``: results of the models of a table after each epoch, of all runs that trained them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from cerebro_db.postgres.catalog import STATES_SCHEMA, Catalog
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.table_kinds import HISTORY_SUFFIX
from cerebro_db.runs.setup import RunSetup

_COLUMNS = (
    ("mst_key", "integer NOT NULL"),
    ("iteration", "integer NOT NULL"),
    ("run_id", "bigint NOT NULL"),
    ("epoch", "integer NOT NULL"),
    ("dataset", "text NOT NULL"),
    ("loss", "double precision"),
    ("metric_names", "text[]"),
    ("metrics", "double precision[]"),
    ("elapsed", "double precision"),
)
_NAMES = ", ".join(name for name, _ in _COLUMNS)


def put_aside(catalog: Catalog, setup: RunSetup, run_id: int) -> QualifiedName | None:
    """Keep the history of the models that a run went on from; its table can be dropped then.

    Args:
        catalog: of the run; its session does all in one transaction.
        setup: of the run.
        run_id: which one.

    Returns:
        The table that has it meanwhile; None where there is no history.
    """
    table = setup.output.suffixed(HISTORY_SUFFIX)
    if not catalog.execute("SELECT pg_catalog.to_regclass(%s)::text", (table.text,))[0][0]:
        return None  # the earlier run wrote none, or someone dropped it
    warm = [row.mst_key for row, _, _ in catalog.configurations(run_id) if row.is_warm]
    aside = QualifiedName(STATES_SCHEMA, f"kept_{secrets.token_hex(16)}")
    catalog.execute(
        f"CREATE TABLE {aside.sql} AS SELECT {_NAMES} FROM {table.sql} "
        "WHERE mst_key = ANY (%s::int[])",
        (warm,),
    )
    return aside


def write(
    catalog: Catalog,
    setup: RunSetup,
    run_id: int,
    earlier: QualifiedName | None,
    ends: Mapping[int, int],
) -> None:
    """Make the table: what was put aside, and what this run adds up to the epochs of its models.

    Args:
        catalog: of the run; its session does all in one transaction.
        setup: of the run.
        run_id: which one.
        earlier: what was put aside.
        ends: of each model that was trained to the end, the epoch after which it is kept.
    """
    table = setup.output.suffixed(HISTORY_SUFFIX).sql
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
    catalog.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY (mst_key, iteration, dataset))")
    iteration, before = "m.epoch", ""
    if earlier is not None:
        catalog.execute(f"INSERT INTO {table} SELECT {_NAMES} FROM {earlier.sql}")
        catalog.execute(f"DROP TABLE {earlier.sql}")
        # Results are computed after a model's last epoch, so its last iteration tells how many there were.
        iteration = "coalesce(b.before, 0) + m.epoch"
        before = (
            f"LEFT JOIN (SELECT mst_key, max(iteration) AS before FROM {table} GROUP BY mst_key) b "
            "ON b.mst_key = m.mst_key "
        )
    catalog.execute(
        f"INSERT INTO {table} ({_NAMES}) SELECT m.mst_key, {iteration}, m.run_id, m.epoch, m.dataset, "
        f"m.loss, m.metric_names, m.metrics, m.elapsed FROM cerebro._metrics m {before}"
        "JOIN unnest(%s::int[], %s::int[]) e (mst_key, last) "
        "ON e.mst_key = m.mst_key AND m.epoch <= e.last WHERE m.run_id = %s",
        (list(ends), list(ends.values()), run_id),
    )
