"""Decisions of searches are those of version 0.1.0: their digests, and what a decision costs."""

from __future__ import annotations

import hashlib
import sys
from types import FrameType
from typing import Any

import pytest
from decide.search.courses import Course, EarlyStopping, by_rate, request, spec
from msgspec import structs

from cerebro_db.core.decisions import Change, Decision
from cerebro_db.decide.search.methods import default_places

SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"num_configs": 40, "num_iterations": 3, "concurrency": 7},
    "successive_halving": {"num_configs": 27, "R": 27},
    "hyperband": {"R": 27, "concurrency": 8},
    "asha": {"num_configs": 60, "R": 27, "concurrency": 8},
    "pbt": {"population": 10, "num_iterations": 9},
}
MORE: dict[str, dict[str, int]] = {
    "random": {"num_configs": 9, "num_iterations": 2},
    "asha": {"num_configs": 9},
    "pbt": {"population": 3, "num_iterations": 4},
}
WATCHED = EarlyStopping(patience=2, median_after=3, target=0.35)
KNOWN = {
    ("random", False): "39 492482ce2a425f3f",
    ("random", True): "67 78ad52466a9b391a",
    ("successive_halving", False): "39 bd1fd6c89256b043",
    ("successive_halving", True): "40 7c24367af405561b",
    ("hyperband", False): "102 99ba3b16f2564d87",
    ("hyperband", True): "73 3bf968a9bb481ee5",
    ("asha", False): "103 cfc3715cda7d496b",
    # Since then the search goes on where no trial has come to its last epochs.
    ("asha", True): "142 ea4ce1a128121289",
    ("pbt", False): "81 e39f6be74dd2e49a",
    ("pbt", True): "76 e1bf81c1061b3131",
}


def rough(track: Any, epoch: int) -> dict[str, float]:
    """Curves that rise and fall."""
    key = track.configuration.mst_key
    return {"loss": by_rate(track, epoch)["loss"] + ((key * 7 + epoch * 13) % 10) / 20}


def decided(method: str, **more: Any) -> Course:
    """A search of which some trials fail, one is stopped by somebody, and to which more is given at last."""
    course = Course(
        spec(method, **SEARCHES[method], **more),
        curve=rough,
        order=3,
        cost=lambda one: 1.0 + one.mst_key % 5,
        fails={3: 1, 8: 2},
        asks={1: request(1, "stop", 2, "ada", {})},
    ).run()
    if method in MORE:
        course.ask(request(2, "extend", 0, "ada", {"params": MORE[method]}))
    return course


def as_in_0_1_0(number: int, one: Decision) -> str:
    """The text that a decision had where the digests come from."""
    changes = ", ".join(map(_change, one.changes)) + ("," if len(one.changes) == 1 else "")
    is_of_one = one.action in ("stop", "promote")
    detail = one.only.detail if is_of_one else one.detail
    return (
        f"Recorded(number={number}, action={one.action!r}, who={one.who!r}, heard={one.results!r}, "
        f"changes=({changes}), reason={one.reason!r}, detail={detail!r})"
    )


def _change(one: Change) -> str:
    row = None if one.row is None else structs.astuple(one.row)
    return (
        f"Change(mst_key={one.mst_key}, epochs={one.epochs}, source={one.source}, "
        f"source_epoch={one.source_epoch}, row={row!r}, detail={{}}, reason='')"
    )


def digest(course: Course) -> str:
    """Digest of all decisions in their order, with what they were based on."""
    text = "\n".join(as_in_0_1_0(*one) for one in enumerate(course.recorded, 1))
    return f"{len(course.recorded)} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


CASES = [(method, stops) for method in SEARCHES for stops in (False, True)]


def case(method: str, stops: bool) -> Course:
    return decided(method, **({"early_stopping": WATCHED} if stops else {}))


@pytest.mark.parametrize(("method", "stops"), CASES)
def test_decisions_are_those_of_earlier_versions(method: str, stops: bool) -> None:
    assert digest(case(method, stops)) == KNOWN[method, stops]


def lines_of(method: str, count: int) -> float:
    """Lines of the package's code that a trial of a search takes to be decided, on average."""
    course, lines = Course(spec(method, num_configs=count, num_iterations=1, concurrency=10)), 0

    def traced(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if "cerebro_db/decide/search" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        course.run()
    finally:
        sys.settrace(before)
    assert len(course.schedule.trials) == count
    return lines / count


def test_a_decision_costs_the_same_with_any_number_of_trials() -> None:
    few, many = lines_of("random", 40), lines_of("random", 320)
    assert many < 1.2 * few


@pytest.mark.parametrize("method", ["random", "successive_halving"])
@pytest.mark.parametrize(("count", "places"), [(700, 700), (1000, 1000), (100_000, 1000)])
def test_very_many_trials_are_begun_one_after_another(method: str, count: int, places: int) -> None:
    assert default_places(spec(method, num_configs=count), 4) == places
