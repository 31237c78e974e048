"""Figures of all patterns on emulated networks, beside what the papers report."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.network.emulated import Network, NotPossible, network
from benchmarks.network.links import HOSTS


class Net(NamedTuple):
    """A net whose exchange is measured.

    Attributes:
        floats: its parameters.
        partition: bytes of one of the four partitions that it is trained on.
    """

    floats: int
    partition: int


# Of benchmarks.workloads: 10,000 images of 28 x 28, and 200,000 rows of 64 numbers, with labels.
NETS = {
    "tabular": Net(26_122, 200_000 * 260 // 4),
    "images": Net(225_034, 10_000 * 3140 // 4),
    "large": Net(4_000_000, 10_000 * 12_292 // 4),
}


class Pattern(NamedTuple):
    """Something that hosts do in an epoch of four models.

    Attributes:
        name: of a method of ``Host``.
        each: what is measured.
        times: that in an epoch, where it is not each step that each host makes; then nothing is computed meanwhile.
        bits: of a number.
    """

    name: str
    each: str
    times: int | None = None
    bits: int = 32


PATTERNS = {
    "hopping": Pattern("hopping", "hop", HOSTS),
    "averaging": Pattern("averaging", "average", HOSTS),
    "task": Pattern("task", "reading of 3 partitions", 1),
    "allreduce": Pattern("allreduce", "step"),
    "pipe, 32 bits": Pattern("pipe", "step", bits=32),
    "pipe, 16 bits": Pattern("pipe", "step", bits=16),
    "pipe, 8 bits": Pattern("pipe", "step", bits=8),
    "parameter_server, synchronous": Pattern("synchronous", "step"),
    "parameter_server, asynchronous": Pattern("asynchronous", "step"),
}
_ROUND_SECONDS, _MOST_TIMES = 0.25, 50
_PINGS, _PROBE_SECONDS = 50, 0.2
_ENOUGH = 0.8  # of the nominal rate, when all four links are in use


def measure(
    nets: Mapping[str, Net] = NETS,
    megabits: Sequence[int] = (1000, 10000),
    delay_ms: float = 0.2,
    steps: int = 100,
    step_ms: Mapping[str, float] | None = None,
    rounds: int = 3,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Figures of all patterns, as plain values.

    Each net computes a gradient as long as an all-reduce of it takes on that network, then half as long, then as
    long as is given.

    Args:
        nets: by name.
        megabits: a second, of each network.
        delay_ms: one way.
        steps: of each host in an epoch of four models.
        step_ms: of a gradient, by the name of its net, as measured elsewhere.
        rounds: of each pattern, of which the median counts.
        log: gets a line about each thing that begins.

    Returns:
        ``networks``, a list; or ``why_not``, a line, where networks can't be emulated.
    """
    found: list[dict[str, Any]] = []
    results = {"hosts": HOSTS, "delay_ms": delay_ms, "steps": steps, "rounds": rounds}
    try:
        for rate in megabits:
            log(f"{rate} Mbit/s")
            with network(rate, delay_ms) as emulated:
                meter = _Meter(emulated, rounds)
                reached = _reached(meter, rate)
                each = {}
                for name, net in nets.items():
                    log(f"{rate} Mbit/s, {name}")
                    each[name] = _of_net(meter, net, steps, (step_ms or {}).get(name))
                found.append({"megabits": rate, "reached": reached, "nets": each})
    except NotPossible as error:
        return {"why_not": f"no network is emulated here: {error}"}
    return {**results, "networks": found}


class _Meter(NamedTuple):
    network: Network
    rounds: int

    def each(self, pattern: Pattern, size: int, compute: float = 0.0) -> dict[str, float]:
        """Seconds and bytes of one step, or whatever the pattern consists of."""

        def done(count: int) -> list[dict[str, Any]]:
            return self.network.measure(pattern.name, size, count, compute, pattern.bits)

        once = _longest(done(1))
        count = max(1, min(_MOST_TIMES, math.ceil(_ROUND_SECONDS / max(once, 1e-9))))
        rounds = [done(count) for _ in range(self.rounds)]
        moved = [sum(host["bytes"]) / count for host in rounds[-1]]
        counted = [sum(host["counted"]) / count for host in rounds[-1]]
        return {
            "seconds": statistics.median(_longest(one) for one in rounds) / count,
            "bytes": statistics.mean(moved),
            "bytes_of_busiest": max(moved),
            "bytes_of_interface": statistics.mean(counted),
        }


