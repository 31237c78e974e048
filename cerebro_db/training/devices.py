"""The GPUs of this host, and the one on which a process computes: chosen before its framework is imported."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cerebro_db.configs.frameworks import default, frameworks, installed
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

NVIDIA = "nvidia"
VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
# One of these is there wherever a program can reach a GPU, whoever made it.
_NODES = ("nvidia[0-9]*", "kfd", "dxg", "dri/renderD*")
_SECONDS, _SECONDS_OF_FRAMEWORKS = 20.0, 120.0
_POLL_SECONDS = 0.05
_GPU = re.compile(r"^\s*(?:GPU \d+:|MIG ).*\(UUID: ((?:GPU|MIG)-[\w/-]+)\)\s*$")
# What an administrator has left to this process, before we write there.
_GIVEN = os.environ.get(VISIBLE)
_REPORT = "from cerebro_db.training.backends import backend; backend({!r}).report_devices()"
Tick = Callable[[], None]


def sources() -> tuple[str, ...]:
    """What can list GPUs: the frameworks, and NVIDIA's program."""
    return (*frameworks(), NVIDIA)


def checked_source(given: str | None) -> str:
    """The name of a source in lower case; the default framework where none is given.

    Raises:
        InvalidArgument: there is no such source.
    """
    source = default() if given is None else given.strip().lower()
    if source not in sources():
        raise _unknown(shown(given))
    return source


def _unknown(got: str) -> InvalidArgument:
    *most, last = (f"'{name}'" for name in sources())
    return InvalidArgument(f"source: got {got}; allowed: {', '.join(most)} or {last}")


def described(source: str | None, tick: Tick) -> list[str]:
    """A line about each GPU of this host; none where there is no GPU, or nobody who can tell.

    Args:
        source: who is asked.
        tick: called while waiting; an exception of it ends the waiting.
    """
    if source not in sources():
        raise _unknown("NULL" if source is None else repr(source))
    if not has_nodes():
        return []
    if source == NVIDIA:
        return [line for line in _nvidia(tick) if line.strip()]
    return _from_framework(source, tick) if source in installed() else []


def has_nodes(folder: Path = Path("/dev")) -> bool:
    """True if the system has a device that may be a GPU: asking a framework takes seconds."""
    return any(next(folder.glob(pattern), None) is not None for pattern in _NODES)


def chosen(place: int, lines: Sequence[str], given: str | None) -> str | None:
    """The GPU of one process of a host, as ``CUDA_VISIBLE_DEVICES`` names it.

    Args:
        place: of the process among those of its host, from 0.
        lines: what ``nvidia-smi -L`` tells.
        given: what ``CUDA_VISIBLE_DEVICES`` was: an administrator may have left some GPUs only.

    Returns:
        None where nobody can tell; a framework then takes what it finds.
    """
    usable = _named(lines) if given is None else _left(given)
    return usable[place % len(usable)] if usable else None


def choose(place: int) -> None:
    """Leave one GPU to this process, the one of its place; before its framework is imported."""
    lines = [] if _GIVEN is not None else _nvidia(lambda: None)
    device = chosen(place, lines, _GIVEN)
    if device is not None:
        os.environ[VISIBLE] = device


def _left(text: str) -> list[str]:
    """The devices of ``CUDA_VISIBLE_DEVICES``: what follows one that cannot be does not count."""
    found: list[str] = []
    for entry in map(str.strip, text.split(",")):
        if not entry or entry.startswith("-"):
            break
        found.append(entry)
    return found


def _named(lines: Sequence[str]) -> list[str]:
    """Unique names of GPUs; where one is divided, those of its parts."""
    names = [match[1] for line in lines if (match := _GPU.match(line))]
    return [
        name
        for name, following in itertools.pairwise([*names, ""])
        if name.startswith("MIG") or not following.startswith("MIG")
    ]


def _nvidia(tick: Tick) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None or not has_nodes():
        return []
    return _answer([program, "-L"], dict(os.environ), _SECONDS, tick).splitlines()


def _from_framework(source: str, tick: Tick) -> list[str]:
    """GPUs as a framework lists them in another process: this one would keep memory of them."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        _ORDER: os.environ.get(_ORDER, "PCI_BUS_ID"),
    }
    for name, value in (("PYTHONHOME", None), (VISIBLE, _GIVEN)):
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    command = [interpreter(), "-P", "-c", _REPORT.format(source)]
    answer = _answer(command, environment, _SECONDS_OF_FRAMEWORKS, tick)
    return [str(line) for line in json.loads(answer.splitlines()[-1])] if answer.strip() else []


def interpreter() -> str:
    """The program of the Python that runs here, inside of a server too."""
    version = ".".join(map(str, sys.version_info[:2]))
    for program in (Path(sys.exec_prefix, "bin", f"python{version}"), Path(sys.executable or "")):
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return shutil.which(f"python{version}") or "python3"


def _answer(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, tick: Tick
) -> str:
    """Output of a program; nothing where it fails."""
    try:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            try:
                output, _ = child.communicate(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                tick()
                continue
            return output.decode(errors="replace") if child.returncode == 0 else ""
        return ""
    finally:
        if child.returncode is None:
            child.kill()
            child.communicate()
