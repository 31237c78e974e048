"""Archive that ``torch.export.load`` reads, written from an architecture and its numbers: JSON and raw arrays."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from cerebro_db.configs.aten.check import names_of, references
from cerebro_db.configs.aten.graph import DTYPES, Node
from cerebro_db.configs.aten.operations import flag_of, is_in_place
from cerebro_db.configs.aten.reading import graph_of

_NUMBERS = {name: number for number, name in DTYPES.items()}
_ROOT, _MODEL = "model", "model"
_CPU = {"type": "cpu", "index": None}
_STRIDED = 7


def written(config: Mapping[str, Any], arrays: Mapping[str, bytes]) -> bytes:
    """The archive of a program in evaluation.

    Args:
        config: of the architecture, checked.
        arrays: little-endian numbers of each parameter and buffer, by name.
    """
    weights, constants = _payloads(config)
    files = {
        "archive_format": b"pt2",
        "archive_version": b"0",
        "byteorder": b"little",
        ".data/version": b"6\n",
        f"models/{_MODEL}.json": _encoded(_program(config)),
        # A pickle in other archives; an empty one has no inputs.
        f"data/sample_inputs/{_MODEL}.pt": b"",
        f"data/weights/{_MODEL}_weights_config.json": _encoded({"config": weights}),
        f"data/constants/{_MODEL}_constants_config.json": _encoded({"config": constants}),
    }
    held = {
        **arrays,
        **{n: base64.b64decode(one["data"]) for n, one in config["constants"].items()},
    }
    for kind, payloads in (("weights", weights), ("constants", constants)):
        for name, payload in payloads.items():
            owner = config.get("shared", {}).get(name, name)
            files[f"data/{kind}/{payload['path_name']}"] = held[owner]
    return _zipped(files)


def _zipped(files: Mapping[str, bytes]) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for name, data in files.items():
            # Of one time, so that equal models are equal bytes.
            archive.writestr(zipfile.ZipInfo(f"{_ROOT}/{name}", (1980, 1, 1, 0, 0, 0)), data)
    return found.getvalue()


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def _payloads(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Descriptions of what a module's state has, and of the other tensors."""
    held = {one["name"]: one for one in (*config["parameters"], *config["buffers"])}
    paths = {name: f"weight_{place}" for place, name in enumerate(held)}
    weights: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, owner in {**{name: name for name in held}, **config.get("shared", {})}.items():
        one = held[owner]
        kept = one.get("persistent", True)
        path = paths[owner] if kept else f"tensor_{len(constants)}"
        parameter = one in config["parameters"]
        (weights if kept else constants)[name] = _payload(path, one, parameter)
    for name, one in config["constants"].items():
        constants[name] = _payload(f"tensor_{len(constants)}", one, False)
    return weights, constants


def _payload(path: str, one: Mapping[str, Any], parameter: bool) -> dict[str, Any]:
    meta = {
        "dtype": _NUMBERS[one["dtype"]],
        "sizes": [{"as_int": size} for size in one["shape"]],
        "requires_grad": parameter and bool(one.get("trainable", True)),
        "device": _CPU,
        "strides": [{"as_int": stride} for stride in _strides(one["shape"])],
        "storage_offset": {"as_int": 0},
        "layout": _STRIDED,
    }
    return {"path_name": path, "is_param": parameter, "use_pickle": False, "tensor_meta": meta}


def _strides(shape: list[int]) -> list[int]:
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return found[::-1]


def _program(config: Mapping[str, Any]) -> dict[str, Any]:
    part = config.get("eval") or evaluating(config["train"])
    major, minor = config["schema"]
    graph = dict(part["graph"])
    graph["nodes"] = [{**node, "metadata": {}} for node in graph["nodes"]]
    return {
        "graph_module": {
            "graph": graph,
            "signature": part["signature"],
            "module_call_graph": part["module_call_graph"],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": config["opset"],
        "range_constraints": part["range_constraints"],
        "schema_version": {"major": major, "minor": minor},
        "verifiers": ["TRAINING"],
        "torch_version": config["torch_version"],
        "guards_code": part.get("guards_code", []),
    }


def evaluating(part: Mapping[str, Any]) -> dict[str, Any]:
    """The graph as it evaluates: no dropout, averages of batches are used and stay."""
    graph = graph_of(part, 2**31)
    buffers = {value for value, (kind, _) in graph.sources.items() if kind == "buffer"}
    used = {
        name for node in graph.nodes for one in node.arguments for name in references(one.value)
    }
    used.update(graph.outputs)
    kept = [
        _evaluated(given, node)
        for given, node in zip(part["graph"]["nodes"], graph.nodes, strict=True)
        if not _is_useless(node, buffers, used)
    ]
    return {**part, "graph": {**part["graph"], "nodes": kept}}


def _is_useless(node: Node, buffers: set[str], used: set[str]) -> bool:
    """True for a node that only changes a buffer, such as a count of batches."""
    first = next(iter(references(node.arguments[0].value)), "") if node.arguments else ""
    unused = used.isdisjoint(names_of(node.outputs))
    return is_in_place(node.target) and first in buffers and unused


def _evaluated(given: Mapping[str, Any], node: Node) -> dict[str, Any]:
    flag = flag_of(node)
    if flag is None:
        return dict(given)
    value = {"as_bool": flag.off} if isinstance(flag.off, bool) else {"as_float": flag.off}
    inputs = [{**one, "arg": value} if one["name"] == flag.name else one for one in given["inputs"]]
    return {**given, "inputs": inputs}
