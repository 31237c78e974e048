"""A search is replayed from its stored decisions, in whatever order its trials come to their epochs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from decide.search.courses import Course, EarlyStopping, spec
from decide.search.test_courses import noisy, uneven

from cerebro_db.core.decisions import Decision
from cerebro_db.core.events import Allowance
from cerebro_db.decide.search.replay import Replay

SEARCHES: dict[str, dict[str, Any]] = {
    "pbt": {"population": 6, "num_iterations": 6},
    "asha": {"num_configs": 18, "R": 9, "concurrency": 4},
    "hyperband": {"R": 9},
}


class Replayed(Course):
    """The search with some decisions, once more."""

    stored: Sequence[Decision] = ()
    allowances = 0

    def _schedule(self) -> Any:
        return Replay(self.stored)

    def _take(self, made: Iterable[Decision | Allowance]) -> int:
        return super()._take(map(self._counted, made))

    def _counted(self, one: Decision | Allowance) -> Decision | Allowance:
        self.allowances += isinstance(one, Allowance)
        return one


def replayed(whole: Course, order: int) -> Replayed:
    again = Replayed(whole.spec, noisy, order, uneven)
    again.stored = whole.recorded
    again.schedule = again._schedule()
    return again


@pytest.mark.parametrize("order", [0, 7])
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("method", SEARCHES)
def test_the_same_decisions_and_ends(method: str, stops: bool, order: int) -> None:
    more = {"early_stopping": EarlyStopping(patience=2, median_after=3)} if stops else {}
    whole = Course(spec(method, **SEARCHES[method], **more), noisy, 3, uneven).run()
    again = replayed(whole, order).run()
    assert again.recorded == whole.recorded
    assert again.ends == whole.ends
    for number in range(1, len(whole.recorded), 5):
        resumed = replayed(whole, order)
        resumed.limit = number
        resumed.run().resume()
        assert resumed.recorded == whole.recorded
        assert resumed.ends == whole.ends


def test_a_decision_limits_only_the_configurations_that_it_is_about() -> None:
    whole = Course(spec("asha", num_configs=120, R=9, concurrency=8), noisy, 3, uneven).run()
    again = replayed(whole, 3).run()
    assert len(whole.recorded) > 150
    assert again.allowances <= 2 * sum(len(one.changes) for one in whole.recorded)
