"""A search comes to the last epochs: of a small budget, of few trials, and where trials fail."""

from __future__ import annotations

from typing import Any

import pytest
from decide.search.courses import Budget, Course, EarlyStopping, by_rate, request, spec
from decide.search.test_courses import noisy, uneven

SIZED: dict[str, dict[str, Any]] = {
    "asha": {"num_configs": 20, "R": 9},
    "hyperband": {"R": 9},
    "bohb": {"R": 9, "num_startup": 3},
    "successive_halving": {"num_configs": 20, "R": 9},
    "pbt": {"population": 8, "num_iterations": 9},
}


def course(method: str, order: int = 0, **more: Any) -> Course:
    search = spec(method, **{"concurrency": 4, **SIZED[method], **more})
    return Course(search, noisy, order, uneven).run()


def ended(found: Course) -> str | None:
    assert "running" not in {one.status for one in found.schedule.trials.values()}
    return found.schedule.shortfall(found.state)


@pytest.mark.parametrize("concurrency", [1, 4, 20])
@pytest.mark.parametrize("most", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("method", SIZED)
def test_a_limit_of_trials_does_not_keep_the_best_from_the_last_epochs(
    method: str, most: int, concurrency: int
) -> None:
    limit = Budget(max_configurations=most)
    found = course(method, budget=limit, concurrency=concurrency)
    assert len(found.state.tracks) == most
    ends = [one.offset + one.done for one in found.schedule.trials.values()]
    assert max(ends) == 9
    assert ended(found) is None
    for order in range(1, 4):
        other = course(method, order, budget=limit, concurrency=concurrency)
        assert other.decided == found.decided
    for number in range(1, len(found.recorded), 3):
        search = found.spec
        again = Course(search, noisy, 2, uneven, limit=number).run()
        assert again.resume().decided == found.decided


def test_six_trials_of_twenty_are_compared_like_six() -> None:
    """The input of the issue: six trials, of which the best two go to 3 epochs, and the best of these to 9."""
    found = course("asha", budget=Budget(max_configurations=6), concurrency=1)
    assert [len(found.reached(epochs)) for epochs in (1, 3, 9)] == [6, 2, 1]
    halving = course("successive_halving", budget=Budget(max_configurations=6), concurrency=20)
    assert [len(halving.reached(epochs)) for epochs in (1, 3, 9)] == [6, 1, 1]


@pytest.mark.parametrize("method", ["asha", "hyperband", "successive_halving", "pbt"])
@pytest.mark.parametrize("epochs", [9, 12, 20, 26, 40])
def test_what_is_affordable_goes_on(method: str, epochs: int) -> None:
    """No epochs are left that a promotion or a new trial would have taken."""
    found = course(method, budget=Budget(max_epochs=epochs))
    done = sum(one.done // 2 for one in found.state.tracks.values())
    assert done <= epochs
    why = ended(found)
    if why is not None:
        assert f"max_epochs := {epochs}" in why
        trials = found.schedule.trials.values()
        missing = min(
            9 - one.offset - one.done for one in trials if one.status in ("waiting", "stopped")
        )
        assert missing > epochs - done
    for order in range(1, 4):
        assert course(method, order, budget=Budget(max_epochs=epochs)).decided == found.decided


def test_a_promotion_that_is_too_long_does_not_keep_shorter_ones_back() -> None:
    """Of 13 epochs, 9 are of the first rung; the best goes to 3 epochs, and the next one after it."""
    found = course("successive_halving", num_configs=9, budget=Budget(max_epochs=14))
    assert len(found.reached(1)) == 9
    assert len(found.reached(3)) == 2
    assert ended(found) == (
        "no trial was trained for 9 epochs: max_epochs := 14 leave 1, and the best needs more"
    )


@pytest.mark.parametrize("method", ["asha", "successive_halving"])
@pytest.mark.parametrize("trials", [1, 2, 3, 6, 8])
def test_few_trials_have_one_that_comes_to_the_last_epochs(method: str, trials: int) -> None:
    search = spec(method, num_configs=trials, R=9)
    found = Course(search).run()
    best = min(found.state.tracks, key=lambda key: by_rate(found.state.tracks[key], 1)["loss"])
    assert best in found.reached(9)
    assert ended(found) is None
    (last,) = [one for one in found.recorded if "the best so far goes on" in one.reason] or [None]
    if trials in (2, 6):  # the second of eight goes on beside the last one, to the end
        assert last is not None
        assert (last.action, last.changes[0].epochs) == ("promote", 9)
    for number in range(1, len(found.recorded)):
        assert Course(search, limit=number).run().resume().decided == found.decided


@pytest.mark.parametrize("method", ["asha", "hyperband", "successive_halving"])
def test_the_next_best_goes_on_where_the_best_has_failed(method: str) -> None:
    """Whoever comes to the last rung fails in it, until none is left that has not."""
    whole = course(method)
    fails = dict.fromkeys(whole.reached(9), 5)
    search = whole.spec
    found = Course(search, noisy, 0, uneven, fails=fails).run()
    assert len(found.reached(9)) >= 1
    assert ended(found) is None
    for order in range(1, 4):
        other = Course(search, noisy, order, uneven, fails=fails).run()
        assert other.decided == found.decided
    again = Course(search, noisy, 1, uneven, fails=fails, limit=len(found.recorded) - 1)
    assert again.run().resume().decided == found.decided


def test_where_all_fail_it_says_so() -> None:
    search = spec("asha", num_configs=3, R=9)
    found = Course(search, fails={1: 1, 2: 1, 3: 1}).run()
    assert ended(found) == "no trial was trained for 9 epochs: all trials have failed"


def test_early_stopping_is_no_failure() -> None:
    """What was stopped early on its way to the last epochs is not followed by all others."""
    search = spec(
        "asha", num_configs=6, R=27, early_stopping=EarlyStopping(patience=1, first_epoch=4)
    )
    found = Course(search, lambda track, epoch: {"loss": float(track.configuration.mst_key)}).run()
    assert not found.reached(27)
    assert sum("the best so far goes on" in one.reason for one in found.recorded) == 1
    assert ended(found) == "no trial was trained for 27 epochs: trials were stopped before"


@pytest.mark.parametrize("method", SIZED)
def test_a_larger_limit_gives_what_the_smaller_one_has_kept_back(method: str) -> None:
    found = course(method, budget=Budget(max_configurations=5))
    more = request(3, "extend", 0, "ann", {"params": {}, "max_configurations": 4})
    found.ask(more)
    assert len(found.state.tracks) == 9
    assert ended(found) is None
    extended = found.numbers(lambda one: one.action == "extend")[0]
    for number in range(extended, len(found.recorded)):
        again = course(method, budget=Budget(max_configurations=5))
        again.limit = number
        assert again.ask(more).resume().decided == found.decided


def test_the_clock_says_why() -> None:
    search = spec("asha", num_configs=20, R=9, concurrency=4)
    found = Course(search, noisy, 3, uneven, epochs=6).run()
    found.ask(request(2, "finish", 0, "clock", {"reason": "max_seconds are over"}))
    assert ended(found) == "no trial was trained for 9 epochs: max_seconds are over"
