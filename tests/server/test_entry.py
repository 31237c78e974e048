"""Errors on their way out of a driver or a trainer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cerebro_db.errors import CerebroError, InvalidArgument, RunFailed
from cerebro_db.requests.fitting import PauseRequest
from cerebro_db.server.entry import entry_of, hinted
from cerebro_db.trainers.child import described
from cerebro_db.trainers.plpy import ServerError


@hinted("cerebro_pause")
def _refuses(plpy: Any, error: CerebroError) -> None:
    raise error


def _hint(error: CerebroError) -> str:
    with pytest.raises(CerebroError) as raised:
        _refuses(None, error)
    return raised.value.hint or ""


def test_the_hint_of_last_resort_is_how_the_function_is_called() -> None:
    assert "cerebro_pause(run_id" in _hint(InvalidArgument("got 1"))
    assert _hint(InvalidArgument("got 1", hint="allowed: 2")) == "allowed: 2"


def test_an_entry_gets_its_arguments_as_a_request() -> None:
    entry = entry_of(PauseRequest)(lambda plpy, gd, request: request.run_id)
    assert entry(None, {}, {"run_id": 7}) == 7


def test_texts_are_such_as_the_server_can_take() -> None:
    told = described(InvalidArgument("größer\0: \ud800"))
    assert (told["message"], told["sqlstate"]) == ("größer\\x00: \\ud800", "22023")


def test_a_defect_is_one_line_and_its_traceback_is_for_the_log() -> None:
    try:
        raise KeyError("a\nb")
    except KeyError as error:
        told = described(error)
    assert told["message"].startswith("unexpected error ")
    assert ", KeyError: 'a" in told["message"]
    number = told["message"].split()[2].rstrip(",")
    assert number in told["hint"]
    shown = f"{told['message']}{told['hint']}{told['detail']}"
    assert "\n" not in told["message"]
    assert "Traceback" not in shown
    assert "Traceback" in told["log"]
    assert number in told["log"]
    assert "test_entry.py" in told["log"]


def test_errors_of_the_server_stay_as_they_are() -> None:
    found = {"sqlstate": "22012", "message": "m", "detail": None, "hint": None, "number": 3}
    assert described(ServerError(found)) == {"number": 3}


@pytest.mark.parametrize("place", [sys.prefix, os.getcwd(), max(sys.path, key=len)])
def test_places_of_the_server_are_not_reported(place: str) -> None:
    for error in (
        FileNotFoundError(2, "not there", f"{place}/of/x.py"),
        RunFailed(f"{place}/x.py"),
    ):
        told = described(error)
        assert "x.py" in told["message"]
        assert place not in told["message"]


def test_places_may_be_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/some/where")])
    assert described(RunFailed("got /some/where/x.py: 1"))["message"] == "got x.py: 1"
