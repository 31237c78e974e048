"""A session that waits for each of its statements, and has COPY: of direct workers, and of an installation."""

from __future__ import annotations

import io
import select
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg2
import psycopg2.extensions

from cerebro_db.errors import LoopbackFailed
from cerebro_db.postgres.sessions import binary
from cerebro_db.postgres.sessions.errors import SessionLost, failure_of, first_line, is_loss

_READER_BYTES = 2**20


class Notices(Protocol):
    """Takes the notices of a connection."""

    def append(self, notice: str) -> None: ...


class BlockingSession:
    """Session of libpq; each statement is a transaction of its own, unless it is run in :meth:`transaction`.

    Args:
        dsn: libpq connection string; passwords come from where libpq looks for them.
        application_name: what ``pg_stat_activity`` shows.
        settings: further parameters of the connection.
        notices: gets the notices of the server.

    Raises:
        LoopbackFailed: there is no connection.
    """

    def __init__(
        self, dsn: str, application_name: str, notices: Notices | None = None, **settings: str
    ) -> None:
        try:
            self._connection = psycopg2.connect(dsn, application_name=application_name, **settings)
        except psycopg2.Error as error:
            more = " ".join(str(error).strip().splitlines()[1:]).strip()
            raise LoopbackFailed(first_line(error), hint=more or None) from None
        self._connection.autocommit = True
        if notices is not None:
            self._connection.notices = notices

    @property
    def server_version(self) -> int:
        """Version of the server in libpq's form, for example 150018."""
        return int(self._connection.server_version)

    @property
    def address(self) -> tuple[str, str, str]:
        """Host, port and database."""
        info = self._connection.info
        return str(info.host), str(info.port), str(info.dbname)

    @property
    def login(self) -> str:
        """The role that has connected."""
        return str(self._connection.info.user)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement.

        Raises:
            StatementFailed: the server refused it.
            SessionLost: the session is gone.
        """
        return self._run(sql, tuple(parameters))

    def run_text(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of the last of some statements without parameters, in which a percent sign is one."""
        return self._run(sql, None)

    def _run(self, sql: str, parameters: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do what is run inside as a whole, or not at all; whoever has ended the transaction inside has done so."""
        self.run("BEGIN")
        try:
            yield
        except BaseException:
            if not self._connection.closed:
                self.run("ROLLBACK")
            raise
        if self._connection.info.transaction_status != psycopg2.extensions.TRANSACTION_STATUS_IDLE:
            self.run("COMMIT")

    def copy_out(self, query: str, parameters: Sequence[Any]) -> list[list[bytes | None]]:
        """The rows of a query, whose values are bytes in binary form."""
        with self._translated(), self._connection.cursor() as cursor:
            text = cursor.mogrify(query, tuple(parameters)).decode()
            found = io.BytesIO()
            cursor.copy_expert(f"COPY ({text}) TO STDOUT (FORMAT binary)", found, _READER_BYTES)
        return list(binary.rows(found.getvalue()))

    def copy_in(self, target: str, rows: Iterable[Sequence[binary.Value]]) -> None:
        """Insert rows into a table, given with its columns."""
        with self._translated(), self._connection.cursor() as cursor:
            text = cursor.mogrify(f"COPY {target} FROM STDIN (FORMAT binary)", ()).decode()
            cursor.copy_expert(text, binary.Reader(binary.parts(rows)), _READER_BYTES)

    def wait(self, seconds: float) -> None:
        """Wait until somebody has notified this session, or so long."""
        end = time.monotonic() + seconds
        while not self._connection.notifies and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._connection.fileno()], [], [], left)
            if ready:
                with self._translated():
                    self._connection.poll()
        self._connection.notifies.clear()

    def close(self) -> None:
        """End the session; what it was doing is rolled back by the server."""
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg2.Error as error:
            if self._connection.closed or is_loss(error):
                self._connection.close()
                raise SessionLost(f"the session ended: {first_line(error)}") from None
            raise failure_of(error) from None
