"""Interruptions of every function at random moments: quiet within seconds, nothing left, and the same results after all.

Each trial begins one of the functions in a client process, waits for a random part of the time that it takes, and
cancels the statement, terminates its session, or stops the server (``pg_ctl stop -m fast``). Then it looks how soon the
call has ended and all is quiet, has the work done after all, and compares what is there with what a calm call has left.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.driving import CALL_SECONDS, Driving
from chaos.grid import Job
from chaos.outcome import alarms
from chaos.server import Embedded, TookTooLong, until
from chaos.victims import ours

CANCEL, TERMINATE, SHUTDOWN = WAYS = ("cancel", "terminate", "shutdown")
PACK, FIT, SEARCH, PREDICT, PROMOTE, JOB = FUNCTIONS = (
    "pack", "fit", "search", "predict", "promote", "job",
)  # fmt: skip
# What is promised: from the interruption until the call has ended, and until all is quiet.
END_SECONDS = {CANCEL: 5.0, TERMINATE: 2.0, SHUTDOWN: 5.0}
QUIET_SECONDS = 5.0
EPOCHS = 4
# A call may take less than a calm one: few of the moments lie after its end.
_LATEST = 0.8
_COPIES = 40
_WORKING = re.compile(r"(driver|trainer) (\d+)$")
# A job's own processes have no session in their name.
_JOB = "driver job"


def load(server: Embedded) -> None:
    """Make the tables that calls take some time for."""
    server.fetch(
        "CREATE TABLE many AS SELECT r.id + 10000 * n AS id, r.x, r.y "
        f"FROM generate_series(1, {_COPIES}) n, rows r ORDER BY 1"
    )
    server.fetch("CREATE VIEW many_rows AS SELECT * FROM many")


@dataclass(frozen=True)
class Stop:
    """Plan of a trial; follows from the seed and its number.

    Attributes:
        fraction: of the time that a calm call takes, after which it is interrupted.
    """

    seed: int
    number: int
    function: str
    way: str
    fraction: float

    @classmethod
    def of(cls, seed: int, number: int) -> Stop:
        """The plan of a number: functions take turns, and so do the ways."""
        function = FUNCTIONS[number % len(FUNCTIONS)]
        way = WAYS[(number + number // len(FUNCTIONS)) % len(WAYS)]
        fraction = _LATEST * random.Random(f"{seed}/{number}").random()
        return cls(seed, number, function, way, fraction)


@dataclass
class Stopped:
    """Report of a trial.

    Attributes:
        stop: its plan.
        was_under_way: whether the call had not ended before.
        ended: seconds until the call had ended.
        quiet: seconds until nothing of it worked or was held any more.
        left: unfinished tables that only the next call has dropped.
        resumed: whether a run went on.
        repeated: whether the call was made anew.
        deviations: what was not as promised; empty where all was.
    """

    stop: Stop
    was_under_way: bool = True
    ended: float = 0.0
    quiet: float = 0.0
    left: int = 0
    resumed: bool = False
    repeated: bool = False
    deviations: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain values."""
        found = {name: value for name, value in vars(self).items() if name != "stop"}
        return {**vars(self.stop), **found}


class Work:
    """A call of a function, and what it leaves.

    Args:
        server: where it is called.
        function: one of ``FUNCTIONS``.
        output: the name of its tables.
        models: output and run of models that are predicted with and promoted.
    """

    def __init__(
        self, server: Embedded, function: str, output: str, models: tuple[str, int]
    ) -> None:
        self._server, self.function, self.output = server, function, output
        self._models, self._run = models
        searches = function == SEARCH
        self._job = Job(output, EPOCHS, predicts=False, searches=searches)

    @property
    def is_run(self) -> bool:
        """True if it can be resumed."""
        return self.function in (FIT, SEARCH, JOB)

    def statements(self) -> list[str]:
        """The call; that of a job waits for it then."""
        fit = self._job.fit()
        if self.function == JOB:
            return [fit[:-1] + ", wait := false)", f"SELECT cerebro_wait({self.run_id_sql})"]
        return [
            {
                PACK: f"SELECT cerebro_pack('many_rows', '{self.output}', 'y', 'x', buffer_size := 500)",
                PREDICT: f"SELECT cerebro_predict('{self._models}', 'many', 'id', 'x', "
                f"'{self.output}', mst_key := 1, num_workers := 2)",
                PROMOTE: f"SELECT cerebro_promote_if_better({self._run}, 'model:{self.output}@best')",
            }.get(self.function, fit)
        ]

    @property
    def run_id_sql(self) -> str:
        """The number of its run, as SQL."""
        return f"(SELECT max(run_id) FROM cerebro.catalog_runs WHERE output_name = '{self.output}')"

    def run(self) -> tuple[int, str] | None:
        """Number and status of its run; None where none was registered."""
        rows = self._server.fetch(
            f"SELECT run_id, status FROM cerebro.runs WHERE run_id = {self.run_id_sql}"
        )
        return rows[0] if rows else None

    def outcome(self) -> list[Any]:
        """Values that must be equal after an interruption."""
        found = _OUTCOMES.get(self.function, _MODELS)
        return [self._server.fetch(one.format(out=self.output)) for one in found]

    def is_done(self) -> bool:
        """True if what it makes is there."""
        if self.is_run:
            found = self.run()
            return found is not None and found[1] == "finished"
        if self.function == PROMOTE:
            return bool(self.outcome()[0])
        return bool(self._server.value("SELECT to_regclass(%s) IS NOT NULL", (self.output,)))

    def forget(self) -> None:
        """Drop what it has left, so that the next trial finds nothing."""
        if self.function == PROMOTE:
            self._server.call(f"SELECT cerebro_drop_model('{self.output}')")
            return
        if self.is_run and (found := self.run()):
            self._server.call(f"SELECT cerebro_drop_run({found[0]})")
        self._server.call(f"SELECT cerebro_drop_outputs('{self.output}')")


