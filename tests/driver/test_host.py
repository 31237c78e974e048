"""A session without a server gives up at once, so that the server can be started again."""

from __future__ import annotations

import os

import pytest

from cerebro_db.database.dialects.choice import PostgreSQL
from cerebro_db.database.sessions import SessionPool
from cerebro_db.database.times import Styles
from cerebro_db.errors import RunInterrupted
from cerebro_db.server.host import Host


class Plpy:
    """Counts what the server is asked."""

    asked = 0

    def execute(self, query: str) -> None:
        self.asked += 1


def test_a_tick_asks_the_server_as_long_as_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plpy = Plpy()
    pool, styles = SessionPool("", []), Styles("ISO", "postgres", "UTC")
    host = Host(plpy, pool, PostgreSQL(150000), "public", "off", styles)
    host.tick()
    assert plpy.asked == 1
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    with pytest.raises(RunInterrupted, match="the server has died"):
        host.tick()
    assert plpy.asked == 1
