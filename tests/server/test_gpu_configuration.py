"""cerebro_gpu_configuration on a server without segments, and sessions that used GPUs."""

from __future__ import annotations

from typing import Any, cast

import psycopg2
import pytest
from conftest import Sql

from cerebro_db.database.sessions import Session, SessionPool, SessionSettings
from cerebro_db.driver.control import preparation

FAKE = (
    "CREATE OR REPLACE FUNCTION cerebro._gpus(source text) RETURNS text[] LANGUAGE sql AS "
    "$$SELECT ARRAY[source || ' 0', source || ' 1']$$"
)


def test_the_only_host_is_localhost(sql: Sql) -> None:
    sql.run("SELECT cerebro_gpu_configuration('none_here')")
    assert sql.fetch("SELECT hostname, gpu_descr FROM none_here") == []
    sql.run(FAKE)
    sql.run("SELECT cerebro_gpu_configuration('by_default', NULL)")
    sql.run("SELECT cerebro_gpu_configuration('asked', ' NVIDIA ')")
    rows = [("localhost", "tensorflow 0"), ("localhost", "tensorflow 1")]
    assert sql.fetch("SELECT * FROM by_default ORDER BY 2") == rows
    assert sql.column("SELECT gpu_descr FROM asked ORDER BY 1") == ["nvidia 0", "nvidia 1"]
    with pytest.raises(psycopg2.Error, match="source: got 'cuda'; allowed") as failure:
        sql.run("SELECT cerebro_gpu_configuration('wrong', 'cuda')")
    assert failure.value.pgcode == "22023"
    with pytest.raises(psycopg2.errors.DuplicateTable, match="asked exists already"):
        sql.run("SELECT cerebro_gpu_configuration('asked')")


class Kept:
    """A session of which only its end is of interest."""

    def __init__(self) -> None:
        self.warmth: Any = None
        self.keep, self.closed, self.busy = True, False, False

    def run(self, statement: str) -> None:
        """What a pool tells an idle session."""

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("use_gpus", [False, True])
def test_sessions_that_used_gpus_end(use_gpus: bool) -> None:
    kept = Kept()
    session, pool = cast(Session, kept), SessionPool("", SessionSettings())
    _, parameters = preparation(session, use_gpus, computes=False)
    assert parameters[1] is False  # other processes than its own compute
    _, parameters = preparation(session, use_gpus, place=3)
    assert (parameters[1], parameters[4]) == (use_gpus, 3)
    pool.give([session])
    assert kept.closed is use_gpus
