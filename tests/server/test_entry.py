"""Errors on their way out, where there is no hint to be had."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_db.errors import InvalidArgument, RunFailed
from cerebro_db.server.entry import entry, entry_of


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


PLPY = SimpleNamespace(Error=_Told, SPIError=_Told)


@entry
def _defect(plpy: Any, error: Exception) -> None:
    raise error


def test_a_defect_is_one_line_and_its_traceback_is_in_the_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(_Told) as raised:
        _defect(PLPY, KeyError("a\nb"))
    message, hint = f"{raised.type.__name__}: {raised.value}", vars(raised.value)
    assert re.search(r"unexpected error [0-9a-f]{8}, KeyError: 'a", message)
    assert "\n" not in message
    assert "Traceback" not in f"{message}{hint}"
    number = re.findall("[0-9a-f]{8}", message)[0]
    log = capfd.readouterr().err
    assert f"unexpected error {number}:" in log
    assert "Traceback" in log
    assert "test_entry.py" in log


def test_errors_of_the_server_stay_as_they_are() -> None:
    error = _Told("as it was")
    with pytest.raises(_Told, match="as it was") as raised:
        _defect(PLPY, error)
    assert raised.value is error


@pytest.mark.parametrize("place", [sys.prefix, os.getcwd(), max(sys.path, key=len)])
def test_places_of_the_server_are_not_told(place: str) -> None:
    for error in (
        FileNotFoundError(2, "not there", f"{place}/of/x.py"),
        RunFailed(f"{place}/x.py"),
    ):
        with pytest.raises(_Told, match=r"x\.py") as raised:
            _defect(PLPY, error)
        assert place not in str(raised.value)


def test_places_may_be_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/some/where")])
    assert _told("got /some/where/x.py: 1")[0] == "got x.py: 1"


def test_a_package_that_has_gone_since_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cerebro_db.server.usage", None)
    assert "cerebro_pause(" not in _told("got 1")[1]
