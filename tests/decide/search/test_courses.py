"""Whole searches over scripted curves: the same decisions whatever comes first."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest
from decide.search.courses import (
    LOSS,
    SPACE,
    Budget,
    Course,
    EarlyStopping,
    RunState,
    by_rate,
    noisy,
    rate,
    request,
    spec,
    uneven,
)
from msgspec import structs

from cerebro_db.core.search import Objective
from cerebro_db.decide.search.methods.asha import Asha
from cerebro_db.errors import InvalidArgument
from cerebro_db.wire import plain

WATCHED = EarlyStopping(patience=2, median_after=3, target=0.35)


def test_a_search_that_somebody_ends_goes_on_after_any_decision() -> None:
    search = spec("random", num_configs=8, num_iterations=6, early_stopping=WATCHED)
    asks = {3: request(2, "finish", 0, "clock", {"reason": "max_seconds are over"})}
    whole = Course(search, noisy, 3, uneven, asks).run()
    assert len(whole.recorded) > 6
    assert whole.recorded[-1].reason == "max_seconds are over"
    for number in range(4, len(whole.recorded)):
        again = Course(search, noisy, 3, uneven, asks, limit=number).run().resume()
        assert again.decided == whole.decided
        # The seconds are over for whoever goes on, too.
        assert list(again.schedule.follow(again.state, asks[3])) == []


ADDED = "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=0.5)',metrics=['accuracy']"


def test_hyperband_has_the_trials_of_the_paper() -> None:
    course = Course(spec("hyperband", R=9)).run()
    assert [len(course.reached(epochs)) for epochs in (1, 3, 9)] == [17, 11, 5]
    assert sum(one.action == "add" for one in course.recorded) == 1


@pytest.mark.parametrize("method", ["hyperband", "bohb"])
def test_the_first_bracket_comes_to_its_end_early(method: str) -> None:
    """Others fill what it leaves free, and nothing that is decided there waits for them."""
    course = Course(spec(method, R=27, concurrency=8)).run()
    heard = [*(pair for one in course.recorded for pair in one.results), *course.unheard]
    done: dict[int, int] = {}
    for key, epoch in heard:
        done[key] = epoch
        if epoch == 27:
            break
    assert course.schedule.trials[key].place["bracket"] == 3
    total = sum(track.done // 2 for track in course.state.tracks.values())
    assert sum(done.values()) < 0.4 * total  # 0.36; with one pace 0.55


RATES = tuple(10 ** (-number / 9) for number in range(27))
FEW = structs.replace(
    SPACE,
    compile_params_grid=SPACE.compile_params_grid.replace("[0.0001, 0.1, 'log']", f"{[*RATES]}"),
)
"""A space of 27 configurations, as the first bracket of R = 27 takes."""


@pytest.mark.parametrize("method", ["hyperband", "bohb"])
def test_brackets_of_a_space_that_has_no_more_go_on_with_what_others_have_stopped(
    method: str,
) -> None:
    course = Course(spec(method, FEW, R=27), noisy, cost=uneven).run()
    assert len(course.state.tracks) == 27
    # As many of each bracket come to its end as in a space that has more: 1, 1, 2 and 4.
    assert len(course.reached(27)) == 8
    assert {one.status for one in course.schedule.trials.values()} == {"waiting", "stopped"}
    begun = [one for one in course.recorded if one.reason.startswith("goes on in bracket 2")]
    assert len(begun) == 12
    assert {one.changes[0].epochs for one in begun} == {3}
    # Of the 18 that the first rung has stopped, the best.
    losses = {key: noisy(one, 1)["loss"] for key, one in course.state.tracks.items()}
    order = sorted(losses, key=lambda key: (losses[key], key))
    assert [one.changes[0].mst_key for one in begun] == order[9:21]
    for order_of_results in range(1, 5):
        again = Course(spec(method, FEW, R=27), noisy, order_of_results, cost=uneven).run()
        assert again.decided == course.decided


@pytest.mark.parametrize("count", [1, 5, 12])
@pytest.mark.parametrize("method", ["hyperband", "bohb", "successive_halving"])
@pytest.mark.parametrize("concurrency", [1, 3, 10**6])
def test_brackets_of_a_small_space_end(method: str, count: int, concurrency: int) -> None:
    rates = [10 ** (-number / 9) for number in range(count)]
    text = SPACE.compile_params_grid.replace("[0.0001, 0.1, 'log']", f"{rates}")
    params = {"num_configs": 27, "R": 27} if method == "successive_halving" else {"R": 27}
    search = spec(
        method, structs.replace(SPACE, compile_params_grid=text), concurrency=concurrency, **params
    )
    course = Course(search, noisy, 2, uneven, fails={2: 3}).run()
    assert len(course.state.tracks) == count
    statuses = {one.status for one in course.schedule.trials.values()}
    assert statuses <= {"waiting", "stopped", "failed"}
    assert course.reached(27)
    for number in range(1, len(course.recorded), max(1, len(course.recorded) // 3)):
        again = Course(search, noisy, 3, uneven, fails={2: 3}, limit=number).run().resume()
        assert again.decided == course.decided


def test_more_epochs_of_a_space_that_has_no_more() -> None:
    course = Course(spec("hyperband", FEW, R=9), noisy).run()
    before = {key: noisy(course.state.tracks[key], 9)["loss"] for key in course.reached(9)}
    assert len(before) == 5
    course.ask(request(3, "extend", 0, "ann", {"params": {"R": 27}}))
    assert len(course.state.tracks) == 27
    # Ten that were not tried before, and the best of those that had come to their end.
    assert len(course.reached(27)) == 8
    assert min(before, key=before.__getitem__) in course.reached(27)
    assert "running" not in {one.status for one in course.schedule.trials.values()}


def test_what_no_bracket_has_a_use_for_is_stopped() -> None:
    course = Course(spec("hyperband", FEW, R=27), noisy).run()
    assert {one.status for one in course.schedule.trials.values()} == {"waiting", "stopped"}
    waiting = [key for key, one in course.schedule.trials.items() if one.status == "waiting"]
    assert sorted(waiting) == sorted(course.reached(27))
    # Nobody is stopped who goes on later: what callbacks have made of it would be forgotten.
    actions = [(one.action, one.changes[0].mst_key) for one in course.recorded if one.changes]
    stopped = [key for action, key in actions if action == "stop"]
    assert len(stopped) == len(set(stopped)) == 27 - len(waiting)
    for key in stopped:
        assert ("promote", key) not in actions[actions.index(("stop", key)) :]


def test_trials_outside_a_narrowed_space_go_on_in_no_other_bracket() -> None:
    few = RATES[:14]
    narrow = {**plain(FEW), "compile_params_grid": FEW.compile_params_grid.replace(
        f"{[*RATES]}", f"{[*few]}"
    )}  # fmt: skip
    asks = {3: request(2, "narrow", 0, "ann", narrow)}
    course = Course(spec("hyperband", FEW, R=27), noisy, asks=asks).run()
    (asked,) = course.numbers(lambda one: one.action == "narrow")
    going_on = [
        one for one in course.recorded[asked:] if one.reason.startswith("goes on in bracket")
    ]
    assert going_on
    rates = [rate(course.state.tracks[one.changes[0].mst_key]) for one in going_on]
    assert max(few) >= max(rates)
    assert min(rates) >= min(few)
    assert "running" not in {one.status for one in course.schedule.trials.values()}


PATIENT = EarlyStopping(patience=2)


@pytest.mark.parametrize("early_stopping", [EarlyStopping(), PATIENT], ids=["plain", "patient"])
@pytest.mark.parametrize("method", ["hyperband", "bohb", "asha", "successive_halving"])
def test_speed_does_not_show_where_epochs_are_few(
    method: str, early_stopping: EarlyStopping
) -> None:
    size = {} if method in ("hyperband", "bohb") else {"num_configs": 12}
    twelve = structs.replace(
        FEW, compile_params_grid=FEW.compile_params_grid.replace(f"{[*RATES]}", f"{[*RATES[:12]]}")
    )
    for space, places, epochs in ((twelve, 4, 44), (twelve, 2, 21), (SPACE, 2, 25), (SPACE, 6, 42)):
        if method == "bohb" and space is twelve and places == 2:
            continue
        search = spec(
            method, space, R=9, **size, budget=Budget(max_epochs=epochs), seed=epochs,
            early_stopping=early_stopping, concurrency=places,
        )  # fmt: skip
        first = Course(search, noisy, cost=uneven).run()
        heard = [one.results for one in first.recorded]
        for order in range(1, 5):
            other = Course(search, noisy, order, cost=uneven).run()
            assert other.decided == first.decided
            assert [one.results for one in other.recorded] == heard


@pytest.mark.parametrize("epochs", [60, 100, 160])
def test_a_search_whose_epochs_were_too_few_goes_on_with_more(epochs: int) -> None:
    search = spec("hyperband", FEW, R=27, budget=Budget(max_epochs=epochs), concurrency=8)
    course = Course(search, noisy).run()
    course.ask(request(3, "extend", 0, "ann", {"params": {}, "max_epochs": 1000}))
    assert len(course.reached(27)) == 8
    whole = Course(structs.replace(search, budget=Budget()), noisy).run()
    assert sorted(course.reached(27)) == sorted(whole.reached(27))


def test_halving_keeps_the_best() -> None:
    course = Course(spec("successive_halving", num_configs=9, R=9)).run()
    best = sorted(course.state.tracks, key=lambda key: by_rate(course.state.tracks[key], 1)["loss"])
    assert sorted(course.reached(3)) == sorted(best[:3])
    assert course.reached(9) == best[:1]
    stopped = [one for one in course.recorded if one.action == "stop"]
    assert [one.changes[0].epochs for one in stopped] == [1] * 6 + [3] * 2
    assert stopped[0].reason == "number 4 of 9 in rung 0"


def test_asha_promotes_as_soon_as_it_can() -> None:
    course = Course(spec("asha", num_configs=27, R=9, concurrency=1)).run()
    actions = [one.action for one in course.recorded]
    assert actions[:4] == ["add", "add", "add", "promote"]
    assert len(course.state.tracks) == 27
    assert len(course.reached(9)) >= 3


def joined(course: Course) -> list[int]:
    """Trials that go on beside the last ones."""
    return [one.changes[0].mst_key for one in course.recorded if "beside the last" in one.reason]


def test_the_next_best_go_on_beside_the_last_of_asha() -> None:
    """The best of three, of a rung, is promoted; a second worker would idle but for the next best."""
    course = Course(spec("asha", num_configs=3, R=3)).run()
    losses = {key: by_rate(track, 1)["loss"] for key, track in course.state.tracks.items()}
    best, second, worst = sorted(losses, key=losses.__getitem__)
    assert course.reached(3) == sorted([best, second])
    assert joined(course) == [second]
    assert course.state.tracks[worst].done == 2
    promoted = [one for one in course.recorded if one.action == "promote"]
    assert [one.changes[0].mst_key for one in promoted] == [best, second]


def test_nobody_goes_on_beside_the_last_whom_they_would_have_to_wait_for() -> None:
    search = spec("asha", num_configs=3, R=3)
    (second,) = joined(Course(search).run())
    slow = Course(search, cost=lambda one: 1.01 if one.mst_key == second else 1.0).run()
    (worst,) = joined(slow)
    assert worst != second
    assert slow.state.tracks[second].done == 2


@pytest.mark.parametrize(
    "more", [{"concurrency": 1}, {"budget": Budget(max_epochs=1000)}], ids=["places", "epochs"]
)
def test_nobody_goes_on_beside_the_last_without_a_place_or_of_a_limited_budget(
    more: dict[str, Any],
) -> None:
    course = Course(spec("asha", num_configs=9, R=9, **more)).run()
    assert len(course.reached(9)) == 1
    assert not joined(course)


@pytest.mark.parametrize("cost", [lambda one: 1.0, uneven], ids=["even", "uneven"])
def test_who_goes_on_beside_the_last_makes_the_search_no_longer(
    cost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = spec("asha", num_configs=27, R=27, concurrency=4)
    course = Course(search, cost=cost).run()
    assert joined(course)
    monkeypatch.setattr(Asha, "beside", lambda self, trials, fits: None)
    alone = Course(search, cost=cost).run()
    assert course.schedule._course._timeline.now == alone.schedule._course._timeline.now
    assert set(course.reached(27)) >= set(alone.reached(27))
    assert course.state.tracks.keys() == alone.state.tracks.keys()


def test_a_search_of_some_who_went_on_beside_the_last_goes_on() -> None:
    search = spec("asha", num_configs=3, R=3)
    course = Course(search).run()
    (second,) = joined(course)
    before = len(course.recorded)
    more = request(3, "extend", 0, "ann", {"params": {"R": 9, "num_configs": 6}})
    course.ask(more)
    promoted = [
        (one.changes[0].mst_key, one.changes[0].epochs)
        for one in course.recorded
        if one.action == "promote"
    ]
    assert len(set(promoted)) == len(promoted)
    assert (second, 3) in promoted
    assert course.reached(9)
    for number in range(before + 1, len(course.recorded)):
        again = Course(search).run()
        again.limit = number
        assert again.ask(more).resume().decided == course.decided


def test_learning_finds_what_chance_does_not() -> None:
    def best(method: str, seed: int) -> float:
        search = spec(method, num_configs=40, num_iterations=1, concurrency=2, seed=seed)
        tracks = Course(search).run().state.tracks.values()
        return min(by_rate(track, 1)["loss"] for track in tracks)

    for method in ("tpe", "cma-es"):
        found = [best(method, seed) < best("random", seed) for seed in range(10)]
        assert sum(found) >= 7


def test_the_worst_of_a_population_go_on_from_the_best() -> None:
    course = Course(spec("pbt", population=8, num_iterations=6)).run()
    clones = [one for one in course.recorded if one.action == "clone"]
    assert clones
    tracks = course.state.tracks
    for one in clones:
        (change,) = one.changes
        source = rate(tracks[change.source])
        assert tracks[change.mst_key].configuration.is_warm
        assert rate(tracks[change.mst_key]) != source
    members = [one for one in course.schedule.trials.values() if one.status == "waiting"]
    assert len(members) == 8
    assert all(one.offset + one.done == 6 for one in members)


def test_who_fails_is_left_out() -> None:
    course = Course(spec("successive_halving", num_configs=9, R=9), fails={2: 1, 5: 1}).run()
    assert len(course.reached(1)) == 7
    assert len(course.reached(3)) == 3


def test_budgets_are_kept() -> None:
    epochs = Course(spec("hyperband", R=9, budget=Budget(max_epochs=30))).run()
    assert sum(one.done // 2 for one in epochs.state.tracks.values()) <= 30
    trials = Course(spec("random", num_configs=50, budget=Budget(max_configurations=7))).run()
    assert len(trials.state.tracks) == 7


def test_a_target_ends_the_search() -> None:
    search = spec(
        "random", num_configs=20, num_iterations=9, early_stopping=EarlyStopping(target=0.6)
    )
    course = Course(search, cost=uneven).run()
    finish = next(one for one in course.recorded if one.action == "finish")
    assert finish.reason.startswith("the target is reached by")
    after = course.recorded[course.recorded.index(finish) + 1 :]
    assert after
    assert {one.action for one in after} == {"stop"}
    # Each where it was in virtual time: what had no epoch done is given up.
    assert len({one.changes[0].epochs for one in after}) > 1


@pytest.mark.parametrize("method", ["random", "pbt", "asha"])
def test_who_fails_ahead_of_what_is_decided_does_not_show(method: str) -> None:
    """The target is reached, or the state is wanted, of the epoch before, in virtual time."""
    more = {} if method == "pbt" else {"early_stopping": EarlyStopping(target=0.5)}
    params = {
        "random": {"num_configs": 5, "num_iterations": 5},
        "pbt": {"population": 5, "num_iterations": 4},
        "asha": {"num_configs": 9, "R": 9, "concurrency": 4},
    }
    search = spec(method, **params[method], **more)
    for key in range(1, 6):
        for epoch in range(1, 5):
            fails = {key: epoch}
            first = Course(search, fails=fails, cost=uneven).run()
            for order in range(1, 4):
                other = Course(search, order=order, fails=fails, cost=uneven).run()
                assert (other.decided, other.ends) == (first.decided, first.ends)
            again = Course(search, order=2, fails=fails, cost=uneven, limit=len(first.recorded) - 1)
            assert again.run().resume().decided == first.decided


def test_a_target_that_was_reached_ends_nothing_any_more() -> None:
    rule = EarlyStopping(target=0.6)
    search = spec("random", num_configs=20, num_iterations=9, early_stopping=rule)
    course = Course(search, cost=uneven).run()
    before = {key for key, (_, epoch) in course.ends.items() if epoch}
    assert before
    course.ask(request(3, "extend", 0, "ann", {"params": {"num_configs": 2}}))
    assert sum(one.action == "finish" for one in course.recorded) == 1
    assert all(course.state.tracks[key].done == 18 for key in before)
    assert len(course.state.tracks) == 22


@pytest.mark.parametrize("epochs", [1, 3, 9])
def test_brackets_go_on_after_a_target(epochs: int) -> None:
    """Who reaches it has come to its budget: the last of a rung, or none of those it waits for."""
    calm = Course(spec("hyperband", R=9), cost=uneven).run()
    target = min(by_rate(calm.state.tracks[key], epochs)["loss"] for key in calm.reached(epochs))
    rule = EarlyStopping(target=target)
    course = Course(spec("hyperband", R=9, early_stopping=rule), cost=uneven).run()
    assert any(one.action == "finish" for one in course.recorded)
    trials = course.schedule.trials
    begun = {trial.place["bracket"] for trial in trials.values() if trial.done}
    assert begun
    course.ask(request(3, "extend", 0, "ann", {"params": {}}))
    assert "running" not in {one.status for one in trials.values()}
    # Those that had done no epoch by then are gone; the others fill their brackets.
    assert not course.schedule._course.method._open
    assert {trials[key].place["bracket"] for key in course.reached(9)} >= begun


def test_more_of_nothing_is_refused() -> None:
    course = Course(spec("hyperband", R=9)).run()
    for wrong in ({"num_configs": 3}, {"R": 10**6}, {"eta": 3}):
        with pytest.raises(InvalidArgument, match="automl_params of hyperband: got"):
            course.schedule.check(course.state, request(3, "extend", 0, "ann", {"params": wrong}))


@pytest.mark.parametrize("objectives", [1, 2])
def test_a_decision_among_a_thousand_configurations_takes_milliseconds(objectives: int) -> None:
    aims = (LOSS, Objective("accuracy", "training", True))[:objectives]
    course = Course(spec("asha", num_configs=1000, R=3, concurrency=16, objectives=aims), both)
    decide, spent = course.schedule.decide, []

    def timed(state: RunState) -> Iterator[Any]:
        made, began = decide(state), time.process_time()
        for one in made:
            spent.append(time.process_time() - began)
            yield one
            began = time.process_time()

    course.schedule.decide = timed  # type: ignore[method-assign]
    course.run()
    assert len(course.state.tracks) == 1000
    assert sum(spent) / len(course.recorded) < 0.01
    assert statistics.median(spent[-100:]) < 0.01


def both(track: Any, epoch: int) -> dict[str, float]:
    """A second objective that contradicts the first."""
    loss = by_rate(track, epoch)["loss"]
    return {"loss": loss, "accuracy": loss + track.configuration.mst_key % 7 / 100}
