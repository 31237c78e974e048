"""What is built has a version of its own, all files, and a description that stands alone."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pace import stretched

import cerebro_db

ROOT = Path(__file__).parents[2]
BASE = cerebro_db.__version__.partition(".post")[0]
# What a commit is made with: no setting of whoever runs the tests counts.
GIT = {
    **{f"GIT_{who}_NAME": "someone" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "someone@example.com" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def load(root: Path) -> ModuleType:
    """The code that builds, of a clone."""
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clone:
    """A repository of its own with the sources of this one.

    Args:
        folder: where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns(
            "__pycache__",
            ".git",
            ".cerebro",
            ".venv",
            ".*_cache",
            ".hypothesis",
            "site",
            "dist",
            "build",
        )
        shutil.copytree(ROOT, folder, ignore=ignored)
        # Between releases, also where these sources are those of one.
        self.set_base(f"{BASE}.post0")
        self.git("init", "-q")

    def git(self, *arguments: str, date: str = "2026-01-02T03:04:05Z") -> str:
        """Run git there."""
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            env={**os.environ, **GIT, **dates}, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    def set_base(self, version: str) -> None:
        """Another version in the module that tells it."""
        file = self.folder / "cerebro_db" / "__init__.py"
        text = re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', file.read_text())
        file.write_text(text)

    def commit(self, date: str) -> str:
        """Commit all; the name of the commit."""
        self.git("add", "--all")
        self.git("commit", "-q", "--message", "a commit", date=date)
        return self.git("rev-parse", "--short=12", "HEAD")

    def version(self) -> str:
        """The version of what would be built."""
        found: str = load(self.folder).version()
        return found

    def build(self, target: str, out: Path) -> Path:
        """A wheel or an sdist."""
        return built(self.folder, target, out)


def built(folder: Path, target: str, out: Path) -> Path:
    """What hatchling builds of a folder, without the network."""
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=stretched(120), check=False
    )
    assert done.returncode == 0, done.stderr
    (made,) = set(out.iterdir()) - before
    return made


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone with one commit, which says where it comes from."""
    clone = Clone(tmp_path_factory.mktemp("clone") / "cerebro")
    clone.git("remote", "add", "origin", "https://me:secret@git.example.com/group/cerebro.git")
    clone.commit("2026-01-02T03:04:05Z")
    return clone


@pytest.fixture(scope="module")
def wheel(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of that commit."""
    return clone.build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its sdist."""
    return clone.build("sdist", tmp_path_factory.mktemp("sdist"))


def metadata(wheel: Path) -> Message:
    """What a wheel tells of itself."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(files.read(name))


def test_the_version_is_that_of_the_commit(clone: Clone, wheel: Path) -> None:
    commit = clone.git("rev-parse", "--short=12", "HEAD")
    wanted = f"{BASE}.post20260102030405+g{commit}"
    assert clone.version() == metadata(wheel)["Version"] == wanted
    with zipfile.ZipFile(wheel) as files:
        told = files.read("cerebro_db/__init__.py").decode()
    assert f'__version__ = "{wanted}"' in told
    assert (clone.folder / "cerebro_db" / "__init__.py").read_text() != told


def test_what_is_not_committed_has_the_time_of_its_newest_file(clone: Clone) -> None:
    file = clone.folder / "udfs" / "_train_step.py"
    kept = file.read_text()
    try:
        file.write_text(f"{kept}\n# changed\n")
        newer = time.mktime((2031, 2, 3, 4, 5, 6, 0, 0, 0)) - time.timezone
        os.utime(file, (newer, newer))
        assert clone.version() == f"{BASE}.post20310203040506"
    finally:
        file.write_text(kept)
    assert "+g" in clone.version()


def test_without_git_the_newest_file_counts(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert re.fullmatch(rf"{re.escape(BASE)}\.post\d{{14}}", clone.version())


def test_a_release_has_its_own(tmp_path: Path) -> None:
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "cerebro_db").mkdir()
    (tmp_path / "cerebro_db" / "__init__.py").write_text('__version__ = "9.8.7"\n')
    assert load(tmp_path).version(tmp_path) == "9.8.7"


def test_an_sdist_is_complete_and_keeps_its_version(
    clone: Clone, sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(tmp_path)], check=True)
    (folder,) = tmp_path.iterdir()
    for name in (
        ".ci/run", ".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "docs/install.md", "mkdocs.yml",
        "scripts/requirements.txt", "scripts/setup", "sql/objects/010_version.sql", "tests/conftest.py",
        "tests/upgrades/left_by_0.1.0.sql.gz", "udfs/_train_step.py",
    ):  # fmt: skip
        assert (folder / name).exists(), name
    assert not list(folder.rglob("__pycache__"))
    again = built(folder, "wheel", tmp_path / "again")
    assert again.name == wheel.name
    with zipfile.ZipFile(again) as ours, zipfile.ZipFile(wheel) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
    assert metadata(again).as_bytes() == metadata(wheel).as_bytes()


