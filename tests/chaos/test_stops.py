"""The short form of the interruptions of ``make chaos``: each way once, at given moments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos import grid, stops
from chaos.server import Embedded, server


@pytest.fixture(scope="module")
def stopped() -> Iterator[Embedded]:
    """A server with the tables of the trials."""
    with server() as running:
        assert isinstance(running, Embedded)
        grid.load(running)
        stops.load(running)
        yield running


@pytest.fixture(scope="module")
def calm(stopped: Embedded) -> stops.Calm:
    """Calls that nobody interrupts."""
    return stops.Calm(stopped)


@pytest.mark.parametrize(
    ("function", "way", "fraction"),
    [
        (stops.PACK, stops.CANCEL, 0.5),
        (stops.PREDICT, stops.TERMINATE, 0.5),
        (stops.PROMOTE, stops.CANCEL, 0.3),
        (stops.SEARCH, stops.SHUTDOWN, 0.6),
        (stops.JOB, stops.SHUTDOWN, 0.6),
    ],
)
def test_a_call_ends_leaves_nothing_and_is_done_after_all(
    stopped: Embedded, calm: stops.Calm, function: str, way: str, fraction: float
) -> None:
    seconds, wanted = calm.of(function)
    stop = stops.Stop(0, 0, function, way, fraction)
    work = stops.Work(stopped, function, f"stopped_{function}", calm.models)
    report = stops.Trial(stopped, stop, work, seconds, wanted).run()
    assert report.deviations == []
    assert report.was_under_way


def test_what_is_left_is_found(stopped: Embedded, calm: stops.Calm) -> None:
    _, wanted = calm.of(stops.PACK)
    work = stops.Work(stopped, stops.PACK, "tampered", calm.models)
    for statement in work.statements():
        stopped.call(statement)
    assert work.is_done()
    assert work.outcome() == wanted
    stopped.fetch("UPDATE tampered SET x = set_byte(x, 3, get_byte(x, 3) # 1) WHERE buffer_id = 0")
    assert work.outcome() != wanted
    stopped.fetch("CREATE TABLE left_packing (i int)")
    stopped.fetch("COMMENT ON TABLE left_packing IS 'Cerebro-DB: a packing that is not finished'")
    assert stopped.fetch(stops._UNFINISHED) == [("left_packing",)]
    stopped.fetch("DROP TABLE left_packing")
    work.forget()


def test_plans_follow_from_the_seed_and_each_function_is_stopped_in_each_way() -> None:
    planned = [stops.Stop.of(1, number) for number in range(40)]
    assert planned == [stops.Stop.of(1, number) for number in range(40)]
    assert {(one.function, one.way) for one in planned} == {
        (function, way) for function in stops.FUNCTIONS for way in stops.WAYS
    }
