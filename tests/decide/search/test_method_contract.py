"""What every method of a search promises; a further one is tested here as soon as it is registered."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
from decide.search.courses import (
    Budget,
    Course,
    EarlyStopping,
    by_rate,
    noisy,
    request,
    small,
    uneven,
)
from decide.search.test_courses import ADDED, WATCHED
from decide.search.test_ends import short

from cerebro_db.configs.arguments import Argument
from cerebro_db.core.decisions import Change
from cerebro_db.decide.search.methods import METHODS, most_trials, parse_method, parse_more
from cerebro_db.decide.search.methods.full import Random
from cerebro_db.decide.search.trials import RUNNING, Affords, Continue, Start, Trial, affords_all
from cerebro_db.errors import InvalidArgument


class OneByOne(Random):
    """The smallest further method: a trial begins when no other one runs."""

    name: ClassVar = "one_by_one"

    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        if any(one.status == RUNNING for one in trials.values()):
            return None
        return super().next(trials, affords)


EVERY = {**METHODS, OneByOne.name: OneByOne}
# Those that wait for the proposals of others are in test_external.py.
PROPOSING = [name for name, one in EVERY.items() if not one.waits]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: pip install 'cerebro-db[gp]'",
)
of_each = pytest.mark.parametrize(
    "method", [pytest.param(name, marks=needs_torch if name == "gp" else ()) for name in PROPOSING]
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, OneByOne.name, OneByOne)


# -- parameters ----------------------------------------------------------------------------------
def arguments() -> Iterator[tuple[str, Argument]]:
    for name, one in EVERY.items():
        for argument in one.parameters:
            yield name, argument


@pytest.mark.parametrize("method", EVERY)
def test_defaults_are_allowed_whatever_joins_the_words_of_a_name(method: str) -> None:
    for text in (method, method.upper(), method.replace("_", "-"), method.replace("-", " ")):
        name, params = parse_method(text, None)
        assert (name, set(params)) == (method, {one.name for one in EVERY[method].parameters})
        assert parse_more(method, params, None) == {}


@pytest.mark.parametrize(
    ("method", "argument"), list(arguments()), ids=lambda one: str(getattr(one, "name", one))
)
def test_values_out_of_bounds_are_refused(method: str, argument: Argument) -> None:
    for value in argument.refused():
        with pytest.raises(InvalidArgument, match=argument.name) as caught:
            parse_method(method, f"{argument.name}={value!r}")
        assert caught.value.hint


@pytest.mark.parametrize("method", EVERY)
def test_unknown_parameters_are_refused_with_the_nearest(method: str) -> None:
    for one in EVERY[method].parameters:
        with pytest.raises(InvalidArgument, match=f"automl_params of {method}: got the unknown"):
            parse_method(method, f"{one.name}_x=1")
    with pytest.raises(InvalidArgument, match="Allowed: "):
        parse_method(method, "xyzzyx=1")
    own = [one.name for one in EVERY[method].parameters]
    for fixed in set(own) - {one.name for one in EVERY[method].more()}:
        _, params = parse_method(method, None)
        with pytest.raises(InvalidArgument, match=f"got {fixed} for a search that goes on"):
            parse_more(method, params, f"{fixed}=1")


# -- whole searches ------------------------------------------------------------------------------
@of_each
def test_it_keeps_to_its_trials_and_comes_to_its_last_epochs(method: str) -> None:
    search = small(method)
    course = Course(search, noisy, 1, uneven).run()
    one, trials = EVERY[method], course.schedule.trials
    done = [trial.offset + trial.done for trial in trials.values()]
    assert max(done) == one.last_epochs(search.params) <= one.most_epochs(search.params)
    assert one.looks_back or len(trials) <= most_trials(search)
    assert RUNNING not in {trial.status for trial in trials.values()}


@of_each
@pytest.mark.parametrize("budget", [Budget(max_epochs=20), Budget(max_configurations=5)], ids=str)
def test_budgets_are_kept(method: str, budget: Budget) -> None:
    tracks = Course(small(method, budget=budget), noisy, 2, uneven).run().state.tracks
    assert sum(one.done // 2 for one in tracks.values()) <= budget.max_epochs
    assert 0 < len(tracks) <= budget.max_configurations


@of_each
def test_objectives_that_are_no_numbers_are_the_worst(method: str) -> None:
    def broken(track: Any, epoch: int) -> dict[str, float]:
        is_broken = track.configuration.mst_key % 3 == 1
        return {"loss": math.nan} if is_broken else by_rate(track, epoch)

    first = Course(small(method), broken, cost=uneven).run()
    trials = first.schedule.trials
    assert RUNNING not in {one.status for one in trials.values()}
    assert Course(small(method), broken, 4, uneven).run().decided == first.decided
    last = EVERY[method].last_epochs(small(method).params)
    best = [key for key, one in trials.items() if one.offset + one.done >= last]
    assert any(key % 3 != 1 for key in best)


@pytest.mark.parametrize("early_stopping", [EarlyStopping(), WATCHED], ids=["plain", "watched"])
@of_each
def test_speed_does_not_show(method: str, early_stopping: EarlyStopping) -> None:
    search = small(method, early_stopping=early_stopping)
    curve = noisy if early_stopping.watches else by_rate
    first = Course(search, curve, cost=uneven).run()
    assert first.decided
    for order in range(1, 6):
        assert Course(search, curve, order, cost=uneven).run().decided == first.decided


@pytest.mark.parametrize("deterministic", [True, False])
@of_each
def test_a_search_goes_on_after_any_decision(method: str, deterministic: bool) -> None:
    search = small(method, early_stopping=WATCHED, deterministic=deterministic)
    rows = [[1, ADDED, "batch_size=4", 2], [1, ADDED, "batch_size=2", None]]
    asks = {1: request(1, "add", 0, "ann", {"rows": rows}), 2: request(2, "stop", 2, "bob")}
    whole = Course(search, noisy, 3, uneven, asks).run()
    assert [one.who for one in whole.recorded if one.who] == ["ann", "bob"]
    first = max(whole.numbers(lambda one: one.who))
    for number in range(first, len(whole.recorded), max(1, len(whole.recorded) // 8)):
        again = Course(search, noisy, 3, uneven, asks, limit=number).run()
        assert len(again.recorded) == number
        again.resume()
        if deterministic:
            assert again.decided == whole.decided
        assert again.schedule.trials.keys() == again.state.tracks.keys()


@of_each
def test_failures_do_not_show_either(method: str) -> None:
    search = small(method)
    fails = {2: 1, 4: 2}
    first = Course(search, fails=fails, cost=uneven).run()
    for order in range(1, 4):
        assert Course(search, order=order, fails=fails, cost=uneven).run().decided == first.decided


def _ended(course: Course) -> list[Change]:
    """Trials that were stopped as the search was finished."""
    (finish,) = (one for one in course.recorded if one.action == "finish")
    after = course.recorded[course.recorded.index(finish) + 1 :]
    return [change for one in after for change in one.changes]


CLOCK = request(2, "finish", 0, "clock", {"reason": "max_seconds are over"})


@pytest.mark.parametrize("early_stopping", [EarlyStopping(), EarlyStopping(patience=3)])
@of_each
def test_trials_that_the_clock_has_stopped_go_on(
    method: str, early_stopping: EarlyStopping
) -> None:
    search = small(method, early_stopping=early_stopping)

    def stopped(rests: int) -> Course:
        return Course(search, noisy, 3, uneven, epochs=rests).run().ask(CLOCK)

    # Some have done an epoch, and not all.
    rests = next(n for n in range(12, 16) if any(one.epochs for one in _ended(stopped(n))))
    course = stopped(rests)
    after = _ended(course)
    more = request(3, "extend", 0, "ann", {"params": {}})
    course.ask(more)
    assert "running" not in {one.status for one in course.schedule.trials.values()}
    tracks = course.state.tracks
    assert all(one.done == 2 * one.budget for one in tracks.values() if one.is_alive)
    assert max(one.done for one in tracks.values()) == 2 * course.schedule._course.method.full
    (at,) = course.numbers(lambda one: one.action == "extend")
    promoted = [one.changes[0] for one in course.recorded[at:] if one.action == "promote"]
    for change in after:
        trial = course.schedule.trials[change.mst_key]
        if not change.epochs:
            assert trial.status == "failed"
        elif change.epochs < trial.budget:
            assert change.mst_key in {one.mst_key for one in promoted}
    for number in {at, at + 1, len(course.recorded) - 1}:
        again = stopped(rests)
        again.limit = number
        assert again.ask(more).resume().decided == course.decided


@pytest.mark.parametrize("stopping", [EarlyStopping(), EarlyStopping(patience=2)])
@of_each
def test_who_was_trained_no_further_is_stopped(method: str, stopping: EarlyStopping) -> None:
    search = small(method, early_stopping=stopping)
    course = Course(search, noisy, 1, uneven, fails={3: 1}).run()
    end = course.schedule._course.method.end
    trials = course.schedule.trials
    wanted = {
        key
        for key, one in trials.items()
        if one.status != "failed" and (one.status == "stopped" or one.offset + one.done < end)
    }
    assert short(course) == wanted
    assert wanted < trials.keys()
