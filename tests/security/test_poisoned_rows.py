"""Rows of the catalog: whose they are to write, and that no row of somebody breaks what others see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from reasons import NO_SUCH_SQL

from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.watching import reading
from cerebro_db.watching.prometheus import RunsCollector
from cerebro_db.watching.view import view_of
from tests.security.conftest import Person, Recruit, paused_run

pytestmark = pytest.mark.not_on_segments(NO_SUCH_SQL)
VIEWS = (
    "runs", "progress", "leaderboard", "hops", "updates", "metrics", "decisions", "searches", "trials", "folds",
    "dashboard", "jobs", "job_log", "schedules", "settings", "direct_workers", "registered_functions",
)  # fmt: skip
HOSTILE = {
    "text": ("''", "'x'", "'Infinity'", "'{\"a\": [1e999, {\"b\": null}]}'", "'[]'", "repeat('9', 900)"),
    "integer": ("0", "-1", "2147483647", "-2147483648"),
    "bigint": ("0", "-1", "9223372036854775807", "-9223372036854775808"),
    "double precision": ("'NaN'", "'Infinity'", "'-Infinity'", "1e308", "-1e308", "0", "5e-324"),
    "boolean": ("true", "false", "NULL"),
    "timestamp with time zone": ("'infinity'", "'-infinity'", "'2999-12-31'", "'2000-01-02'", "'4713-01-01 BC'"),
    "text[]": ("'{}'", "ARRAY[NULL::text]", "'{{a,b},{c,d}}'", "'[5:6]={a,b}'"),
    "double precision[]": ("'{}'", "'{NaN,Infinity}'", "ARRAY[NULL::float8]", "'{{1,2},{3,4}}'", "'[5:6]={1,2}'"),
    "integer[]": ("'{}'", "ARRAY[NULL::int]", "'{2147483647,-2147483648}'", "'{{1,2},{3,4}}'", "'[5:6]={1,2}'"),
    "json": ("'[]'", "'1'", "'null'", "'{\"spec\": 1, \"workers\": \"x\"}'", "'{\"objectives\": {}}'"),
    "jsonb": ("'[]'", "'1'", "'null'", "'{}'", "'{\"objectives\": [{}], \"method\": 1}'", "'{\"parameters\": 7, \"method\": \"asha\"}'"),
}  # fmt: skip
TABLES = (
    "_runs",
    "_configurations",
    "_plan",
    "_hops",
    "_updates",
    "_metrics",
    "_decisions",
    "_requests",
)
COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a
 WHERE a.attrelid = ('cerebro.catalog' || %s)::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
ROWS = (
    "INSERT INTO cerebro.catalog_configurations (run_id, mst_key, model_id, compile_params, fit_params, hop_seconds, "
    "initial_seed, jit, steps_per_call, goal, status) VALUES ({0}, 1, 1, '', '', 1, 1, false, 1, 'max', 'training')",
    "INSERT INTO cerebro.catalog_plan (run_id, epoch, mst_key, position, partition_key) VALUES ({0}, 1, 1, 0, 0)",
    "INSERT INTO cerebro.catalog_hops (run_id, mst_key, epoch, position, partition_key, worker, pid, started, finished, waited, "
    "read, trained, written, rows, loss, compiled, cached, memory_mb) VALUES ({0}, 1, 1, 0, 0, 0, 1, now(), now(), "
    "0, 0, 0, 0, 1, 1, false, false, 1)",
    "INSERT INTO cerebro.catalog_metrics (run_id, mst_key, epoch, dataset, loss, metric_names, metrics, elapsed) "
    "VALUES ({0}, 1, 1, 'training', 1, '{{a}}', '{{1}}', 1)",
    "INSERT INTO cerebro.catalog_updates (run_id, mst_key, epoch, round, groups, counts, staleness, stalest, updates) "
    "VALUES ({0}, 1, 1, 0, 1, '{{1}}', '{{1}}', '{{1}}', '')",
    "INSERT INTO cerebro.catalog_decisions (run_id, number, mst_key, action, epochs, reason) VALUES ({0}, 1, 1, 'stop', 1, '')",
    "INSERT INTO cerebro.catalog_requests (run_id, action) VALUES ({0}, 'pause')",
)


@pytest.fixture(scope="module")
def eve(recruit: Recruit) -> Person:
    """A user whose rows are hostile; no session but hers is hurt by what is in her own way."""
    return recruit("nora", "cerebro_user")


@pytest.fixture
def run(eve: Person, root: Person) -> Iterator[int]:
    """A run of eve's with a row in each table."""
    number = paused_run(eve)
    for text in ROWS:
        root.rows(text.format(number))
    root.rows(
        "UPDATE cerebro.catalog_runs SET spec = %s WHERE run_id = %s",
        ('{"search": {"method": "random"}}', number),
    )
    yield number
    for table in (*TABLES[:0:-1], "_runs"):
        root.rows(f"DELETE FROM cerebro.catalog{table} WHERE run_id = %s", (number,))


