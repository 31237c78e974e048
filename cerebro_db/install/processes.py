"""Processes of a cluster, found by the folder that they work in."""

from __future__ import annotations

from pathlib import Path

from cerebro_db.errors import ClusterFailed

_NAMES = ("postgres", "postmaster")


def read_pid(file: Path) -> int | None:
    """The process id in the first line of a lock file; None where there is none.

    Raises:
        ClusterFailed: the folder is another user's.
    """
    try:
        first = file.read_text().partition("\n")[0].strip()
    except FileNotFoundError:
        return None
    except PermissionError:
        raise ClusterFailed(
            f"{file.parent} belongs to another operating system user",
            "Run this as that user, or as root.",
        ) from None
    return int(first) if first.isdigit() else None


def works_in(pid: int, folder: Path) -> bool:
    """True if that is a process of PostgreSQL with ``folder`` as working directory, as all of a
    server have their data directory. Another process that got a reused id has not."""
    process = Path("/proc") / str(pid)
    try:
        named = (process / "comm").read_text().strip() in _NAMES
        return named and (process / "cwd").samefile(folder)
    except OSError:  # gone meanwhile, or another user's
        return False


def all_in(folder: Path) -> list[int]:
    """All processes that work there."""
    pids = (int(process.name) for process in Path("/proc").glob("[0-9]*"))
    return sorted(pid for pid in pids if works_in(pid, folder))
