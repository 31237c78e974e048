"""Which trials have come to their end, by the decisions alone; as the schedule knows it."""

from __future__ import annotations

import pytest
from decide.search.courses import Course, request, spec
from decide.search.test_courses import ADDED

from cerebro_db.decide.search.results import short_trials


def short(course: Course) -> set[int]:
    """Keys of the trials that were stopped."""
    tracks = course.state.tracks.items()
    trained = {key: one.verdict.stopped_epoch or one.budget for key, one in tracks if not one.ended}
    return short_trials(course.spec, course.recorded, trained)


def test_asha_leaves_few_finished() -> None:
    course = Course(spec("asha", num_configs=20, R=9, concurrency=2)).run()
    finished = course.state.tracks.keys() - short(course)
    assert finished == set(course.reached(9))
    assert 1 <= len(finished) < 10


@pytest.mark.parametrize("epochs", [2, None])
def test_what_was_added_with_epochs_of_its_own_is_finished(epochs: int | None) -> None:
    rows = [[1, ADDED, "batch_size=4", epochs]]
    asks = {1: request(1, "add", 0, "ann", {"rows": rows})}
    course = Course(spec("random", num_configs=4, num_iterations=5), asks=asks).run()
    assert short(course) == set()
    course.ask(request(2, "extend", 0, "ann", {"params": {"num_iterations": 7}}))
    assert short(course) == set()