@pytest.fixture(scope="module")
def looking(dave: Person) -> Iterator[Session]:
    """A session of the administrator, as that of commands."""
    dsn = psycopg2.extensions.make_dsn(dave.connection.dsn, options="-c search_path=cerebro")
    session = Session(dsn, "test")
    session.run("; ".join(dialect_of(session.server_version, "postgresql").session_settings()))
    yield session
    session.close()


def looked_at(session: Session, others: int) -> list[str]:
    """What an administrator cannot look at any more."""
    broken = []
    looks: dict[str, Any] = {
        **{view: lambda view=view: session.run(f"SELECT * FROM cerebro.{view}") for view in VIEWS},
        "runs_facts": lambda: reading.runs_facts(session, 1000),
        "prometheus": lambda: RunsCollector(session).collect(),
        "view": lambda: view_of(session, others, 20),
    }
    for name, look in looks.items():
        try:
            look()
        except Exception as error:  # whatever it is, that is what is looked for
            broken.append(f"{name}: {str(error).splitlines()[0]}")
    return broken


@pytest.mark.parametrize("table", TABLES)
def test_no_row_breaks_what_others_see(
    eve: Person, root: Person, looking: Session, run: int, bobs_run: int, table: str
) -> None:
    assert looked_at(looking, bobs_run) == []
    broken, refused, accepted = [], [], 0
    for column, kind in root.rows(COLUMNS, (table,)):
        before = (
            root.value(f"SELECT t::text FROM cerebro.catalog{table} t WHERE run_id = {run}")
            if kind in HOSTILE
            else ""
        )
        for value in HOSTILE.get(kind, ()):
            set_to = f"UPDATE cerebro.catalog{table} SET {column} = {value} WHERE run_id = {run}"
            if column in ("run_id", "owner"):
                continue
            try:  # as an earlier version may have left it
                root.rows(set_to)
            except psycopg2.Error as error:
                refused.append((error.pgcode, set_to))
                continue
            accepted += 1
            broken += [f"{set_to}: {what}" for what in looked_at(looking, bobs_run)]
            root.rows(
                f"UPDATE cerebro.catalog{table} SET {column} = (({before_row(before)})::cerebro.catalog{table}).{column} "
                f"WHERE run_id = {run}"
            )
    assert [one for one in refused if one[0][:2] not in ("22", "23", "42", "44")] == []
    assert accepted > 5
    assert broken == [], "\n".join(broken)


def before_row(text: str) -> str:
    """A row as a literal."""
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize(
    ("search", "path"),
    [("[]", "search"), ("1", "search"), ("{}", "search.method"), ('{"method": 7}', "search.method"),
     ('{"method": "random", "params": []}', "search.params"),
     ('{"method": "random", "params": {}, "space": {"model_ids": 1}}', "search.space.model_ids")],
)  # fmt: skip
def test_a_search_that_was_changed_by_hand_is_refused_with_the_path(
    eve: Person, root: Person, run: int, search: str, path: str
) -> None:
    spec = f'{{"version": 1, "epochs": 1, "seed": 0, "frequency": 1, "partitions": {{}}, "strategy": {{}}, "search": {search}}}'
    root.rows("UPDATE cerebro.catalog_runs SET spec = %s WHERE run_id = %s", (spec, run))
    for call in ("cerebro_best", "cerebro_extend", "cerebro_resume"):
        error = eve.refused(f"SELECT * FROM cerebro.{call}({run})")
        assert error.pgcode not in (None, "XX000", "38000"), error
    assert f"{path}: the catalog has " in str(
        eve.refused(f"SELECT * FROM cerebro.cerebro_best({run})")
    )
