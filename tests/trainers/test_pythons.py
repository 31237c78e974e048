"""The relay runs with whatever Python a server has."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pace import stretched

from cerebro_db.errors import InvalidState
from cerebro_db.install import sources
from cerebro_db.relay.machine import cores
from tests.trainers.conftest import Place, installation

VERSIONS = [f"3.{minor}" for minor in range(6, 14)]
SCRIPT = Path(__file__).with_name("relayed.py")


def interpreter(version: str) -> str | None:
    """A Python of this version that runs: on the PATH, or one of pyenv."""
    places = [shutil.which(f"python{version}")]
    places += glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python{version}"))
    for found in places:
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_with(version: str, place: Place) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    known = installation(place.folder)
    told = {
        "interpreter": known.interpreter,
        "package": known.package,
        "directory": known.directory,
        "version": known.version,
    }
    command = [python, "-I", "-B", "-W", "error::DeprecationWarning", str(SCRIPT), json.dumps(told)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=stretched(120), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["python"] == [int(part) for part in version.split(".")]
    assert "tensorflow" in str(found["versions"])
    name, text, sqlstate = found["failed"]
    assert "state" in f"{name}: {text}"
    assert sqlstate == InvalidState.sqlstate
    assert isinstance(found["token"], int)
    assert found["foreign"] == []
    assert found["cores"] == cores()
    assert found["memory_mb"] > 0


def test_it_imports_only_the_standard_library() -> None:
    folder = Path(sources.package_directory()) / "relay"
    for path in folder.glob("*.py"):
        for module in re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.M):
            assert module.startswith(".") or module in ALLOWED, (path.name, module)


ALLOWED = {
    "array", "ctypes", "decimal", "errno", "fcntl", "hashlib", "json", "os", "pwd", "resource", "select", "signal",
    "socket", "stat",
    "struct", "subprocess", "sys", "time", "typing",
}  # fmt: skip
