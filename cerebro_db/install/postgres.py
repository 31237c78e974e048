"""Finds PostgreSQL with plpython3u where Debian's packages put it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cerebro_db.errors import MissingPrerequisite

# The version of Debian 12, named where there is none at all.
_USUAL_MAJOR = "15"


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
    wanted = major or _USUAL_MAJOR
    raise MissingPrerequisite(
        f"this machine has no PostgreSQL {major or 'server'} with plpython3u",
        f"On Debian: apt-get install postgresql-{wanted} postgresql-plpython3-{wanted}",
    )


def _installed(prefix: Path) -> list[Postgres]:
    found = (
        Postgres(folder.parent.name, folder)
        for folder in prefix.glob("lib/postgresql/*/bin")
        if (folder / "initdb").exists() and folder.parent.name.isdigit()
    )
    return sorted(found, key=lambda server: int(server.major))


def _has_plpython(prefix: Path, major: str) -> bool:
    return (prefix / f"share/postgresql/{major}/extension/plpython3u.control").exists()
