"""Archives of exported programs: read as data, and refused where they are anything else."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.torch.nets import Exported, exported, mlp, torch

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.aten import archive
from cerebro_db.errors import InvalidArchitecture

LIMITS = ArchitectureLimits()
nn = torch.nn


@pytest.fixture(scope="module")
def net() -> Exported:
    """A net with batch normalization and dropout."""
    return Exported(mlp().train(), torch.zeros(2, 6))


def changed(file: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """An archive with other files; None leaves one out."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as old, zipfile.ZipFile(found, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return found.getvalue()


def with_json(file: bytes, name: str, change: Callable[[Any], Any]) -> bytes:
    """An archive with a change in one of its JSON texts."""

    def apply(path: str, data: bytes) -> bytes:
        if not path.endswith(name):
            return data
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return changed(file, apply)


def test_an_archive_becomes_an_architecture(net: Exported) -> None:
    found = net.architecture
    assert (found["framework"], found["format"], found["mode"]) == ("torch", 1, "train")
    assert [one["name"] for one in found["parameters"]] == [
        n for n, _ in net.module.named_parameters()
    ]
    assert [one["name"] for one in found["buffers"]] == [n for n, _ in net.module.named_buffers()]
    assert found["inputs"] == [{"name": "input", "shape": [6], "dtype": "float32"}]
    assert found["outputs"] == ["output"]
    assert "stack_trace" not in net.text
    numbers = np.frombuffer(net.weights, np.float32)
    wanted = [
        one.detach().numpy().astype(np.float32).reshape(-1) for one in net.module.parameters()
    ]
    wanted += [one.numpy().astype(np.float32).reshape(-1) for one in net.module.buffers()]
    np.testing.assert_array_equal(numbers, np.concatenate(wanted))


def test_both_modes_become_one_architecture() -> None:
    module = mlp()
    files = [
        exported(module.train(), torch.zeros(2, 6)),
        exported(module.eval(), torch.zeros(2, 6)),
    ]
    text, _ = archive.read_both(files[0], files[1], LIMITS)
    found = json.loads(text)
    assert found["eval"] is not None
    assert json.loads(archive.read(files[1], LIMITS)[0])["mode"] == "eval"
    with pytest.raises(InvalidArchitecture, match="differ in their parameters"):
        archive.read_both(files[0], exported(nn.Linear(6, 2), torch.zeros(2, 6)), LIMITS)


def test_parameters_that_are_shared_are_one() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, rows: Any) -> Any:
            return {"a": self.first(rows), "b": self.second(rows)}

    found = Exported(Shared(), torch.zeros(2, 4)).architecture
    names = [one["name"] for one in found["parameters"]] + [*found["shared"]]
    assert sorted(set(names)) == sorted(names)
    assert found["outputs"] == ["a", "b"]


