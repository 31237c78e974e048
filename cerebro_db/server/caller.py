"""The caller's own session: statements run in its transaction and with its rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cerebro_db.errors import NotSupported, ReadOnlyTransaction, SerializationFailed
from cerebro_db.postgres.calls.settings import settings_of
from cerebro_db.postgres.dialects.choice import DIALECTS, IDENTITY
from cerebro_db.postgres.dialects.postgresql.dialect import DECIDING_SETTINGS
from cerebro_db.postgres.names import value_literal
from cerebro_db.postgres.sessions.errors import StatementFailed, as_raised
from cerebro_db.postgres.sessions.parts import in_parts
from cerebro_db.postgres.sessions.session import Session, Tick
from cerebro_db.postgres.tables.search_path import SearchPath, use_search_path

# Types of parameters: without a schema they would be looked for on the caller's path.
TEXT, BYTEA, OID, INT4 = "pg_catalog.text", "pg_catalog.bytea", "pg_catalog.oid", "pg_catalog.int4"
# Of a cancel, a timeout, an end of the session: these are nobody's to explain.
_INTERVENTION = "57"
_SERIALIZATION, _THERE_ALREADY = "40001", "23505"
_OF_ONE_SNAPSHOT = ("repeatable read", "serializable")


class _TakenBack(Exception):
    """The end of a rehearsal."""


class CallerSession(Session):
    """Session that runs statements in the caller's transaction.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
        tick: for who waits for something else than a statement of this session.
        anywhere: what ends CREATE TABLE on this server.
    """

    def __init__(self, plpy: Any, tick: Tick, anywhere: str = "") -> None:
        self._plpy, self.tick, self.anywhere = plpy, tick, anywhere
        self.search_path = None

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; the server itself looks whether it was cancelled meanwhile.

        Raises:
            StatementFailed: the server refused it. Nothing of it stays, and the transaction goes on.
        """
        return self._done(self._plpy.execute, sql, parameters)

    def write(self, function: str, *values: Any) -> Any:
        """Call a function that writes the catalog, as the role whose rights this call has; returns its value."""
        places = ", ".join(["%s"] * len(values))
        ((found,),) = self._done(
            self._plpy.write, f"SELECT cerebro.{function}({places}) AS value", values
        )
        return found

    def _done(
        self, execute: Callable[..., Any], sql: str, parameters: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        data: list[bytes] = []
        sql, parameters = in_parts(self.run, sql, parameters)
        text = sql % tuple(self._written(value, data) for value in parameters)
        try:
            if data:
                result = execute(self._plpy.prepare(text, [BYTEA] * len(data)), data)
            else:
                result = execute(text)
        except self._plpy.SPIError as error:
            if error.sqlstate.startswith(_INTERVENTION):
                raise
            raise StatementFailed(
                as_raised(error.message), error.sqlstate, error.hint, error.detail
            ) from None
        if not len(result):  # of a statement that returns no rows nobody can ask for columns
            return []
        names = result.colnames()
        if len(set(names)) < len(names):  # a row comes by the names of its columns
            raise RuntimeError(f"columns without names of their own: {', '.join(names)}")
        return [tuple(row[name] for name in names) for row in result]

    @property
    def in_transaction(self) -> bool:
        """It always is in the caller's."""
        return True

    def wait_for_locks(self) -> None:
        """Waits for locks as long as the caller's own ``lock_timeout`` says."""

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A statement that fails ends what is run inside, and no more."""
        with self._plpy.subtransaction():
            yield

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Take back all that is run inside."""
        with suppress(_TakenBack), self._plpy.subtransaction():
            yield
            raise _TakenBack

    def _written(self, value: Any, data: list[bytes]) -> str:
        """A value as SQL; bytes are given beside the statement."""
        if isinstance(value, bytes | memoryview):
            data.append(bytes(value))
            return f"${len(data)}"
        return value_literal(value, self._plpy.quote_literal)


@contextmanager
def caller_session(
    plpy: Any, *, writes: bool = False, tick: Tick | None = None
) -> Iterator[CallerSession]:
    """The session with names looked up on the caller's search path, and operators never on it.

    Otherwise an operator that someone has put into a schema of that path could be taken for one
    of the server. Nor do other settings of the caller decide what is read and written.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
        writes: whether tables are written.
        tick: of the session; by default it looks whether the call shall end.

    Raises:
        ReadOnlyTransaction: tables are written, and the transaction may not.
        SerializationFailed: the transaction does not see what others have committed meanwhile.
        NotSupported: it was called for rows that lie on segments, and runs there.
    """
    refuse_on_segments(plpy)
    facts = plpy.execute(_FACTS)[0]
    if writes:
        refuse_read_only(facts["read_only"])
    session = CallerSession(plpy, tick or plpy.listen, DIALECTS[facts["dialect"]].anywhere)
    session.caller = settings_of(plpy)
    use_search_path(session, search_path_of(facts, in_callers=True))
    plpy.execute(f"SELECT {', '.join(map(_set, DECIDING_SETTINGS.items()))}")
    with _changes_told(facts["isolation"]):
        yield session
    # Of a statement that fails nothing stays, its settings neither.
    before = [facts[name] for name in _KEPT]
    plpy.execute(plpy.prepare(_RESTORED, [TEXT] * len(_KEPT)), before)


@contextmanager
def _changes_told(isolation: str) -> Iterator[None]:
    """Report what others have committed after the snapshot of the caller's transaction.

    It hides their rows, such as the one of the last number that was given away.

    Raises:
        SerializationFailed: a statement came upon such a row.
    """
    try:
        yield
    except StatementFailed as error:
        if error.sqlstate == _SERIALIZATION or (
            error.sqlstate == _THERE_ALREADY and isolation in _OF_ONE_SNAPSHOT
        ):
            raise SerializationFailed(
                "another session has changed what this call writes to since the transaction began, "
                f"which is {isolation.upper()}: {error.message}"
            ) from None
        raise


def search_path_of(facts: Any, *, in_callers: bool = False) -> SearchPath:
    """The search path of the caller's session."""
    return SearchPath(tuple(facts["schemas"]), facts["first"], facts["temporary"], in_callers)


def refuse_read_only(setting: str) -> None:
    """Refuse to write in a transaction that may not.

    Args:
        setting: ``transaction_read_only`` of the caller, or that this is a standby.

    Raises:
        ReadOnlyTransaction: that is so.
    """
    if setting == STANDBY:
        raise ReadOnlyTransaction(
            "this server is a hot standby, where nothing can be changed; allowed: at its primary",
            hint="connect to the primary; here cerebro.cerebro_wait and all views work",
        )
    if setting == "on":
        raise ReadOnlyTransaction("the transaction is read-only; allowed: one that may write")


def refuse_on_segments(plpy: Any) -> None:
    """Refuse a call in a process of a segment.

    Raises:
        NotSupported: this is one.
    """
    if plpy.segment is not None:
        raise NotSupported(
            "got a call for rows that lie on segments; allowed: calls in FROM, or with values",
            hint="take a value out of a table by a query in parentheses: "
            "f((SELECT x FROM t WHERE id = 1))",
        )


def _set(setting: tuple[str, str]) -> str:
    name, value = setting
    return f"pg_catalog.set_config('{name}', '{value}', true)"


STANDBY = "standby"
# Where the caller's path has names of others: every name has its schema.
PATH_FACTS = f"""
       pg_catalog.current_schemas(true)::pg_catalog.text[] AS schemas,
       pg_catalog.current_schema()::pg_catalog.text AS first,
       (SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_namespace n
         WHERE n.oid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) AS temporary,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN '{STANDBY}'
            ELSE pg_catalog.current_setting('transaction_read_only') END AS read_only
"""
# What is set here, or by statements of a job for the rest of its transaction.
_KEPT = (*DECIDING_SETTINGS, "lock_timeout")
_FACTS = (
    f"SELECT {PATH_FACTS}, {IDENTITY} AS dialect, "
    "pg_catalog.current_setting('transaction_isolation') AS isolation"
) + "".join(f", pg_catalog.current_setting('{name}') AS \"{name}\"" for name in _KEPT)
_RESTORED = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', ${number}, true)" for number, name in enumerate(_KEPT, 1)
)
