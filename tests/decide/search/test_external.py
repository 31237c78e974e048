"""A search whose trials all come from outside: it waits for them, and ends when it is told so or has as many as it may."""

from __future__ import annotations

from typing import Any

import pytest
from decide.search.courses import Budget, Course, EarlyStopping, noisy, request, spec, uneven
from decide.search.test_ends import short

from cerebro_db.decide.search.methods import default_places, first_epochs, most_trials
from cerebro_db.errors import InvalidArgument

ADAM = "loss='sparse_categorical_crossentropy',optimizer='Adam(lr={})',metrics=['accuracy']"
END = request(9, "finish", 0, "ann", {"reason": "asked for by ann"})


def adds(request_id: int, *rates: float, epochs: int | None = None) -> Any:
    """A request to try some rates."""
    rows = [[1, ADAM.format(rate), "batch_size=8", epochs] for rate in rates]
    return request(request_id, "add", 0, "ann", {"rows": rows})


ASKED = (
    adds(1, 0.01, 0.05),
    adds(2, 0.02, epochs=2),
    request(3, "clone", 1, "ann", {"epochs": 1}),
    END,
)
"""Two proposals, one when their results are known, one that goes on from the first, and the end."""


def asked(count: int = len(ASKED), order: int = 0, limit: int = 10**9) -> Course:
    """A search after some of the requests, or after so many decisions."""
    course = Course(spec("external", num_iterations=3), noisy, order, uneven, limit=limit).run()
    for one in ASKED[:count]:
        if len(course.recorded) < limit:
            course.ask(one)
    return course


def test_it_waits_until_somebody_ends_it() -> None:
    course = Course(spec("external", num_iterations=3)).run()
    assert (course.recorded, course.schedule.waits) == ([], True)
    course = asked(3)
    assert course.schedule.waits
    assert {key: one.done // 2 for key, one in course.state.tracks.items()} == {
        1: 3,
        2: 3,
        3: 2,
        4: 1,
    }
    assert {key: one.values != {} for key, one in course.schedule.trials.items()} == dict.fromkeys(
        range(1, 5), True
    )
    course.ask(END)
    assert not course.schedule.waits
    assert course.recorded[-1].reason == "asked for by ann"
    assert course.schedule.shortfall(course.state) is None
    assert short(course) == set()
    with pytest.raises(InvalidArgument, match=r"got a search that has ended: asked for by ann"):
        course.ask(END)


def test_speed_does_not_show_and_it_goes_on_after_any_decision() -> None:
    first = asked()
    for order in range(1, 4):
        assert asked(order=order).decided == first.decided
    for number in range(1, len(first.recorded) + 1):
        again = asked(limit=number).resume()
        assert again.schedule.waits == (number < len(first.recorded))
        assert again.decided == first.decided[:number]


def test_it_ends_with_as_many_trials_as_it_may_have() -> None:
    search = spec("external", num_iterations=2, budget=Budget(max_configurations=3))
    assert most_trials(search) == 3
    course = Course(search, asks={0: adds(1, 0.01, 0.05)}).run()
    assert course.schedule.waits
    assert course.schedule.outlook().trials == 3
    with pytest.raises(
        InvalidArgument, match=r"got 2 configurations .* 2 of max_configs := 3; allowed: 1 more"
    ):
        course.ask(adds(2, 0.1, 0.2))
    course.asks = {}
    course.ask(adds(2, 0.1))
    assert not course.schedule.waits
    assert course.reached(2) == [1, 2, 3]
    more = {"params": {"num_iterations": 4}, "max_configurations": 1}
    course.ask(request(3, "extend", 0, "ann", more))
    assert course.schedule.waits
    course.ask(adds(4, 0.3))
    assert (course.reached(4), course.schedule.waits) == ([4], False)


def test_what_runs_at_its_end_is_stopped() -> None:
    course = Course(
        spec("external", num_iterations=5), asks={0: adds(1, 0.01, 0.05)}, epochs=4
    ).run()
    course.ask(END)
    assert set(course.ends.values()) <= {("", 1), ("", 2), ("", 3), ("", 4), ("cancelled", None)}
    assert [one.action for one in course.recorded] == ["add", "finish", "stop", "stop"]
    course = Course(spec("external")).run().ask(END)
    assert (
        course.schedule.shortfall(course.state)
        == "no trial was trained for 1 epoch: asked for by ann"
    )


def test_rules_stop_trials_and_the_search() -> None:
    target = EarlyStopping(target=2.0)
    course = Course(
        spec("external", num_iterations=5, early_stopping=target), noisy, asks={0: adds(1, 0.01)}
    ).run()
    assert not course.schedule.waits
    assert course.recorded[-1].reason == "the target is reached by 1"


def test_it_has_places_for_what_comes() -> None:
    search = spec("external")
    assert (default_places(search, 2), first_epochs(search), most_trials(search)) == (1, 1, 1)
