"""Connections that a user has already, or that are made for one: SQLAlchemy engines, psycopg, DSNs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import psycopg2

from cerebro_db.errors import InvalidArgument, LoopbackFailed
from cerebro_db.postgres.sessions.errors import StatementFailed, failure_of
from cerebro_db.postgres.sessions.parts import in_parts, parts_of

ALLOWED = (
    "a DSN such as 'host=... dbname=...' or 'postgresql://...', a SQLAlchemy engine, or a connection of "
    "psycopg2, psycopg or SQLAlchemy"
)
_LOOK_SECONDS = 0.1
_CURSOR = "cerebro_parts"
_DRIVERS = ("psycopg2", "psycopg", "psycopg2cffi")
T = TypeVar("T")


class _DbapiConnection(Protocol):
    """A connection of PEP 249 whose parameters are ``%s``."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Connections:
    """Runs statements through connections of a user; each statement is a transaction of its own.

    Args:
        connect: makes a connection.
        is_shared: whether it is always the same one, which is the user's to close.
    """

    def __init__(self, connect: Callable[[], _DbapiConnection], *, is_shared: bool = False) -> None:
        self._connect, self._is_shared = connect, is_shared
        self._lock = threading.RLock()
        self._kept: _DbapiConnection | None = None

    @property
    def is_shared(self) -> bool:
        """True where there is one connection only, so that nothing runs beside a statement."""
        return self._is_shared

    def another(self) -> Connections:
        """A connection of its own; the same one where there is only one."""
        return self if self._is_shared else Connections(self._connect)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement, whose parameters are ``%s``.

        Raises:
            StatementFailed: the server refused it; with SQLSTATE and hint.
            LoopbackFailed: there is no connection.
        """
        return self.table(sql, parameters)[1]

    def patiently(
        self, sql: str, parameters: Sequence[Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement that takes long, as :meth:`table` does; Ctrl-C cancels it in the server."""
        return self._cancellable(lambda: self.table(sql, parameters))

    def large_value(self, value: str, parameters: Sequence[Any] = ()) -> list[bytes]:
        """The parts of a ``bytea`` of any size; none of NULL. Ctrl-C cancels it in the server.

        Args:
            value: SQL of it, whose parameters are ``%s``.
            parameters: of that.
        """
        return self._cancellable(lambda: self._large_value(value, parameters))

    def _cancellable(self, do: Callable[[], T]) -> T:
        """Do what takes long; Ctrl-C cancels it in the server."""
        found: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                found.append(do())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name="statement", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
        except BaseException:
            self._cancel()
            thread.join()
            raise
        if errors:
            raise errors[0]
        return found[0]

    def _cancel(self) -> None:
        plain: Any = getattr(self._kept, "driver_connection", self._kept)
        if plain is not None:
            with suppress(Exception):  # it has ended by itself
                plain.cancel()

    def table(
        self, sql: str, parameters: Sequence[Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns of a statement, and its rows; bytes that are many go there before it, in parts."""
        with self._at_work() as connection:

            def run(text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
                return _done(connection, text, values)[1]

            return _done(connection, *in_parts(run, sql, parameters))

    def _large_value(self, value: str, parameters: Sequence[Any]) -> list[bytes]:
        """The parts of a value, fetched one by one: the library of a connection keeps what it fetches as text."""
        with self._at_work() as connection:
            begins = getattr(connection, "autocommit", False) and not in_transaction(connection)
            if begins:
                _done(connection, "BEGIN")
            try:
                query = f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR {parts_of(value)}"
                _done(connection, query, parameters)
                parts = []
                while rows := _done(connection, f"FETCH {_CURSOR}")[1]:
                    parts.append(bytes(rows[0][0]))
                _done(connection, f"CLOSE {_CURSOR}")
            finally:
                if begins:
                    _done(connection, "ROLLBACK")
            return parts

    @contextmanager
    def _at_work(self) -> Iterator[_DbapiConnection]:
        """The connection, for one thread at a time, with errors as ours."""
        with self._lock:
            connection = self._open()
            with _translated(), self._ended(connection):
                yield connection

    def close(self) -> None:
        """Close the connection, unless it is the user's."""
        with self._lock:
            if self._kept is not None and not self._is_shared:
                with suppress(Exception):
                    self._kept.close()
            self._kept = None

    def _open(self) -> _DbapiConnection:
        if self._kept is None or getattr(self._kept, "closed", False):
            with _translated():
                self._kept = self._connect()
        return self._kept

    @contextmanager
    def _ended(self, connection: _DbapiConnection) -> Iterator[None]:
        """Commit what was done, or take it back; what a user's own transaction did stays theirs."""
        begun = self._is_shared and in_transaction(connection)
        try:
            yield
        except BaseException:
            if not begun:
                with suppress(Exception):  # the error tells what is the matter
                    connection.rollback()
            raise
        if not begun and not getattr(connection, "autocommit", False):
            connection.commit()


def _bound(value: Any) -> Any:
    """A parameter as drivers know it: numbers of NumPy are numbers, arrays are lists."""
    is_array = hasattr(value, "tolist") and not isinstance(value, memoryview)
    return value.tolist() if is_array else value


def _done(
    connection: _DbapiConnection, sql: str, parameters: Sequence[Any] = ()
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a statement; the names of its columns, and its rows."""
    cursor = connection.cursor()
    try:
        cursor.execute(sql, tuple(map(_bound, parameters)))
        if cursor.description is None:
            return [], []
        names = [str(column[0]) for column in cursor.description]
        return names, [tuple(row) for row in cursor.fetchall()]
    finally:
        cursor.close()


def in_transaction(connection: Any) -> bool:
    """True if a connection is in a transaction that its user has begun."""
    plain = getattr(connection, "driver_connection", connection)  # SQLAlchemy's is around it
    info = getattr(plain, "info", None)
    status = getattr(info, "transaction_status", 0)
    return bool(int(status) != 0)


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of a driver as ours, with the server's SQLSTATE, hint and detail."""
    try:
        yield
    except (StatementFailed, LoopbackFailed):
        raise
    except Exception as error:
        found = getattr(error, "orig", None) or error  # SQLAlchemy wraps them
        if not _is_of_driver(found):
            raise
        failure = failure_of(found)
        if not failure.sqlstate:
            line = str(found).strip().partition("\n")[0]
            raise LoopbackFailed(line, hint=f"cerebro_db.connect takes {ALLOWED}") from error
        raise failure from error


def _is_of_driver(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in _DRIVERS


def connections_of(given: Any) -> Connections:
    """Connections to the database that a user names, or has.

    Args:
        given: a DSN, a SQLAlchemy engine or connection, or a connection of psycopg2 or psycopg.

    Raises:
        InvalidArgument: it is something else.
        LoopbackFailed: there is no connection.
    """
    made = _connections(given)
    made.run("SELECT 1")
    return made


def _connections(given: Any) -> Connections:
    if isinstance(given, str):
        dsn = _without_driver(given)
        return Connections(lambda: psycopg2.connect(dsn, application_name="cerebro"))
    if callable(getattr(given, "raw_connection", None)):  # an engine
        _check_driver(given.dialect)
        return Connections(given.raw_connection)
    if callable(getattr(given, "exec_driver_sql", None)):  # a connection of an engine
        _check_driver(given.dialect)
        return Connections(lambda: given.connection, is_shared=True)
    if type(given).__module__.partition(".")[0] in _DRIVERS and hasattr(given, "cursor"):
        return Connections(lambda: given, is_shared=True)
    raise InvalidArgument(f"database: got {type(given).__name__}; allowed: {ALLOWED}")


def _check_driver(dialect: Any) -> None:
    if dialect.name != "postgresql" or dialect.driver not in _DRIVERS:
        raise InvalidArgument(
            f"database: got an engine of {dialect.name}+{dialect.driver}; allowed: postgresql+psycopg2 or "
            "postgresql+psycopg",
            hint="sqlalchemy.create_engine('postgresql+psycopg2://...')",
        )


def _without_driver(dsn: str) -> str:
    """A URL of SQLAlchemy as libpq reads it."""
    scheme, colon, rest = dsn.partition("://")
    return f"postgresql://{rest}" if colon and "+" in scheme else dsn
