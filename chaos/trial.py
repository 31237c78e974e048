"""A trial of the kill test: a run is killed, resumed, and compared."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos import outcome, victims
from chaos.driving import CALL_SECONDS, Driving
from chaos.grid import Job
from chaos.moments import SETTING_UP, Moment, draw
from chaos.outcome import Outcome
from chaos.server import Server, TookTooLong, until
from chaos.view import View, look

_SECOND_KILL, _DURABLE_EPOCHS = 0.25, 0.35
# A view must be true at once; this is for the moment between two of the server's tables.
_TRUE_SECONDS = 5.0
# A session without a client notices that when it has something to tell, or is done.
_DRIVER_SECONDS = 120.0
_GONE_SECONDS = 30.0
_PATIENCE = 3


@dataclass(frozen=True)
class Plan:
    """Plan of a trial; follows from the seed and its number.

    Attributes:
        seed, number: of the trial.
        victim: who is killed.
        durability: of the run.
        kills: when, one after another.
    """

    seed: int
    number: int
    victim: str
    durability: str
    kills: tuple[Moment, ...]

    @classmethod
    def of(cls, seed: int, number: int, victim: str) -> Plan:
        """The plan of a trial."""
        generator = random.Random(f"{seed}/{number}/{victim}")
        durability = "epoch" if generator.random() < _DURABLE_EPOCHS else "hop"
        kills = [draw(generator, resumed=False)]
        # A configuration whose trainer dies twice in a hop fails, as is meant.
        if generator.random() < _SECOND_KILL and victim != victims.TRAINER:
            kills.append(draw(generator, resumed=True))
        return cls(seed, number, victim, durability, tuple(kills))


@dataclass
class Report:
    """Report of a trial.

    Attributes:
        plan: of the trial.
        hits: for each kill: who, in which phase, after how many hops.
        begun: how often the run was begun.
        resumed: how often it was resumed.
        alone: how often a living driver went on by itself.
        deviations: what was not as promised; empty where all was.
        seconds: that it took.
        back: seconds from a kill until the server was there again.
    """

    plan: Plan
    hits: list[dict[str, Any]] = field(default_factory=list)
    begun: int = 0
    resumed: int = 0
    alone: int = 0
    deviations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    back: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The trial as plain values."""
        plan = self.plan
        return {
            "trial": plan.number,
            "seed": plan.seed,
            "victim": plan.victim,
            "durability": plan.durability,
            "moments": [str(moment) for moment in plan.kills],
            "hits": self.hits,
            "begun": self.begun,
            "resumed": self.resumed,
            "went_on_alone": self.alone,
            "seconds": round(self.seconds, 1),
            "seconds_until_back": [round(seconds, 2) for seconds in self.back],
            "deviations": self.deviations,
        }


