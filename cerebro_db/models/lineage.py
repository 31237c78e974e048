"""Lineage of a registered model: tables, rows, configuration, versions, who and when."""

from __future__ import annotations

import json
from typing import Any

import cerebro_db
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.catalog import Catalog, StoredRun
from cerebro_db.postgres.packed import fingerprint, packed_of
from cerebro_db.postgres.sessions import Session


def lineage_of(session: Session, run: StoredRun, mst_key: int) -> str:
    """The lineage of one configuration of a run, as JSON.

    Args:
        session: in a transaction.
        run: which one.
        mst_key: of the configuration.
    """
    row = run.row
    found = {
        "run": {
            "run_id": run.run_id,
            "name": row.name,
            "model_output_table": row.model_output_table,
            "model_selection_table": row.model_selection_table,
            "model_arch_table": row.model_arch_table,
            "num_iterations": row.num_iterations,
            "warm_start": row.warm_start,
            "seed": row.seed,
            "num_partitions": row.num_partitions,
            "cerebro_version": row.cerebro_version,
            **_who_and_when(session, run.run_id),
        },
        "training": {
            "table": row.source_table,
            "fingerprint": row.source_print,
            "rows": _rows(session, row.source_oid, row.source_print),
        },
        "validation": None,
        "configuration": _configuration(session, run.run_id, mst_key),
        "results": _results(session, run.run_id, mst_key),
        "manifest": run.manifest,
        "registered_with": cerebro_db.__version__,
    }
    if row.validation_oid is not None:
        found["validation"] = {
            "table": row.validation_table,
            "fingerprint": row.validation_print,
            "rows": _rows(session, row.validation_oid, row.validation_print),
        }
    return json.dumps(found)


def _who_and_when(session: Session, run_id: int) -> dict[str, Any]:
    rows = session.run(
        "SELECT owner::text, created::text, started::text, finished::text FROM cerebro.runs "
        "WHERE run_id = %s",
        (run_id,),
    )
    return dict(zip(("owner", "created", "started", "finished"), rows[0], strict=True))


def _configuration(session: Session, run_id: int, mst_key: int) -> dict[str, Any]:
    names = ("mst_key", "model_id", "compile_params", "fit_params", "initial_seed", "is_warm")
    for row, _, _ in Catalog(session).configurations(run_id):
        if row.mst_key == mst_key:
            return {name: getattr(row, name) for name in names}
    return {"mst_key": mst_key}  # of an earlier run, kept by a warm start


def _rows(session: Session, oid: int, told: str | None) -> int | None:
    """Rows of a packed table; None where it is no longer what the run has read."""
    try:
        with session.attempt():
            packed = packed_of(session, oid, "source_table")
            same = fingerprint(session, packed) == told
    except CerebroError:  # dropped since, or no longer to be read
        return None
    return packed.rows if same else None


def _results(session: Session, run_id: int, mst_key: int) -> dict[str, Any]:
    """The last loss and metrics on each data set; names by values, as far as JSON has them."""
    rows = session.run(
        "SELECT DISTINCT ON (dataset) dataset, epoch, loss::text, metric_names, metrics::text[] "
        "FROM cerebro._metrics WHERE run_id = %s AND mst_key = %s ORDER BY dataset, epoch DESC",
        (run_id, mst_key),
    )
    return {
        dataset: {
            "epoch": epoch,
            "loss": _number(loss),
            "metrics": {name: _number(value) for name, value in zip(names, values, strict=True)},
        }
        for dataset, epoch, loss, names, values in rows
    }


def _number(text: str | None) -> float | None:
    """A number as JSON has it: neither NaN nor infinite."""
    value = float(text or "nan")
    return value if abs(value) < float("inf") else None
