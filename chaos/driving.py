"""A client process that begins a run, or goes on with one, and what the harness knows of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chaos.server import Server, TookTooLong, until

# A call never takes longer, even where a machine is busy with other things.
CALL_SECONDS = 240.0
_CLIENT = str(Path(__file__).with_name("client.py"))


class Driving:
    """Handle on a client process.

    Args:
        command: what it runs.
        connects: whether it tells the process id of its session first.
    """

    def __init__(self, command: Sequence[str], connects: bool) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._lines = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._lines, stderr=self._errors, text=True
        )
        self._connects = connects
        self._backend: int | None = None

    @classmethod
    def calling(cls, server: Server, statements: Sequence[str]) -> Driving:
        """A client that calls functions: the server's session does the work."""
        # The folder of the script must not come before that of installed packages.
        return cls([sys.executable, "-P", _CLIENT, server.dsn, *statements], connects=True)

    @classmethod
    def running(cls, command: Sequence[str]) -> Driving:
        """A client that is the driver itself."""
        return cls(command, connects=False)

    @property
    def over(self) -> bool:
        """True if the process has ended."""
        return self.process.poll() is not None

    @property
    def backend(self) -> int | None:
        """The process id of the session that serves it; None before it is connected."""
        if self._backend is None and self._connects:
            # Its offset is shared with the process that writes.
            text = os.pread(self._lines.fileno(), 20, 0).decode()
            self._backend = int(text.split()[0]) if text.endswith("\n") else None
        return self._backend

    def connected(self) -> bool:
        """True if there is a session, or there was one."""
        return self.over or not self._connects or self.backend is not None

    def wait(self) -> int:
        """Wait for its end; returns the exit status.

        Raises:
            TookTooLong: it does not end.
        """
        until(lambda: self.over, CALL_SECONDS, "the call ends")
        return self.process.returncode

    def error(self) -> str:
        """Last words of the process."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[0] if lines else ""

    def end(self) -> None:
        """Whatever happened, it is gone."""
        with suppress(TookTooLong):
            self.process.kill()
            until(lambda: self.over, 10, "the client ends")
        self._errors.close()
        self._lines.close()
