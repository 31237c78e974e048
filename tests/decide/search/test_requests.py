"""What others ask of a search keeps every invariant that its method trusts later."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from decide.search.courses import SPACE, Course, by_rate, noisy, rate, request, small, spec, uneven
from decide.search.test_method_contract import of_each, registered
from msgspec import structs

from cerebro_db.core.decisions import Request
from cerebro_db.core.spec import Space
from cerebro_db.errors import InvalidArgument
from cerebro_db.wire import plain

__all__ = ["registered"]
LOSS_TEXT = "loss='sparse_categorical_crossentropy'"
WIDE = structs.replace(
    SPACE,
    compile_params_grid="{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log']}, "
    "{'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log'], 'momentum': [0.5, 0.9]}]}",
    fit_params_grid="{'batch_size': [4, 8, 16]}",
)


def narrowed(space: Space = WIDE, compiling: str | None = None, fitting: str | None = None) -> Any:
    """A request for another space."""
    found = structs.replace(
        space,
        compile_params_grid=compiling or space.compile_params_grid,
        fit_params_grid=fitting or space.fit_params_grid,
    )
    return request(7, "narrow", 0, "ann", plain(found))


def grid(optimizers: str) -> str:
    return (
        "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
        f"'optimizer_params_list': [{optimizers}]}}"
    )


NARROWED = {
    "no overlap": grid("{'optimizer': ['Adam'], 'lr': [0.5, 0.9, 'linear']}, {'optimizer': ['SGD'], "
    "'lr': [0.9, 1.0, 'log'], 'momentum': [0.1, 0.2]}"),
    "no such optimizer": grid("{'optimizer': ['RMSprop'], 'lr': [0.0001, 0.1, 'log']}"),
    "one alternative": grid("{'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log'], 'momentum': [0.5, 0.9]}"),
    "a list for a range": grid("{'optimizer': ['Adam'], 'lr': [0.3, 0.4]}"),
    "a range for a list": grid("{'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log'], "
    "'momentum': [0.1, 0.3, 'linear']}"),
    "what was not there": grid("{'optimizer': ['Adam'], 'lr': [0.01, 0.02, 'log'], 'beta_1': [0.8, 0.9, 'linear']}"),
}  # fmt: skip


@pytest.mark.parametrize("compiling", NARROWED.values(), ids=NARROWED)
def test_a_population_goes_on_in_a_space_that_none_of_its_members_is_of(compiling: str) -> None:
    search = spec("pbt", WIDE, population=8, num_iterations=6)
    ask = narrowed(compiling=compiling, fitting="{'batch_size': [32]}")
    course = Course(search, noisy, 2, uneven, {3: ask}).run()
    (number,) = course.numbers(lambda one: one.action == "narrow")
    clones = [one for one in course.recorded[number:] if one.action == "clone"]
    assert clones
    explorer = course.schedule._course.method._explorer
    for one in clones:
        row = course.schedule.trials[one.changes[0].mst_key].row
        assert explorer.place(row) is not None, row
        assert row.fit_params == "batch_size=32"
    again = Course(search, noisy, 2, uneven, {3: ask}, limit=len(course.recorded) - 2).run()
    assert again.resume().decided == course.decided


def test_copies_of_what_the_space_does_not_have_are_of_the_space() -> None:
    """The best member was added, with another optimizer than the space has and a rate beyond its bounds."""
    search = spec("pbt", SPACE, population=4, num_iterations=6)
    compiling = f"{LOSS_TEXT},optimizer='SGD(lr=0.3,momentum=0.5)',metrics=['accuracy']"
    rows = [[1, compiling, "batch_size=4", None]]

    def best_is_added(track: Any, epoch: int) -> dict[str, float]:
        is_added = "SGD" in track.configuration.compile_text
        return {"loss": -1.0 if is_added else by_rate(track, epoch)["loss"]}

    asks = {1: request(1, "add", 0, "ann", {"rows": rows})}
    course = Course(search, best_is_added, 2, uneven, asks).run()
    (added,) = (one.mst_key for one in course.schedule.trials.values() if one.is_adopted)
    copies = [one for one in course.recorded if one.action == "clone"]
    copies = [one for one in copies if one.changes[0].source == added]
    assert copies
    for one in copies:
        track = course.state.tracks[one.changes[0].mst_key]
        assert track.configuration.compile_params.optimizer.name == "Adam"
        assert 0.0001 <= rate(track) <= 0.1
        assert track.configuration.fit_text == "batch_size=8"


def test_what_has_more_epochs_than_its_rung_is_never_promoted_to_fewer() -> None:
    compiling = f"{LOSS_TEXT},optimizer='Adam(lr=0.01)',metrics=['accuracy']"
    for epochs in (2, 3, 5, 9, 12):
        rows = [[1, compiling, "batch_size=4", epochs]]
        asks = {1: request(1, "add", 0, "ann", {"rows": rows})}
        course = Course(spec("asha", num_configs=18, R=9, concurrency=4), asks=asks).run()
        (added,) = (one.mst_key for one in course.schedule.trials.values() if one.is_adopted)
        budgets = [
            one.changes[0].epochs
            for one in course.recorded
            if one.action == "promote" and one.changes[0].mst_key == added
        ]
        assert budgets == [rung for rung in (3, 9) if rung > epochs]


def test_a_copy_of_a_member_at_its_end_has_an_epoch() -> None:
    search = spec("pbt", SPACE, population=4, num_iterations=2)
    course = Course(search).run()
    source = max(course.reached(2), default=0) or 1
    trials = course.schedule.trials
    source = next(key for key, one in trials.items() if one.offset + one.done == 2)
    course.ask(request(1, "clone", source, "ann", {}))
    clone = course.recorded[-1]
    assert clone.action == "clone"
    assert clone.changes[0].epochs == 1


class Polite(Course):
    """Goes on where a request is refused before anything is decided."""

    def _decide(self) -> None:
        checked, requests = self.schedule.check, len(self.asks)

        def check(state: Any, asked: Request) -> None:
            try:
                checked(state, asked)
            except InvalidArgument as error:
                raise _Refused from error

        self.schedule.check = check  # type: ignore[method-assign]
        try:
            super()._decide()
        except _Refused:
            assert len(self.asks) < requests
            self.schedule.check = checked  # type: ignore[method-assign]
            self._decide()
        finally:
            self.schedule.check = checked  # type: ignore[method-assign]


class _Refused(Exception):
    """A request was refused."""


@of_each
def test_no_request_that_was_accepted_ends_a_search(method: str) -> None:
    """Requests at random moments: what is not refused leaves a search that comes to its end, and can be resumed."""
    for seed in range(3 if method == "gp" else 12):  # whose processes take long
        chance = random.Random(seed)
        search = small(method, WIDE, seed=seed)
        asks: dict[int, Request] = {}
        for number in sorted(chance.sample(range(1, 14), 3)):
            asks[number] = _request(chance, search.space)
        course = Polite(search, noisy, seed, uneven, asks, fails={chance.randint(1, 9): 2}).run()
        assert "running" not in {one.status for one in course.schedule.trials.values()}
        with suppress(StopIteration):
            again = Course(search, noisy, seed, uneven)
            again.state, again.recorded = course.state, course.recorded
            assert again.resume().decided == course.decided


def _request(chance: random.Random, space: Space) -> Request:
    kind = chance.choice(["narrow", "add", "clone", "stop"])
    if kind == "narrow" and space == WIDE:
        compiling = chance.choice(list(NARROWED.values()))
        return narrowed(compiling=compiling, fitting=chance.choice(["{'batch_size': [2]}", None]))
    if kind in ("clone", "stop"):
        detail: dict[str, Any] = {}
        if kind == "clone" and chance.random() < 0.5:
            detail["epochs"] = chance.randint(1, 12)
        if kind == "clone" and chance.random() < 0.5:
            detail["fit_params"] = "batch_size=64"
        return request(3, kind, chance.randint(1, 5), "bob", detail)
    optimizer = chance.choice(["Adagrad(lr=0.3)", "Adam(lr=0.9)", "SGD(lr=0.01,momentum=0.7)"])
    compiling = f"{LOSS_TEXT},optimizer='{optimizer}',metrics=['accuracy']"
    epochs = chance.choice([None, 1, 2, 4, 11])
    return request(4, "add", 0, "eve", {"rows": [[1, compiling, "batch_size=3", epochs]]})
