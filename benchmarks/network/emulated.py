"""An emulated network of hosts, each of which is a process in a namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.network.links import ADDRESS, HOSTS


class NotPossible(Exception):
    """No network can be emulated on this machine, and why."""


class Network:
    """Four hosts that do the same thing at the same time.

    Args:
        hosts: their processes.
    """

    def __init__(self, hosts: Sequence[subprocess.Popen[str]]) -> None:
        self._hosts = hosts

    def measure(
        self, pattern: str, size: int, count: int = 1, compute: float = 0.0, bits: int = 32
    ) -> list[dict[str, Any]]:
        """Measurements of each host; see ``Host.measured``."""
        asked = dict(pattern=pattern, size=size, count=count, compute=compute, bits=bits)
        found = _asked(self._hosts, [asked] * HOSTS)
        if not all(one["checked"] for one in found):
            raise RuntimeError(f"{pattern}: sums are wrong")
        return found


def _asked(hosts: Sequence[subprocess.Popen[str]], told: Sequence[Any]) -> list[Any]:
    """Answers of all hosts to a line each."""
    for host, one in zip(hosts, told, strict=True):
        assert host.stdin
        host.stdin.write(json.dumps(one) + "\n")
        host.stdin.flush()
    return [_answer(host) for host in hosts]


def _answer(host: subprocess.Popen[str]) -> Any:
    assert host.stdout
    line = host.stdout.readline()
    if not line:
        raise RuntimeError("a host has ended: its last words are above")
    return json.loads(line)


@contextmanager
def network(megabits: int, delay_ms: float) -> Iterator[Network]:
    """An emulated network, which is gone afterwards.

    Args:
        megabits: a second, of each link and direction.
        delay_ms: one way.

    Raises:
        NotPossible: it can't be made here.
    """
    tools = _tools()
    with ExitStack() as stack:
        switch = stack.enter_context(_started([tools["unshare"], "--net", "cat"]))
        _asked([switch], [{}])
        program = [tools["unshare"], "--net", sys.executable, "-m", "benchmarks.network", "--host"]
        hosts = [stack.enter_context(_started(program)) for _ in range(HOSTS)]
        for host in hosts:
            _answer(host)
        _join(tools, switch.pid, [host.pid for host in hosts], megabits)
        facts = {"delay": delay_ms / 1000, "rate": megabits * 1e6 / 8}
        _asked(hosts, [{"place": place, **facts} for place in range(HOSTS)])
        yield Network(hosts)


def _tools() -> dict[str, str]:
    if os.geteuid() != 0:
        raise NotPossible("network namespaces take root")
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    found = {name: shutil.which(name, path=path) for name in ("ip", "tc", "unshare", "nsenter")}
    if missing := [name for name, place in found.items() if place is None]:
        raise NotPossible(f"there is no {', '.join(missing)}: apt-get install iproute2 util-linux")
    tools = {name: place for name, place in found.items() if place}
    done = subprocess.run([tools["unshare"], "--net", "true"], capture_output=True, text=True)
    if done.returncode:
        raise NotPossible(f"network namespaces are not allowed here: {done.stderr.strip()}")
    return tools


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when its input does; Ctrl-C is not for it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _join(tools: Mapping[str, str], switch: int, hosts: Sequence[int], megabits: int) -> None:
    """Links between hosts and switch, with their rate."""
    ports = [f"port{place}" for place in range(HOSTS)]
    lines = ["link add name bridge type bridge", "link set bridge up"]
    for port, process in zip(ports, hosts, strict=True):
        lines += [
            f"link add {port} type veth peer name eth0 netns {process}",
            f"link set {port} master bridge up",
        ]
    _batch(tools, "ip", switch, lines)
    # So many bytes may go at once, as the kernel is late at times: those of 0.2 ms. A packet has fewer.
    burst, packet = max(megabits * 25, 8000), min(max(megabits * 16, 4000), 65536)
    shape = f"root tbf rate {megabits}mbit burst {burst} limit {64 * 2**20}"
    _batch(tools, "tc", switch, [f"qdisc add dev {port} {shape}" for port in ports])
    for place, process in enumerate(hosts):
        lines = [
            "link set lo up",
            f"address add {ADDRESS.format(place + 1)}/24 dev eth0",
            f"link set eth0 gso_max_size {packet} up",
        ]
        _batch(tools, "ip", process, lines)
        _batch(tools, "tc", process, [f"qdisc add dev eth0 {shape}"])


def _batch(tools: Mapping[str, str], tool: str, process: int, lines: Sequence[str]) -> None:
    command = [tools["nsenter"], "--target", str(process), "--net", tools[tool], "-batch", "-"]
    told = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=told, capture_output=True, text=True)
    if done.returncode:
        raise NotPossible(f"{tool} can't make the network: {' '.join(done.stderr.split())}")
