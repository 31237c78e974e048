"""A session without a server gives up at once, so that the server can be started again."""

from __future__ import annotations

import os

import pytest

from cerebro_db.relay import backend


def test_a_backend_notices_that_the_server_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    with pytest.raises(backend.ClientGone, match="the server has died"):
        backend.listen(None)
