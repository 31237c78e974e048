"""Processors, memory and processes that control groups leave to a server, on files made up here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cerebro_db.relay import machine


@pytest.fixture(autouse=True)
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores, whichever this is."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of a made-up system begin."""
    monkeypatch.setattr(machine, "_ROOT", str(tmp_path))
    return tmp_path


def write(system: Path, files: dict[str, str]) -> None:
    """Make files with a line each."""
    for name, text in files.items():
        path = system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


SECOND = "0::/system.slice/postgresql.service"
FIRST = "5:cpu,cpuacct:/docker/af01\n3:memory:/docker/af01\n2:pids:/docker/af01\n0::/"


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        (SECOND, {}, 8),
        (SECOND, {"cpu.max": "max 100000"}, 8),
        (SECOND, {"system.slice/postgresql.service/cpu.max": "200000 100000"}, 2),
        (SECOND, {"system.slice/postgresql.service/cpu.max": "150000 100000"}, 2),
        (SECOND, {"system.slice/postgresql.service/cpu.max": "25000 100000"}, 1),
        (SECOND, {"system.slice/postgresql.service/cpu.max": "1600000 100000"}, 8),
        # The narrowest of the groups around it counts.
        (
            SECOND,
            {
                "system.slice/postgresql.service/cpu.max": "400000 100000",
                "system.slice/cpu.max": "300000 100000",
            },
            3,
        ),
        ("0::/", {"cpu.max": "50000 10000"}, 5),  # in a container
        (
            FIRST,
            {
                "cpu,cpuacct/docker/af01/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/docker/af01/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        (
            FIRST,
            {
                "cpu,cpuacct/docker/af01/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/docker/af01/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        # Inside of a container, where its own group is mounted as the first one, by another name.
        (FIRST, {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        (FIRST, {"cpu/cpu.cfs_quota_us": "100000"}, 8),
    ],
)
def test_cores_are_those_of_the_quota(
    system: Path, groups: str, files: dict[str, str], cores: int
) -> None:
    write(system, {"proc/self/cgroup": groups})
    write(system, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert machine.cores() == cores


def test_without_control_groups_there_are_the_processors(system: Path) -> None:
    assert machine.cores() == 8


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        (SECOND, "system.slice/memory.max"),
        (FIRST, "memory/docker/af01/memory.limit_in_bytes"),
        (FIRST, "memory/memory.limit_in_bytes"),
    ],
)
def test_memory_is_that_of_the_group(system: Path, groups: str, file: str) -> None:
    whole = machine.memory_mb()
    write(system, {"proc/self/cgroup": groups, f"sys/fs/cgroup/{file}": str(64 * 2**20)})
    assert machine.memory_mb() == 64 < whole


@pytest.mark.parametrize(
    ("groups", "file"), [(SECOND, "system.slice/pids.max"), (FIRST, "pids/docker/af01/pids.max")]
)
def test_processes_are_those_of_the_group(system: Path, groups: str, file: str) -> None:
    write(system, {"proc/self/cgroup": groups, f"sys/fs/cgroup/{file}": "17"})
    assert machine.processes()[1] == 17


def test_who_decides_on_workers_asks_for_cores() -> None:
    """Affinity and the count of the machine's processors know nothing of a quota."""
    package = Path(machine.__file__).parents[1]
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "cpu_count" in path.read_text() or "len(os.sched_getaffinity" in path.read_text()
    }
    assert found == {"relay/machine.py", "install/doctor.py"}  # which tells both
