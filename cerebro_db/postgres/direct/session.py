"""The session of a direct worker: one connection of libpq, from wherever it runs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import cerebro_db
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.decide.strategies import STRATEGIES, listed, parse_strategy
from cerebro_db.errors import (
    CerebroError,
    InvalidData,
    LoopbackFailed,
    NotPermitted,
    NotSupported,
    UndefinedRun,
    WrongRunStatus,
)
from cerebro_db.postgres.calls.settings import beginning
from cerebro_db.postgres.dialects.choice import IDENTITY, dialect_of
from cerebro_db.postgres.dialects.statements.direct import DirectStatements
from cerebro_db.postgres.direct.board import channel_of_driver, channel_of_worker
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions import binary
from cerebro_db.postgres.sessions.blocking import BlockingSession
from cerebro_db.postgres.sessions.dsn import options_of_dsn, with_keepalives
from cerebro_db.postgres.sessions.errors import (
    StatementFailed,
)
from cerebro_db.protocol import HandedBack, StateMade, StateReport
from cerebro_db.wire import encode

# The same, of the server.
_SERVER_KEEPALIVES = (
    "SET tcp_keepalives_idle = 10", "SET tcp_keepalives_interval = 5", "SET tcp_keepalives_count = 3",
)  # fmt: skip
_USER_TIMEOUT_SINCE = 120000
_NO_PERMISSION = "42501"
# Of an order that nobody may answer any more.
_TAKEN_BACK = "YC007"


class TakenBack(CerebroError):
    """The hop under way was taken back."""

    sqlstate = _TAKEN_BACK


class DirectRun(NamedTuple):
    """A run as a worker sees it that wants to join.

    Attributes:
        owner: name of the role.
        states: how the names of its tables of states begin.
        threads: of each of its trainers.
        manifest: what its first worker has reported of itself; nothing before that was there.
    """

    run_id: int
    owner: str
    status: str
    schedule: str
    states: str | None
    threads: int
    manifest: dict[str, Any]


class Standing(NamedTuple):
    """Standing of a worker, and of its run.

    Attributes:
        told: what makes its trainer ready, as JSON, from the driver that has admitted it; else None.
        is_ready: whether that driver knows that its trainer is.
        dismissed: why the driver has sent it away; None where it has not.
    """

    status: str
    told: str | None
    is_ready: bool
    manifest: dict[str, Any]
    dismissed: str | None


class Assignment(NamedTuple):
    """An order that has no answer yet.

    Attributes:
        order_id: which one.
        fence: key of the lock under which it is answered.
        text: the order, as JSON.
    """

    order_id: int
    fence: int
    text: str


class DirectSession(BlockingSession):
    """A connection of a worker.

    Args:
        dsn: of libpq.
    """

    def __init__(self, dsn: str) -> None:
        try:
            super().__init__(
                with_keepalives(dsn),
                "cerebro direct worker",
                client_encoding="UTF8",
                options=f"{options_of_dsn(dsn)} -c standard_conforming_strings=on".strip(),
            )
        except LoopbackFailed as error:
            error.hint = (
                "--dsn tells where the server is; without it libpq's environment variables do, and a "
                "password comes from PGPASSFILE, passfile=... or a service"
            )
            raise
        self._worker_id = 0
        self._run_id = 0
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        version = self.server_version
        ((name,),) = self.run(f"SELECT {IDENTITY}")
        self._dialect = dialect_of(version, name)
        # A hop that is reported as done lasts, whatever a role has set for itself.
        durable = "SET synchronous_commit = on"
        settings = [
            *self._dialect.session_settings(), *self.sql.settings, *_SERVER_KEEPALIVES, durable
        ]  # fmt: skip
        if version >= _USER_TIMEOUT_SINCE:
            settings.append("SET tcp_user_timeout = '30s'")
        self.run("; ".join(settings))

    # -- joining -------------------------------------------------------------------
    def check_version(self) -> None:
        """Refuse a database without Cerebro-DB, and one with another version of it.

        Raises:
            WrongRunStatus: the versions differ.
            NotSupported: Cerebro-DB is not there, or not for this role.
        """
        try:
            ((found,),) = self.run("SELECT cerebro.cerebro_version()")
        except StatementFailed as error:
            raise NotSupported(
                f"this database has no Cerebro-DB for role {self.login}: {error.message}",
                hint="cerebro install puts it into a database; GRANT cerebro_user lets a role use it",
            ) from None
        if found != cerebro_db.__version__:
            raise WrongRunStatus(
                f"this worker has version {cerebro_db.__version__} of Cerebro-DB; allowed: {found}, "
                "that of the database",
                hint=f"pip install 'cerebro-db=={found}' here, or cerebro upgrade --dsn ... there",
            )

    def find(self, run_id: int) -> DirectRun:
        """The run that a worker wants to join.

        Raises:
            UndefinedRun: there is none that this role may see.
            NotSupported: direct workers cannot work for it.
        """
        allowed = [one.name for one in STRATEGIES.values() if one.takes_joining_workers]
        rows = self.run(
            "SELECT r.run_id, pg_catalog.pg_get_userbyid(r.owner)::text, v.status, r.schedule, r.states, "
            "r.threads, r.manifest, r.spec::text FROM cerebro._runs r JOIN cerebro.runs v ON v.run_id = r.run_id "
            "WHERE r.run_id = %s",
            (run_id,),
        )
        if not rows:
            raise UndefinedRun(
                f"--run: got {run_id}; role {self.login} has no run of that number",
                hint="workers join as the owner of a run, or as a member of it: GRANT owner TO login",
            )
        *facts, spec = rows[0]
        run = DirectRun(*facts)
        if run.schedule not in allowed:
            raise NotSupported(
                f"direct workers: got a run with the strategy {run.schedule!r}; allowed: "
                f"{listed(allowed)}",
                hint="docs/workers.md tells why; the sessions beside the server train it",
            )
        settings = RunSpec.from_text(spec, parse_strategy).session
        for statement in beginning(settings):  # as the run's other sessions have them
            self.run(statement)
        return run

    def act_as(self, owner: str) -> None:
        """Have the rights of a run's owner, and no others, from now on.

        Raises:
            NotPermitted: this role is no member of it, or a superuser.
        """
        ((login, is_super),) = self.run(
            "SELECT session_user::text, r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = session_user"
        )
        if login == owner:
            return
        if is_super:
            # What the owner has put behind a table, such as a trigger, could go back to these rights.
            raise NotPermitted(
                f"--dsn: got the superuser {login} for a run of {owner}; allowed: its owner, or a member of it "
                "without rights that the owner lacks",
                hint=f"CREATE ROLE ... LOGIN IN ROLE {quote(owner).replace('%%', '%')} makes one",
            )
        try:
            self.run(f"SET ROLE {quote(owner)}")
        except StatementFailed as error:
            if error.sqlstate != _NO_PERMISSION:
                raise
            raise NotPermitted(
                f"--run: got a run of role {owner}, of which {login} is no member",
                hint=f"GRANT {quote(owner).replace('%%', '%')} TO {login} lets it join",
            ) from None

    def join(self, run_id: int, host: str) -> int:
        """Announce a worker, which is there for as long as this session is; returns its worker_id."""
        key = secrets.randbits(64) - 2**63
        self.run("SELECT pg_catalog.pg_advisory_lock(%s)", (key,))
        ((self._worker_id,),) = self.run(
            "SELECT cerebro._join_run(%s, %s, %s)", (run_id, key, host)
        )
        self._run_id = run_id
        self.run(f"LISTEN {channel_of_worker(self._worker_id)}")
        return self._worker_id

    def is_ready(self, facts: str) -> None:
        """Report to the driver that the trainer is ready, with its facts as JSON."""
        self.run(
            f"SELECT cerebro._worker_is_ready(%s, %s); {self._notify}", (self._worker_id, facts)
        )

    def leave(self, reason: str) -> None:
        """Record that this worker has left in order."""
        self.run(
            f"SELECT cerebro._worker_departed(%s, %s); {self._notify}",
            (self._worker_id, reason[:1000]),
        )

    # -- orders ----------------------------------------------------------------------
    def standing(self) -> Standing | None:
        """Standing of this worker; None where its run was dropped."""
        rows = self.run(
            "SELECT v.status, CASE WHEN w.number IS NOT NULL THEN w.told::text END, w.facts IS NOT NULL, "
            "v.manifest, CASE WHEN w.departed IS NOT NULL THEN w.reason END "
            "FROM cerebro._direct_workers w JOIN cerebro.runs v ON v.run_id = w.run_id "
            "WHERE w.worker_id = %s",
            (self._worker_id,),
        )
        return Standing(*rows[0]) if rows else None

    def order(self) -> Assignment | None:
        """Work to do; None where there is nothing."""
        rows = self.run(
            "SELECT o.order_id, o.fence, o.hop FROM cerebro._direct_orders o "
            "LEFT JOIN cerebro._direct_answers a ON a.run_id = o.run_id AND a.order_id = o.order_id "
            "WHERE o.run_id = %s AND o.worker_id = %s AND a.order_id IS NULL LIMIT 1",
            (self._run_id, self._worker_id),
        )
        return Assignment(*rows[0]) if rows else None

    def is_wanted(self, order_id: int) -> bool:
        """True as long as an order was not taken back."""
        sql = "SELECT 1 FROM cerebro._direct_orders o WHERE o.run_id = %s AND o.order_id = %s"
        return bool(self.run(sql, (self._run_id, order_id)))

    def hand_back(self, given: Assignment, answer: HandedBack) -> None:
        """Answer an order of which nothing has come."""
        with suppress(TakenBack), self.transaction():
            self._answer(given, answer)

    def commit(
        self,
        given: Assignment,
        report: StateReport,
        target: QualifiedName,
        state: Iterable[Sequence[binary.Value]],
        size: int,
    ) -> None:
        """Store the state of a hop and the answer, in one transaction.

        Args:
            given: the order that is done.
            report: of the hop.
            target: the table of the state.
            state: its rows, as the server's ``state_rows`` has them.
            size: bytes of it.

        Raises:
            TakenBack: nobody wants it any more, and nothing was stored.
        """
        began = time.monotonic()
        with self.transaction():
            columns = self.sql.state_columns
            self.copy_in(f"{target.sql} ({columns})", state)
            written = time.monotonic() - began
            self._answer(given, StateMade(report=report, size=size, written=written))

    def _answer(self, given: Assignment, answer: StateMade | HandedBack) -> None:
        """Answer an order, and end the transaction.

        All of it is one message: from when the fence is taken nobody waits for this side of the network.

        Raises:
            TakenBack: nobody wants it any more.
        """
        values = [self._run_id, given.order_id, given.fence, encode(answer)]
        try:
            self.run(
                f"SELECT cerebro._answer_order(%s, %s, %s, %s); {self._notify}; COMMIT", values
            )
        except StatementFailed as error:
            if error.sqlstate != _TAKEN_BACK:
                raise
            raise TakenBack(error.message) from None

    # -- data ------------------------------------------------------------------------
    def state(
        self, table: QualifiedName, mst_key: int, version: int, segment_key: int | None
    ) -> list[bytes]:
        """The chunks of a state, in their order; of its copy on a segment."""
        found = self.copy_out(*self.sql.state(table, mst_key, version, segment_key))
        return [value for (value,) in found if value is not None]

    def weights(self, run_id: int, model_id: int) -> bytes | None:
        """The weights that a model of a run begins with."""
        found = self.copy_out(
            "SELECT a.model_weights FROM cerebro._architectures a WHERE a.run_id = %s AND a.model_id = %s",
            (run_id, model_id),
        )
        return next((value for (value,) in found), None)

    def buffers(
        self,
        table: QualifiedName,
        columns: dict[str, str],
        partition_key: int,
        buffer_ids: Sequence[int],
        segment_key: int | None,
        oid: int | None = None,
    ) -> dict[int, list[Any]]:
        """Buffers of a partition: features, their shape, targets, their shape, by buffer_id.

        Args:
            table: that is packed.
            columns: as ``columns_of`` tells them.
            partition_key: of the partition.
            buffer_ids: which of them.
            segment_key: of the partition; None without segments.
            oid: of the table that is meant.

        Raises:
            InvalidData: some of them are not there.
        """
        found = self.copy_out(
            *self.sql.buffers(table, columns, partition_key, buffer_ids, segment_key, oid)
        )
        read = {
            int.from_bytes(number or b"", "big"): [
                x, binary.integers(x_shape), y, binary.integers(y_shape)
            ]
            for number, x, x_shape, y, y_shape in found
        }  # fmt: skip
        if missing := set(buffer_ids) - set(read):
            raise InvalidData(
                f"source_table: got no buffer {min(missing)} of partition {partition_key}; allowed: to go on "
                "with the same rows only",
                hint="start a new run",
            )
        return read

    def functions(self) -> dict[str, tuple[str | None, str | None, str | None, str | None]]:
        """Path, package, version and expression of the registered functions, by name."""
        rows = self.run(
            "SELECT f.name, f.path, f.package, f.version, f.expression FROM cerebro.registered_functions f"
        )
        return {row[0]: row[1:] for row in rows}

    # -- inside ------------------------------------------------------------------------
    @property
    def sql(self) -> DirectStatements:
        """Statements of the server."""
        return self._dialect.direct

    @property
    def _notify(self) -> str:
        return f"NOTIFY {channel_of_driver(self._run_id)}"