def test_the_wheel_has_all_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        found = {name for name in files.namelist() if ".dist-info/" not in name}
    wanted = {
        f"{target}/{path.relative_to(ROOT / source)}"
        for source, target in (
            ("cerebro_db", "cerebro_db"),
            ("sql", "cerebro_db/_sql"),
            ("udfs", "cerebro_db/_udfs"),
        )
        for path in (ROOT / source).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert found == wanted


def test_the_metadata_are_whole(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Author"]
    assert told["License-Expression"] == "Apache-2.0"
    classifiers = told.get_all("Classifier", [])
    assert "Programming Language :: Python :: 3.13" in classifiers
    home = "https://git.example.com/group/cerebro"
    assert f"Repository, {home}" in told.get_all("Project-URL", [])
    text = str(told.get_payload())
    assert f"]({home}/blob/HEAD/docs/install.md)" in text
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not re.match(r"https://|#", link)] == []
    assert "secret" not in told.as_string()


@pytest.mark.parametrize(
    ("remote", "home"),
    [
        ("https://git.example.com/a/b", "https://git.example.com/a/b"),
        ("https://token@git.example.com/a/b.git", "https://git.example.com/a/b"),
        ("git@git.example.com:a/b.git", "https://git.example.com/a/b"),
        ("ssh://git@git.example.com/a/b.git/", "https://git.example.com/a/b"),
        ("file:///srv/git/b.git", None),
        ("/srv/git/b.git", None),
        ("../b", None),
    ],
)
def test_links_lead_to_where_the_clone_comes_from(
    clone: Clone, remote: str, home: str | None
) -> None:
    before = clone.git("remote", "get-url", "origin")
    clone.git("remote", "set-url", "origin", remote)
    try:
        assert load(clone.folder).repository() == home
    finally:
        clone.git("remote", "set-url", "origin", before)


def test_a_page_without_a_home_keeps_its_links() -> None:
    page = "[a](docs/a.md) [b](#b) [c](https://c.example)"
    module = load(ROOT)
    assert module.description(page, None) == page
    assert module.description(page, "https://h.example/x") == (
        "[a](https://h.example/x/blob/HEAD/docs/a.md) [b](#b) [c](https://c.example)"
    )


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_index_would_take_it(kind: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("twine")
    file = request.getfixturevalue(kind)
    command = [sys.executable, "-m", "twine", "check", "--strict", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pip_takes_what_is_newer_from_a_folder_of_wheels(
    clone: Clone, wheel: Path, tmp_path: Path
) -> None:
    """As on hosts of Greenplum: releases, and wheels of earlier commits, lie beside it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    shutil.copy(wheel, wheels)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"

    def installed(*options: str) -> Any:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
        ]
        command += ["--no-index", "--find-links", str(wheels), *options, "cerebro-db"]
        subprocess.run(command, check=True, capture_output=True, timeout=stretched(120))
        code = "import cerebro_db; print(cerebro_db.__version__)"
        return subprocess.run(
            [python, "-I", "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()

    first = installed()
    assert first == metadata(wheel)["Version"]
    # The release before it must not be what pip prefers.
    other = Clone(tmp_path / "release")
    other.set_base(BASE)
    other.commit("2026-01-01T00:00:00Z")
    other.build("wheel", wheels)
    assert installed("--upgrade") == first
    other.set_base(f"{BASE}.post0")
    other.commit("2026-01-02T03:04:06Z")
    newer = other.build("wheel", wheels)
    assert installed("--upgrade") == metadata(newer)["Version"] > first


def test_tests_find_the_clone_where_the_package_is_a_copy() -> None:
    """As in a clone below root's home folder. The tests have a folder chaos, too."""
    code = (
        "import runpy, sys; root, tests = sys.argv[1:]; "
        "sys.path = [tests, *(place for place in sys.path if place != root)]; "
        "runpy.run_path(f'{root}/conftest.py'); "
        "import chaos.segments, tests.docs.pages; print(chaos.__path__[0])"
    )
    command = [sys.executable, "-I", "-c", code, str(ROOT), str(ROOT / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert (done.returncode, done.stdout) == (0, f"{ROOT / 'chaos'}\n"), done.stderr
