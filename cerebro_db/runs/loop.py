"""The loop of a run: poll the executor, apply what happened, decide, store decisions, submit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cerebro_db.core import events
from cerebro_db.core.decisions import PROMOTE, STOP, Cancel, Request
from cerebro_db.core.ports import Clock, Executor, RunCatalog, StateStorage
from cerebro_db.core.spec import Configuration, Hop
from cerebro_db.core.state import RunState, subjects
from cerebro_db.core.tasks import (
    Average,
    Averaged,
    Combine,
    Failure,
    HopResult,
    Measures,
    Outcome,
    Participate,
    Ready,
    Scanned,
    Score,
    ScoringGroup,
    Step,
    Sums,
    Task,
    Train,
    Trained,
    TryScoring,
    WorkerView,
    WriteEvents,
)
from cerebro_db.decide import callbacks, retention
from cerebro_db.decide.plan import planned_again
from cerebro_db.errors import (
    CerebroError,
    HandedBack,
    InvalidArgument,
    PeerLost,
    PeersApart,
    RunCancelled,
    RunFailed,
    TrainerLost,
    is_infrastructure_failure,
)
from cerebro_db.runs.decisions import REFUSALS, Decisions
from cerebro_db.runs.notices import RunNotices
from cerebro_db.runs.requests import Requests
from cerebro_db.runs.tensorboard import EventFiles

_LONGEST_ERROR = 2000
_MOST_LOSSES = 10


class Loop:
    """Trains a run to its end, from its beginning or from where it is.

    Args:
        state: how the run stands.
        executor: the workers.
        storage: of states.
        catalog: what is written down.
        decisions: which configurations the run has.
        requests: of others.
        report: what the caller gets as notices.
        files: what TensorBoard shows.
        clock: seconds that only grow.
        first: what was asked for before anything is done.
    """

    def __init__(
        self,
        state: RunState,
        executor: Executor,
        storage: StateStorage,
        catalog: RunCatalog,
        decisions: Decisions,
        requests: Requests,
        report: RunNotices,
        files: EventFiles,
        clock: Clock,
        first: Sequence[Request] = (),
    ) -> None:
        self._first = first
        self._state, self._executor = state, executor
        self._storage, self._catalog, self._decisions = storage, catalog, decisions
        self._requests, self._report, self._files = requests, report, files
        self._clock = clock
        self._has_begun = False
        # What has come of the shares of rounds whose hops are made together.
        self._shares: dict[tuple[Hop, ...], list[Outcome]] = {}
        # Of these nobody knows yet whether they can be scored.
        self._untried = [track.configuration.mst_key for track in state.alive]
        self._tried: list[tuple[Any, ...]] = []

    def run(self) -> None:
        """Work until nothing is left."""
        self._decide()
        for request in self._first:
            self._follow(request)
        self._discard()
        if self.is_complete:
            return
        try:
            self._work()
        except BaseException:
            with suppress(CerebroError):  # which would hide what went wrong
                self._catalog.flush()
            raise
        self._catalog.flush()

    def _work(self) -> None:
        self._executor.start()
        self._plan()  # while they get ready
        while self._assign() or self._is_waiting:
            if self._is_waiting:
                self._report.waits()
            for outcome in self._executor.poll():
                self._take(outcome)
            for request in self._requests.look():
                self._follow(request)
            self._catalog.flush(now=self._clock())
        if not self.is_complete:
            raise RunFailed("the run came to a halt with hops left to do")

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to train, to score, to write or to decide, and nothing may come."""
        return self._is_idle and not self._decisions.waits

    @property
    def _is_waiting(self) -> bool:
        """True if nothing is left to do until others propose something, or end the search."""
        return self._is_idle and self._decisions.waits

    @property
    def _is_idle(self) -> bool:
        """True if nothing is left to train, to score or to write."""
        return self._state.is_complete and self._files.done

    # -- giving work ---------------------------------------------------------------------------
    def _assign(self) -> bool:
        """Give all free workers something to do; whether any has."""
        self._decide()
        if self._state.behind:  # what was not known when somebody else began a hop
            self._plan()
        for worker in self._executor.free():
            while (task := self._next(worker)) is not None and not self._is_wanted(task):
                pass
            if task is not None:
                self._submit(worker.number, task)
        return self._executor.is_busy

    def _next(self, worker: WorkerView) -> Task | None:
        """The next task of a worker."""
        if worker.only_hops:
            return self._state.spec.strategy.next(self._state, worker, self._clock())
        if self._untried:
            return TryScoring(tuple(self._untried))
        if self._state.combining:
            return self._state.combining[0]
        text = self._files.next()
        if text is not None:
            return WriteEvents(text)
        return self._state.spec.strategy.next(self._state, worker, self._clock())

    def _is_wanted(self, task: Task) -> bool:
        """True if there is anything to score; if not, that is done at once."""
        if not isinstance(task, Score):
            return True
        group = task.scans[0].group
        if any(self._state.tracks[key].ended is None for key in group.mst_keys):
            return True
        self._state.apply(events.Submitted(-1, task))
        self._state.apply(events.Returned(-1))
        self._summed(Scanned(scan, {}, {}) for scan in task.scans)
        return False

    def _submit(self, worker: int, task: Task) -> None:
        self._executor.submit(self._state, worker, task)
        self._state.apply(events.Submitted(worker, task))
        if isinstance(task, TryScoring):
            self._untried = []
        elif isinstance(task, Train | Step | Participate):
            self._plan()

    def _plan(self) -> None:
        """Plan and store what comes next, before any of it is begun."""
        strategy = self._state.spec.strategy
        hops = strategy.plan(self._state)
        if not hops:
            return
        reasons = strategy.reasons(self._state, hops)
        self._catalog.planned(hops, reasons)
        self._state.apply(events.Planned(tuple(hops)))
        if strategy.largest_group > 1:
            for reason in reasons.values():
                self._report.notify(f"strategy {strategy.name}, {reason}")

    def _decide(self) -> None:
        """Change the set of configurations, as long as somebody wants to."""
        while decided := self._decisions.take(self._state):
            self._decided(decided)

    def _decided(self, decided: Iterable[events.Decided]) -> None:
        """Do what follows from decisions that were stored, and applied."""
        for one in decided:
            self._untried += self._to_try(one.configurations)
            decision = one.decision
            if decision.action == STOP:
                self._stop(decision.only.mst_key, decision.only.epochs, decision.reason)
            elif decision.action == PROMOTE:
                self._take_up(decision.only.mst_key)
        self._plan()
        self._discard()

    def _to_try(self, configurations: Iterable[Configuration]) -> Iterator[int]:
        """The configurations of which no like was scored yet."""
        for one in configurations:
            params = one.compile_params
            like = one.architecture.id, one.outputs, params.dtype_policy, params.optimizer.name
            if like not in self._tried:
                self._tried.append(like)
                yield one.mst_key

    def _stop(self, mst_key: int, epoch: int, reason: str) -> None:
        """A decision has stopped a configuration: what it is about to do is given up."""
        for worker in self._workers_of(mst_key):
            self._executor.cancel(worker)
        if not epoch:
            self._forget_all(mst_key)
            self._report.ended(mst_key, "cancelled", reason)
        for hop in [hop for hop in self._state.alone if hop.mst_key == mst_key]:
            self._drop_if_ended(hop)

    def _take_up(self, mst_key: int) -> None:
        """A configuration is trained further: one that was stopped makes hops that were given up."""
        hops = planned_again(self._state, mst_key)
        if hops:
            self._state.apply(events.Planned(tuple(hops)))
            self._judge([mst_key])

    def _follow(self, request: Request) -> None:
        """Follow a request, or answer why not."""
        try:
            if isinstance(request.wanted, Cancel):
                self._cancel(request.mst_key, request.who)
                self._requests.done(request.request_id)
                return
            self._decisions.check(self._state, request)
            self._catalog.flush()  # a state that is copied is not made again with other bits
            decided = self._decisions.follow(self._state, request)
        except REFUSALS as error:
            self._requests.refused(request.request_id, error)
            decided = []
        self._decided(decided)
        self._decide()

    # -- taking results ------------------------------------------------------------------------
    def _take(self, outcome: Outcome) -> None:
        self._state.apply(events.Returned(outcome.worker))
        if isinstance(outcome.task, Participate):
            self._joined(outcome, outcome.task.hops)
            return
        match outcome.result:
            case Ready(manifests):
                self._prepared(manifests)
            case Trained(made, failed):
                self._trained(made)
                for hop, failure in failed:
                    self._hop_failed(hop, failure)
            case Averaged():
                self._averaged(outcome.task)
            case Sums(scans):
                self._summed(scans)
            case Failure():
                self._failed(outcome.task, outcome.result)
            case answered:
                self._answered(outcome.task, answered.result)

    def _prepared(self, manifests: Sequence[dict[str, Any]]) -> None:
        if not self._has_begun:
            self._report.begins()
        self._catalog.begun(manifests, is_first=not self._has_begun)
        self._has_begun = True

    def _trained(self, made: Iterable[HopResult]) -> None:
        for result in made:
            self._catalog.hop_done(result)
            self._report.trained(result.report.rows)
            hop = result.hop
            self._state.apply(events.HopDone(hop, result.seconds, self._clock()))
            if self._state.tracks[hop.mst_key].ended:
                self._forget_all(hop.mst_key)
            self._discard()
            self._report.epochs()

    def _joined(self, outcome: Outcome, hops: tuple[Hop, ...]) -> None:
        """A worker is done with its share of a round; what follows when all of them are."""
        shares = self._shares.setdefault(hops, [])
        shares.append(outcome)
        if isinstance(outcome.result, Failure):
            self._state.apply(events.Broken(hops))
            if (
                outcome.result.sqlstate != PeerLost.sqlstate
            ):  # else whoever is the cause ends by itself
                for worker in self._workers_of(hops[0].mst_key):
                    self._executor.cancel(worker)
        under_way = [task for task in self._state.tasks.values() if isinstance(task, Participate)]
        if any(task.hops == hops for task in under_way):
            return
        failures = [one.result for one in shares if isinstance(one.result, Failure)]
        if not failures and len(shares) < len(hops):
            return
        del self._shares[hops]
        trained = [share.result for share in shares if isinstance(share.result, Trained)]
        for record in (one.record for one in trained if one.record is not None):
            self._catalog.round_done(record)
        made = [hop for one in trained for hop in one.made]
        if made:
            self._trained(made)
            self._round_done(hops[0].mst_key, self._state.spec.base(hops[0]), len(hops))
        else:
            self._round_failed(hops, min(failures, key=_is_consequence))

    def _round_failed(self, hops: tuple[Hop, ...], failure: Failure) -> None:
        """A round whose hops were to be made together has left nothing."""
        task = Participate(hops, 0, is_root=True)
        track = self._state.tracks[hops[0].mst_key]
        is_lost = failure.sqlstate in _LOSSES
        if track.is_alive and is_lost and not self._state.losses[hops[0]]:
            self._report.notify(f"{failure.message}; its round is done again")
            self._state.apply(events.Lost(task))
            return
        if track.is_alive and is_infrastructure_failure(failure.sqlstate):
            assert failure.error is not None
            raise failure.error
        under_way = list(track.begun)
        if under_way:
            self._hop_failed(under_way[0], failure)
        for hop in under_way[1:]:
            self._state.apply(events.HopDropped(hop))

    def _averaged(self, task: Task | None) -> None:
        """A configuration has the state after a round."""
        assert isinstance(task, Average)
        self._round_done(task.mst_key, task.version, self._state.spec.together)

    def _round_done(self, mst_key: int, version: int, hops: int) -> None:
        self._state.apply(events.RoundDone(mst_key, version, hops, self._clock()))
        if self._state.tracks[mst_key].ended:
            self._forget_all(mst_key)
        self._discard()
        self._report.epochs()

    def _summed(self, scans: Iterable[Scanned]) -> None:
        for one in scans:
            self._state.apply(one)
            group = one.scan.group
            if not group.missing:
                for mst_key, error in group.errors.items():
                    if not self._state.tracks[mst_key].is_given_up(group.epoch):
                        self._unscored(mst_key, error)

    def _answered(self, task: Task | None, result: Any) -> None:
        if isinstance(task, TryScoring):
            for mst_key, error in result.items():
                self._end(int(mst_key), "failed", error)
        elif isinstance(task, Combine):
            self._combined(task, {int(key): value for key, value in result.items()})

    def _combined(self, task: Combine, results: Mapping[int, Any]) -> None:
        group, dataset = task.group, task.dataset
        counting = self._counting(group)
        results = {key: one for key, one in results.items() if key in counting}
        for mst_key, result in results.items():
            if "error" in result:
                self._unscored(mst_key, result["error"])
        rows = [
            Measures(
                key, group.epoch, dataset, v["loss"], v["names"], v["metrics"], self._report.elapsed
            )
            for key, v in results.items()
            if "error" not in v
        ]
        self._catalog.measured(rows)
        self._report.scored(rows)
        for row in rows:
            self._state.apply(row)
            if row.fault is not None:
                self._unscored(row.mst_key, row.fault)
        group.combined.add(dataset)
        if group.combined == set(self._state.spec.scored):
            self._scored(group.epoch, self._counting(group))

    def _counting(self, group: ScoringGroup) -> tuple[int, ...]:
        """The configurations of a group that were not stopped at an earlier epoch."""
        tracks, epoch = self._state.tracks, group.epoch
        return tuple(key for key in group.mst_keys if not tracks[key].is_given_up(epoch))

    def _scored(self, epoch: int, mst_keys: tuple[int, ...]) -> None:
        """Do what follows from an epoch that was measured."""
        self._state.apply(events.Scored(epoch, mst_keys))
        self._files.measured(mst_keys)
        self._report.epochs()
        self._judge(mst_keys)
        self._report.epochs()
        self._decide()  # while all states of that epoch are there
        self._discard()

    def _judge(self, mst_keys: Iterable[int]) -> None:
        """Do what callbacks of configurations make of their scores."""
        judged = callbacks.verdicts(self._state, mst_keys)
        before = {one.mst_key: self._state.tracks[one.mst_key].verdict for one in judged}
        for one in judged:
            self._state.apply(one)
            self._report.judged(one.mst_key, before[one.mst_key], one.verdict)
        self._catalog.judged([self._state.tracks[one.mst_key] for one in judged])

    # -- failures --------------------------------------------------------------------------------
    def _failed(self, task: Task | None, failure: Failure) -> None:
        """Handle a failed task: a configuration fails by itself, anything else ends the run."""
        assert failure.error is not None
        if isinstance(task, WriteEvents):  # what is missing is written when the run is resumed
            self._report.notify(f"TensorBoard: {failure.message}")
            return
        if failure.sqlstate == HandedBack.sqlstate and isinstance(task, Train):
            self._report.notify(failure.message)
            self._state.apply(events.Separated(task.hops))
            for hop in task.hops:
                self._drop_if_ended(hop)
            return
        if failure.sqlstate == TrainerLost.sqlstate and self._is_made_again(task):
            self._report.notify(f"{failure.message}; its task is done again")
            self._state.apply(events.Lost(task))
            for hop in getattr(task, "hops", ()):
                self._drop_if_ended(hop)
            return
        if isinstance(task, Average) and not is_infrastructure_failure(failure.sqlstate):
            self._end(task.mst_key, "failed", f"averaging: {failure.message}")
        elif isinstance(task, Train | Step):
            self._hops_failed(task, failure)
        else:
            raise failure.error

    def _hops_failed(self, task: Train | Step, failure: Failure) -> None:
        """A task of hops has left nothing."""
        assert failure.error is not None
        tracks = self._state.tracks
        if any(tracks[hop.mst_key].is_alive for hop in task.hops) and is_infrastructure_failure(
            failure.sqlstate
        ):
            raise failure.error
        if len(task.hops) > 1:
            self._state.apply(events.Separated(task.hops))
            for hop in task.hops:
                self._drop_if_ended(hop)
        else:
            self._hop_failed(task.hops[0], failure)

    def _is_made_again(self, task: Task | None) -> bool:
        """True if a task is redone whose trainer has ended: a hop once, anything else a few times."""
        if isinstance(task, TryScoring):
            self._untried += task.mst_keys
        if isinstance(task, Train | Step):
            return len(task.hops) > 1 or not self._state.losses[task.hops[0]]
        return all(self._state.losses[one] < _MOST_LOSSES for one in subjects(task))

    def _hop_failed(self, hop: Hop, failure: Failure) -> None:
        hint = f"; {failure.hint}" if failure.hint else ""
        where = f"epoch {hop.epoch}, hop {hop.position + 1}"
        self._end(hop.mst_key, "failed", f"{failure.message} ({where}){hint}")
        self._state.apply(events.HopDropped(hop))
        self._report.epochs()

    def _cancel(self, mst_key: int, who: str) -> None:
        """Cancel one configuration."""
        if mst_key not in self._state.tracks:
            raise InvalidArgument(f"mst_key: got {mst_key}; allowed: a configuration of the run")
        self._end(mst_key, "cancelled", f"cancelled by {who}")
        for worker in self._workers_of(mst_key):
            self._executor.cancel(worker)

    def _workers_of(self, mst_key: int) -> list[int]:
        """Workers that train one configuration, and nothing else.

        A step is never given up: with the only session all segments would lose what they have in memory.
        """
        return [
            worker
            for worker, task in self._state.tasks.items()
            if isinstance(task, Train | Participate)
            and {hop.mst_key for hop in task.hops} == {mst_key}
        ]

    def _end(self, mst_key: int, status: str, error: str) -> None:
        """A configuration ends early, if it goes on."""
        if self._state.tracks[mst_key].is_alive:
            self._fail(mst_key, status, error)

    def _unscored(self, mst_key: int, error: str) -> None:
        """A configuration cannot be scored, or its loss is no number: there is no model of it."""
        if not self._state.tracks[mst_key].ended:
            self._fail(mst_key, "failed", error)

    def _fail(self, mst_key: int, status: str, error: str) -> None:
        error = " ".join(error.split())[:_LONGEST_ERROR]
        self._state.apply(events.Failed(mst_key, status, error))
        self._catalog.ended(mst_key, status, error)
        self._forget_all(mst_key)
        self._storage.sweep()
        self._report.ended(mst_key, status, error)
        for hop in [hop for hop in self._state.alone if hop.mst_key == mst_key]:
            self._drop_if_ended(hop)
        self._report.epochs()

    def _drop_if_ended(self, hop: Hop) -> None:
        """A hop that was to be made alone is not, where its configuration has ended."""
        if not self._state.tracks[hop.mst_key].is_alive:
            self._state.apply(events.HopDropped(hop))

    # -- inside ----------------------------------------------------------------------------------
    def _forget_all(self, mst_key: int) -> None:
        """A configuration has ended: its states go, but for those that a decision may go back to."""
        self._storage.forget_all(mst_key, self._state.tracks[mst_key].states)

    def _discard(self) -> None:
        """Give up states that nothing needs any more."""
        states = retention.useless(self._state, self._state.changed)
        self._state.apply(events.Discarded(states))
        if states:
            self._storage.forget(states)
        self._storage.sweep()


# After these a round is made again.
_LOSSES = (TrainerLost.sqlstate, PeersApart.sqlstate, PeerLost.sqlstate)
# Of failures of a round the first one of these kinds is the least likely to be the cause of others.
_CONSEQUENCES = (*_LOSSES, RunCancelled.sqlstate)


def _is_consequence(failure: Failure) -> int:
    """Rank of a failure by how likely it only follows from another one of the round."""
    kinds = _CONSEQUENCES
    return kinds.index(failure.sqlstate) + 1 if failure.sqlstate in kinds else 0
