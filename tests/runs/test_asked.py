"""Requests as anybody may have written them: those that are none are refused, before anybody follows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_db.core.decisions import Asked
from cerebro_db.errors import InvalidArgument
from cerebro_db.runs.asked import asked_of

ROW = [1, "loss='mse',optimizer='Adam'", "batch_size=8", None]
GRID = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam']}]}"
SPACE = {"model_ids": [1], "compile_params_grid": GRID, "fit_params_grid": "{'batch_size': [8]}"}


@pytest.mark.parametrize(
    ("action", "mst_key", "detail"),
    [
        ("cancel", 3, {}),
        ("stop", 3, {}),
        ("add", None, {"rows": [ROW, [2, "", "", 4]]}),
        ("clone", 3, {"compile_params": "a", "epochs": 2}),
        ("clone", 3, {}),
        ("narrow", None, SPACE),
        ("extend", None, {"params": {"num_configs": 2}, "max_seconds": 1.5, "max_epochs": 3}),
    ],
)
def test_requests(action: str, mst_key: int | None, detail: dict[str, Any]) -> None:
    more = {**detail, "epoch": 7, "until": 9}
    expected = Asked(5, action, mst_key or 0, "ann", detail)
    assert asked_of(5, action, mst_key, "ann", json.dumps(more)) == expected


@pytest.mark.parametrize(
    "detail", ["[]", "3", '"x"', "null", "9" * 5000, "[" * 90_000, "{", "[" * 500 + "]" * 500]
)
def test_what_is_no_object(detail: str) -> None:
    with pytest.raises(InvalidArgument, match=r"detail: got .*; allowed: an object of JSON"):
        asked_of(5, "stop", 3, "ann", detail)


@pytest.mark.parametrize(
    ("action", "detail", "told"),
    [
        ("pause", {}, "action: got 'pause' of a configuration"),
        ("finish", {"reason": "x"}, "action: got 'finish'"),
        ("add", {}, "add: got rows None"),
        ("add", {"rows": []}, "add: got rows"),
        ("add", {"rows": 3}, "add: got rows 3"),
        ("add", {"rows": [3]}, "add: got rows"),
        ("add", {"rows": [[1, "a"]]}, "add: got rows"),
        ("add", {"rows": [["1", "a", "b", 1]]}, "add: got rows"),
        ("add", {"rows": [[True, "a", "b", 1]]}, "add: got rows"),
        ("add", {"rows": [[1, "a", "b", 0]]}, "add: got rows"),
        ("add", {"rows": [[1, "a", "b", 1e9]]}, "add: got rows"),
        ("add", {"rows": [[10**30, "a", "b", 1]]}, "add: got rows"),
        ("clone", {"compile_params": 3}, "clone: got compile_params 3"),
        ("clone", {"epochs": "3"}, "clone: got epochs '3'"),
        ("narrow", {}, "narrow: got model_ids None"),
        ("narrow", {**SPACE, "model_ids": []}, "narrow: got model_ids"),
        ("narrow", {**SPACE, "model_ids": [1, 1]}, "every model is allowed only once"),
        ("narrow", {**SPACE, "fit_params_grid": None}, "narrow: got fit_params_grid None"),
        ("narrow", {**SPACE, "fit_params_grid": "{"}, "fit_params_grid"),
        ("extend", {"params": 3}, "extend: got params 3"),
        ("extend", {"params": {"R": "9"}}, "extend: got params"),
        ("extend", {"max_seconds": 0}, "extend: got max_seconds 0"),
        ("extend", {"max_seconds": float("inf")}, "extend: got max_seconds inf"),
        ("extend", {"max_configurations": -1}, "extend: got max_configurations -1"),
    ],
)
def test_what_is_no_request(action: str, detail: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        asked_of(5, action, None, "ann", json.dumps(detail))
    assert told in caught.value.message
