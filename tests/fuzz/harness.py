"""How many inputs are tried, and what they may not cause."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from pace import stretched

from cerebro_db.errors import CerebroError

# Set by "make fuzz"; shared out among the tests.
INPUTS = int(os.environ.get("FUZZ_INPUTS", "3000"))
# No input may take longer; generous, as a busy machine is not what is tested.
SECONDS = 20.0
LONGEST_MESSAGE = 5000

EVERYTHING = (
    "ctypes.", "exec", "ftplib.", "function.__new__", "http.", "import", "marshal.", "open", "os.",
    "pickle.", "shutil.", "socket.", "subprocess.", "urllib.", "webbrowser.",
)  # fmt: skip

# What Keras does not need to build a model; it imports some of its parts when they are used.
OUTSIDE = (
    "ftplib.", "http.", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename",
    "os.system", "pickle.", "shutil.", "socket.", "subprocess.", "urllib.", "webbrowser.",
)  # fmt: skip

counts: Counter[str] = Counter()


class Watch:
    """Python's audit events while it is on; a hook can never be taken away again."""

    def __init__(self) -> None:
        self._forbidden: tuple[str, ...] = ()
        self._seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._forbidden and event.startswith(self._forbidden):
            self._seen.append(event)

    @contextmanager
    def on(self, forbidden: Sequence[str] = EVERYTHING) -> Iterator[list[str]]:
        """Collect what happens meanwhile."""
        self._seen = seen = []
        self._forbidden = tuple(forbidden)
        try:
            yield seen
        finally:
            self._forbidden = ()


watch = Watch()


def share(part: float) -> settings:
    """The settings of a test that takes this part of the inputs."""
    return settings(
        max_examples=max(int(INPUTS * part), 20),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def attempt(kind: str, check: Any, *arguments: Any, forbidden: Sequence[str] = EVERYTHING) -> Any:
    """What a check returns, or None where it refuses; fails if it does anything else.

    Args:
        forbidden: how the names of audit events begin that may not occur.
    """
    counts[kind] += 1
    result, started = None, time.monotonic()
    with watch.on(forbidden) as seen:
        try:
            result = check(*arguments)
            counts[f"{kind}, accepted"] += 1
        except CerebroError as error:
            _readable(error)
    assert seen == [], "a check ran, imported or opened something"
    assert time.monotonic() - started < stretched(SECONDS)
    return result


def _readable(error: CerebroError) -> None:
    told = error.message + (error.hint or "")
    told.encode("utf-8")
    assert len(error.sqlstate) == 5
    assert error.sqlstate not in ("XX000", "XX002")
    assert 10 < len(told) < LONGEST_MESSAGE
    assert "\0" not in told
    assert "Traceback" not in told
