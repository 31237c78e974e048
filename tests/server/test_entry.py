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
def _refuses(plpy: Any, message: str) -> None:
    raise InvalidArgument(message)


def _told(message: str) -> tuple[str, str]:
    """Message as the server writes it, and what comes with it."""
    with pytest.raises(_Told) as raised:
        _refuses(SimpleNamespace(Error=_Told, SPIError=_Told), message)
    return f"{raised.type.__name__}: {raised.value}", str(vars(raised.value))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("got 1; allowed: 2", "got 1; allowed: 2"),
        ("a: b: c", "a: b: c"),
        (": empty", ": empty"),
        ("größer\0: \ud800", "größer\\x00: \\ud800"),
        ("no worker", "cerebro: no worker"),
    ],
)
def test_the_server_shows_the_message_as_it_is(message: str, told: str) -> None:
    assert _told(message)[0] == told


def test_the_hint_of_last_resort_is_how_the_function_is_called() -> None:
    assert "cerebro_pause(run_id" in _told("got 1")[1]


def test_a_package_that_has_gone_since_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cerebro_db.server.usage", None)
    assert "cerebro_pause(" not in _told("got 1")[1]