class Trial:
    """Does what a plan says.

    Args:
        server: to be killed.
        plan: when, and who.
        job: what is trained.
        wanted: what an undisturbed run left.
        seconds: that the phases of that run took.
    """

    def __init__(
        self,
        server: Server,
        plan: Plan,
        job: Job,
        wanted: Outcome,
        seconds: Mapping[str, float],
    ) -> None:
        self._server, self._plan, self._job = server, plan, job
        self._wanted, self._seconds = wanted, seconds
        self._generator = random.Random(f"{plan.seed}/{plan.number}/who")
        self._report = Report(plan)

    def run(self) -> Report:
        """Do it; what goes wrong is in the report."""
        began, log = time.monotonic(), self._server.log_size()
        try:
            self._train()
            self._compare()
        except TookTooLong as error:
            self._deviates(str(error))
            self._server.kill_postmaster()  # so that the next trial has a calm server
        self._clean_up()
        self._report.deviations += outcome.alarms(self._server.log_since(log))
        self._report.seconds = time.monotonic() - began
        return self._report

    # -- kills -----------------------------------------------------------------
    def _train(self) -> None:
        """Begin, kill, resume, until the run is finished."""
        driving, lives = self._begin(), False
        try:
            for moment in self._plan.kills:
                lives = self._kill(driving, moment)
                if not lives:
                    driving = self._replace(driving)
            for _ in range(_PATIENCE):
                if driving.wait() == 0:
                    self._report.alone += lives
                    return
                self._check_failure(driving, lives)
                driving, lives = self._replace(driving), False
            self._deviates(f"the run does not end: {driving.error()}")
        finally:
            driving.end()

    def _begin(self) -> Driving:
        self._report.begun += 1
        if victims.is_outside(self._plan.victim):
            return Driving.running(self._job.fit_command(self._server.dsn))
        statements = [self._job.fit(), *self._job.predictions()]
        return Driving.calling(self._server, statements)

    def _kill(self, driving: Driving, moment: Moment) -> bool:
        """Kill at that moment; whether the driver is to go on by itself."""
        victim = self._plan.victim
        self._await(driving, moment)
        began = time.monotonic()
        view, who = until(lambda: self._try_to_kill(driving), _GONE_SECONDS, f"there is a {victim}")
        hit = {"who": who, "phase": view.phase(self._job), "hops": view.hops}
        self._report.hits.append(hit)
        if not who:
            return False
        if victim in victims.CRASHES:
            self._await_restart({*view.workers, *view.others, driving.backend})
        self._report.back.append(time.monotonic() - began)
        self._check_truth(view, driving)
        return self._lives

    def _try_to_kill(self, driving: Driving) -> tuple[View, str] | None:
        """View of the run, and the victim: "" where no process is left; None to try once more."""
        view = look(self._server, self._job)
        victim, client = self._plan.victim, driving.process
        who = victims.kill(self._server, victim, client, driving.backend, view, self._generator)
        return (view, who or "") if who or driving.over else None

    def _await(self, driving: Driving, moment: Moment) -> None:
        """Wait for the moment."""
        until(driving.connected, CALL_SECONDS, "the client connects")
        hops = moment.hops(look(self._server, self._job).hops, self._job.hops)
        needs_session = self._plan.victim in victims.IN_A_SESSION

        def reached() -> bool:
            view = look(self._server, self._job)
            there = bool(view.workers or view.others or not needs_session)
            return driving.over or (there and view.reached(moment.phase, hops))

        until(reached, CALL_SECONDS, f"the run is {moment.phase}")
        time.sleep(moment.delay(self._seconds))

    def _await_restart(self, before: set[int | None]) -> None:
        """Wait until no session of before is there any more, and the server answers."""

        def restarted() -> bool:
            return before.isdisjoint(self._server.pids())

        until(restarted, _GONE_SECONDS, "the server restarts its sessions")

    def _check_truth(self, before: View, driving: Driving) -> None:
        """The view says that the run goes on where someone drives it, and nowhere else."""
        end = time.monotonic() + _DRIVER_SECONDS
        lied_since: float | None = None
        while True:
            view = look(self._server, self._job)
            if not view.going_on or (self._lives and view.has_driver):
                if not self._driving_on(before, driving):
                    return
            elif not view.has_driver:
                lied_since = lied_since or time.monotonic()
                if time.monotonic() - lied_since > _TRUE_SECONDS:
                    return self._deviates(f"nobody drives the run, and the view says {view.status}")
            if time.monotonic() > end:
                return self._deviates(f"the driver goes on {_DRIVER_SECONDS:g} s after its client")
            time.sleep(0.05)

    def _driving_on(self, before: View, driving: Driving) -> bool:
        """True if sessions are there that may drive the run although their client is gone."""
        drivers = {
            victims.CLIENT: {driving.backend},
            victims.OUTSIDE_DRIVER: set(before.others).difference(before.workers),
        }.get(self._plan.victim, set())
        return not drivers.isdisjoint(self._server.pids())

    @property
    def _lives(self) -> bool:
        """True if the driver is not killed, and is to go on by itself."""
        return self._plan.victim in victims.SURVIVED

    # -- going on --------------------------------------------------------------
    def _replace(self, driving: Driving) -> Driving:
        """Replacement of a client that is gone, or is about to be."""
        driving.wait()
        driving.end()
        view = look(self._server, self._job)
        if view.run_id is None:
            return self._begin()
        if view.status == "finished":
            return Driving.calling(self._server, self._missing_predictions())
        if view.status != "interrupted":
            self._deviates(f"a kill has made the run {view.status}: {view.error}")
        self._report.resumed += 1
        if victims.is_outside(self._plan.victim):
            return Driving.running(self._job.resume_command(self._server.dsn, view.run_id))
        resume = f"SELECT cerebro_resume({view.run_id})"
        return Driving.calling(self._server, [resume, *self._job.predictions()])

    def _missing_predictions(self) -> list[str]:
        tables = zip(self._job.prediction_tables.values(), self._job.predictions(), strict=True)
        is_there = "SELECT to_regclass(%s) IS NOT NULL"
        return [sql for table, sql in tables if not self._server.value(is_there, (table,))]

    def _check_failure(self, driving: Driving, lives: bool) -> None:
        """A client fails only where it, or its server, is killed; a driver that lives, not even then.

        Before the run is registered there is nothing to go on with, and after its end nothing to do.
        """
        status = look(self._server, self._job).status
        in_time = self._report.hits[-1]["phase"] != SETTING_UP and status != "finished"
        if in_time or not lives:
            self._deviates(f"a call failed: {driving.error()}")

    # -- afterwards ------------------------------------------------------------
    def _compare(self) -> None:
        view = look(self._server, self._job)
        if view.run_id is None or view.status != "finished":
            return self._deviates(f"the run is {view.status} in the end")
        report = self._report
        outcome.await_no_sessions(self._server)
        missing = self._missing_predictions()
        if missing:
            driving = Driving.calling(self._server, missing)
            failed = driving.wait() != 0
            if failed:
                self._deviates(f"predicting: {driving.error()}")
            driving.end()
            if failed:  # there is nothing to compare
                return None
            outcome.await_no_sessions(self._server)
        found = outcome.outcome(self._server, self._job, view.run_id)
        report.deviations += outcome.differences(found, self._wanted)
        report.deviations += outcome.miscounted(self._server, self._job, view.run_id)
        report.deviations += outcome.leftovers(self._server)
        return None

    def _clean_up(self) -> None:
        """Drop the run, and what it has made."""
        view = look(self._server, self._job)
        if view.run_id is not None and not view.going_on:
            self._server.call("SELECT cerebro_drop_run(%s)", (view.run_id,))
            self._report.deviations += outcome.remains(self._server, view.run_id)
        self._server.fetch(self._job.drop())

    def _deviates(self, text: str) -> None:
        self._report.deviations.append(text)
