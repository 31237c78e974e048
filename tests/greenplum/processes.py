"""Processes of segments, as they tell of themselves: which there are, and which have trained."""

from __future__ import annotations

from conftest import Sql

# A process that computes has TensorFlow, and its title tells of which session it is.
_FOUND = """
CREATE OR REPLACE FUNCTION pg_temp.found(n integer, mapped text) RETURNS SETOF integer
LANGUAGE plpython3u AS $$
import os, re
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        with open(f'/proc/{pid}/stat') as file:
            parent = int(file.read().rpartition(')')[2].split()[1])
        if parent != os.getppid():
            continue
        with open(f'/proc/{pid}/maps') as file:
            if mapped not in file.read():
                continue
        with open(f'/proc/{pid}/cmdline') as file:
            session = re.search(r'\\bcon(\\d+)\\b', file.read())
    except OSError:
        continue
    if session:
        found.append(int(session[1]))
return found
$$
"""
_SESSIONS = (
    "SELECT sess_id FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'cerebro worker'"
)


def computing(sql: Sql) -> list[tuple[int, int]]:
    """Segment and session of each process of a segment that has TensorFlow, of this database."""
    return _found(sql, "tensorflow")


def of_workers(sql: Sql) -> list[tuple[int, int]]:
    """Segment and session of each process of a segment that works for ours, of this database."""
    return _found(sql, "")


def _found(sql: Sql, mapped: str) -> list[tuple[int, int]]:
    sql.run(_FOUND)
    sessions = set(sql.column(_SESSIONS))
    # An argument that differs from row to row keeps the planner from calling it beforehand.
    rows = sql.fetch(
        "SELECT gp_segment_id, pg_temp.found(gp_segment_id, %s) FROM gp_dist_random('gp_id')",
        [mapped],
    )
    return sorted((segment, session) for segment, session in rows if session in sessions)
