"""Several roles at a time: runs that are disturbed together, and tables that only one may change."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest
from servers import connected

from cerebro_db.postgres.catalog.runs import RUN_TABLES, Catalog
from cerebro_db.postgres.sessions.session import Session
from chaos.segments import NotHere, Segments
from chaos.server import until
from conftest import Sql
from tests.greenplum.test_catalog import new_run
from tests.greenplum.test_faults import Call
from tests.greenplum.test_fitting import make_tables

ROLES = "many_ada", "many_bob", "many_cyd"
FIT = "SELECT cerebro_fit_multiple('packed', 'out', 'configs', 100000)"
# On a busy machine processes with TensorFlow for all of them take minutes to come.
TIMES, SECONDS = 20, 600.0


@pytest.fixture
def users(segments: Sql) -> Iterator[list[str]]:
    """Connection strings of roles that have a schema each."""
    for role in ROLES:
        segments.run(f"CREATE ROLE {role} LOGIN; GRANT cerebro_user TO {role}")
        segments.run(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    yield [psycopg2.extensions.make_dsn(segments.dsn, user=role) for role in ROLES]
    with closing(connected(segments.dsn)) as connection:
        for role in ROLES:
            Sql(connection, segments.dsn).run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def _side_by_side(works: list[Callable[[], object]]) -> None:
    errors: list[BaseException] = []

    def done(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=done, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_changes_of_the_catalog_wait_for_each_other_and_none_is_lost(
    segments: Sql, users: list[str]
) -> None:
    segments.run("CREATE TABLE m (model_id int, model_weights bytea); GRANT SELECT ON m TO PUBLIC")
    sessions = [Session(dsn, "test") for dsn in users]
    for session in sessions:
        session.settle()
    catalogs = [Catalog(session) for session in sessions]

    def changes(catalog: Catalog, number: int) -> Callable[[], object]:
        def work() -> None:
            for turn in range(15):
                run_id = new_run(catalog, 100 * number + turn)
                catalog.driven(run_id)
                catalog.started(run_id, {})
                catalog.configuration_ended(run_id, 1, "failed", "why")
                catalog.execute("BEGIN")
                catalog.lock("runs", "configurations")
                catalog.configurations_ended(run_id, [2], "finished")
                catalog.run_ended(run_id, "finished")
                catalog.commit()
                catalog.execute("BEGIN")
                catalog.lock(*RUN_TABLES)
                catalog.drop_run(run_id)
                catalog.commit()

        return work

    try:
        _side_by_side([changes(catalog, n) for n, catalog in enumerate(catalogs, 1)])
    finally:
        for session in sessions:
            session.close()
        segments.run("DROP TABLE m")


class _User:
    """A role, its run, and the session that drives it."""

    def __init__(self, dsn: str, blobs: Any, connect: Callable[[str], Sql]) -> None:
        self.dsn = dsn
        make_tables(connect(dsn), blobs, "")
        self.call = Call(dsn, FIT)
        self.run_id = 0

    def begun(self) -> None:
        """Wait until its run trains."""
        self.run_id = until(self._begun, SECONDS, "a run begins") or 0

    def _begun(self) -> int | None:
        assert not self.call.over, self.call.error
        query = "SELECT max(run_id) FROM cerebro.runs WHERE status = 'running'"
        run_id: int | None = self.asked(query)
        return run_id if run_id and self.hops(run_id) else None

    def asked(self, query: str) -> Any:
        """In a session of its own: those that had processes on a segment that recovers are lost."""
        with closing(connected(self.dsn)) as connection:
            return Sql(connection, self.dsn).value(query)

    def hops(self, run_id: int | None = None) -> int:
        number = run_id or self.run_id
        return int(self.asked(f"SELECT count(*) FROM cerebro.hops WHERE run_id = {number}"))

    def trains(self, more_than: int) -> None:
        """Wait until it has done more hops."""

        def found() -> bool:
            assert not self.call.over, self.call.error
            try:
                return self.hops() > more_than
            except psycopg2.Error:  # the segment recovers
                return False

        until(found, SECONDS, "a run goes on")

    def paused(self) -> None:
        self.asked(f"SELECT cerebro_pause({self.run_id})")
        assert self.call.wait() is None

    def resumed(self) -> None:
        self.call.again(f"SELECT cerebro_resume({self.run_id})")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_runs_of_several_users_that_are_disturbed_together_all_go_on(
    segments: Sql, users: list[str], blobs: Any, connect: Callable[[str], Sql]
) -> None:
    try:
        server = Segments(segments.dsn)
    except NotHere as error:
        pytest.skip(str(error))
    segments.run("SELECT cerebro_set('worker_retries', '100')")
    everybody: list[_User] = []
    try:
        everybody += [_User(dsn, blobs, connect) for dsn in users]
        _side_by_side([user.begun for user in everybody])
        for turn in range(TIMES):
            done = [user.hops() for user in everybody]
            if turn % 4 == 3:
                assert server.kill_on_segment(server.drivers(), True, random.Random(turn))
            else:
                _side_by_side([user.paused for user in everybody])
                done = [user.hops() for user in everybody]
                _side_by_side([user.resumed for user in everybody])
            for user, hops in zip(everybody, done, strict=True):
                user.trains(hops)
        _side_by_side([user.paused for user in everybody])
        for user in everybody:
            told = "".join(user.call.connection.notices)
            assert "deadlock" not in told
    finally:
        server.forget_session()
        server.call("SELECT cerebro_set('worker_retries', NULL)")
        for user in everybody:
            pid = user.call.connection.info.backend_pid
            server.call(f"SELECT pg_terminate_backend({pid})")
            until(lambda call=user.call: call.over, SECONDS, "its session ends")
            user.asked(f"SELECT cerebro_drop_run({user.run_id})")
