"""Finds PostgreSQL with plpython3u where Debian's packages put it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cerebro_db.errors import MissingPrerequisite

_DEPENDENCY = re.compile(r"Depends:.*\bpostgresql-(\d+)")


@dataclass(frozen=True)
class Postgres:
    """One major version and the folder of its programs."""

    major: str
    programs: Path

    def program(self, name: str) -> str:
        """The full path of a program such as ``initdb``."""
        return str(self.programs / name)


def find(major: str | None = None, prefix: Path = Path("/usr")) -> Postgres:
    """The newest PostgreSQL that has plpython3u, or the one of ``major``.

    Raises:
        MissingPrerequisite: there is none; the hint names the packages.
    """
    servers = [found for found in _installed(prefix) if major in (None, found.major)]
    usable = [found for found in servers if _has_plpython(prefix, found.major)]
    if usable:
        return usable[-1]
    if servers:
        newest = servers[-1].major
        raise MissingPrerequisite(
            f"PostgreSQL {newest} of this machine has no plpython3u",
            f"On Debian: apt-get install postgresql-plpython3-{newest}",
        )
    wanted = major or offered() or "<version>"
    raise MissingPrerequisite(
        f"this machine has no PostgreSQL {major or 'server'} with plpython3u",
        f"On Debian: apt-get install postgresql-{wanted} postgresql-plpython3-{wanted}",
    )


def offered() -> str | None:
    """Major version that the package ``postgresql`` of this machine's apt stands for."""
    try:
        shown = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", "postgresql"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    except OSError:  # no Debian
        return None
    found = _DEPENDENCY.search(shown)
    return found[1] if found else None


def _installed(prefix: Path) -> list[Postgres]:
    """Servers of this machine, the newest last."""
    found = (
        Postgres(folder.parent.name, folder)
        for folder in prefix.glob("lib/postgresql/*/bin")
        if (folder / "initdb").exists() and folder.parent.name.isdigit()
    )
    return sorted(found, key=lambda server: int(server.major))


def _has_plpython(prefix: Path, major: str) -> bool:
    return (prefix / f"share/postgresql/{major}/extension/plpython3u.control").exists()