def _longest(hosts: Sequence[Mapping[str, Any]]) -> float:
    return max(float(host["seconds"]) for host in hosts)


def _reached(meter: _Meter, megabits: int) -> dict[str, Any]:
    """Bandwidth and latency of the emulated network, as measured."""
    size = int(megabits * 1e6 / 8 * _PROBE_SECONDS)
    pings = [
        meter.network.measure("ping", 8, _PINGS)[0]["seconds"] / _PINGS for _ in range(meter.rounds)
    ]

    def rate(pattern: str) -> float:
        one = meter.each(Pattern(pattern, pattern), size)
        return 8 * size / one["seconds"] / 1e6

    each_of_four = rate("ring")
    return {
        "round_trip_ms": 1000 * statistics.median(pings),
        "megabits_of_one_link": rate("stream"),
        "megabits_of_each_of_four": each_of_four,
        "short_of_processors": each_of_four < _ENOUGH * megabits,
        "load": os.getloadavg()[0],
        "processors": len(os.sched_getaffinity(0)),
    }


def _of_net(meter: _Meter, net: Net, steps: int, step_ms: float | None) -> dict[str, Any]:
    alone = {
        name: meter.each(pattern, net.partition if name == "task" else net.floats)
        for name, pattern in PATTERNS.items()
        if pattern.times or name == "allreduce"
    }
    exchange = alone["allreduce"]["seconds"]
    computing = {"as an all-reduce": exchange, "half an all-reduce": exchange / 2}
    if step_ms is not None:
        computing["measured"] = step_ms / 1000
    return {
        "floats": net.floats,
        "partition_bytes": net.partition,
        "allreduce_ms": 1000 * exchange,
        "computing": {
            name: _epochs(meter, net, alone, steps, compute) for name, compute in computing.items()
        },
    }


def _epochs(
    meter: _Meter, net: Net, alone: Mapping[str, dict[str, float]], steps: int, compute: float
) -> dict[str, Any]:
    """An epoch of four models by each pattern, if a gradient takes so many seconds."""
    rows = {}
    for name, pattern in PATTERNS.items():
        if pattern.times is None:
            one, times = meter.each(pattern, net.floats, compute), steps
            epoch = times * one["seconds"]
        else:
            one, times = alone[name], pattern.times
            epoch = steps * compute + times * one["seconds"]
        rows[name] = {
            "each": pattern.each,
            "each_ms": 1000 * one["seconds"],
            "epoch_seconds": epoch,
            "communication": max(1 - steps * compute / epoch, 0.0),
            "megabytes": times * one["bytes"] / 1e6,
            "megabytes_of_busiest": times * one["bytes_of_busiest"] / 1e6,
            "interface_by_counted": one["bytes_of_interface"] / one["bytes"],
        }
    return {"step_ms": 1000 * compute, "patterns": rows, "ratios": _ratios(rows)}


def _ratios(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Patterns beside each other, with what the papers report."""

    def ratio(one: str, other: str, key: str = "epoch_seconds") -> float:
        return float(rows[one][key] / rows[other][key])

    pipes = [
        {
            "name": f"time of allreduce / {name}",
            "value": ratio("allreduce", name),
            "paper": "2.0 to 3.2, where communication takes as long as computation or longer (Pipe-SGD)",
            "agrees": ratio("allreduce", name) > 1,
        }
        for name in rows
        if name.startswith("pipe")
    ]
    server = ratio("parameter_server, synchronous", "allreduce")
    less = [name for name in rows if rows[name]["megabytes"] < rows["hopping"]["megabytes"]]
    return [
        *pipes,
        {
            "name": "time of parameter_server, synchronous / allreduce",
            "value": server,
            "paper": "more than 1: a synchronous parameter server is slower than all-reduce (Pipe-SGD, Horovod)",
            "agrees": server > 1,
        },
        {
            "name": "time of hopping / allreduce",
            "value": ratio("hopping", "allreduce"),
            "paper": "less than 1: hopping exchanges once a partition, not once a mini-batch (Cerebro)",
            "agrees": ratio("hopping", "allreduce") < 1,
        },
        {
            "name": "bytes of hopping / allreduce",
            "value": ratio("hopping", "allreduce", "megabytes"),
            "paper": "hopping moves least (Cerebro)",
            "agrees": not less,
            "but": f"less is moved by {', '.join(less)}" if less else "",
        },
    ]
