"""Tables of the catalog that somebody has locked: UPDATE and DELETE lock whole tables on Greenplum 6."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest
from servers import as_role

from chaos.server import until
from conftest import Sql
from tests.greenplum.test_faults import Call
from tests.greenplum.test_fitting import make_tables

pytestmark = pytest.mark.slow

FIT = "SELECT cerebro_fit_multiple('packed', 'locked_out', 'configs', 40)"
HELD_SECONDS = 40.0  # longer than lock_timeout of our sessions
SECONDS = 300.0


@pytest.fixture
def user(segments: Sql, blobs: Any, connect: Callable[[str], Sql]) -> Iterator[Sql]:
    """A role with tables of its own."""
    segments.run("CREATE ROLE locked LOGIN; GRANT cerebro_user TO locked")
    segments.run("CREATE SCHEMA locked AUTHORIZATION locked")
    sql = connect(as_role(segments.dsn, "locked"))
    make_tables(sql, blobs, "")
    yield sql
    sql.connection.close()
    segments.run("DROP OWNED BY locked CASCADE; DROP ROLE locked")


def test_a_run_outlasts_a_transaction_that_holds_the_catalog(segments: Sql, user: Sql) -> None:
    first = user.value(FIT.replace("40", "1").replace("locked_out", "first"))
    call = Call(user.dsn, FIT)
    running = "SELECT max(run_id) FROM cerebro.runs WHERE status = 'running'"
    run_id = until(lambda: user.value(running), SECONDS, "a run begins")
    hops = f"SELECT count(*) FROM cerebro.hops WHERE run_id = {run_id}"
    until(lambda: user.value(hops), SECONDS, "it trains")
    with closing(psycopg2.connect(user.dsn)) as holder:
        cursor = holder.cursor()
        cursor.execute("SELECT cerebro_drop_run(%s)", (first,))
        time.sleep(HELD_SECONDS)
        assert not call.over, call.error
        holder.rollback()
    assert call.end(SECONDS) is None, call.error
