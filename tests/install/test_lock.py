"""scripts/requirements.txt: what scripts/setup downloads, with checksums, fits pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "scripts" / "requirements.txt"
OF_TORCH = LOCK.with_name("requirements-torch.txt")
LOCKS = (LOCK, OF_TORCH, LOCK.with_name("requirements-docs.txt"))
EXTRAS = ("cpu", "demo", "dev", "images", "onnx", "pandas", "report", "test")


def entries(lock: Path = LOCK) -> list[tuple[Requirement, list[str]]]:
    """Each requirement of a lock file, and its checksums."""
    lines = re.sub(r"^#.*\n", "", lock.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.partition(" --hash=") for line in lines.splitlines()]
    return [
        (Requirement(name), re.findall(r"sha256:[0-9a-f]{64}", rest)) for name, _, rest in found
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_has_one_version_and_checksums(lock: Path) -> None:
    assert entries(lock)
    for requirement, hashes in entries(lock):
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement
        assert hashes, requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_no_host_and_no_path_of_a_machine_is_in_it(lock: Path) -> None:
    assert not re.search(r"https?:|file:|@|--(extra-)?index|--find-links|(^|\s)/", lock.read_text())


def test_it_has_what_the_package_needs_in_the_versions_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    assert set(optional) == {*EXTRAS, "gp", "gpu", "mlflow", "torch", "wandb"}
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    needed += [text for extra in EXTRAS for text in optional[extra]]
    needed += [
        line
        for line in (ROOT / "scripts" / "requirements.in").read_text().splitlines()
        if line[0] != "#"
    ]
    assert {"pip", "setuptools"} <= set(needed)
    assert_allowed(LOCK, needed)
    assert_allowed(OF_TORCH, optional["torch"])


def assert_allowed(lock: Path, needed: list[str]) -> None:
    """A lock file has all that is needed, in versions that are allowed."""
    for wanted in map(Requirement, needed):
        same = [
            requirement
            for requirement, _ in entries(lock)
            if canonicalize_name(requirement.name) == canonicalize_name(wanted.name)
        ]
        assert same, f"{wanted}: run scripts/lock"
        for requirement in same:
            (version,) = (each.version for each in requirement.specifier)
            assert wanted.specifier.contains(version), f"{wanted}, got {version}: run scripts/lock"


def test_pytorch_comes_beside_what_is_there_and_changes_none_of_it() -> None:
    there = {(one.name, str(one.specifier), str(one.marker)) for one, _ in entries()}
    names = {one.name for one, _ in entries()}
    of_torch = {(one.name, str(one.specifier), str(one.marker)) for one, _ in entries(OF_TORCH)}
    assert {one for one in of_torch if one[0] in names} <= there


def test_the_scripts_are_scripts() -> None:
    for name in ("setup", "lock", "fresh-machine"):
        subprocess.run(["sh", "-n", ROOT / "scripts" / name], check=True)
    done = subprocess.run(
        [ROOT / "scripts" / "setup", "cpu"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "setup: got the argument cpu; allowed: none, --where, --packages, --torch, --docs, --help\n",
    )


def test_setup_shows_help() -> None:
    for option in ("-h", "--help"):
        done = subprocess.run(
            [ROOT / "scripts" / "setup", option], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        shown = set(re.findall(r"^ +scripts/setup +(--\w+)", done.stdout, re.MULTILINE))
        assert shown == {"--where", "--packages", "--torch", "--docs", "--help"}


class System:
    """Files and programs of some system, made up.

    Args:
        folder: of it.
        offered: names of packages by versions of PostgreSQL or nothing, as its apt-cache tells.
    """

    def __init__(self, folder: Path, offered: dict[str, str]) -> None:
        self.usr, self.log = folder / "usr", folder / "log"
        (self.usr / "bin").mkdir(parents=True)
        shows = "".join(
            f"{name}) echo 'Package: {name}'; echo 'Depends: {depends}' ;;\n"
            for name, depends in offered.items()
        )
        self.program("apt-cache", f'case "$3" in\n{shows}esac')
        self.program("apt-get", f'echo "$@" >>{self.log}')
        self.program("id", "echo 0")
        text = (ROOT / "scripts" / "setup").read_text()
        self.setup = folder / "setup"
        self.setup.write_text(text.replace("\nUSR=/usr\n", f"\nUSR={self.usr}\n"))

    def program(self, name: str, text: str) -> None:
        """One that is a script."""
        file = self.usr / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def python(self, name: str, version: str, *, venv: bool = True) -> None:
        """A Python that tells its version and can make virtual environments, or not."""
        code = f"import sys; sys.version_info = ({version.replace('.', ', ')}, 0)"
        lacks = "" if venv else "; sys.modules['ensurepip'] = None"
        self.program(name, f"""exec {sys.executable} -c "{code}{lacks}; exec(sys.argv[1])" "$2\"""")

    def server(self, programs: str, extensions: str) -> None:
        """A PostgreSQL with plpython3u."""
        for folder in (programs, extensions):
            (self.usr / folder).mkdir(parents=True)
        (self.usr / programs / "initdb").touch(mode=0o755)
        (self.usr / extensions / "plpython3u.control").touch()

    def installs(self) -> list[str]:
        """Packages that are installed."""
        path = f"{self.usr}/bin:/usr/bin:/bin"
        done = subprocess.run(
            ["sh", self.setup, "--packages"],
            env={"PATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [
            word
            for line in lines
            if " install " in line
            for word in line.split()[2:]
            if word[0] != "-"
        ]


def test_packages_are_those_that_the_system_offers(tmp_path: Path) -> None:
    for version in ("15", "17"):
        system = System(tmp_path / version, {"postgresql": f"postgresql-{version}"})
        system.python("python3", "3.13", venv=False)
        wanted = ["postgresql", f"postgresql-plpython3-{version}", "python3-venv"]
        assert system.installs() == wanted


def test_where_the_systems_python_is_too_old_there_is_another(tmp_path: Path) -> None:
    """As on Ubuntu 22.04."""
    offered = {"postgresql": "postgresql-14", "python3.11": "libc6"}
    system = System(tmp_path, offered)
    system.python("python3", "3.10")
    system.server("lib/postgresql/14/bin", "share/postgresql/14/extension")
    assert system.installs() == ["python3.11", "python3.11-venv"]
    system.python("python3.11", "3.11")
    system.log.unlink()
    assert system.installs() == []
    system.python("python3.11", "3.11", venv=False)
    assert system.installs() == ["python3.11-venv"]


def test_a_server_of_pgdg_on_red_hat_will_do(tmp_path: Path) -> None:
    system = System(tmp_path, {})
    system.python("python3", "3.9")
    system.python("python3.12", "3.12")
    system.server("pgsql-17/bin", "pgsql-17/share/extension")
    assert system.installs() == []
