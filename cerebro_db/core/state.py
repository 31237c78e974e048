"""State of a run: the only notebook, written by ``apply`` from events."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from cerebro_db.core import events
from cerebro_db.core.decisions import PROMOTE, STOP
from cerebro_db.core.events import NOTHING, Event, Verdict
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import Configuration, Hop, Program
from cerebro_db.core.tasks import (
    Average,
    Combine,
    Measures,
    Participate,
    Scan,
    Scanned,
    Score,
    ScoringGroup,
    Step,
    Task,
    Train,
)
from cerebro_db.errors import InvalidArgument

# The states of a configuration at any time, the one that is being written included, but for that
# of the epoch that is to be restored.
MOST_STATES = 3
# Who looks at the scores of a run sees them that much later, or a hop of so many seconds at most;
# short epochs share their scans.
PATIENCE, LONGEST_WAIT = 0.5, 5.0


@dataclass(eq=False)
class Track:
    """State of one configuration.

    Attributes:
        budget: epochs that it is trained for.
        rungs: budgets that it has had: epochs after which it is measured in any case.
        planned: the last epoch that is planned.
        group: hops of that epoch that are made together; 0 where none is planned.
        waiting: hops that are planned, and not begun.
        begun: hops under way.
        done: hops that are done, which is the version of the newest state.
        worker: that took its last hop.
        states: versions that are there; those below 0 are of hops of a round, and become one.
        measured: values after each epoch, by data set.
        scored: epochs that were measured on all data sets.
        ended: status and error, where it failed or was cancelled.
        seconds: that its last hop took, its share of the statement included; None before its first.
        last_allowed: the epoch that it does not go beyond until more is decided; None for its budget.
        since: virtual seconds of a search at which it began to be trained further, and after which epoch.
        pace: virtual seconds for each estimated one.
        kept: epochs whose states stay, as a decision may go back to them.
    """

    configuration: Configuration
    budget: int
    rungs: set[int]
    planned: int = 0
    group: int = 0
    waiting: deque[Hop] = field(default_factory=deque)
    begun: list[Hop] = field(default_factory=list)
    done: int = 0
    worker: int | None = None
    states: set[int] = field(default_factory=set)
    measured: dict[int, dict[str, Mapping[str, float]]] = field(default_factory=dict)
    scored: set[int] = field(default_factory=set)
    verdict: Verdict = NOTHING
    ended: tuple[str, str] | None = None
    seconds: float | None = None
    last_allowed: int | None = None
    kept: frozenset[int] = frozenset()
    since: tuple[float, int] = (0.0, 0)
    pace: float = 1.0

    @property
    def is_alive(self) -> bool:
        """True if it goes on: it has neither failed nor been stopped."""
        return self.ended is None and self.verdict.stopped_epoch is None

    @property
    def is_stopped(self) -> bool:
        """True if it goes on no further, and has a model."""
        return self.ended is None and self.verdict.stopped_epoch is not None

    @property
    def in_flight(self) -> Hop | None:
        """The hop under way, of several the last one of the plan; None where there is none."""
        return max(self.begun, default=None)

    @property
    def parts(self) -> set[int]:
        """Numbers of the hops of the round under way that have left a state."""
        return {-1 - version for version in self.states if -1 - version >= self.done}

    def measured_after(self, epoch: int) -> list[int]:
        """Later epochs that were measured."""
        return [later for later in self.measured if later > epoch]

    def is_given_up(self, epoch: int) -> bool:
        """True if it was stopped before an epoch, of which nothing counts then."""
        stopped = self.verdict.stopped_epoch
        is_cancelled = self.ended is not None and self.ended[0] == "cancelled"
        return is_cancelled or (stopped is not None and epoch > stopped)

    @property
    def work(self) -> float:
        """Estimated seconds of all its planned hops that are not finished."""
        hops = len(self.waiting) + len(self.begun)
        return self.configuration.hop_seconds * hops

    @property
    def history(self) -> list[tuple[int, dict[str, float]]]:
        """Epochs in their order, and all that was measured after each, as Keras names it in its logs.

        Values of the validation table are last: where names are equal they count, as in Keras.
        """
        return [
            (
                epoch,
                {
                    name: value
                    for _, values in sorted(sets.items())
                    for name, value in values.items()
                },
            )
            for epoch, sets in sorted(self.measured.items())
        ]


@dataclass
class Pending:
    """Configurations that have finished an epoch, and are in no group yet.

    Attributes:
        due: when they are scanned if some worker has nothing else to do.
        late: when they are although each could train.
    """

    mst_keys: set[int] = field(default_factory=set)
    due: float = math.inf
    late: float = math.inf


class RunState:
    """A run from its beginning, or from where it is: what is known follows from the events.

    Args:
        spec: of the run.
        configurations: that it begins with.

    Attributes:
        tracks: how each configuration stands, by mst_key.
        cohorts: keys of the configurations that are planned together.
        decisions: how many were made.
        tasks: under way, by the number of the worker.
        alone: hops that are made one by one.
        broken: rounds whose hops are made together, and one of them has failed.
        pending: configurations to be scored, by epoch.
        groups: that are being scanned.
        combining: groups and data sets whose sums are complete.
        trained: configurations that have finished each epoch.
        programs: that each worker has compiled or compiles now, by its number, as far as its hops tell.
        losses: how often the trainer ended of whoever made a hop, a scan or another task.
        active: those that have planned hops that are not finished, by mst_key.
        behind: keys of those of which more is to be planned.
        changed: keys of those whose states may be useless since these were looked at last.
        gone: keys of those that failed or were cancelled.
        news: how often something has happened that decisions may follow from.
    """

    def __init__(self, spec: RunSpec, configurations: Iterable[Configuration]) -> None:
        self.spec = spec
        self.tracks: dict[int, Track] = {}
        self.cohorts: dict[int, list[int]] = {}
        self.decisions = 0
        self.tasks: dict[int, Task] = {}
        self.alone: list[Hop] = []
        self.broken: set[tuple[Hop, ...]] = set()
        self.pending: dict[int, Pending] = {}
        self.groups: list[ScoringGroup] = []
        self.combining: list[Combine] = []
        self.trained: Counter[int] = Counter()
        self.programs: dict[int, set[Program]] = {}
        self.losses: Counter[Hashable] = Counter()
        self.active: dict[int, Track] = {}
        self.behind: set[int] = set()
        self.changed: set[int] = set()
        self.gone: set[int] = set()
        self.news = 0
        self._unfinished: Counter[int] = Counter()
        self._planned: set[int] = set()
        self._grouped: dict[int, set[int]] = {}
        self._join(configurations)

    # -- questions -------------------------------------------------------------------------------
    @property
    def alive(self) -> list[Track]:
        """The configurations that go on."""
        return [track for track in self.tracks.values() if track.is_alive]

    @property
    def going_on(self) -> list[Track]:
        """The configurations that have planned hops left."""
        return list(self.active.values())

    @property
    def ended(self) -> dict[int, tuple[str, str]]:
        """Status and error of those that failed or were cancelled, by mst_key."""
        found = ((key, self.tracks[key].ended) for key in sorted(self.gone))
        return {key: ended for key, ended in found if ended is not None}

    @property
    def is_training(self) -> bool:
        """True if a worker trains."""
        return any(isinstance(task, Train | Step | Participate) for task in self.tasks.values())

    @property
    def longest_hop(self) -> float:
        """Seconds of the longest last hop of those that go on; infinite where one has made none."""
        seconds = [track.seconds for track in self.active.values()]
        return max((math.inf if one is None else one for one in seconds), default=0.0)

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to train or to score."""
        planned = all(track.planned >= track.budget for track in self.alive)
        trained = planned and not self._unfinished.total() and not self.unaveraged
        return trained and not (self.pending or self.groups or self.combining)

    def ready(self, track: Track) -> list[Hop]:
        """Hops of a configuration that can begin now: the next one, or all of the round that are left."""
        if not track.waiting:
            return []
        first = track.waiting[0]
        if self.spec.round_size(first) == 1 and not self.spec.strategy.has_rounds:
            return [first] if not track.begun else []
        # They are sorted, so those of the round are in front: an epoch may have thousands behind them.
        return list(takewhile(lambda hop: self.spec.base(hop) == track.done, track.waiting))

    @property
    def joinable(self) -> list[tuple[Hop, ...]]:
        """Rounds that some workers have joined, and others are still to."""
        begun = [track for track in self.active.values() if track.begun and self.ready(track)]
        rounds = [tuple(sorted([*track.begun, *self.ready(track)])) for track in begun]
        return [one for one in rounds if one not in self.broken]

    @property
    def to_average(self) -> list[Average]:
        """Averages of complete rounds that no worker has begun."""
        if not self.spec.strategy.averages:
            return []
        found = [
            Average(mst_key, track.done)
            for mst_key, track in self.tracks.items()
            if track.is_alive and len(track.parts) == self.spec.together
        ]
        return [one for one in found if one not in self.tasks.values()]

    @property
    def unaveraged(self) -> set[int]:
        """Epochs of which a round is to be averaged, or is being averaged."""
        under_way = [task for task in self.tasks.values() if isinstance(task, Average)]
        return {one.version // self.spec.hops_an_epoch + 1 for one in under_way + self.to_average}

    def is_measured(self, track: Track, epoch: int) -> bool:
        """True if a configuration is scored after an epoch."""
        return epoch % self.spec.frequency == 0 or epoch in track.rungs

    def is_epoch_done(self, epoch: int) -> bool:
        """True if an epoch was planned, and all its hops are done."""
        is_made = epoch in self._planned and self._unfinished[epoch] == 0
        return is_made and epoch not in self.unaveraged

    def is_epoch_complete(self, epoch: int) -> bool:
        """True if all have done an epoch, and been scored where that is wanted."""
        return self.is_epoch_done(epoch) and all(
            epoch in track.scored for track in self.tracks.values() if self.is_awaited(track, epoch)
        )

    def is_awaited(self, track: Track, epoch: int) -> bool:
        """True if a configuration is scored after an epoch, or will be."""
        return track.ended is None and epoch <= track.budget and self.is_measured(track, epoch)

    def all_there(self, epoch: int) -> bool:
        """True if each configuration that will be scored after an epoch waits for that, or has been."""
        seen = self._grouped.get(epoch, set())
        if epoch in self.pending:
            seen = seen | self.pending[epoch].mst_keys
        # All others have not come there yet.
        coming = (self.tracks[key] for key in (*self.active, *self.behind))
        return all(
            track.configuration.mst_key in seen or epoch in track.scored
            for track in coming
            if self.is_awaited(track, epoch)
        )

    # -- events ----------------------------------------------------------------------------------
    def apply(self, event: Event) -> None:
        """Take note of what has happened."""
        _APPLY[type(event)](self, event)

    def _join(self, configurations: Iterable[Configuration]) -> None:
        for one in configurations:
            check_cost(one.mst_key, one.hop_seconds)
            if one.mst_key in self.tracks:
                raise InvalidArgument(
                    f"mst_key: got {one.mst_key}; allowed: one that the run has not had"
                )
            self.tracks[one.mst_key] = Track(one, one.budget, {one.budget})
            self.cohorts.setdefault(one.cohort, []).append(one.mst_key)
            self._has_changed(one.mst_key)
            if one.is_warm:
                self.tracks[one.mst_key].states.add(0)

    def _has_changed(self, mst_key: int) -> None:
        """Take note of what follows for the sets of keys."""
        track = self.tracks[mst_key]
        self.changed.add(mst_key)
        _put(self.behind, mst_key, track.planned < self._plannable(track))
        _put(self.gone, mst_key, track.ended is not None)
        if track.waiting or track.begun:
            self.active[mst_key] = track
        else:
            self.active.pop(mst_key, None)

    def _plannable(self, track: Track) -> int:
        """The epoch up to which a configuration should be planned: that after the present one."""
        return min(track.budget, track.done // self.spec.hops_an_epoch + 2)

    def _decided(self, event: events.Decided) -> None:
        self.decisions += 1
        self._join(event.configurations)
        decision = event.decision
        if decision.action == STOP:
            self._stopped(decision.only.mst_key, decision.only.epochs, decision.reason)
        elif decision.action == PROMOTE:
            self._promoted(decision.only.mst_key, decision.only.epochs)

    def _stopped(self, mst_key: int, epoch: int, reason: str) -> None:
        track = self.tracks[mst_key]
        for later in track.measured_after(epoch):
            del track.measured[later]
            track.scored.discard(later)
        if not epoch:
            self._failed(events.Failed(mst_key, "cancelled", reason))
            return
        # It may have failed since, ahead of what was taken note of.
        track.ended = None
        # The epoch that callbacks would restore is forgotten: whoever decides says which one it is.
        track.rungs.add(epoch)
        self._judged(events.Judged(mst_key, Verdict(epoch, None, epoch)))
        self._forget_pending(mst_key, after=epoch)
        scanned = mst_key in self._grouped.get(epoch, ())
        if epoch not in track.scored and not scanned:
            self._pend(track, epoch, at=0.0)

    def _promoted(self, mst_key: int, budget: int) -> None:
        track = self.tracks[mst_key]
        track.budget = budget
        track.rungs.add(budget)
        if track.is_stopped:
            track.verdict = NOTHING
        self._has_changed(mst_key)

    def _allowed(self, event: events.Allowance) -> None:
        track = self.tracks[event.mst_key]
        track.last_allowed, track.kept = event.last, event.kept
        track.since, track.pace = event.since, event.pace
        self.changed.add(event.mst_key)

    def _restored(self, event: events.Restored) -> None:
        track = self.tracks[event.mst_key]
        track.done, track.planned = event.done, event.planned
        track.states = set(event.versions)
        self._planned.update(range(1, event.planned + 1))
        for epoch in range(1, event.done // self.spec.hops_an_epoch + 1):
            self.trained[epoch] += 1
            if epoch not in track.scored:
                self._pend(track, epoch, at=0.0)
        self._has_changed(event.mst_key)

    def _plan(self, event: events.Planned) -> None:
        for hop in sorted(event.hops):
            track = self.tracks[hop.mst_key]
            self._planned.add(hop.epoch)
            if hop.epoch >= track.planned:
                track.planned, track.group = hop.epoch, hop.group
            _put(self.behind, hop.mst_key, track.planned < self._plannable(track))
            version = self.spec.version(hop)
            is_done = version < track.done or version in track.parts
            if is_done or not track.is_alive:
                continue
            last = track.waiting[-1] if track.waiting else track.in_flight
            if last is not None and hop <= last:
                raise InvalidArgument(f"hops: got {hop} after {last}; allowed are later ones")
            track.waiting.append(hop)
            self.active[hop.mst_key] = track
            self._unfinished[hop.epoch] += 1

    def _submitted(self, event: events.Submitted) -> None:
        self.tasks[event.worker] = event.task
        task = event.task
        if isinstance(task, Score):
            for scan in task.scans:
                self._scan_begun(scan)
        elif isinstance(task, Combine):
            self.combining.remove(task)
        elif isinstance(task, Participate):
            self._begin(task.own, event.worker)
        elif isinstance(task, Train | Step):
            for hop in task.hops:
                self._begin(hop, event.worker)

    def _begin(self, hop: Hop, worker: int) -> None:
        track = self.tracks[hop.mst_key]
        track.worker = worker
        self.programs.setdefault(worker, set()).add(track.configuration.program)
        if hop in self.alone:
            self.alone.remove(hop)
            return
        if hop not in self.ready(track):
            raise InvalidArgument(f"hop: got {hop}; under way is {track.in_flight}")
        track.waiting.remove(hop)
        track.begun.append(hop)

    def _returned(self, event: events.Returned) -> None:
        self.tasks.pop(event.worker, None)

    def _hop_done(self, event: events.HopDone) -> None:
        hop, track = event.hop, self.tracks[event.hop.mst_key]
        track.seconds = event.seconds
        self._finish(hop)
        if not self.spec.strategy.has_rounds and hop.group == 1:
            self._advance(track, self.spec.left(hop), event.at)
        elif self.spec.strategy.averages and track.ended is None:
            track.states.add(self.spec.left(hop))
            self.changed.add(hop.mst_key)

    def _round_done(self, event: events.RoundDone) -> None:
        track = self.tracks[event.mst_key]
        if event.version != track.done:
            raise InvalidArgument(f"round: got {event}; {track.done} hops are done")
        self._advance(track, event.version + event.hops, event.at)

    def _advance(self, track: Track, version: int, at: float) -> None:
        """A configuration has the next one of its states."""
        track.done = version
        if track.ended is None:
            track.states.add(version)
        self._has_changed(track.configuration.mst_key)
        epoch, rest = divmod(track.done, self.spec.hops_an_epoch)
        if not rest and track.is_alive:
            self.trained[epoch] += 1
            self._pend(track, epoch, at)

    def _hop_dropped(self, event: events.HopDropped) -> None:
        if event.hop in self.alone:
            self.alone.remove(event.hop)
        self._finish(event.hop)

    def _finish(self, hop: Hop) -> None:
        track = self.tracks[hop.mst_key]
        if hop not in track.begun:
            raise InvalidArgument(f"hop: got {hop}; under way is {track.in_flight}")
        track.begun.remove(hop)
        self._unfinished[hop.epoch] -= 1
        self._has_changed(hop.mst_key)

    def _separated(self, event: events.Separated) -> None:
        self.alone += event.hops

    def _broken(self, event: events.Broken) -> None:
        self.broken.add(event.hops)

    def _lost(self, event: events.Lost) -> None:
        task = event.task
        self.losses.update(subjects(task))
        match task:
            case Train(hops) | Step(hops):
                self.alone += hops
            case Participate(hops):
                self._put_back(hops)
            case Score(scans):
                for scan in scans:
                    scan.group.waiting.append((scan.dataset, scan.partition_key))
            case Combine():
                self.combining.append(task)

    def _put_back(self, hops: tuple[Hop, ...]) -> None:
        """Return the hops of a round to those that are to be made together."""
        self.broken.discard(hops)
        track = self.tracks[hops[0].mst_key]
        track.begun = [hop for hop in track.begun if hop not in hops]
        track.waiting = deque(sorted({*track.waiting, *hops}))

    def _pend(self, track: Track, epoch: int, at: float) -> None:
        """An epoch is to be scored: at once, or together with those that finish it within a moment.

        Where hops are longer than that moment it is a hop long: others make theirs meanwhile. But no
        worker that has nothing else to do waits for these; and where they are too long, nobody does.
        """
        if not self.is_awaited(track, epoch):
            return
        pending, longest = self.pending.setdefault(epoch, Pending()), self.longest_hop
        pending.mst_keys.add(track.configuration.mst_key)
        due = at if longest >= PATIENCE else at + PATIENCE
        late = at + longest if longest <= LONGEST_WAIT else at
        pending.due = min(due, pending.due)
        pending.late = min(max(due, late), pending.late)

    def _scan_begun(self, scan: Scan) -> None:
        group = scan.group
        if group not in self.groups:
            self.groups.append(group)
            self._grouped.setdefault(group.epoch, set()).update(group.mst_keys)
            del self.pending[group.epoch]
        group.waiting.remove((scan.dataset, scan.partition_key))

    def _scanned(self, event: Scanned) -> None:
        scan = event.scan
        group = scan.group
        group.partials[scan.dataset, scan.partition_key] = event.partials
        group.errors.update(event.errors)
        group.missing -= 1
        if group.missing == 0:
            self.groups.remove(group)
            self.combining += [Combine(group, name) for name in self.spec.scored]

    def _measured(self, event: Measures) -> None:
        track = self.tracks[event.mst_key]
        track.measured.setdefault(event.epoch, {})[event.dataset] = event.values

    def _scored(self, event: events.Scored) -> None:
        self.news += 1
        for mst_key in event.mst_keys:
            self.tracks[mst_key].scored.add(event.epoch)
            self._has_changed(mst_key)
            self._forget_pending(mst_key, epoch=event.epoch)

    def _judged(self, event: events.Judged) -> None:
        track = self.tracks[event.mst_key]
        track.verdict = event.verdict
        self.news += 1
        self.changed.add(event.mst_key)
        if event.verdict.stopped_epoch is not None:
            track.budget = min(track.budget, event.verdict.stopped_epoch)
            self._drop_hops(event.mst_key)

    def _failed(self, event: events.Failed) -> None:
        track = self.tracks[event.mst_key]
        track.ended = event.status, event.error
        track.states &= {epoch * self.spec.hops_an_epoch for epoch in track.kept}
        self.news += 1
        self._drop_hops(event.mst_key)
        self._forget_pending(event.mst_key)

    def _discarded(self, event: events.Discarded) -> None:
        for mst_key, version in event.states:
            self.tracks[mst_key].states.discard(version)
        self.changed.clear()

    def _drop_hops(self, mst_key: int) -> None:
        """Take away what a configuration still had to do; a hop under way stays so until it is done."""
        track = self.tracks[mst_key]
        for hop in track.waiting:
            self._unfinished[hop.epoch] -= 1
        track.waiting.clear()
        self._has_changed(mst_key)

    def _forget_pending(self, mst_key: int, *, epoch: int | None = None, after: int = 0) -> None:
        for number, pending in list(self.pending.items()):
            if number > after and epoch in (None, number):
                pending.mst_keys.discard(mst_key)
                if not pending.mst_keys:
                    del self.pending[number]


_APPLY: Mapping[type[Any], Callable[[RunState, Any], None]] = {
    events.Decided: RunState._decided,
    events.Allowance: RunState._allowed,
    events.Restored: RunState._restored,
    events.Planned: RunState._plan,
    events.Submitted: RunState._submitted,
    events.Returned: RunState._returned,
    events.HopDone: RunState._hop_done,
    events.RoundDone: RunState._round_done,
    events.HopDropped: RunState._hop_dropped,
    events.Separated: RunState._separated,
    events.Broken: RunState._broken,
    events.Lost: RunState._lost,
    Scanned: RunState._scanned,
    Measures: RunState._measured,
    events.Scored: RunState._scored,
    events.Judged: RunState._judged,
    events.Failed: RunState._failed,
    events.Discarded: RunState._discarded,
}


def _put(keys: set[int], mst_key: int, is_in: bool) -> None:
    """Have a key be in a set, or not."""
    if is_in:
        keys.add(mst_key)
    else:
        keys.discard(mst_key)


def subjects(task: Task | None) -> tuple[Hashable, ...]:
    """The parts of a task that are redone and counted one by one."""
    match task:
        case Train(hops) | Step(hops) | Participate(hops):
            return hops
        case Score(scans):
            return scans
    return (type(task).__name__,)


def check_cost(mst_key: int, cost: float) -> None:
    """Refuses a cost that no schedule can be built on."""
    if not (math.isfinite(cost) and cost > 0):
        raise InvalidArgument(f"cost of configuration {mst_key}: got {cost}; it must be above 0")
