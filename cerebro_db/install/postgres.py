"""Finds PostgreSQL with plpython3u where packages put it: Debian's and Ubuntu's, and those of PGDG."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from cerebro_db.errors import MissingPrerequisite

_DEPENDENCY = re.compile(r"Depends:.*\bpostgresql-(\d+)")


class Postgres(NamedTuple):
    """Major version of PostgreSQL with the folder of its programs."""

    major: str
    programs: Path

    def program(self, name: str) -> str:
        """The full path of a program such as ``initdb``."""
        return str(self.programs / name)


# Folders below /usr: of programs, and of extensions.
_DEBIAN = ("lib/postgresql/{}/bin", "share/postgresql/{}/extension")
_RED_HAT = ("pgsql-{}/bin", "pgsql-{}/share/extension")
_LAYOUTS = (_DEBIAN, _RED_HAT)


def find(major: str | None = None, prefix: Path = Path("/usr")) -> Postgres:
    """The newest PostgreSQL that has plpython3u, or the one of ``major``.

    Args:
        major: version, or None for any.
        prefix: folder that packages install into.

    Raises:
        MissingPrerequisite: there is none; the hint names the packages.
    """
    servers = [found for found in _installed(prefix) if major in (None, found[0].major)]
    usable = [server for server, extensions in servers if _has_plpython(extensions)]
    if usable:
        return usable[-1]
    if servers:
        newest = servers[-1][0].major
        raise MissingPrerequisite(
            f"PostgreSQL {newest} of this machine has no plpython3u",
            packages_of(newest, server=False),
        )
    raise MissingPrerequisite(
        f"this machine has no PostgreSQL {major or 'server'} with plpython3u",
        packages_of(major or offered() or "<version>", server=True),
    )


def packages_of(major: str, *, server: bool) -> str:
    """A hint with the packages that bring plpython3u, and with ``server`` PostgreSQL too."""
    debian, red_hat = [f"postgresql-plpython3-{major}"], [f"postgresql{major}-plpython3"]
    if server:
        debian.insert(0, f"postgresql-{major}")
        red_hat.insert(0, f"postgresql{major}-server")
    return (
        f"On Debian and Ubuntu: apt-get install {' '.join(debian)}; with the packages of PGDG on RHEL and Rocky: "
        f"dnf install {' '.join(red_hat)}"
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


def _installed(prefix: Path) -> list[tuple[Postgres, Path]]:
    """Servers of this machine, and the folders of their extensions; the newest last."""
    found = [
        (Postgres(major, prefix / programs.format(major)), prefix / extensions.format(major))
        for programs, extensions in _LAYOUTS
        for major in _majors(prefix, programs)
        if (prefix / programs.format(major) / "initdb").exists()
    ]
    return sorted(found, key=lambda one: int(one[0].major))


def _majors(prefix: Path, layout: str) -> list[str]:
    """Versions that have a folder."""
    pattern = re.compile(re.escape(str(prefix / layout)).replace(r"\{\}", r"(\d+)"))
    matches = (pattern.fullmatch(str(path)) for path in prefix.glob(layout.format("*")))
    return [match[1] for match in matches if match]


def _has_plpython(extensions: Path) -> bool:
    return (extensions / "plpython3u.control").exists()
