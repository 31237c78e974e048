"""A decider that raises ends its search: nothing more is begun, what runs is stopped where it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from decide.search.courses import Course, request, spec
from decide.search.test_courses import noisy, uneven

from cerebro_db.core.decisions import Decision, Request
from cerebro_db.core.events import Allowance
from cerebro_db.core.state import RunState
from cerebro_db.decide.search.decider import SearchDecider
from cerebro_db.decide.search.guarded import Guarded, fault_of
from cerebro_db.errors import InvalidArgument, InvalidData, RunCancelled


class Breaking(SearchDecider):
    """Raises at a decision.

    Attributes:
        at: the number of the decision.
        error: that is raised.
    """

    at, error = 5, Exception()

    def decide(self, state: RunState) -> Iterator[Decision | Allowance]:
        for one in super().decide(state):
            if not isinstance(one, Allowance) and state.decisions + 1 == self.at:
                raise self.error
            yield one

    def follow(self, state: RunState, request: Request) -> Iterator[Decision | Allowance]:
        raise self.error


class Broken(Course):
    """A search whose method raises the error at its fifth decision."""

    error: Exception = KeyError("lr")
    told: list[str]

    def _schedule(self) -> Any:
        self.told = []
        breaking = Breaking(self.spec, lambda row: None, tuple(self.recorded))
        breaking.error = self.error
        self.trials = breaking.trials
        return Guarded(
            breaking, fault_of(self.recorded), lambda reason, error: self.told.append(reason)
        )


SEARCH = spec("asha", num_configs=18, R=9, concurrency=4)
REASON = "its method has failed: KeyError: 'lr'"


def test_a_search_ends_with_what_there_is() -> None:
    course = Broken(SEARCH, noisy, 3, uneven).run()
    assert course.told == [REASON]
    finish, *stops = course.recorded[4:]
    assert (finish.action, finish.reason) == ("finish", REASON)
    assert {one.action for one in stops} <= {"stop"}
    assert all(
        one.is_stopped or one.ended or one.done == 2 * one.budget
        for one in course.state.tracks.values()
    )
    assert any(one.is_stopped or one.done for one in course.state.tracks.values())
    assert course.schedule.shortfall(course.state) == (
        f"no trial was trained for 9 epochs: {REASON}"
    )


def test_it_is_resumed_to_the_same_end() -> None:
    whole = Broken(SEARCH, noisy, 3, uneven).run()
    for number in range(4, len(whole.recorded)):
        again = Broken(SEARCH, noisy, 3, uneven, limit=number).run().resume()
        assert again.decided == whole.decided
        assert len([one for one in again.recorded if one.action == "finish"]) == 1


def test_nobody_asks_anything_of_it_any_more() -> None:
    course = Broken(SEARCH, noisy, 3, uneven).run()
    with pytest.raises(InvalidArgument, match="a search that has ended, as its method has failed"):
        course.schedule.check(course.state, request(1, "stop", 1, "ann"))


def test_a_request_at_which_it_fails_is_refused_and_ends_it() -> None:
    course = Broken(SEARCH, noisy, 3, uneven, limit=4).run()
    with pytest.raises(InvalidArgument, match="a search that has ended"):
        list(course.schedule.follow(course.state, request(1, "extend", 0, "ann", {"params": {}})))
    course.limit = 10**9
    course.run()
    assert course.recorded[4].reason == REASON


@pytest.mark.parametrize(
    "error", [RunCancelled("enough"), InvalidData("another version"), MemoryError(), OSError()]
)
def test_what_is_no_fault_of_the_method_ends_nothing(error: Exception) -> None:
    class Other(Broken):
        pass

    Other.error = error
    course = Other(SEARCH, noisy, 3, uneven)
    with pytest.raises(type(error)):
        course.run()
    assert len(course.recorded) == 4
    assert not course.told
