"""Keepers of these tests' own user, in a folder of their own, and what they start."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pace import until as until

import cerebro_db
from cerebro_db.install import sources
from cerebro_db.relay.keepers import Installation, Process, connected, postmortem

TRAINER, DRIVER = "trainer", "driver"
SESSION = {"pid": os.getpid(), "segment": None, "asks_nothing": True}
_CREDENTIALS = struct.Struct("3i")


def no_interrupt() -> None:
    """Nobody cancels here."""


def installation(folder: Path, version: str = cerebro_db.__version__) -> Installation:
    """This checkout, with keepers in a folder."""
    return Installation(sys.executable, sources.package_directory(), str(folder), version)


def keeper_of(folder: Path, kind: str, version: str = cerebro_db.__version__) -> int | None:
    """The process that listens there."""
    known = installation(folder, version)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(os.path.join(known.folder(), known.socket_name(kind)))
        except OSError:
            return None
        told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[0])


def ask(process: Process, name: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    """Have a process call a function, and wait for its answer."""
    process.send(
        {"call": name, "arguments": arguments, "named": named, "waits": True, "begins": True}
    )
    return process.receive()


class Place:
    """A folder with keepers.

    Args:
        folder: theirs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: list[Process] = []

    def process(
        self, kind: str = TRAINER, role: int = 10, database: int = 1, like: Any = None
    ) -> Process:
        """A trainer or a driver of a role in a database."""
        hello = {"owner": ["/data", database, role], "like": like, "session": SESSION}
        found = connected(installation(self.folder), kind, hello, no_interrupt)
        self._open.append(found)
        return found

    def keeper(self, kind: str = TRAINER) -> int | None:
        """Process id of a keeper."""
        return keeper_of(self.folder, kind)

    def ended(self, pid: int, kind: str = TRAINER) -> Any:
        """How a process has ended, as the keeper tells."""
        return postmortem(installation(self.folder), kind, pid, no_interrupt)

    def close(self) -> None:
        """End all connections."""
        while self._open:
            self._open.pop().close()

    def end(self) -> None:
        """End the keepers."""
        self.close()
        for kind in (TRAINER, DRIVER):
            if pid := self.keeper(kind):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def kept_place() -> Iterator[Place]:
    """Keepers for all of these tests: a start takes seconds."""
    with tempfile.TemporaryDirectory(prefix="cerebro-k-", dir="/tmp") as folder:
        place = Place(Path(folder))
        yield place
        place.end()


@pytest.fixture
def place(kept_place: Place) -> Iterator[Place]:
    """The same, without connections of other tests."""
    yield kept_place
    kept_place.close()
