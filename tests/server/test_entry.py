"""Errors on their way out, where there is no hint to be had."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_db.errors import InvalidArgument
from cerebro_db.server.entry import entry_of


class _Told(Exception):
    """What the server would raise."""


@entry_of("cerebro_pause")
def _refuses(plpy: Any) -> None:
    raise InvalidArgument("got 1; allowed: 2")


def _told() -> _Told:
    with pytest.raises(_Told, match="got 1; allowed: 2") as raised:
        _refuses(SimpleNamespace(Error=_Told, SPIError=_Told))
    return raised.value


def test_the_hint_of_last_resort_is_how_the_function_is_called() -> None:
    assert "cerebro_pause(run_id" in str(vars(_told()))


def test_a_package_that_has_gone_since_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cerebro_db.server.usage", None)
    assert "cerebro_pause(" not in str(vars(_told()))
