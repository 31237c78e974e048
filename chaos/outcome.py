"""Outcome of a run: what it must leave, to the bit, and what must not stay behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chaos.grid import Job
from chaos.server import Server, until

Outcome = Mapping[str, Any]

_SIGNAL = re.compile(r"was terminated by signal (\d+)")
_ALARMS = ("PANIC", "TRAP:", "server process was terminated by exception", "could not read block")
_KILLED = "9"
# A backend with TensorFlow in it takes a moment to end, and may first have to finish a hop.
_SESSIONS_SECONDS = 30.0


def outcome(server: Server, job: Job, run_id: int) -> Outcome:
    """Results of a run by name, without what depends on timing."""
    found = {
        name: server.fetch(sql.format(out=job.output), (run_id,) if "%s" in sql else None)
        for name, sql in _PARTS.items()
    }
    for (row,) in found["rows of _info"]:
        del row["metrics_elapsed_time"]
    for key, table in job.prediction_tables.items():
        found[f"predictions of {key}"] = server.fetch(_PREDICTIONS.format(table=table))
    return found


def differences(found: Outcome, wanted: Outcome) -> list[str]:
    """Parts that are not the same."""
    return [f"{name} differ" for name in wanted if found.get(name) != wanted[name]]


def miscounted(server: Server, job: Job, run_id: int) -> list[str]:
    """Faults of the hops, or of the catalog."""
    hops, distinct, extra, missing = server.fetch(_HOPS, {"run_id": run_id})[0]
    found = [] if hops == distinct == job.hops else [f"{hops} hops, {distinct} of them different"]
    found += [f"{extra} hops that were not planned"] if extra else []
    found += [f"{missing} planned hops were not done"] if missing else []
    ends = server.fetch(_ENDS, {"run_id": run_id})[0]
    # Trials of a search that were trained no further than their budgets are stopped.
    statuses = "finished stopped" if job.searches else "finished"
    return found if ends == ("finished", statuses, None) else [*found, f"the catalog says {ends}"]


def leftovers(server: Server) -> list[str]:
    """Leftovers that must not be there while no run goes on, as words."""
    return server.leftovers()


def await_no_sessions(server: Server) -> None:
    """Wait until only the harness has a session.

    Raises:
        TookTooLong: someone keeps one.
    """
    until(lambda: not server.sessions(), _SESSIONS_SECONDS, "all sessions end", pause=0.1)


def remains(server: Server, run_id: int) -> list[str]:
    """Catalog tables that know of a run that was dropped."""
    return [
        f"rows of a dropped run in {table}"
        for table in _CATALOG
        if server.fetch(f"SELECT 1 FROM cerebro.catalog_{table} WHERE run_id = %s", (run_id,))
    ]


def alarms(log: str) -> list[str]:
    """Lines of the server's log that no kill explains."""
    found = []
    for line in log.splitlines():
        signal = _SIGNAL.search(line)
        if any(alarm in line for alarm in _ALARMS) or (signal and signal.group(1) != _KILLED):
            found.append(f"the log: {line.strip()}")
    return found


_PARTS = {
    "states": "SELECT mst_key, chunk, md5(state) FROM {out}_states ORDER BY 1, 2",
    "weights": "SELECT mst_key, md5(model_weights), md5(model_arch::text) FROM {out} ORDER BY 1",
    "metrics": "SELECT mst_key, epoch, dataset, loss, metric_names, metrics FROM cerebro.metrics "
    "WHERE run_id = %s ORDER BY 1, 2, 3",
    "ranks": "SELECT rank, mst_key, status, epoch, validation_metrics, validation_loss, "
    "training_metrics, training_loss, error FROM cerebro.leaderboard WHERE run_id = %s "
    "ORDER BY rank, mst_key",
    "hops": "SELECT mst_key, epoch, position, partition_key, rows, loss FROM cerebro.hops "
    "WHERE run_id = %s ORDER BY 1, 2, 3",
    "decisions": "SELECT number, mst_key, action, epochs, reason, heard::text, detail::text "
    "FROM cerebro.catalog_decisions WHERE run_id = %s ORDER BY 1, 2",
    "rows of _info": "SELECT row_to_json(info) FROM {out}_info info ORDER BY mst_key",
}

_PREDICTIONS = "SELECT id, class_name, class_value, prob, rank FROM {table} ORDER BY id, rank"

_HOPS = """
WITH done AS (SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_hops
               WHERE run_id = %(run_id)s),
planned AS (SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_plan
             WHERE run_id = %(run_id)s)
SELECT (SELECT count(*) FROM done),
       (SELECT count(DISTINCT (mst_key, epoch, position)) FROM done),
       (SELECT count(*) FROM (TABLE done EXCEPT TABLE planned) AS d),
       (SELECT count(*) FROM (TABLE planned EXCEPT TABLE done) AS p)
"""

_ENDS = """
SELECT r.status, (SELECT string_agg(DISTINCT c.status, ' ' ORDER BY c.status) FROM cerebro.catalog_configurations c
                   WHERE c.run_id = r.run_id), r.states
  FROM cerebro.catalog_runs r WHERE r.run_id = %(run_id)s
"""

_CATALOG = (
    "runs", "configurations", "architectures", "plan", "decisions", "hops", "metrics", "requests",
)  # fmt: skip
