"""Version, links and description of what is built.

Each commit has a version of its own, so that pip never keeps older code for the same. Between releases
``cerebro_db/__init__.py`` has a version that ends with ``.post0``. What is built from a clone then has the time of its last
commit in place of the 0, and the commit behind it; with changes that were not committed, or without git, the time of the
newest file. A release, and what is built from an sdist, have the version as it is written there. (A version with ``.dev``
would not do: pip prefers an older release that lies beside it.)

Links are those to the repository that the clone has as its origin, where that is a place on the web.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_ROOT = Path(__file__).resolve().parent
_MODULE = "cerebro_db/__init__.py"
_SOURCES = ("cerebro_db", "sql", "udfs", "pyproject.toml", "hatch_build.py")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
# What ``git remote get-url`` tells: https://user:password@host/path.git, git@host:path.git, ssh://git@host/path.git
_REMOTE = re.compile(
    r"(?:(?:https|ssh)://)?(?:[^@/]*@)?([\w.-]+\.\w+)[:/](?!\d+/)(.+?)(?:\.git)?/?"
)
_URL = re.compile(r"^Project-URL: Repository, (\S+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!#|[a-z]+:)([^)\s]+)\)")
_BETWEEN_RELEASES = ".post0"


def version(root: Path = _ROOT) -> str:
    """The version of what is built from a folder.

    Args:
        root: of the clone, or of an unpacked sdist.
    """
    found = _VERSION.search((root / _MODULE).read_text("utf-8"))
    if found is None:
        raise ValueError(f"{_MODULE} has no __version__")
    base = found[1]
    if not base.endswith(_BETWEEN_RELEASES):
        return base
    return base.removesuffix("0") + (_of_commit(root) or _of_files(root))


def _of_commit(root: Path) -> str | None:
    """Time and name of the last commit; None without git, or where sources differ from it."""
    if not _is_clone(root) or _git(root, "status", "--porcelain", "--", *_SOURCES) != "":
        return None
    told = _git(root, "log", "-1", "--format=%ct %h", "--abbrev=12")
    if told is None:
        return None
    seconds, commit = told.split()
    return f"{_stamp(float(seconds))}+g{commit}"


def repository(root: Path = _ROOT) -> str | None:
    """Where the sources are on the web; None where nothing tells.

    Args:
        root: of the clone, or of an unpacked sdist.
    """
    information = root / "PKG-INFO"
    if information.exists():
        found = _URL.search(information.read_text("utf-8"))
        return found[1] if found else None
    origin = _git(root, "remote", "get-url", "origin") if _is_clone(root) else None
    remote = _REMOTE.fullmatch(origin or "")
    return f"https://{remote[1]}/{remote[2]}" if remote else None


def description(text: str, home: str | None) -> str:
    """A page for another place than the clone: its relative links lead to the repository.

    Args:
        text: of the page, in Markdown.
        home: of the repository; None leaves the links as they are.
    """
    return text if home is None else _LINK.sub(rf"]({home}/blob/HEAD/\1)", text)


def _is_clone(root: Path) -> bool:
    """False also for an sdist that was unpacked inside of some other repository."""
    top = _git(root, "rev-parse", "--show-toplevel")
    return top is not None and Path(top) == root.resolve()


def _of_files(root: Path) -> str:
    """Time of the newest file."""
    files = [
        file
        for name in _SOURCES
        for file in [root / name, *(root / name).rglob("*")]
        if file.is_file() and file.suffix != ".pyc"
    ]
    return _stamp(max(file.stat().st_mtime for file in files))


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


class Metadata(MetadataHookInterface):
    """Description and links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to what pyproject.toml tells."""
        root = Path(self.root)
        home = repository(root)
        text = (root / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(text, home)}
        metadata["urls"] = {}
        if home is not None:
            metadata["urls"] = {
                "Repository": home,
                "Documentation": f"{home}/tree/HEAD/docs",
                "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
            }


class VersionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the version into the module that tells it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put a copy of the module in its place, except where the package runs from the clone.

        Args:
            version: of the target: ``standard`` or ``editable``.
            build_data: gets the copy.
        """
        if version == "editable":
            return
        text = (Path(self.root) / _MODULE).read_text("utf-8")
        told = f'__version__ = "{self.metadata.version}"'
        self._folder = tempfile.TemporaryDirectory()
        copy = Path(self._folder.name) / "__init__.py"
        copy.write_text(_VERSION.sub(told, text), "utf-8")
        copy.chmod(0o644)
        build_data["force_include"][str(copy)] = _MODULE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        if version != "editable":
            self._folder.cleanup()
