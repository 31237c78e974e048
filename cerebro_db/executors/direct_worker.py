"""A direct worker: joins a run over libpq, makes the hops that its driver orders, and leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from cerebro_db.configs.messages import plain_text
from cerebro_db.core.spec import TRAINING
from cerebro_db.errors import (
    CerebroError,
    ConfigurationFailed,
    InvalidArgument,
    LoopbackFailed,
    WrongRunStatus,
)
from cerebro_db.executors.direct_order import Order
from cerebro_db.executors.direct_trainer import (
    BEGIN,
    BUFFER,
    STATE,
    DirectTrainer,
    Row,
    TrainerFailed,
)
from cerebro_db.postgres.direct.session import (
    Assignment,
    DirectRun,
    DirectSession,
    Standing,
    TakenBack,
)
from cerebro_db.postgres.sessions.errors import SessionLost
from cerebro_db.protocol import HandedBack
from cerebro_db.relay.keepers import Installation
from cerebro_db.training.fields import Fields
from cerebro_db.training.functions import distribution_of

# Between looks whether an order still stands, and for one where nobody tells of it.
_LOOK_SECONDS = 0.5
_RECONNECT_SECONDS = 1.0
_MOST_TEXT = 1000
# What a machine tells of itself that need not be as on the server.
_OF_NO_EFFECT = ("functions",)
# Settings of the server's machine that mean nothing on another one.
_OF_THIS_MACHINE = {"trainer_cpus": "", "trainer_nice": "0", "idle_seconds": "10"}


class Dropped(Exception):
    """The worker leaves and drops its hop."""


class WorkerOptions(NamedTuple):
    """Options that a worker was started with.

    Attributes:
        dsn: of libpq.
        run_id: to join.
        once: whether it leaves after a hop.
        idle_seconds: without a hop, after which it leaves.
        grace_seconds: that a hop may take when the worker is asked to leave.
        threads: of its trainer; None for those of the run.
        memory_mb: that its trainer may use; None for the setting of the database.
        cache_mb: of decoded partitions that it keeps; None for that of the run.
        use_gpus: whether it trains on GPUs.
        any_machine: whether it joins where results would not be the same.
        host: its name, for people.
    """

    dsn: str
    run_id: int
    once: bool
    idle_seconds: float
    grace_seconds: float
    threads: int | None
    memory_mb: int | None
    cache_mb: int | None
    use_gpus: bool
    any_machine: bool
    host: str


class DirectWorker:
    """A direct worker: makes hops of a run until the run ends, has no hops for it, or the worker is asked to leave.

    Args:
        options: what it was started with.
        installation: of the package on this machine.
        tell: gets a line for people.
    """

    def __init__(
        self, options: WorkerOptions, installation: Installation, tell: Callable[[str], None]
    ) -> None:
        self._options, self._installation, self._tell = options, installation, tell
        self._leaves_at: float | None = None  # on the clock, with a hop under way or not
        self._last_work = time.monotonic()
        self._looked = 0.0
        self._given: Assignment | None = None
        self._hops = 0
        self._has_joined = False
        self._reason = ""

    def ask_to_leave(self) -> None:
        """Leave after the hop under way, or at once when called again; signal handlers may call it."""
        now = time.monotonic()
        asked = self._leaves_at is not None
        self._leaves_at = now if asked else now + self._options.grace_seconds

    def run(self) -> None:
        """Work.

        Raises:
            CerebroError: it cannot join.
        """
        while True:
            try:
                session = DirectSession(self._options.dsn)
                try:
                    self._serve(session)
                finally:
                    session.close()
                break
            except (SessionLost, LoopbackFailed) as error:
                if not self._has_joined or self._is_over("the server does not answer"):
                    raise
                self._tell(f"{error.message}; tries again")
                self._pause(_RECONNECT_SECONDS)
                if self._is_leaving():
                    break
        self._tell(f"left after {self._hops} hops: {self._reason}")

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._leaves_at is None:
            time.sleep(0.05)

    # -- a session -----------------------------------------------------------------------
    def _serve(self, session: DirectSession) -> None:
        session.check_version()
        run = session.find(self._options.run_id)
        session.act_as(run.owner)
        worker_id = session.join(run.run_id, self._options.host)
        if not self._has_joined:
            self._tell(f"worker {worker_id} waits for the driver of run {run.run_id}")
        self._has_joined = True
        owner = ["direct worker", *session.address, run.owner]
        trainer = DirectTrainer(self._installation, owner, lambda: self._listen(session))
        try:
            trainer.start(self._threads(run), self._options.use_gpus)
            self._work(session, run, trainer)
        except Dropped:
            self._is_leaving()
        except SessionLost:
            raise
        except BaseException as error:
            with suppress(CerebroError):
                session.leave(_plain(error))
            raise
        finally:
            trainer.close()
        session.leave(self._reason)

    def _work(self, session: DirectSession, run: DirectRun, trainer: DirectTrainer) -> None:
        cache_bytes = 0
        while not self._is_leaving():
            standing = session.standing()
            if standing is None or standing.status == "finished":
                self._reason = f"run {run.run_id} is {'gone' if standing is None else 'finished'}"
                return
            if standing.dismissed is not None:
                raise WrongRunStatus(
                    f"the driver of run {run.run_id} has sent this worker away: {standing.dismissed}",
                    hint="cerebro.direct_workers shows it; what failed is reported above",
                )
            if standing.told is not None and not standing.is_ready:
                cache_bytes = self._prepare(session, run, standing, trainer)
            given = session.order() if standing.is_ready else None
            if given is not None:
                self._follow(session, run, trainer, given, cache_bytes)
                self._last_work = time.monotonic()
                if self._options.once and self._hops:
                    self._reason = "it was to make one hop"
                    return
                continue
            if self._is_over(f"run {run.run_id} is {standing.status}"):
                return
            session.wait(_LOOK_SECONDS)

    def _threads(self, run: DirectRun) -> int:
        return self._options.threads or run.threads

    def _is_leaving(self) -> bool:
        if self._leaves_at is not None:
            self._reason = "it was asked to leave"
        return self._leaves_at is not None

    def _is_over(self, why: str) -> bool:
        """True if there was nothing to do for too long."""
        is_over = time.monotonic() - self._last_work > self._options.idle_seconds
        if is_over:
            self._reason = f"no hop for {self._options.idle_seconds:g} s; {why}"
        return is_over

    # -- getting ready ---------------------------------------------------------------------
    def _prepare(
        self, session: DirectSession, run: DirectRun, standing: Standing, trainer: DirectTrainer
    ) -> int:
        """Prepare the trainer with the settings of the run; returns the bytes that it may keep.

        Raises:
            WrongRunStatus: it would give other results.
        """
        options = self._options
        given: dict[str, Any] = json.loads(standing.told or "{}")
        settings = dict(Fields(given).texts("settings")) | _OF_THIS_MACHINE
        cache_bytes = Fields(given).integer("cache_bytes", 0)
        if options.memory_mb is not None:
            settings["max_worker_mb"] = str(options.memory_mb)
            cache_bytes = min(cache_bytes, options.memory_mb * 2**20 // 2)
        if options.cache_mb is not None:
            cache_bytes = options.cache_mb * 2**20
        threads = self._threads(run)
        given |= {
            "threads": threads, "use_gpus": options.use_gpus, "places": {}, "settings": settings,
            "cache_bytes": cache_bytes, "keeps_errors": False,
        }  # fmt: skip
        known = session.functions() if standing.manifest.get("functions") else {}
        for name in standing.manifest.get("functions", ()):
            _check_function(name, known)
        network = json.dumps({"trainer_network": settings.get("trainer_network", "off")})
        facts = trainer.prepare(
            json.dumps(given), threads, options.use_gpus, json.dumps(known), network
        )
        if not options.any_machine:
            _check_same(run.run_id, standing.manifest, facts)
        session.is_ready(json.dumps(facts, sort_keys=True))
        self._tell(
            f"joined run {run.run_id}: {threads} threads, {facts['devices']} GPUs, {facts['processor']}"
        )
        return cache_bytes

    # -- a hop -----------------------------------------------------------------------------
    def _follow(
        self,
        session: DirectSession,
        run: DirectRun,
        trainer: DirectTrainer,
        given: Assignment,
        cache_bytes: int,
    ) -> None:
        """Do what was ordered, and answer."""
        self._given, self._looked = given, time.monotonic()
        try:
            self._make(session, trainer, Order.parse(given.text, run), given, cache_bytes)
        except TakenBack:
            trainer.close()
        except Dropped:
            trainer.close()
            self._hand_back(session, given, "it was asked to leave")
        except SessionLost:
            raise
        except CerebroError as error:
            self._tell(f"a hop has failed: {error.message}")
            # Loss that is no number, for example: it would be so anywhere.
            is_of_the_model = (
                isinstance(error, TrainerFailed) and error.sqlstate == ConfigurationFailed.sqlstate
            )
            self._hand_back(session, given, _plain(error), error.hint, is_of_the_model)
        except ValueError as error:  # of what was read
            self._hand_back(session, given, _plain(error))
        finally:
            self._given = None

    @staticmethod
    def _hand_back(
        session: DirectSession,
        given: Assignment,
        why: str,
        hint: str | None = None,
        is_of_the_model: bool = False,
    ) -> None:
        session.hand_back(given, HandedBack(error=why, hint=hint, is_of_the_model=is_of_the_model))

    def _make(
        self,
        session: DirectSession,
        trainer: DirectTrainer,
        order: Order,
        given: Assignment,
        cache_bytes: int,
    ) -> None:
        report, chunks = trainer.train(self._rows(session, trainer, order, cache_bytes))
        size = sum(len(data) for _, data, _ in chunks)
        state = session.sql.state_rows(order.mst_key, order.makes, order.goals, chunks)
        with suppress(TakenBack):  # the trainer is not at it any more
            session.commit(given, report, order.target_table, state, size)
            self._hops += 1

    def _rows(
        self, session: DirectSession, trainer: DirectTrainer, order: Order, cache_bytes: int
    ) -> Iterator[Row]:
        """Rows for the trainer: the task, the state, the buffers that it does not have."""
        weights = None
        if order.weights_of is not None:
            weights = session.weights(order.run_id, order.weights_of)
        yield Row(BEGIN, task=order.task, weights=weights)
        if (source := order.source_table) is not None:
            for chunk in session.state(source, order.mst_key, order.version, order.segment_key):
                yield Row(STATE, state=chunk)
        if f"{TRAINING}/{order.partition_key}" in trainer.kept:
            return
        for subepoch, batch in order.batches(cache_bytes):
            self._listen(session)
            read = session.buffers(
                order.packed,
                order.columns,
                order.partition_key,
                batch,
                order.segment_key,
                order.oid,
            )
            for buffer_id in batch:
                yield Row(
                    BUFFER, subepoch=subepoch, buffer_id=buffer_id, values=read.pop(buffer_id)
                )

    def _listen(self, session: DirectSession) -> None:
        """Called while the trainer is waited for: look whether that is still worth it."""
        now = time.monotonic()
        if self._leaves_at is not None and now >= self._leaves_at:
            raise Dropped
        if self._given is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if not session.is_wanted(self._given.order_id):
            raise TakenBack("the hop was taken back")


def _check_same(run_id: int, manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse a machine whose results would not be the same.

    Raises:
        WrongRunStatus: with the first difference.
    """
    for name, value in facts.items():
        if name in manifest and name not in _OF_NO_EFFECT and manifest[name] != value:
            raise WrongRunStatus(
                f"run {run_id} began with {name} {manifest[name]}; this worker has {value}, so that "
                "results would not be the same",
                hint="--any-machine joins all the same: hops of this worker may have other bits then",
            )


def _check_function(
    name: str, known: Mapping[str, tuple[str | None, str | None, str | None, str | None]]
) -> None:
    """Refuse a run that uses a registered function whose package is not here."""
    path, package, version, _ = known.get(name, (None, None, None, None))
    if path is not None and distribution_of(path) != (package, version):
        raise InvalidArgument(
            f"this worker has another {package} than {version}, with which custom.{name} was registered",
            hint=f"pip install '{package}=={version}' on this machine",
        )


def _plain(error: BaseException) -> str:
    """An error as the catalog takes it."""
    text = error.message if isinstance(error, CerebroError) else str(error) or type(error).__name__
    return plain_text(" ".join(text.split()), _MOST_TEXT) or ""
