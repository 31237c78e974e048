"""Directories that are opened step by step, without following links.

``openat`` with ``O_NOFOLLOW`` for each part of a path: whoever may write somewhere below cannot lead what is written to
another place, neither before nor after it was looked at.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A file of each directory that holds a database of PostgreSQL.
_OF_A_DATABASE = "PG_VERSION"


class Folder:
    """An open directory.

    Args:
        number: descriptor of the directory, which is closed with this object.
        path: for messages.
        is_checked: whether owners and modes are checked, here and below.
    """

    def __init__(self, number: int, path: Path, *, is_checked: bool) -> None:
        self._number, self._path, self._is_checked = number, path, is_checked

    @classmethod
    def of_caller(cls, path: Path) -> Folder:
        """A directory that the process's own user has named, made where it is missing.

        Raises:
            OSError: it cannot be opened.
        """
        path.mkdir(parents=True, exist_ok=True)
        return cls(os.open(path, _DIRECTORY), path, is_checked=False)

    @classmethod
    def rooted(cls, path: Path) -> Folder:
        """A directory that a superuser of the database has named, which nobody else can change.

        Raises:
            OSError: it is missing, a part of its path is a link, or others could change one.
        """
        here = cls(os.open("/", _DIRECTORY), Path("/"), is_checked=True)
        for part in path.parts[1:]:
            with here:
                here._check(stat.S_ISVTX)  # where that is, nobody replaces what is not his own
                here = here._open(part)
        return here._kept()

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._number)

    def below(self, *parts: str) -> Folder:
        """A directory below this one, made where it is missing.

        Raises:
            OSError: a part of the path is a link or a file, or others could change it.
        """
        here = self._open(".")
        for part in parts:
            with here:
                if part in ("", ".", "..") or "/" in part:
                    raise OSError(errno.EINVAL, "is no name of a directory", part)
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here._number)
                here = here._open(part)._kept()
        return here

    def has(self, name: str) -> bool:
        """True if there is something of this name."""
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=self._number, follow_symlinks=False)
            return True
        return False

    def write(self, name: str, data: bytes) -> None:
        """Write a file: what has this name is whole.

        Raises:
            OSError: the file cannot be written.
        """
        scratch = f".writing-{secrets.token_hex(8)}"
        try:
            with open(os.open(scratch, _NEW_FILE, 0o644, dir_fd=self._number), "wb") as file:
                file.write(data)
            os.replace(scratch, name, src_dir_fd=self._number, dst_dir_fd=self._number)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch, dir_fd=self._number)
            raise

    def _open(self, part: str) -> Folder:
        path = self._path / part
        try:
            number = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._number)
        except OSError as error:
            fault = "is a symbolic link" if self._is_link(part) else error.strerror
            raise OSError(error.errno, fault, str(path)) from None
        return Folder(number, path, is_checked=self._is_checked)

    def _is_link(self, part: str) -> bool:
        with suppress(OSError):
            found = os.stat(part, dir_fd=self._number, follow_symlinks=False)
            return stat.S_ISLNK(found.st_mode)
        return False

    def _kept(self) -> Folder:
        """Keep a directory open; one that others could change is closed."""
        try:
            self._check(0)
        except OSError:
            os.close(self._number)
            raise
        return self

    def _check(self, protecting: int) -> None:
        """Refuse a directory that others could change, or that holds a database.

        Args:
            protecting: bits of its mode with which it does not matter who may write to it.

        Raises:
            OSError: it is one.
        """
        if not self._is_checked:
            return
        fault = _open_to_others(os.fstat(self._number), protecting)
        if fault is None and self.has(_OF_A_DATABASE):
            fault = "holds a database of PostgreSQL"
        if fault is not None:
            raise OSError(errno.EPERM, fault, str(self._path))


def _open_to_others(found: os.stat_result, protecting: int) -> str | None:
    """Reason why others than root and this process's user could change a directory, if they can.

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
