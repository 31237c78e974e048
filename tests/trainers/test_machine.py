"""Processors, memory and processes that control groups leave to a server, on files made up here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


USES_MEMORY = """
import json, resource
from cerebro_db.relay import machine

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        one, other = b"1" * 6400000, b"2" * 6400000
        del one, other
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

found = [faults()]
machine.keep_freed_memory()
faults()
found += [faults(), resident()]
machine.give_back_freed_memory()
print(json.dumps([*found, resident()]))
"""


def test_memory_that_was_freed_is_used_again_until_it_is_given_back() -> None:
    told = subprocess.run(
        [sys.executable, "-c", USES_MEMORY], check=True, capture_output=True, text=True
    ).stdout
    without, kept, before, after = json.loads(told)
    pages = 6400000 // os.sysconf("SC_PAGE_SIZE")
    assert without > 10 * pages  # else this test shows nothing
    assert kept < pages / 10
    assert before - after > 10 * 2**20
