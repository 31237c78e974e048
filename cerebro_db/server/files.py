"""Root of all files that are written outside of the database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidArgument
from cerebro_db.install.sources import package_directory
from cerebro_db.training.folders import Folder

NAMING = (
    "a superuser can name one: SELECT cerebro.cerebro_set('files_root', '/srv/cerebro'), or cerebro upgrade "
    "--files-root /srv/cerebro"
)
_OWNED = (
    "name a directory that belongs to the server's user, without links in its path, in which nobody else may write: "
    "install -d -o postgres -m 700 /srv/cerebro"
)
_OF_SERVER = """
SELECT setting AS place FROM pg_catalog.pg_settings
 WHERE name IN ('data_directory', 'config_file', 'hba_file', 'ident_file', 'log_directory')
   AND setting LIKE '/%'
 UNION
SELECT pg_catalog.pg_tablespace_location(oid) FROM pg_catalog.pg_tablespace
 WHERE pg_catalog.pg_tablespace_location(oid) <> ''
"""


def root_of(settings: Settings, who: str) -> Folder:
    """The root of files outside of the database, open.

    Args:
        settings: of the database.
        who: wants to write, for messages.

    Raises:
        InvalidArgument: there is none, or it is not safe to write there.
    """
    if not settings.files_root:
        raise InvalidArgument(
            f"{who}: got a configuration that writes files on the server, and no directory for them; allowed: where a "
            "superuser has named the root of files outside of the database",
            hint=NAMING,
        )
    return _opened(settings.files_root)


def fault_of_root(settings: Settings) -> str | None:
    """Reason why nothing can be written below the root that is named."""
    try:
        if settings.files_root:
            _close(_opened(settings.files_root))
    except InvalidArgument as error:
        return f"{error.message}; {error.hint}"
    return None


def check_root(plpy: Any, path: str) -> None:
    """Refuse a root in which the server, or Cerebro-DB itself, could be changed.

    Args:
        plpy: of a superuser's call.
        path: of the root; empty for none.

    Raises:
        InvalidArgument: it is one, or it cannot be used.
    """
    if not path:
        return
    _close(_opened(path))
    taken = [str(row["place"]) for row in plpy.execute(_OF_SERVER)]
    _check_apart(path, [*taken, package_directory(), sys.prefix])


def _opened(path: str) -> Folder:
    try:
        return Folder.rooted(Path(path))
    except OSError as error:
        raise InvalidArgument(
            f"setting files_root: got {path}: {error.filename} {error.strerror}; allowed: a directory of the "
            "server's user that nobody else can change",
            hint=_OWNED,
        ) from None


def _close(folder: Folder) -> None:
    with folder:
        pass


def _check_apart(path: str, taken: Iterable[str]) -> None:
    """Refuse a root that lies in one of the directories that are taken, or has one in it."""
    root = os.path.realpath(path)
    for one in taken:
        other = os.path.realpath(one)
        if os.path.commonpath([root, other]) in (root, other):
            raise InvalidArgument(
                f"setting files_root: got {path}, which is, contains or lies in {one}; allowed: a directory apart "
                "from those of the server and of Cerebro-DB",
                hint=_OWNED,
            )
