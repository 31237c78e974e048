"""Entry of a worker that writes event files for TensorBoard."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cerebro_db.errors import InvalidArgument, RunFailed
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry
from cerebro_db.server.settings import settings_of
from cerebro_db.training.environment import configure_once
from cerebro_db.training.fields import Fields

_ROLE = "SELECT current_user::pg_catalog.text AS name"


@entry
def write_events(plpy: Any, gd: dict[str, Any], task: str | None) -> None:
    """Write what is not there yet; without configurations, only check that it could be done.

    Raises:
        InvalidArgument: no directory is allowed, or that cannot be used.
        RunFailed: a file cannot be written.
    """
    folder = _folder(settings_of(plpy).tensorboard_dir, plpy.execute(_ROLE)[0]["name"])
    given = Fields.parse(task)
    if not given.raw("configurations"):
        return

    def work(tick: Tick) -> None:
        # On Greenplum this is a process of the coordinator, which has not trained.
        configure_once(threads=1)
        from cerebro_db.training.events import series_of, write

        try:
            write(folder, series_of(given))
        except OSError as error:
            raise RunFailed(f"cannot write to {folder}: {error.strerror}") from None

    compute(plpy, work)


def _folder(base: str, role: str) -> Path:
    """The folder of a role, in the directory that an administrator has named."""
    if not base:
        raise InvalidArgument(
            "TensorBoard: got a configuration that writes files on the server; allowed: where an "
            "administrator has named a directory for them",
            hint="SELECT cerebro.cerebro_set('tensorboard_dir', '/absolute/path')",
        )
    if not os.path.isdir(base) or not os.access(base, os.W_OK | os.X_OK):
        raise InvalidArgument(
            f"TensorBoard: the setting tensorboard_dir is {base}; allowed: a directory of the server "
            "that the server's user can write to",
            hint="an administrator can make it, or name another: SELECT cerebro.cerebro_set('tensorboard_dir', '/path')",
        )
    if fault := _fault(base):
        raise InvalidArgument(
            f"TensorBoard: the setting tensorboard_dir is {base}, {fault}; allowed: a directory "
            "into which no other user of the server's operating system writes, nor into those above it",
            hint="chown it to the server's user and chmod go-w it, or name another",
        )
    # No name of a role is a way out of the directory.
    return Path(base) / quote(role, safe="").replace(".", "%2E")


def _fault(base: str) -> str | None:
    """Reason why others could lead files that are written there to another place, if they can."""
    if os.path.islink(base):
        return "which is a symbolic link"
    if fault := _open_to_others(os.stat(base), 0):
        return f"which {fault}"
    above = dict.fromkeys([*Path(os.path.abspath(base)).parents, *Path(base).resolve().parents])
    for folder in above:
        # Where the sticky bit is, nobody replaces what is not his own.
        if fault := _open_to_others(folder.stat(), stat.S_ISVTX):
            return f"below {folder}, which {fault}"
    return None


def _open_to_others(found: os.stat_result, protecting: int) -> str | None:
    """Reason why others than root and the server's user could change a directory, if they can.

    Args:
        found: its status.
        protecting: bits of its mode with which it does not matter who may write to it.
    """
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user than the server"
    if found.st_mode & protecting:
        return None
    if found.st_mode & stat.S_IWOTH:
        return "everyone may write to"
    if found.st_mode & stat.S_IWGRP:
        return "a group may write to"
    return None
