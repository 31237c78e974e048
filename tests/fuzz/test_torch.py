"""Architectures and archives that are changed at random are refused in words, or computed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.documents import mutated, places
from fuzz.harness import INPUTS, attempt
from training.torch.nets import Exported, mlp, torch
from training.torch.test_numerics import Lstm, Transformer, cnn

from cerebro_db.configs.architectures.limits import ArchitectureLimits, read_json
from cerebro_db.configs.aten import archive
from cerebro_db.configs.aten.check import check_architecture
from cerebro_db.errors import CerebroError
from cerebro_db.training.backends.torch import environment
from cerebro_db.training.backends.torch.net import Net
from cerebro_db.training.backends.torch.sizes import check_size

# So small that what they allow is computed at once.
LIMITS = ArchitectureLimits(parameters=50_000, elements=50_000, layers=40, steps=10)
RUNS = ("os.exec", "os.fork", "os.posix_spawn", "os.system", "pickle.", "socket.", "subprocess.")
NETS = {
    "mlp": (mlp, torch.zeros(2, 6)),
    "cnn": (cnn, torch.zeros(2, 1, 8, 8)),
    "lstm": (Lstm, torch.zeros(2, 5, dtype=torch.long)),
    "transformer": (Transformer, torch.zeros(2, 5, 8)),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    """Compute as a trainer does."""
    environment.set_up(1, False)


@pytest.mark.parametrize("name", NETS)
def test_architectures(name: str) -> None:
    build, inputs = NETS[name]
    architecture = Exported(build().train(), inputs).architecture
    every, generator = list(places(architecture)), random.Random(name)
    for _ in range(max(20, INPUTS // 12)):
        text = json.dumps(mutated(architecture, every, generator))
        config = attempt("torch, check", _checked, text, forbidden=RUNS)
        if config is not None and attempt("torch, sizes", _fits, config, forbidden=RUNS):
            _computed(config)


def _checked(text: str) -> Any:
    return check_architecture(read_json(text, LIMITS), LIMITS)


def _fits(config: Any) -> bool:
    return check_size(config, LIMITS).parameters >= 0


def _computed(config: Any) -> None:
    """A batch in training and in evaluation; what torch raises is about the rows."""
    net = Net(config)
    rows = np.zeros((3, *net.row), np.float32)
    for run in (net.train, net.evaluate):
        with contextlib.suppress(CerebroError, RuntimeError, ValueError, IndexError, TypeError):
            run(net.split(rows))


class _Planted:
    """What makes a directory where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def test_archives(tmp_path: Path) -> None:
    net = Exported(mlp().train(), torch.zeros(2, 6))
    generator, planted = random.Random(5), pickle.dumps(_Planted(tmp_path / "ran"))
    for number in range(max(20, INPUTS // 10)):
        damaged = (
            _damaged(net.file, generator, planted)
            if number % 2
            else _with_bytes(net.file, generator)
        )
        attempt("torch, archives", archive.read, damaged, LIMITS, forbidden=RUNS)
    assert not (tmp_path / "ran").exists()


def _damaged(file: bytes, generator: random.Random, planted: bytes) -> bytes:
    """An archive with one changed file, and a pickle where torch puts the sample inputs, or in place of weights."""
    found = io.BytesIO()
    pickled = generator.choice(
        ("sample_inputs/", "sample_inputs/", "weights/weight_", "constants/")
    )
    with zipfile.ZipFile(io.BytesIO(file)) as old, zipfile.ZipFile(found, "w") as new:
        chosen = generator.choice([name for name in old.namelist() if "sample_inputs" not in name])
        for name in old.namelist():
            data = planted if pickled in name and name != chosen else old.read(name)
            if name == chosen and name.endswith(".json"):
                document = json.loads(data)
                changed = mutated(document, list(places(document)), generator)
                data = json.dumps(changed).encode("utf-8", "replace")
            elif name == chosen:
                data = _cut(data, generator)
            new.writestr(name, data)
    return found.getvalue()


def _cut(data: bytes, generator: random.Random) -> bytes:
    place = generator.randint(0, len(data))
    return data[:place] + generator.randbytes(generator.randint(0, 9)) + data[place + 2 :]


def _with_bytes(file: bytes, generator: random.Random) -> bytes:
    """The bytes of an archive with some of them changed."""
    found = bytearray(file)
    for _ in range(generator.randint(1, 8)):
        found[generator.randrange(len(found))] = generator.randrange(256)
    return bytes(found) if generator.random() < 0.9 else _cut(bytes(found), generator)
