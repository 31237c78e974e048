"""The operating system user that the embedded PostgreSQL runs as: never root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cerebro_db.errors import ClusterFailed, MissingPrerequisite

DEFAULT_NAME = "postgres"


class Account(NamedTuple):
    """A user of this machine, and whether we have to change to it."""

    name: str
    uid: int
    gid: int

    @property
    def is_self(self) -> bool:
        """True if this process runs as that user."""
        return self.uid == os.geteuid()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as this user, in that environment and no other."""
        change = (
            {}
            if self.is_self
            else {"user": self.uid, "group": self.gid, "extra_groups": [self.gid]}
        )
        done: subprocess.CompletedProcess[str] = subprocess.run(
            arguments,
            env=dict(environment),
            cwd="/",
            umask=0o077,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **change,  # type: ignore[call-overload]
        )
        return done

    def can_enter(self, folder: Path) -> bool:
        """True if this user may use files in ``folder``."""
        return self.run(["/usr/bin/test", "-x", str(folder)], {}).returncode == 0

    def make_private(self, folder: Path) -> None:
        """Makes ``folder`` for this user alone, unless it is that already.

        Raises:
            ClusterFailed: something else is there.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self.own(folder)
        status = folder.lstat()
        if folder.is_symlink() or status.st_uid != self.uid:
            raise ClusterFailed(f"{folder} exists and does not belong to user {self.name}")
        folder.chmod(0o700)

    def own(self, path: Path) -> None:
        """Hands a file that root just made over to this user."""
        if not self.is_self and path.lstat().st_uid == os.geteuid():
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account(name: str | None = None) -> Account:
    """Account that runs the server: yourself, or for root ``name`` (default: postgres).

    Raises:
        MissingPrerequisite: root has no such user to run it as.
        ClusterFailed: only root can run it as someone else.
    """
    if os.geteuid() != 0:
        own = pwd.getpwuid(os.geteuid())
        if name not in (None, own.pw_name):
            raise ClusterFailed(
                f'only root can run the server as "{name}", you are "{own.pw_name}"'
            )
        return Account(own.pw_name, own.pw_uid, own.pw_gid)
    try:
        entry = pwd.getpwnam(name or DEFAULT_NAME)
    except KeyError:
        raise MissingPrerequisite(
            f'root needs a user to run the server as, and there is no user "{name or DEFAULT_NAME}"',
            "Debian's package postgresql-common makes the user postgres. Or name one: --os-user",
        ) from None
    if entry.pw_uid == 0:
        raise ClusterFailed("PostgreSQL refuses to run as root", "Name another user: --os-user")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
