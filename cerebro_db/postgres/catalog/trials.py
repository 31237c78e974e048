"""Trials of a search as the catalog's views tell them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.core.statuses import DRIVEN
from cerebro_db.errors import InvalidArgument, UndefinedRun
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.wire import decode_stored


class TrialRow(NamedTuple):
    """A row of ``cerebro.trials``.

    Attributes:
        rank: from 1, by the first objective.
        parameters: by the names of the dimensions of the space; none of one that somebody added.
        epoch: after which it was last measured; 0 before that.
        objectives: after that epoch; none before, and where one was not measured.
        reason: of the last decision about it.
    """

    mst_key: int
    rank: int
    model_id: int
    compile_params: str
    fit_params: str
    parameters: Mapping[str, Any]
    status: str
    bracket: int | None
    rung: int | None
    budget: int
    epoch: int
    objectives: tuple[float, ...]
    reason: str

    @property
    def is_comparable(self) -> bool:
        """True where it has values and has neither failed nor been cancelled: others are compared with it."""
        values = self.objectives
        ended_badly = self.status in ("failed", "cancelled")
        return bool(values) and not ended_badly and all(map(math.isfinite, values))

    def losses(self, spec: SearchSpec) -> tuple[float, ...]:
        """Its objectives such that less of each is better."""
        pairs = zip(spec.objectives, self.objectives, strict=True)
        return tuple(-value if one.maximise else value for one, value in pairs)


def search_of(session: Session, run_id: int | None) -> tuple[StoredRun, SearchSpec]:
    """A run that is a search, and what it was asked for.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search.
    """
    run = Catalog(session).run(run_id)
    if run.spec.search is None:
        raise InvalidArgument(
            f"run_id: got {run.run_id}, which is no search; allowed: a run of cerebro.cerebro_search",
            hint="cerebro.searches shows yours",
        )
    return run, run.spec.search


def trials_of(session: Session, run_id: int) -> list[TrialRow]:
    """The trials of a search, in the order of their keys."""
    return [_trial(row) for row in session.run(_TRIALS, (run_id,))]


def status_of_trial(session: Session, run_id: int, mst_key: int) -> str:
    """The status of a trial that is there, as the view has it."""
    query = "SELECT status FROM cerebro.trials WHERE run_id = %s AND mst_key = %s"
    return str(session.run(query, (run_id, mst_key))[0][0])


def _trial(row: tuple[Any, ...]) -> TrialRow:
    facts = dict(zip(TrialRow._fields, row, strict=True))
    values = facts["objectives"] or ()
    facts["parameters"] = json.loads(facts["parameters"] or "{}")
    facts["objectives"] = tuple(math.nan if one is None else float(one) for one in values)
    return TrialRow(**facts)


_TRIALS = """
SELECT mst_key, rank, model_id, compile_params, fit_params,
       CASE WHEN pg_catalog.jsonb_typeof(parameters) = 'object' THEN parameters::text END AS parameters,
       status, bracket, rung, COALESCE(budget, 0) AS budget, COALESCE(epoch, 0) AS epoch, objectives::text[],
       COALESCE(reason, '') AS reason
  FROM cerebro.trials WHERE run_id = %s ORDER BY mst_key
"""


def times_of(session: Session, run_id: int) -> dict[int, tuple[datetime, datetime]]:
    """When each trial began and ended: its first and last hop, and what was decided without any."""
    return {int(key): (began, ended) for key, began, ended in session.run(_TIMES, (run_id, run_id))}


_TIMES = """
SELECT d.mst_key, coalesce(min(h.started), min(d.began)), coalesce(max(h.finished), max(d.ended))
  FROM (SELECT x.mst_key, min(x.decided) AS began, max(x.decided) AS ended
          FROM cerebro._decisions x WHERE x.run_id = %s AND x.mst_key > 0 GROUP BY x.mst_key) d
  LEFT JOIN cerebro._hops h ON h.run_id = %s AND h.mst_key = d.mst_key
 GROUP BY d.mst_key
"""


def newest_space(session: Session, run_id: int) -> Space | None:
    """The space that a search was last narrowed to; None where it never was."""
    rows = session.run(_NARROWED, (run_id,))
    return decode_stored(Space, rows[0][0], "detail", "begin a new search") if rows else None


_NARROWED = """
SELECT detail::text FROM cerebro._decisions WHERE run_id = %s AND action = 'narrow'
 ORDER BY number DESC LIMIT 1
"""


class Progress(NamedTuple):
    """A row of ``cerebro.searches``, and the newest decisions.

    Attributes:
        best: mst_key and objective of the best trial; None before any was measured.
        decisions: the last ones, the newest first: when, what, about which trial, why.
    """

    name: str | None
    status: str
    method: str
    best: tuple[int, float] | None
    decisions: tuple[tuple[str, str, int, str], ...]

    @property
    def goes_on(self) -> bool:
        """True while somebody drives it."""
        return self.status in DRIVEN


def progress_of(session: Session, run_id: int) -> Progress:
    """Standing of a search.

    Raises:
        UndefinedRun: the caller has no such search.
    """
    rows = session.run(_PROGRESS, (run_id,))
    if not rows:
        raise UndefinedRun(
            f"run_id: got {run_id}; allowed: a search of yours", hint="cerebro.searches shows them"
        )
    ((name, status, method, key, objective),) = rows
    best = None if key is None else (int(key), float(objective))
    decisions = session.run(_NEWEST, (run_id,))
    return Progress(name, status, method, best, tuple(tuple(row) for row in decisions))


_PROGRESS = """
SELECT name, status, method, best_mst_key, best_objective FROM cerebro.searches WHERE run_id = %s
"""
_NEWEST = """
SELECT pg_catalog.to_char(decided, 'HH24:MI:SS'), action, mst_key, reason
  FROM cerebro.decisions WHERE run_id = %s ORDER BY number DESC, mst_key LIMIT 6
"""


def measures_of(session: Session, run_id: int, objective: Objective) -> dict[int, dict[int, float]]:
    """The values of an objective by trial and epoch."""
    found: dict[int, dict[int, float]] = {}
    rows = session.run(_MEASURES, (run_id, objective.dataset))
    for mst_key, epoch, loss, names, values in rows:
        measured = {**dict(zip(names, values, strict=True)), "loss": loss}
        value = measured.get(objective.metric)
        if value is not None:
            found.setdefault(int(mst_key), {})[int(epoch)] = float(value)
    return found


_MEASURES = """
SELECT mst_key, epoch, loss::text, metric_names, metrics::text[] FROM cerebro._metrics
 WHERE run_id = %s AND dataset = %s ORDER BY mst_key, epoch
"""
