"""Statements of a call, each as a user can run it herself: printed, made and kept."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cerebro_db.configs.messages import duration
from cerebro_db.core.model_reports import Step
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.names import value_literal
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.runs.calling import use_settings


def call_of(function: str, **given: Any) -> str:
    """The call of a function with its arguments by name."""
    listed = ", ".join(f"{name} := {value_literal(value)}" for name, value in given.items())
    return f"cerebro.{function}({listed})"


# Parameter: milliseconds.
_LIMIT = "SELECT pg_catalog.set_config('statement_timeout', %s, true)"
_CANCELLED, _INTERVENTION = "57014", "57"


class OutOfTime(CerebroError):
    """A step would have taken longer than there is time."""

    sqlstate = _CANCELLED


def is_intervention(failure: CerebroError) -> bool:
    """True where somebody has ended a statement, and not the time that it may take."""
    return isinstance(failure, StatementFailed) and failure.sqlstate.startswith(_INTERVENTION)


class Statements:
    """Statements that are made one after another in a session of the caller's role.

    Args:
        host: of the call; gets each statement as a notice, and the notices of what it does.
        session: of the host's pool.
        clock: of the call.

    Attributes:
        made: those that have come to their end, in their order.
        bounded: whether a step is cancelled where the call would take longer than it may.
        log: notices with the seconds since the call began, but for the statements.
    """

    def __init__(self, host: JobHost, session: Session, clock: Clock) -> None:
        self._host, self._session, self._clock = host, session, clock
        self.made: list[Step] = []
        self.bounded = True
        self.log: list[tuple[float, str]] = []

    def notice(self, message: str) -> None:
        """Send the caller a message about progress, and keep it."""
        self.log.append((round(self._clock.elapsed, 1), message))
        self._host.notice(message)

    def call(self, function: str, **given: Any) -> Any:
        """The value of a function with arguments by name, as ``call_of`` writes it."""
        return self.call_within(None, function, given)

    def call_within(self, seconds: float | None, function: str, given: Mapping[str, Any]) -> Any:
        """The value of a function, which may take so many seconds; as :meth:`make` says."""
        step = Step(f"SELECT {call_of(function, **given)}", function, dict(given))
        return self.make(step, seconds)[0][0]

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """Make a statement, which is SQL as a user would write it."""
        return self.make(Step(text))

    def make(self, step: Step, seconds: float | None = None) -> list[tuple[Any, ...]]:
        """Make a step.

        Args:
            step: which one.
            seconds: that it may take; None for those until the call shall end, or, where it is not bounded, any time.

        Raises:
            OutOfTime: it was cancelled, as it would have taken longer.
        """
        self.made.append(step)
        self._host.notice(f"step {len(self.made)}: {step.text}")
        if seconds is None and self.bounded:
            seconds = self._clock.left
        limit = None if seconds is None or not math.isfinite(seconds) else max(1.0, seconds)
        try:
            return self.look(step.text, limit)
        except (OutOfTime, StatementFailed):
            self.made.pop()
            raise

    def look(self, text: str, seconds: float | None = None) -> list[tuple[Any, ...]]:
        """Make a statement that is no step of the call.

        Args:
            text: SQL.
            seconds: that it may take; None for any time.

        Raises:
            OutOfTime: it was cancelled, as it would have taken longer.
        """
        began = time.monotonic()
        try:
            with self._passing_notices(), transaction(self._session):
                use_settings(self._session, self._host)
                if seconds is not None:
                    self._session.run(_LIMIT, (str(math.ceil(1000 * seconds)),))
                return self._session.run(text.replace("%", "%%"))
        except StatementFailed as failure:
            is_late = seconds is not None and time.monotonic() - began >= seconds
            if failure.sqlstate == _CANCELLED and is_late:
                raise OutOfTime(f"it was cancelled after {duration(seconds)}") from None
            raise

    @contextmanager
    def _passing_notices(self) -> Iterator[None]:
        """Pass the notices of the session on while it works."""
        session, before = self._session, self._session.tick
        with session.keeping_notices() as kept:

            def tick() -> None:
                self._pass_on(kept)
                before()

            session.tick = tick
            try:
                yield
                self._pass_on(kept)
            finally:
                session.tick = before

    def _pass_on(self, kept: list[str]) -> None:
        while kept:
            self.notice(kept.pop(0))


@contextmanager
def statements_of(host: JobHost, clock: Clock) -> Iterator[Statements]:
    """Statements in a session of their own."""
    with control_session(host.pool, None) as session:
        yield Statements(host, session, clock)


# A call may end so much later than it shall.
_GRACE, _SHARE_OF_GRACE = 8.0, 0.04


class Clock:
    """Seconds of a call that are left.

    Attributes:
        kept: back for the end, beside what every call needs there.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._began = seconds, time.monotonic()
        self.kept = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds until the call shall end."""
        return self.seconds - self.elapsed

    @property
    def last(self) -> float:
        """Seconds until the call must end."""
        return self.left + self._grace

    @property
    def spare(self) -> float:
        """Seconds for what a call can do without."""
        return self.left + self._grace / 2

    @property
    def _grace(self) -> float:
        return max(_GRACE, _SHARE_OF_GRACE * self.seconds)