_MODELS = (
    "SELECT mst_key, md5(model_weights) FROM {out} ORDER BY 1",
    "SELECT mst_key, chunk, md5(state) FROM {out}_states ORDER BY 1, 2",
)
_OUTCOMES = {
    PACK: ("SELECT partition_key, buffer_id, md5(x), md5(y) FROM {out} ORDER BY 1, 2",),
    PREDICT: (
        "SELECT count(*), md5(string_agg(concat_ws('/', id, class_value, prob), ',' "
        "ORDER BY id, rank)) FROM {out}",
    ),
    PROMOTE: (
        "SELECT aliases FROM cerebro.registered_versions WHERE name = '{out}' "
        "AND 'best' = ANY (aliases)",
        "SELECT count(*) FROM cerebro.registered_versions WHERE name = '{out}'",
    ),
}
_UNFINISHED = """
SELECT c.oid::regclass::text FROM pg_class c
 WHERE obj_description(c.oid, 'pg_class') ~ '^Cerebro-DB: .* not finished$'
"""
_HELD = """
SELECT 'the session ' || a.pid || ', ' || coalesce(a.state, '') || ': ' || left(a.query, 80)
  FROM pg_stat_activity a WHERE a.application_name = 'cerebro worker'
UNION ALL
SELECT 'a lock of ' || l.pid FROM pg_locks l WHERE l.locktype = 'advisory'
"""


