"""The loop of a run with workers that only count: everything but the order of hops is left out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from run_states import configuration, joined, run_state

from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.core import events
from cerebro_db.core.decisions import promote
from cerebro_db.core.events import Decided
from cerebro_db.core.run_spec import Workers
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import (
    Answered,
    Average,
    Averaged,
    Combine,
    Failure,
    HopResult,
    Outcome,
    Participate,
    Ready,
    Result,
    Scanned,
    Score,
    Step,
    Sums,
    Task,
    Train,
    Trained,
    WorkerView,
)
from cerebro_db.decide.strategies.auto import Auto
from cerebro_db.errors import HandedBack, TrainerLost
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.protocol import HopReport
from cerebro_db.runs.loop import Loop
from cerebro_db.runs.notices import RunNotices
from tests.decide.test_grouping import costly


def report_of_hop(hop: Hop, rows: int = 1) -> HopReport:
    """The report of a trainer."""
    return HopReport(
        worker=0, pid=7, partition_key=hop.partition_key, rows=rows, loss=0.5, read_seconds=0.0,
        train_seconds=0.1, compiled=False, cached=True, memory_mb=500,
    )  # fmt: skip


class Counting:
    """Workers that are done in a random order; losses are those of the hops that were made.

    Args:
        count: how many.
        seed: of the order in which they are done.
        fails: configuration whose hops fail, and whether each fails its whole task.
    """

    def __init__(self, count: int, seed: int, fails: int | None = None) -> None:
        self._random = random.Random(seed)
        self._tasks: dict[int, Task | None] = {}
        self._count, self._fails = count, fails
        self.made: dict[int, list[tuple[int, int]]] = {}
        self.hops: list[Hop] = []

    def start(self) -> None:
        self._tasks = dict.fromkeys(range(self._count))

    def free(self) -> Sequence[WorkerView]:
        return [WorkerView(number) for number in range(self._count) if number not in self._tasks]

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def submit(self, state: RunState, worker: int, task: Task) -> None:
        assert worker not in self._tasks
        self._tasks[worker] = task

    def poll(self) -> Iterator[Outcome]:
        if not self._tasks:  # nothing to do until somebody proposes something
            return
        worker = self._random.choice(sorted(self._tasks))
        task = self._tasks.pop(worker)
        yield Outcome(worker, task, Ready([{}]) if task is None else self._result(task))

    def cancel(self, worker: int) -> None:
        assert isinstance(
            self._tasks[worker], Participate
        )  # which fails as the others of its round do

    def _result(self, task: Task) -> Result:
        match task:
            case Average():
                return Averaged()
            case Participate(hops, is_root=False) if hops[0].mst_key != self._fails:
                return Trained(())
            case Train(hops) | Step(hops) | Participate(hops):
                if any(hop.mst_key == self._fails for hop in hops):
                    error = StatementFailed("division by zero", "22012", None, None)
                    return Failure(error.message, error.sqlstate, error.hint, error)
                return Trained(tuple(self._hop(hop) for hop in hops))
            case Score(scans):
                return Sums(
                    tuple(
                        Scanned(scan, dict.fromkeys(scan.group.mst_keys, 0), {}) for scan in scans
                    )
                )
            case Combine(group):
                return Answered(
                    {str(key): self._measured(key, group.epoch) for key in group.mst_keys}
                )
            case _:
                return Answered({})

    def _hop(self, hop: Hop) -> HopResult:
        self.made.setdefault(hop.mst_key, []).append((hop.epoch, hop.partition_key))
        self.hops.append(hop)
        return HopResult(hop, report_of_hop(hop), 0.0, 0.0, self._random.random(), 0.0)

    def _measured(self, mst_key: int, epoch: int) -> dict[str, Any]:
        return {"loss": mst_key + 1 / epoch, "names": ["accuracy"], "metrics": [1 / mst_key]}


class Unreliable(Counting):
    """The same, and two direct workers, which fail at two of three hops.

    Args:
        count, seed: as above.
    """

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count, seed)
        self.direct = (count, count + 1)
        self._failed: set[Hop] = set()
        self.begun = False

    def free(self) -> Sequence[WorkerView]:
        direct = [WorkerView(one, only_hops=True) for one in self.direct if one not in self._tasks]
        return [*super().free(), *(direct if self.begun else [])]

    def poll(self) -> Iterator[Outcome]:
        worker = self._random.choice(sorted(self._tasks))
        task = self._tasks[worker]
        if worker not in self.direct or self._random.random() < 1 / 3:
            self.begun = True
            yield from self._done(worker)
            return
        assert isinstance(task, Train)
        assert self._failed.isdisjoint(task.hops)
        self._failed.update(task.hops)
        del self._tasks[worker]
        kind = self._random.choice([HandedBack, TrainerLost])
        yield Outcome(worker, task, Failure("gone", kind.sqlstate, None, kind("gone")))

    def _done(self, worker: int) -> Iterator[Outcome]:
        task = self._tasks.pop(worker)
        yield Outcome(worker, task, Ready([{}]) if task is None else self._result(task))


class Written:
    """A catalog that nobody reads, storage without states, and nobody who asks for anything."""

    def __init__(self) -> None:
        self.ended_: dict[int, str] = {}
        self.losses: dict[tuple[int, int, str], float] = {}
        self.done = True

    def measured(self, rows: Any) -> None:
        self.losses |= {
            (row.mst_key, row.epoch, row.dataset): row.loss
            for row in rows
            if not isinstance(row, int)
        }

    def ended(self, mst_key: int, status: str, error: str) -> None:
        self.ended_[mst_key] = error

    def look(self) -> list[Any]:
        return []

    def first(self) -> list[Any]:
        return []

    def next(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: None


class Halving:
    """Promotes the better half of the configurations, in place of what checks and stores decisions."""

    waits = False

    def take(self, state: RunState) -> list[Decided]:
        found: list[Decided] = []
        first = [state.tracks[key] for key in state.cohorts[0]]
        if state.decisions == 0 and all(1 in track.scored for track in first):
            best = sorted(first, key=lambda track: track.measured[1]["training"]["loss"])
            found = [
                events.Decided(promote(track.configuration.mst_key, 3))
                for track in best[: len(best) // 2]
            ]
            found.append(joined((configuration(50, 2.0, 1, cohort=1),)))
        for one in found:
            state.apply(one)
        return found


class Nothing:
    """Decides nothing."""

    waits = False

    def take(self, state: RunState) -> list[Decided]:
        return []


class Patient:
    """Has a configuration join each time when nothing is left to do, and waits before it: so often."""

    def __init__(self, times: int) -> None:
        self.left, self._looks = times, 0

    @property
    def waits(self) -> bool:
        return self.left > 0

    def take(self, state: RunState) -> list[Decided]:
        self._looks += 1
        if not self.left or not state.is_complete or self._looks % 5:
            return []
        self.left -= 1
        number = 9 - self.left
        found = [joined((configuration(number, 1.0, 2, cohort=number),))]
        state.apply(found[0])
        return found


def run(
    workers: int,
    seed: int,
    strategy: str = "hopper",
    decisions: Any = None,
    fails: int | None = None,
    costs: int = 6,
    state: RunState | None = None,
    executor: Counting | None = None,
) -> tuple[Counting, Written, RunState]:
    """A whole run."""
    state = state or run_state(
        {key: float(key) for key in range(1, costs + 1)},
        range(3),
        epochs=1 if decisions else 2,
        frequency=1,
        validation=[0],
        is_open=decisions is not None,
        workers=Workers(workers, most_hops=4),
        strategy=strategy,
    )
    executor = executor or Counting(workers, seed, fails)
    written = Written()
    anything: Any = written
    report = RunNotices(state, lambda line: None, lambda: 0.0)
    loop = Loop(
        state=state,
        executor=executor,
        storage=anything,
        catalog=anything,
        decisions=decisions or Nothing(),
        requests=anything,
        report=report,
        files=anything,
        clock=lambda: 0.0,
    )
    loop.run()
    assert loop.is_complete
    return executor, written, state


@pytest.mark.parametrize("decisions", [None, Halving()])
def test_number_and_speed_of_workers_do_not_show(decisions: Any) -> None:
    first, written, _ = run(1, 0, decisions=decisions)
    assert len(written.losses) == 2 * sum(len(hops) for hops in first.made.values()) / 3
    for workers, seed in ((1, 1), (2, 2), (4, 3), (4, 4)):
        other, theirs, _ = run(workers, seed, decisions=decisions)
        assert other.made == first.made
        assert theirs.losses == written.losses
    other, theirs, _ = run(1, 5, "rotation", decisions)
    assert other.made == first.made
    assert theirs.losses == written.losses


def test_budgets_are_kept() -> None:
    executor, _, state = run(2, 1, decisions=Halving())
    epochs = {key: len(hops) / 3 for key, hops in executor.made.items()}
    assert epochs == {1: 3, 2: 3, 3: 3, 4: 1, 5: 1, 6: 1, 50: 1}
    assert {track.budget for track in state.tracks.values()} == {1, 3}


def test_a_run_waits_for_configurations_of_others() -> None:
    for workers in (1, 3):
        executor, written, state = run(workers, 1, decisions=Patient(3), costs=0)
        assert {key: len(hops) for key, hops in executor.made.items()} == {7: 6, 8: 6, 9: 6}
        assert {key for key, _, dataset in written.losses if dataset == "validation"} == {7, 8, 9}
        assert state.decisions == 3


@pytest.mark.parametrize("schedule", ["hopper", "averaging"])
def test_direct_workers_that_fail_do_not_show(schedule: str) -> None:
    first, written, _ = run(1, 0, schedule)
    for seed in range(5):
        other, theirs, state = run(2, seed, schedule, executor=Unreliable(2, seed))
        made = {key: sorted(hops) for key, hops in other.made.items()}
        assert made == {key: sorted(hops) for key, hops in first.made.items()}
        assert schedule == "averaging" or other.made == first.made
        assert theirs.losses == written.losses
        assert not state.ended


def large(workers: int) -> RunState:
    """Three models for eight processors, two of which stop early: one after its second epoch, one later."""
    stopping = "callbacks=[EarlyStopping('loss', min_delta={}, patience=1)]"
    fits = [f"batch_size=256,{stopping.format(delta)}" for delta in (0.6, 0.1, 0.0)]
    ones = []
    for key, fit in enumerate(fits, 1):
        one = costly(key)
        params = parse_fit_params(fit)
        ones.append(replace(one, fit_text=fit, fit_params=params, budget=8, goal="min"))
    spec = run_state(
        {}, range(8), epochs=8, frequency=1, workers=workers, 
        strategy=Auto(processors=8, group=8),
    ).spec  # fmt: skip
    return RunState(spec, ones)


@pytest.mark.parametrize("fails", [None, 3])
def test_choices_do_not_depend_on_who_works_how_fast(fails: int | None) -> None:
    found = []
    for workers, seed in ((8, 1), (8, 2), (9, 3), (16, 4)):
        executor, written, state = run(workers, seed, "auto", fails=fails, state=large(workers))
        groups = {
            key: {hop.epoch: hop.group for hop in executor.hops if hop.mst_key == key}
            for key in (1, 2, 3)
        }
        done = {key: len(hops) / 8 for key, hops in executor.made.items()}
        found.append((groups, done, written.losses, written.ended_))
        assert state.is_complete
    assert found[1:] == found[:1] * 3
    groups, done, *_ = found[0]
    if fails is None:
        assert done == {1: 2, 2: 4, 3: 8}
        # Models that have stopped are missed two epochs later.
        assert groups[3] == {1: 4, 2: 4, 3: 4, 4: 4, 5: 4, 6: 8, 7: 8, 8: 8}
