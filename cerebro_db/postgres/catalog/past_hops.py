"""Hops of earlier runs, by which the speed of the machine is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cerebro_db.decide.strategies import STRATEGIES
from cerebro_db.postgres.sessions.session import Session

_MOST_RUNS, _MOST_CONFIGURATIONS, _MOST_HOPS = 50, 200, 2000

_MEASURING = [one.name for one in STRATEGIES.values() if one.measures_speed]

# Where models are read only those of the caller count, even for an administrator.
_CONFIGURATIONS = """
SELECT c.run_id, c.mst_key, c.fit_params, c.hop_seconds, a.model_facts
  FROM cerebro._configurations c
  JOIN cerebro._architectures a ON a.run_id = c.run_id AND a.model_id = c.model_id
 WHERE c.run_id = ANY (%s::bigint[]) AND c.hop_seconds >= %s
 ORDER BY c.run_id DESC, c.mst_key LIMIT %s
"""

_RUNS = """
SELECT r.run_id FROM cerebro._runs r
 WHERE r.schedule = ANY (%s::text[]) AND NOT r.use_gpus AND r.threads = %s
   AND pg_catalog.pg_has_role(r.owner, 'USAGE')
 ORDER BY r.run_id DESC LIMIT %s
"""

# Workers of other machines that have joined a run have numbers beyond its own.
_HOPS = """
SELECT h.run_id, h.mst_key, h.trained
  FROM cerebro._hops h
  JOIN unnest(%s::bigint[], %s::int[]) AS k(run_id, mst_key)
    ON k.run_id = h.run_id AND k.mst_key = h.mst_key
  JOIN cerebro._runs r ON r.run_id = h.run_id
  JOIN cerebro._plan p
    ON p.run_id = h.run_id AND p.mst_key = h.mst_key AND p.epoch = h.epoch AND p.position = h.position
 WHERE h.run_id = ANY (%s::bigint[]) AND p.run_id = ANY (%s::bigint[])
   AND p.group_size = 1 AND NOT h.compiled AND h.worker < r.num_workers AND h.trained > 0
 ORDER BY h.run_id DESC, h.mst_key, h.epoch, h.position LIMIT %s
"""


class PastConfiguration(NamedTuple):
    """A configuration of an earlier run.

    Attributes:
        hop_seconds: estimate of a hop.
        model_facts: of its architecture, JSON.
    """

    run_id: int
    mst_key: int
    fit_params: str
    hop_seconds: float
    model_facts: str


def past_configurations(session: Session, threads: int, least: float) -> list[PastConfiguration]:
    """Configurations of the latest runs of the caller, those of the latest run first.

    Args:
        session: of the caller.
        threads: of a worker of these runs.
        least: estimated seconds of a hop.
    """
    runs = [run_id for (run_id,) in session.run(_RUNS, [_MEASURING, threads, _MOST_RUNS])]
    if not runs:
        return []
    rows = session.run(_CONFIGURATIONS, [runs, least, _MOST_CONFIGURATIONS])
    return [PastConfiguration(*row) for row in rows]


def trained_seconds(
    session: Session, configurations: Sequence[PastConfiguration]
) -> list[tuple[int, int, float]]:
    """Seconds that hops of some configurations were trained for, with run_id and mst_key.

    Hops whose worker had to make the program first, those of groups, and those of workers on other
    machines are left out.
    """
    runs = [one.run_id for one in configurations]
    mst_keys = [one.mst_key for one in configurations]
    own = sorted(set(runs))
    return [
        (run_id, mst_key, trained)
        for run_id, mst_key, trained in session.run(_HOPS, [runs, mst_keys, own, own, _MOST_HOPS])
    ]
