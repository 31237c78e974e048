"""Paths of the server's machine that an installation has: those that are given, or were given before."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Mapping

import cerebro_db
from cerebro_db.install import queries, sources
from cerebro_db.install.connection import rows, transaction
from cerebro_db.install.script import Script
from cerebro_db.postgres.sessions.blocking import BlockingSession

_TOLD = re.compile(r"^_told = (\{.*\})$", re.MULTILINE)


def script_for(
    dsn: str,
    python: str | None,
    package: str | None,
    keeper_directory: str | None,
    files_root: str | None = None,
    madlib: bool = False,
) -> Script:
    """The script of an installation in a database; what is None stays as it was there.

    The Python that was named there stays as long as it is one of another machine, which cannot be asked,
    or has this version of the package. Otherwise the package was upgraded elsewhere: it is the one that
    runs this program.

    Args:
        dsn: of the database.
        python: program of the virtual environment.
        package: folder of the package.
        keeper_directory: folder in which keepers make theirs.
        files_root: directory for files outside of the database.
        madlib: whether MADlib's names are made, as they are where they are there.
    """
    known, has_madlib = _known(dsn)
    if python is None and (earlier := known.get("interpreter")) not in (None, sys.executable):
        if not os.path.exists(earlier):
            python, package = earlier, package or known["package"]
        elif sources.version_of(earlier) == cerebro_db.__version__:
            python = earlier
    directory = keeper_directory or known.get("directory")
    return script_of(python, package, directory, files_root, madlib or has_madlib)


def script_of(
    python: str | None,
    package: str | None,
    keeper_directory: str | None,
    files_root: str | None = None,
    madlib: bool = False,
) -> Script:
    """The script of an installation with these paths; defaults where they are None."""
    given = {"keeper_directory": keeper_directory, "files_root": files_root}
    more = {name: path for name, path in given.items() if path is not None}
    if python is None:
        return Script(package=package or sources.package_directory(), madlib=madlib, **more)
    return Script(python, package or sources.package_of(python), madlib=madlib, **more)


def installed_script(connection: BlockingSession, otherwise: Script) -> Script:
    """The script of an installation with the paths that it has."""
    known = _installation(connection)
    if not known:
        return otherwise
    return Script(known["interpreter"], known["package"], known["directory"])


def installed_version(connection: BlockingSession) -> str | None:
    """Version that has made the functions of a database; None where they do not have it, as those of 0.1.0."""
    return _installation(connection).get("version")


def _known(dsn: str) -> tuple[Mapping[str, str], bool]:
    """Arguments of the relay's ``Installation``, and whether MADlib's names are there."""
    with transaction(dsn) as connection:
        ((has_madlib,),) = rows(connection, queries.HAS_MADLIB, "the schema madlib")
        return _installation(connection), bool(has_madlib)


def _installation(connection: BlockingSession) -> Mapping[str, str]:
    """Arguments of the relay's ``Installation`` in a database; empty where there is none."""
    bodies = rows(connection, queries.BODY, "the installation")
    found = _TOLD.search(str(bodies[0][0])) if bodies else None
    found_facts = ast.literal_eval(found[1]) if found else {}
    return {name: str(value) for name, value in found_facts.items()}