class Trial:
    """Does what a plan says.

    Args:
        server: on which.
        stop: the plan.
        work: what is called.
        seconds: that a calm call takes.
        wanted: what it leaves.
    """

    def __init__(
        self, server: Embedded, stop: Stop, work: Work, seconds: float, wanted: Sequence[Any]
    ) -> None:
        self._server, self._stop, self._work = server, stop, work
        self._seconds, self._wanted = seconds, wanted
        self._report = Stopped(stop)

    def run(self) -> Stopped:
        """Do it; what goes wrong is in the report."""
        log = self._server.log_size()
        driving = Driving.calling(self._server, self._work.statements())
        try:
            until(driving.connected, CALL_SECONDS, "the client connects")
            time.sleep(self._stop.fraction * self._seconds)
            self._interrupt(driving)
            self._finish()
        except TookTooLong as error:
            self._deviates(str(error))
        finally:
            driving.end()
        self._report.deviations += alarms(self._server.log_since(log))
        return self._report

    def _deviates(self, text: str) -> None:
        self._report.deviations.append(text)

    # -- the interruption --------------------------------------------------------
    def _interrupt(self, driving: Driving) -> None:
        report, way = self._report, self._stop.way
        report.was_under_way = not driving.over
        began = time.monotonic()
        if way == SHUTDOWN:
            self._server.cluster.stop()
            self._server.forget_session()
        elif self._work.function == JOB:
            self._interrupt_job(driving)
        else:
            self._server.fetch(f"SELECT pg_{way}_backend(%s)", (driving.backend,))
        until(lambda: driving.over, CALL_SECONDS, "the call ends")
        report.ended = time.monotonic() - began
        if report.ended > END_SECONDS[way]:
            self._deviates(f"the call ended after {report.ended:.1f} s")
        if way == SHUTDOWN:
            self._await(self._processes, began)
            self._server.cluster.start()
        elif not (self._work.function == JOB and way == TERMINATE):  # that goes on by itself
            self._await(self._at_work, began)

    def _interrupt_job(self, driving: Driving) -> None:
        """Interrupt a job: its run is cancelled, or the sessions that work for it are terminated."""
        if self._stop.way == TERMINATE:
            self._server.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'cerebro worker'"
            )
            self._server.fetch("SELECT pg_terminate_backend(%s)", (driving.backend,))
        elif (found := self._work.run()) is not None and found[1] != "finished":
            self._server.call(f"SELECT cerebro_cancel({found[0]})")
        else:
            self._server.fetch("SELECT pg_cancel_backend(%s)", (driving.backend,))

    def _await(self, at_work: Callable[[], list[str]], began: float) -> None:
        """Wait until nothing is at work any more."""
        found = at_work()
        with suppress(TookTooLong):
            until(lambda: not at_work(), 10 * QUIET_SECONDS, "all is quiet", pause=0.05)
        quiet = time.monotonic() - began
        self._report.quiet = max(self._report.quiet, quiet)
        if quiet > QUIET_SECONDS:
            self._deviates(f"quiet after {quiet:.1f} s: {'; '.join(found[:3])}")

    def _at_work(self) -> list[str]:
        """Sessions, locks and processes that work for a call."""
        return [text for (text,) in self._server.fetch(_HELD)] + self._processes()

    def _processes(self) -> list[str]:
        """Drivers and trainers of sessions of this server, or of sessions that have ended."""
        return [f"{name} ({pid})" for pid, name in ours() if self._is_of_this_server(name)]

    def _is_of_this_server(self, name: str) -> bool:
        if name == _JOB:
            return self._work.function == JOB
        found = _WORKING.match(name)
        if found is None:
            return False
        with suppress(OSError):
            parent = Path(f"/proc/{found[2]}/stat").read_text().rpartition(")")[2].split()[1]
            return int(parent) == self._server.cluster.pid()
        return True

    # -- afterwards --------------------------------------------------------------
    def _finish(self) -> None:
        """Have the work done after all, and compare."""
        work, left = self._work, self._server.fetch(_UNFINISHED)
        self._report.left = len(left)
        if left and self._stop.way != SHUTDOWN:
            self._deviates(f"unfinished tables are left: {left}")
        if work.function == JOB and self._stop.way != CANCEL:
            self._await_job()
        if not work.is_done():
            self._do()
        if not work.is_done():
            self._deviates("it is not done")
        elif work.outcome() != self._wanted:
            self._deviates("what it has left differs")
        self._await(self._at_work, time.monotonic())  # what has done it after all is quiet as well
        work.forget()
        found = [*self._server.fetch(_UNFINISHED), *self._server.fetch(_STATES)]
        if found:
            self._deviates(f"tables are left: {found}")

    def _await_job(self) -> None:
        """It goes on by itself, after a restart of the server with the next call of anybody."""
        if (found := self._work.run()) is not None:
            self._server.call("SELECT cerebro_wait(%s)", (found[0],))

    def _do(self) -> None:
        found = self._work.run() if self._work.is_run else None
        if found is not None:
            self._report.resumed = True
            self._server.call("SELECT cerebro_resume(%s)", (found[0],))
            return
        self._report.repeated = True
        for statement in self._work.statements():
            self._server.call(statement)


_STATES = "SELECT relname FROM pg_class WHERE relnamespace = 'cerebro_states'::regnamespace AND relkind = 'r'"


class Calm:
    """Results and durations of calls without an interruption."""

    def __init__(self, server: Embedded) -> None:
        self._server = server
        models = Work(server, FIT, "calm_models", ("", 0))
        for statement in models.statements():
            server.call(statement)
        found = models.run()
        assert found is not None
        self.models = "calm_models", found[0]
        self.seconds: dict[str, float] = {}
        self.outcomes: dict[str, list[Any]] = {}

    def of(self, function: str) -> tuple[float, list[Any]]:
        """Seconds and outcome of a function."""
        if function not in self.seconds:
            self._call(
                function
            )  # the first call of all waits for processes that later ones find ready
            self.seconds[function], self.outcomes[function] = self._call(function)
        return self.seconds[function], self.outcomes[function]

    def _call(self, function: str) -> tuple[float, list[Any]]:
        work = Work(self._server, function, f"calm_{function}", self.models)
        began = time.monotonic()
        for statement in work.statements():
            self._server.call(statement)
        seconds, outcome = time.monotonic() - began, work.outcome()
        work.forget()
        return seconds, outcome


def trials(server: Embedded, planned: Sequence[Stop]) -> Iterator[Stopped]:
    """Do all of them, after calm calls."""
    calm = Calm(server)
    for stop in planned:
        seconds, wanted = calm.of(stop.function)
        work = Work(server, stop.function, f"stopped_{stop.number}", calm.models)
        yield Trial(server, stop, work, seconds, wanted).run()
