"""Requests as anybody may have written them: those that are none are refused, before anybody follows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import (
    AddedRow,
    AddTrials,
    Cancel,
    Change,
    CloneTrial,
    Decision,
    Ending,
    Extension,
    StopTrial,
    Wanted,
    add,
    clone,
    note,
    promote,
    read_request,
    stop,
)
from cerebro_db.core.spec import Space
from cerebro_db.errors import InvalidArgument
from cerebro_db.wire import decode, encode

ROW = [1, "loss='mse',optimizer='Adam'", "batch_size=8", None]
SPACE = {"model_ids": [1], "compile_params_grid": "{}", "fit_params_grid": "{}"}
TEXT = ConfigurationText(1, "a", "b")


@pytest.mark.parametrize(
    ("action", "mst_key", "detail", "wanted"),
    [
        ("cancel", 3, {}, Cancel()),
        ("stop", 3, {}, StopTrial()),
        ("add", None, {"rows": [ROW, [2, "", "", 4]]},
         AddTrials((AddedRow(*ROW), AddedRow(2, "", "", 4)))),
        ("clone", 3, {"compile_params": "a", "epochs": 2}, CloneTrial("a", None, 2)),
        ("clone", 3, {}, CloneTrial()),
        ("narrow", None, SPACE, Space((1,), "{}", "{}")),
        ("extend", None, {"params": {"num_configs": 2}, "max_seconds": 1.5, "max_epochs": 3},
         Extension({"num_configs": 2}, 1.5, 3)),
        ("finish", None, {"reason": "x", "stopped": {"3": 2}, "fault": True}, Ending("asked for by ann")),
    ],
)  # fmt: skip
def test_requests(action: str, mst_key: int | None, detail: dict[str, Any], wanted: Wanted) -> None:
    """What only a driver decides is left out."""
    found = read_request(5, action, mst_key, "ann", json.dumps({**detail, "epoch": 7, "until": 9}))
    assert (found.request_id, found.action, found.mst_key, found.who) == (
        5,
        action,
        mst_key or 0,
        "ann",
    )
    assert found.wanted == wanted
    assert read_request(5, action, mst_key, "ann", encode(wanted)) == found


@pytest.mark.parametrize(
    "decision",
    [
        add([Change(3, 2, TEXT, detail={"bracket": 1}, reason="a draw")], "bracket 1"),
        clone(Change(4, 2, TEXT), (3, 1), "exploit", "ann"),
        stop(3, 1, "worse", detail={"rung": 0}),
        promote(3, 9, "best of its rung"),
        note(Ending("max_seconds are over", {3: 2, 4: 0}), "max_seconds are over", "max_seconds"),
        note(Space((1, 2), "{}", "{}", {1: ("dropout",)}), "asked for by ann", "ann"),
        note(Extension({"R": 9}, 1.5, until=70.25), "asked for by ann", "ann"),
    ],
)
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    found = decode(Decision, encode(decision), "decision")
    assert found == decision
    if decision.action not in ("promote", "add", "clone", "stop"):
        assert note(found.wanted, decision.reason, decision.who) == decision
    if decision.action != "promote":
        assert found.as_request().action == decision.action


@pytest.mark.parametrize(
    "detail", ["[]", "3", '"x"', "null", "9" * 5000, "[" * 90_000, "{", "[" * 500 + "]" * 500]
)
def test_what_is_no_object(detail: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^stop: got .*; allowed: (an object|JSON|a number)"):
        read_request(5, "stop", 3, "ann", detail)


@pytest.mark.parametrize(
    ("action", "detail", "told"),
    [
        ("pause", {}, "action: got 'pause' of a configuration"),
        ("finish", {"reason": 3}, "finish.reason: got 3"),
        ("add", {}, "add.rows: got nothing"),
        ("add", {"rows": []}, "add.rows: got []; allowed: a list of length >= 1"),
        ("add", {"rows": 3}, "add.rows: got 3; allowed: a list"),
        ("add", {"rows": [3]}, "add.rows[0]: got 3"),
        ("add", {"rows": [[1, "a"]]}, "add.rows[0]: got"),
        ("add", {"rows": [["1", "a", "b", 1]]}, 'add.rows[0][0]: got "1"; allowed: a whole number'),
        ("add", {"rows": [[True, "a", "b", 1]]}, "add.rows[0][0]: got true"),
        (
            "add",
            {"rows": [[1, "a", "b", 0]]},
            "add.rows[0][3]: got 0; allowed: a whole number >= 1",
        ),
        ("add", {"rows": [[1, "a", "b", 1e9]]}, "add.rows[0][3]: got 1000000000.0"),
        ("add", {"rows": [[10**30, "a", "b", 1]]}, "add.rows[0][0]: got 1000"),
        ("clone", {"compile_params": 3}, "clone.compile_params: got 3; allowed: a text, or null"),
        ("clone", {"epochs": "3"}, 'clone.epochs: got "3"'),
        ("narrow", {}, "narrow.model_ids: got nothing"),
        ("narrow", {**SPACE, "fit_params_grid": None}, "narrow.fit_params_grid: got null"),
        ("extend", {"params": 3}, "extend.params: got 3"),
        (
            "extend",
            {"params": {"R": 0}},
            'extend.params[...]: got {"R": 0}; allowed: a whole number >= 1',
        ),
        ("extend", {"params": {"R": "9"}}, 'extend.params[...]: got {"R": "9"}'),
        ("extend", {"max_seconds": 0}, "extend.max_seconds: got 0; allowed: a number > 0"),
        ("extend", {"max_seconds": float("inf")}, "extend: got"),
        ("extend", {"max_configurations": -1}, "extend.max_configurations: got -1"),
    ],
)
def test_what_is_no_request(action: str, detail: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_request(5, action, None, "ann", json.dumps(detail))
    assert told in caught.value.message
