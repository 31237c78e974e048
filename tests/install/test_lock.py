"""scripts/requirements.txt: what scripts/setup downloads, with checksums, fits pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "scripts" / "requirements.txt"
EXTRAS = ("cpu", "demo", "dev", "images", "onnx", "pandas", "report", "test")


def entries() -> list[tuple[Requirement, list[str]]]:
    """Each requirement of the lock file, and its checksums."""
    lines = re.sub(r"^#.*\n", "", LOCK.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.partition(" --hash=") for line in lines.splitlines()]
    return [
        (Requirement(name), re.findall(r"sha256:[0-9a-f]{64}", rest)) for name, _, rest in found
    ]


def test_everything_has_one_version_and_checksums() -> None:
    for requirement, hashes in entries():
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement
        assert hashes, requirement


def test_no_host_and_no_path_of_a_machine_is_in_it() -> None:
    assert not re.search(r"https?:|file:|@|--(extra-)?index|--find-links|(^|\s)/", LOCK.read_text())


def test_it_has_what_the_package_needs_in_the_versions_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    assert set(optional) == {*EXTRAS, "gp", "gpu", "mlflow"}
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    needed += [text for extra in EXTRAS for text in optional[extra]]
    needed += [
        line
        for line in (ROOT / "scripts" / "requirements.in").read_text().splitlines()
        if line[0] != "#"
    ]
    assert {"pip", "setuptools"} <= set(needed)
    for wanted in map(Requirement, needed):
        same = [
            requirement
            for requirement, _ in entries()
            if canonicalize_name(requirement.name) == canonicalize_name(wanted.name)
        ]
        assert same, f"{wanted}: run scripts/lock"
        for requirement in same:
            (version,) = (each.version for each in requirement.specifier)
            assert wanted.specifier.contains(version), f"{wanted}, got {version}: run scripts/lock"


def test_the_scripts_are_scripts() -> None:
    for name in ("setup", "lock"):
        subprocess.run(["sh", "-n", ROOT / "scripts" / name], check=True)
    done = subprocess.run(
        [ROOT / "scripts" / "setup", "cpu"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "setup: got the argument cpu; allowed: none, --where, --packages, --help\n",
    )