class _Planted:
    """What writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def test_a_pickle_never_runs(net: Exported, tmp_path: Path) -> None:
    planted = pickle.dumps(_Planted(tmp_path / "ran"))
    inputs = changed(net.file, lambda name, data: planted if "sample_inputs" in name else data)
    assert archive.read(inputs, LIMITS) == (net.text, net.weights)
    everywhere = changed(
        net.file, lambda name, data: planted if "weights/weight_" in name else data
    )
    with pytest.raises(InvalidArchitecture):
        archive.read(everywhere, LIMITS)
    flagged = with_json(
        everywhere,
        "weights_config.json",
        lambda document: [one.update(use_pickle=True) for one in document["config"].values()],
    )
    with pytest.raises(InvalidArchitecture, match="as a pickle, which is never read"):
        archive.read(flagged, LIMITS)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_archive_is_refused(net: Exported) -> None:
    def without(part: str) -> bytes:
        return changed(net.file, lambda name, data: None if part in name else data)

    def replaced(part: str, text: bytes) -> bytes:
        return changed(net.file, lambda name, data: text if name.endswith(part) else data)

    for file, words in (
        (b"", "no zip file"),
        (net.file[:-30], "no exported program"),
        (without("archive_format"), "no archive_format"),
        (without("weight_0"), "it lacks"),
        (without("models/"), "of 0 programs"),
        (replaced("archive_version", b"9"), "archive_version"),
        (replaced("byteorder", b"big"), "byteorder"),
        (replaced("weight_0", b"1"), "is not in its 1 bytes"),
        (replaced("model.json", b"{"), "cannot be read"),
        (replaced("model.json", b"[" * 100_000), "cannot be read"),
    ):
        with pytest.raises(InvalidArchitecture, match=words):
            archive.read(file, LIMITS)
    with_code = changed(net.file, lambda name, data: data)
    with zipfile.ZipFile(buffer := io.BytesIO(with_code), "a") as more:
        more.writestr("m/data/aotinductor/model.so", b"")
    with pytest.raises(InvalidArchitecture, match="compiled code"):
        archive.read(buffer.getvalue(), LIMITS)


def test_an_archive_has_any_name_and_few_numbers(net: Exported) -> None:
    found = {}
    for name, how in (("plain", zipfile.ZIP_DEFLATED), ("packed", zipfile.ZIP_LZMA)):
        with (
            zipfile.ZipFile(io.BytesIO(net.file)) as old,
            zipfile.ZipFile(buffer := io.BytesIO(), "w", how) as new,
        ):
            for path in old.namelist():
                new.writestr(f"net.softmax/{path.partition('/')[2]}", old.read(path))
        found[name] = buffer.getvalue()
    assert archive.read(found["plain"], LIMITS) == (net.text, net.weights)
    with pytest.raises(InvalidArchitecture, match="compressed in a way"):
        archive.read(found["packed"], LIMITS)
    with pytest.raises(InvalidArchitecture, match="parameters; at most 10 are allowed"):
        archive.read(net.file, replace(LIMITS, parameters=10))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["schema_version"].update(major=7), "schema version 7, written by PyTorch"),
        (
            lambda d: d["guards_code"].append("L['input'].size()[0] > 4"),
            "holds under the condition",
        ),
        (
            lambda d: [r.update(min_val=2) for r in d["range_constraints"].values()],
            "for 2 to None rows",
        ),
        (
            lambda d: [r.update(max_val=64) for r in d["range_constraints"].values()],
            "for 0 to 64 rows",
        ),
        (
            lambda d: d["graph_module"]["graph"]["nodes"][0].update(
                target="torch.ops.mine.op.default"
            ),
            "got the operation 'torch.ops.mine.op.default'",
        ),
        (
            lambda d: d["graph_module"]["graph"]["nodes"][0].update(
                target="torch.ops.aten.set_.source_Tensor"
            ),
            "not on the list",
        ),
        (
            lambda d: d["graph_module"]["signature"]["output_specs"].append(
                {"user_input_mutation": {"arg": {"name": "input"}, "user_input_name": "input"}}
            ),
            "the effect 'user_input_mutation'",
        ),
    ],
)
def test_programs_that_are_refused(net: Exported, change: Any, words: str) -> None:
    with pytest.raises(InvalidArchitecture, match=words):
        archive.read(with_json(net.file, "model.json", change), LIMITS)


def test_modules_that_are_refused() -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, rows: Any) -> Any:
            self.weight.data.add_(1)
            return rows * self.weight

    rows = torch.zeros(2, 4)
    fixed = io.BytesIO()
    torch.export.save(torch.export.export(nn.Linear(4, 2), (rows,)), fixed)
    for file, words in (
        (fixed.getvalue(), "fixed batch size"),
        (exported(nn.Flatten(0), rows), "got an output of the shape"),
        (exported(nn.Linear(4, 2).half(), rows.half()), "of type float16"),
    ):
        with pytest.raises(InvalidArchitecture, match=words):
            archive.read(file, LIMITS)


def test_limits_hold(net: Exported) -> None:
    for limits, words in (
        (replace(LIMITS, parameters=10), "parameters|bytes"),
        (replace(LIMITS, layers=0), "operations"),
        (replace(LIMITS, characters=100), "characters"),
    ):
        with pytest.raises(InvalidArchitecture, match=words):
            archive.read(net.file, limits)


def test_constants_belong_to_the_architecture() -> None:
    class Cached(nn.Module):
        def forward(self, rows: Any) -> Any:
            kept = torch.cat([torch.tensor([]), torch.tensor([1.0, 2.0])])
            return rows * kept

    found = Exported(Cached(), torch.zeros(2, 2))
    assert sorted(one["shape"] for one in found.architecture["constants"].values()) == [[0], [2]]
    from cerebro_db.training.backends.torch.net import Net

    net = Net(found.architecture)
    (outputs,) = net.evaluate(net.split(np.ones((3, 2), np.float32)))
    np.testing.assert_array_equal(outputs.numpy(), [[1, 2]] * 3)
