"""Trainers of processes of segments, as these tell of themselves; one of them is ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from servers import connected

from conftest import Sql

# A trainer is named after the process that it works for, whose title tells of which session that is.
_COMPUTING = """
CREATE OR REPLACE FUNCTION pg_temp.computing(n integer) RETURNS SETOF text
LANGUAGE plpython3u AS $$
import os, re
found = []
for name in filter(str.isdigit, os.listdir('/proc')):
    try:
        with open(f'/proc/{name}/comm') as file:
            trainer = re.fullmatch('trainer ([0-9]+)', file.read().strip())
        if trainer is None:
            continue
        with open(f'/proc/{trainer[1]}/stat') as file:
            parent = int(file.read().rpartition(')')[2].split()[1])
        if parent != os.getppid():
            continue
        with open(f'/proc/{trainer[1]}/cmdline') as file:
            session = re.search(r'\\bcon(\\d+)\\b', file.read())
    except OSError:
        continue
    if session:
        found.append(f'{session[1]} {name}')
return found
$$
"""
# Ends the trainer of one of the processes of a segment that work for some sessions.
_KILL_TRAINER = """
CREATE OR REPLACE FUNCTION pg_temp.kill_trainer(n integer, sessions integer[]) RETURNS boolean
LANGUAGE plpython3u AS $$
import os, re, signal
for name in filter(str.isdigit, os.listdir('/proc')):
    try:
        with open(f'/proc/{name}/comm') as file:
            kind, _, pid = file.read().strip().partition(' ')
        if kind != 'trainer' or not pid.isdigit():
            continue
        with open(f'/proc/{pid}/stat') as file:
            parent = int(file.read().rpartition(')')[2].split()[1])
        with open(f'/proc/{pid}/cmdline') as file:
            session = re.search(r'\\bcon(\\d+)\\b', file.read())
    except OSError:
        continue
    if parent == os.getppid() and session and int(session.group(1)) in sessions:
        os.kill(int(name), signal.SIGKILL)
        return True
return False
$$
"""
_TRAINER_KILLED = (
    "SELECT pg_temp.kill_trainer(gp_segment_id, %s) FROM gp_dist_random('gp_id') "
    "WHERE gp_segment_id = 0"
)
SESSIONS = (
    "SELECT sess_id FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'cerebro worker'"
)


@contextmanager
def computing(dsn: str) -> Iterator[set[tuple[int, int]]]:
    """Segment and session of each process of a segment that had a trainer meanwhile, of a database.

    They are there when the block has ended.
    """
    found: set[tuple[int, int]] = set()
    with trainers(dsn) as seen:
        yield found
    found.update((segment, session) for segment, session, _ in seen)


@contextmanager
def trainers(dsn: str) -> Iterator[set[tuple[int, int, int]]]:
    """The same, with the process id of each trainer."""
    found: set[tuple[int, int, int]] = set()
    ended = threading.Event()

    def look(sql: Sql) -> None:
        while not ended.wait(0.1):
            found.update(_computing(sql))

    with closing(connected(dsn)) as connection:
        sql = Sql(connection, dsn)
        sql.run(_COMPUTING)
        thread = threading.Thread(target=look, args=[sql])
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()


def _computing(sql: Sql) -> list[tuple[int, int, int]]:
    sessions = set(sql.column(SESSIONS))
    # An argument that differs from row to row keeps the planner from calling it beforehand.
    rows = sql.fetch(
        "SELECT gp_segment_id, pg_temp.computing(gp_segment_id) FROM gp_dist_random('gp_id')"
    )
    found = [(segment, *map(int, told.split())) for segment, told in rows]
    return [one for one in found if one[1] in sessions]


def kill_trainer(sql: Sql) -> bool:
    """End the trainer of a worker's process on the first segment; False where there is none."""
    sql.run(_KILL_TRAINER)
    return bool(sql.value(_TRAINER_KILLED, (sql.column(SESSIONS),)))
