"""A session without a server gives up at once, so that the server can be started again."""

from __future__ import annotations

import inspect
import os

import pytest

from cerebro_db.postgres.sessions.errors import LOST_SQLSTATES
from cerebro_db.relay import backend
from cerebro_db.relay.calls import Relay
from cerebro_db.relay.keepers import Installation


class Plpy:
    """What the server hands to bodies of functions."""

    class Error(Exception):
        """An error of the server."""

        sqlstate = ""

    SPIError = Error

    def commit(self) -> None:
        """Only newer servers have it."""


def test_a_backend_notices_that_the_server_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    with pytest.raises(backend.ClientGone, match="the server has died"):
        backend.listen(None)


def test_who_waits_for_the_trainer_of_a_dead_server_hears_of_a_lost_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    told = dict.fromkeys(inspect.signature(Installation).parameters, "/nowhere")
    with pytest.raises(Plpy.Error, match="the server has died") as caught:
        Relay(Plpy(), told)._listen()
    assert caught.value.sqlstate in LOST_SQLSTATES
