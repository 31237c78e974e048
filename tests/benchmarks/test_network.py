"""The emulated network of four hosts: sums and bytes of every pattern, its ends, and where it can't be made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.network import emulated as networks
from benchmarks.network import figures, links, tables

_ROOT = Path(links.__file__).parents[2]
_NET = figures.Net(floats=100_000, partition=50_000)
_MEGABITS, _DELAY_MS = 1000, 2.0


@pytest.fixture(scope="module")
def emulated() -> Iterator[networks.Network]:
    """A network that all tests here share."""
    try:
        with networks.network(_MEGABITS, _DELAY_MS) as found:
            yield found
    except networks.NotPossible as error:
        pytest.skip(str(error))


def _children(process: int) -> list[int]:
    told = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(one) for one in told.split()]


def _runs(process: int) -> bool:
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return told.rpartition(")")[2].split()[0] != "Z"


def _names(process: int) -> list[str]:
    """Of links and namespaces that everyone sees."""
    folder = Path("/run/netns")
    links = Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]
    found = [line.partition(":")[0].strip() for line in links]
    return sorted([*found, *(os.listdir(folder) if folder.exists() else [])])


@pytest.mark.parametrize(
    ("pattern", "bits", "expected"),
    [
        # In a ring each host passes a quarter on, three times to sum and three times to tell.
        ("allreduce", 32, [6 * 4 * 25_000] * 4),
        ("pipe", 16, [6 * 2 * 25_000] * 4),
        ("pipe", 8, [6 * (25_000 + 8)] * 4),
        ("synchronous", 32, [3 * 400_000, 400_000, 400_000, 400_000]),
        ("asynchronous", 32, [3 * 400_000, 400_000, 400_000, 400_000]),
        ("averaging", 32, [3 * 1_200_000, 1_200_000, 1_200_000, 1_200_000]),
        ("hopping", 32, [1_200_000] * 4),
        ("task", 32, [3 * 50_000] * 4),
    ],
)
def test_sums_are_right_and_bytes_are_those_of_the_interface(
    emulated: networks.Network, pattern: str, bits: int, expected: list[int]
) -> None:
    size = _NET.partition if pattern == "task" else _NET.floats
    found = emulated.measure(pattern, size, 2, bits=bits)  # sums are checked there
    for host, bytes_each in zip(found, expected, strict=True):
        assert host["bytes"] == [2 * bytes_each] * 2
        counted = [now / then for now, then in zip(host["counted"], host["bytes"], strict=True)]
        assert all(1 <= ratio < 1.5 for ratio in counted), counted


def test_wrong_sums_are_noticed(emulated: networks.Network) -> None:
    # No step is done, and weights are expected as if one had been undone.
    with pytest.raises(RuntimeError, match="synchronous: sums are wrong"):
        emulated.measure("synchronous", 1, -1)


def test_delay_and_rate_are_kept(emulated: networks.Network) -> None:
    ping = emulated.measure("ping", 8, 5)[0]["seconds"] / 5
    assert ping >= 2 * _DELAY_MS / 1000
    size = 4_000_000
    stream = emulated.measure("stream", size)[1]["seconds"]
    assert 8 * size / stream < 1e6 * _MEGABITS


def test_figures_are_plain_values(
    emulated: networks.Network, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "_ROUND_SECONDS", 0.001)
    monkeypatch.setattr(figures, "_PROBE_SECONDS", 0.01)
    before = _names(os.getpid())
    results = figures.measure({"small": _NET}, (_MEGABITS,), 0.2, 10, {"small": 1.0}, rounds=1)
    assert _names(os.getpid()) == before
    ((case),) = [one["nets"]["small"]["computing"]["measured"] for one in results["networks"]]
    rows: dict[str, Any] = case["patterns"]
    assert list(rows) == list(figures.PATTERNS)
    assert rows["allreduce"]["megabytes"] == pytest.approx(10 * 1.2)  # of 10 steps
    assert rows["hopping"]["megabytes"] == pytest.approx(4 * 2.4)  # of 4 hops
    assert rows["hopping"]["epoch_seconds"] == pytest.approx(
        10 * 0.001 + 4 * rows["hopping"]["each_ms"] / 1000
    )
    tables.show(results)
    told = capsys.readouterr().out
    assert "### small: 100,000 numbers, a gradient takes 1.00 ms (measured)" in told


@pytest.mark.usefixtures("emulated")
def test_nothing_is_left_when_the_process_is_killed() -> None:
    program = [sys.executable, "-m", "benchmarks.network", "--megabits", "1000"]
    process = subprocess.Popen(program, cwd=_ROOT, stderr=subprocess.DEVNULL)
    try:
        started = time.monotonic()
        while len(found := _children(process.pid)) < 1 + links.HOSTS:
            assert process.poll() is None
            assert time.monotonic() < started + 60
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    started = time.monotonic()
    while any(map(_runs, found)):
        assert time.monotonic() < started + 60
        time.sleep(0.01)


def test_without_root_the_reason_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    results = figures.measure()
    assert results == {"why_not": "no network is emulated here: network namespaces take root"}
    tables.show(results)
    assert capsys.readouterr().out == f"{results['why_not']}\n"
