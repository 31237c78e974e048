"""A role may write any number of rows of its own runs: what others read of theirs does not grow with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg2
import pytest
from reasons import NO_SUCH_SQL

from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.watching import reading
from cerebro_db.watching.prometheus import RunsCollector
from cerebro_db.watching.view import view_of
from tests.security.conftest import Person, Recruit, paused_run
from tests.security.test_poisoned_rows import ROWS, VIEWS

# Plans are looked at, and triggers are left out for speed.
pytestmark = pytest.mark.not_on_segments(NO_SUCH_SQL)

# Blocks of 8 kB that a statement about one run may touch; the rows of the other role fill several times as many.
MOST_BLOCKS = 350
CONFIGURATIONS, EPOCHS, PARTITIONS = 3200, 2, 10
MANY = (
    "INSERT INTO cerebro.catalog_configurations (run_id, mst_key, model_id, compile_params, fit_params, hop_seconds, "
    "initial_seed, jit, steps_per_call, goal, status) SELECT {run}, k, 1, '', '', 1, 1, false, 1, 'max', 'training' "
    "FROM generate_series(1, {configurations}) k",
    "INSERT INTO cerebro.catalog_plan (run_id, epoch, mst_key, position, partition_key) SELECT {run}, e, k, p, p FROM "
    "generate_series(1, {configurations}) k, generate_series(1, {epochs}) e, generate_series(0, {partitions} - 1) p",
    "INSERT INTO cerebro.catalog_hops (run_id, mst_key, epoch, position, partition_key, worker, pid, started, finished, "
    "waited, read, trained, written, rows, loss, compiled, cached, memory_mb) SELECT run_id, mst_key, epoch, position, "
    "partition_key, 0, 1, now(), now(), 0, 0, 0, 0, 1, 1, false, false, 1 FROM cerebro.catalog_plan WHERE run_id = {run}",
    "INSERT INTO cerebro.catalog_metrics (run_id, mst_key, epoch, dataset, loss, metric_names, metrics, elapsed) "
    "SELECT {run}, k, e, 'training', 1, '{{a}}', '{{1}}', 1 FROM generate_series(1, {configurations}) k, "
    "generate_series(1, {epochs}) e",
    "INSERT INTO cerebro.catalog_decisions (run_id, number, mst_key, action, epochs, reason) "
    "SELECT {run}, k, k, 'add', 1, repeat('x', 1000) FROM generate_series(1, {configurations}) k",
    "INSERT INTO cerebro.catalog_requests (run_id, action, detail) "
    "SELECT {run}, 'pause', json_build_object('x', repeat('x', 1900))::text::jsonb FROM generate_series(1, {configurations})",
)


class Measuring:
    """A session that keeps how many blocks each of its statements touches."""

    def __init__(self, session: Session) -> None:
        self.session, self.blocks = session, list[tuple[int, str]]()

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        explained = self.session.run(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {sql}", parameters)
        ((found,),) = explained
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        self.blocks.append((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], sql))
        return self.session.run(sql, parameters)

    @property
    def dear(self) -> list[tuple[int, str]]:
        """Statements that touch too many."""
        return [one for one in self.blocks if one[0] > MOST_BLOCKS]


@pytest.fixture(scope="module")
def crowd(recruit: Recruit, root: Person) -> Iterator[None]:
    """Rows of a role that bob has nothing to do with, in each table of runs."""
    owner = recruit("crowd", "cerebro_user")
    run = paused_run(owner)
    given = {"configurations": CONFIGURATIONS, "epochs": EPOCHS, "partitions": PARTITIONS}
    root.rows("SET session_replication_role = replica")
    try:
        for text in MANY:
            root.rows(text.format(run=run, **given))
    finally:
        root.rows("RESET session_replication_role")
    root.rows("ANALYZE")
    sizes = root.rows(
        "SELECT relname::text, relpages FROM pg_class WHERE oid = ANY (ARRAY['hops', 'plan', 'decisions', 'requests']"
        "::text[]::regclass[])".replace("ARRAY['", "ARRAY['cerebro.catalog_").replace(
            ", '", ", 'cerebro.catalog_"
        )
    )
    assert min(pages for _, pages in sizes) > MOST_BLOCKS, sizes
    yield
    owner.rows("SELECT cerebro._drop_run(%s)", (run,))


@pytest.fixture
def own_run(bob: Person, root: Person) -> Iterator[int]:
    """A run of bob's with a row in each table."""
    run = paused_run(bob)
    for text in ROWS:
        root.rows(text.format(run))
    yield run
    bob.rows("SELECT cerebro._drop_run(%s)", (run,))


@pytest.fixture
def measuring(bob: Person) -> Iterator[Measuring]:
    """Bob's session, as that of commands and drivers."""
    dsn = psycopg2.extensions.make_dsn(bob.connection.dsn, options="-c search_path=cerebro")
    session = Session(dsn, "test")
    session.run("; ".join(dialect_of(session.server_version, "postgresql").session_settings()))
    yield Measuring(session)
    session.close()


@pytest.mark.usefixtures("crowd")
def test_views_of_a_run_do_not_grow(measuring: Measuring, own_run: int) -> None:
    for view in VIEWS:
        sql = f"SELECT * FROM cerebro.{view}"
        names = measuring.session.run(
            "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = %s::regclass",
            (f"cerebro.{view}",),
        )
        measuring.run(f"{sql} WHERE run_id = {own_run}" if ("run_id",) in names else sql)
    assert measuring.dear == []


@pytest.mark.usefixtures("crowd")
def test_what_commands_and_clients_read_does_not_grow(measuring: Measuring, own_run: int) -> None:
    source: Any = measuring
    assert reading.run_facts(source, own_run).run_id == own_run
    assert own_run in [one.run_id for one in reading.runs_facts(source)]
    assert len(reading.standings(source, own_run)) == 1
    assert len(reading.measures(source, own_run)) == 1
    assert reading.pace(source, own_run).configurations == 1
    view_of(source, own_run, 20)
    assert measuring.dear == []
    RunsCollector(source).collect()  # of all runs that bob may see: no more than that it works


@pytest.mark.usefixtures("crowd")
def test_what_drivers_read_does_not_grow(measuring: Measuring, own_run: int) -> None:
    source: Any = measuring
    catalog = Catalog(source)
    assert [one[1] for one in catalog.requests(own_run)] == ["pause"]
    assert catalog.run(own_run).status == "paused"
    assert measuring.dear == []


@pytest.mark.usefixtures("crowd")
def test_nobody_sees_the_rows_of_others(bob: Person, own_run: int) -> None:
    own = [row[0] for row in bob.rows("SELECT run_id FROM cerebro.runs")]
    for view in ("hops", "metrics", "decisions", "leaderboard", "progress"):
        assert {row[0] for row in bob.rows(f"SELECT run_id FROM cerebro.{view}")} <= set(own), view
