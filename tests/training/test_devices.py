"""Which GPU a process takes, and what is told of GPUs: without any."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cerebro_db.errors import InvalidArgument
from cerebro_db.training import devices, environment

TWO = [
    "GPU 0: Tesla P100-PCIE-16GB (UUID: GPU-f2ccc77e-2501-f6ee-4754-069dda256fb2)",
    "GPU 1: Tesla P100-PCIE-16GB (UUID: GPU-b1fc40ca-c7c6-bc86-f20f-6e9a62cda3f8)",
]
FIRST, SECOND = (line[line.index("GPU-") : -1] for line in TWO)
DIVIDED = [
    TWO[0],
    "  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)",
    "  MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)",
    TWO[1],
]


def test_processes_of_a_host_are_spread_over_its_gpus() -> None:
    assert [devices.chosen(place, TWO, None) for place in range(5)] == [
        FIRST, SECOND, FIRST, SECOND, FIRST,
    ]  # fmt: skip


def test_parts_of_a_divided_gpu_stand_for_it() -> None:
    found = [devices.chosen(place, DIVIDED, None) for place in range(3)]
    assert found == [
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
        SECOND,
    ]


@pytest.mark.parametrize(
    ("given", "taken"),
    [("2,3", ["2", "3", "2"]), (" 1 ", ["1"] * 3), ("0,-1,2", ["0"] * 3), ("-1", [None] * 3)],
)
def test_what_an_administrator_left_is_shared(given: str, taken: list[str | None]) -> None:
    assert [devices.chosen(place, TWO, given) for place in range(3)] == taken


@pytest.mark.parametrize("lines", [[], ["No devices found."], [""]])
def test_nothing_is_taken_where_nobody_can_tell(lines: list[str]) -> None:
    assert devices.chosen(0, lines, None) is None


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose nvidia-smi tells of two GPUs, and whose Python writes that TensorFlow does."""
    for name, text in {
        "nvidia-smi": "".join(f"echo '{line}'\n" for line in TWO),
        "python": "echo noise\necho '[\"'$CUDA_VISIBLE_DEVICES'\"]'\n",
    }.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv(devices.VISIBLE, "as it was")
    monkeypatch.setattr(devices, "_GIVEN", None)
    monkeypatch.setattr(devices, "has_nodes", lambda: True)
    monkeypatch.setattr(devices, "interpreter", lambda: str(tmp_path / "python"))
    return tmp_path


def test_the_environment_names_one_gpu_before_tensorflow_comes(
    two_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    environment.set_environment(1, use_gpus=True, place=3)
    assert os.environ[devices.VISIBLE] == SECOND
    environment.set_environment(1, use_gpus=False, place=3)
    assert os.environ[devices.VISIBLE] == "-1"


def test_both_sources_are_queried(two_gpus: Path) -> None:
    ticks: list[int] = []
    assert devices.described("nvidia", lambda: ticks.append(1)) == TWO
    # What this process has been left itself says nothing of the host.
    assert devices.described("tensorflow", lambda: ticks.append(1)) == [""]


def test_a_program_that_fails_tells_nothing(two_gpus: Path) -> None:
    (two_gpus / "nvidia-smi").write_text("#!/bin/sh\necho half\nexit 9\n")
    assert devices.described("nvidia", lambda: None) == []


def test_waiting_can_be_cancelled(two_gpus: Path) -> None:
    (two_gpus / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")

    def tick() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        devices.described("nvidia", tick)


def test_a_host_without_devices_is_not_queried(tmp_path: Path) -> None:
    assert not devices.has_nodes(tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert not devices.has_nodes(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert devices.has_nodes(tmp_path)


@pytest.mark.parametrize("source", [None, "", "Nvidia", "x'"])
def test_unknown_sources_are_refused(source: str | None) -> None:
    with pytest.raises(
        InvalidArgument, match=r"source: got .*; allowed: 'tensorflow', 'torch' or 'nvidia'"
    ):
        devices.described(source, lambda: None)


@pytest.mark.slow
def test_tensorflow_reports_from_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_nodes", lambda: True)
    monkeypatch.setattr(devices, "_GIVEN", "-1")
    answers: list[str] = []
    answer = devices._answer

    def kept(*arguments: object) -> str:
        answers.append(answer(*arguments))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(devices, "_answer", kept)
    assert devices.described("tensorflow", lambda: None) == []
    assert answers[0].endswith("\n[]\n")
