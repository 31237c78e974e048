"""How processes have ended, for messages."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

_LIMIT = re.compile(r"^Max data size\s+(\d+)", re.MULTILINE)


def ended(pid: int) -> str | None:
    """How a child has ended, such as "was killed by SIGKILL"; None while it lives.

    After a violent end with what it had of the memory that it was allowed.
    """
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        allowed = _allowed(pid)
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return "has ended"
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.waitstatus_to_exitcode(status)}"
    had = f"it had {usage.ru_maxrss / 2**20:.1f} GB"
    limit = f" of {allowed / 2**30:.1f} GB allowed" if allowed else ""
    return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}: {had}{limit}"


def _allowed(pid: int) -> int | None:
    """Bytes that it was allowed to have."""
    try:
        found = _LIMIT.search(Path(f"/proc/{pid}/limits").read_text())
    except OSError:
        return None
    return int(found[1]) if found else None
