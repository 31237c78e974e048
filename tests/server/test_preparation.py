"""A process that only statements of a run reach is told by their first row what it is for."""

from __future__ import annotations

import json
import types
from typing import Any

import pytest

from cerebro_db.configs.frameworks import default
from cerebro_db.errors import InvalidArgument, PeersApart
from cerebro_db.server import training

GOOD = {"run_id": 0, "threads": None, "use_gpus": False, "cache_bytes": 0, "settings": {}}


def _plpy(segment: int | None, asks_nothing: bool = True) -> types.SimpleNamespace:
    return types.SimpleNamespace(segment=segment, asks_nothing=asks_nothing)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        *(
            json.dumps(GOOD | wrong)
            for wrong in (
                {"threads": 0},
                {"threads": "1"},
                {"cache_bytes": -1},
                {"cache_bytes": None},
                {"run_id": 1.5},
                {"use_gpus": 1},
                {"settings": []},
                {"settings": {"cache_mb": 5}},
                {"settings": {"cache_mb": "much"}},
                {"settings": {"cash_mb": "5"}},
                {"places": []},
                {"places": {"2": -1}},
                {"places": {"2": "0"}},
            )
        ),
    ],
)
def test_what_it_may_not_be_given(text: str) -> None:
    gd: dict[str, object] = {}
    with pytest.raises(InvalidArgument, match=r"^task|^setting"):
        training.prepared(_plpy(2), gd, text, lambda: None)
    assert gd == {}


def test_where_sessions_are_prepared_once() -> None:
    with pytest.raises(InvalidArgument, match="kind: got -1"):
        training.prepared(_plpy(None, asks_nothing=False), {}, json.dumps(GOOD), lambda: None)


@pytest.mark.parametrize(("segment", "place"), [(0, 0), (2, 1), (3, None), (None, None)])
def test_a_segment_has_its_index_among_the_gpus(
    monkeypatch: pytest.MonkeyPatch, segment: int | None, place: int | None
) -> None:
    told: list[object] = []
    monkeypatch.setattr(training, "configure", lambda *given: told.extend(given))
    monkeypatch.setattr(training, "remember", lambda *given, **named: types.SimpleNamespace())
    places = {"0": 0, "1": 0, "2": 1}
    task = json.dumps(GOOD | {"use_gpus": True, "threads": 1, "places": places})
    training.prepared(_plpy(segment), {}, task, lambda: None)
    assert told == [1, True, place, (default(),)]


@pytest.mark.parametrize("known", [None, "{}", '{"peer_ports": "40000-40999"}'])
def test_nobody_says_for_himself_that_it_has_peers(known: str | None) -> None:
    """A task can be anybody's: the process is as it was, without the filter of those that have peers."""
    gd: dict[str, object] = {"cerebro.network": known}
    with pytest.raises(PeersApart, match="the setting peer_network is empty"):
        training.prepared(_plpy(2), gd, json.dumps(GOOD | {"peers": True}), lambda: None)
    assert gd == {"cerebro.network": known}


def test_what_has_met_its_peers_keeps_to_that() -> None:
    """A network that is taken away meanwhile counts from the next preparation on."""
    text = json.dumps(GOOD | {"peers": True})
    memory = types.SimpleNamespace(listener=object())
    gd: dict[str, Any] = {
        "cerebro.network": "{}", "cerebro.prepared": text, "cerebro.worker": memory
    }  # fmt: skip
    assert training.prepared(_plpy(2), gd, text, lambda: None) is memory
    with pytest.raises(PeersApart, match="the setting peer_network is empty"):
        training.prepared(_plpy(2), gd, text.replace("0", "1", 1), lambda: None)


def test_nobody_looks_for_peers_who_has_none() -> None:
    gd: dict[str, Any] = {"cerebro.worker": types.SimpleNamespace(listener=None)}
    with pytest.raises(InvalidArgument, match="task: got peers to look for in a trainer that has"):
        vars(training.try_peers)["__wrapped__"](lambda: None, gd, "{}")


@pytest.mark.parametrize(
    ("asked", "known", "given"),
    [
        ("on", None, "off"),
        ("on", '{"peer_ports": "40000-40999"}', "off"),
        ("on", '{"trainer_network": "on"}', "on"),
        ("off", '{"trainer_network": "on"}', "on"),
    ],
)
def test_nobody_says_for_himself_that_it_has_a_network(
    monkeypatch: pytest.MonkeyPatch, asked: str, known: str | None, given: str
) -> None:
    told: list[str] = []

    def remember(*given: Any, **named: Any) -> types.SimpleNamespace:
        told.append(given[-1].trainer_network)
        return types.SimpleNamespace()

    monkeypatch.setattr(training, "configure", lambda *given: None)
    monkeypatch.setattr(training, "remember", remember)
    task = json.dumps(GOOD | {"threads": 1, "settings": {"trainer_network": asked}})
    training.prepared(_plpy(2), {"cerebro.network": known}, task, lambda: None)
    assert told == [given]
