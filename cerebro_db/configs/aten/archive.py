"""Archive that ``torch.export.save`` writes, read as data: its JSON and its raw arrays, nothing of it unpickled."""

from __future__ import annotations

import base64
import io
import json
import math
import zipfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from cerebro_db.configs.architectures.limits import ArchitectureLimits, refuse
from cerebro_db.configs.aten.check import OPERATIONS_OF_A_LAYER, check_architecture
from cerebro_db.configs.aten.graph import EVAL, FORMAT, FRAMEWORK, TRAIN, Graph
from cerebro_db.configs.aten.operations import flag_of, is_on
from cerebro_db.configs.aten.payloads import Payload, array_of, as_floats, as_json, payloads_of
from cerebro_db.configs.aten.reading import graph_of
from cerebro_db.configs.messages import shown
from cerebro_db.configs.zips import DAMAGED
from cerebro_db.errors import InvalidArchitecture

if TYPE_CHECKING:  # drivers begin without arrays
    import numpy as np

_MIB = 2**20
_MOST_FILES = 100_000
_MOST_JSON = 64 * _MIB  # with stack traces, which the architecture is without
_MOST_CONSTANT = _MIB
_SCHEMA, _ARCHIVE = 8, "0"
_LONGEST_NAME = 60
_SAVE = "torch.export.save of PyTorch 2.9 or later writes what can be read"
_COMPILED = (".so", ".cubin", ".ptx")
_COMPRESSED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read(data: bytes, limits: ArchitectureLimits) -> tuple[str, bytes]:
    """Architecture and weights of an archive.

    Args:
        data: the file.
        limits: of the architecture.

    Returns:
        The checked JSON of the architecture, and float32 of parameters and buffers in its order.

    Raises:
        InvalidArchitecture: it is no such file, or the program in it is not allowed.
    """
    architecture, weights = _read(data, limits)
    return _checked(architecture, limits), weights


def read_both(train: bytes, evaluation: bytes, limits: ArchitectureLimits) -> tuple[str, bytes]:
    """Architecture and weights of a module that was exported twice, in train mode and in eval mode.

    Raises:
        InvalidArchitecture: the two are not of one module.
    """
    (first, weights), (second, _) = _read(train, limits), _read(evaluation, limits)
    for name in ("parameters", "buffers", "shared", "inputs", "outputs"):
        if _of_module(first[name]) != _of_module(second[name]):
            refuse(f"got two programs that differ in their {name}; allowed: two of one module")
    constants = _apart(second, first["constants"])
    joined = {
        "eval": second["train"],
        "mode": TRAIN,
        "constants": first["constants"] | constants,
    }
    return _checked(first | joined, limits), weights


def _read(data: bytes, limits: ArchitectureLimits) -> tuple[dict[str, Any], bytes]:
    return _Program(_Archive(data, limits), limits).architecture()


def _checked(architecture: dict[str, Any], limits: ArchitectureLimits) -> str:
    text = json.dumps(architecture, separators=(",", ":"))
    if len(text) > limits.characters:
        refuse(f"got a program of {len(text)} characters; at most {limits.characters} are allowed")
    check_architecture(architecture, limits)
    return text


def _apart(architecture: dict[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a program, under other names where those are taken by other constants."""
    found = architecture["constants"]
    names = {n: f"{EVAL}.{n}" if n in taken and taken[n] != one else n for n, one in found.items()}
    for spec in architecture["train"]["signature"]["input_specs"]:
        constant = spec.get("tensor_constant")
        if constant is not None:
            constant["tensor_constant_name"] = names[constant["tensor_constant_name"]]
    return {names[name]: one for name, one in found.items()}


def _of_module(entries: Any) -> Any:
    """Names, shapes and types, which are the same in both modes."""
    if isinstance(entries, dict):
        return entries
    return [
        [one["name"], one["shape"], one["dtype"]] if isinstance(one, dict) else one
        for one in entries
    ]


class _Archive:
    """Files of an archive, within limits."""

    def __init__(self, data: bytes, limits: ArchitectureLimits) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except DAMAGED as error:
            _no_archive(f"it is no zip file ({str(error)[:80]})")
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        if len(self._entries) > _MOST_FILES:
            refuse(
                f"got an archive of {len(self._entries)} files; at most {_MOST_FILES} are allowed"
            )
        self.root = self._find_root()
        self._check_parts()

    def _find_root(self) -> str:
        found = [name for name in self._entries if name.rpartition("/")[2] == "archive_format"]
        if len(found) != 1:
            legacy = any(
                name.endswith("serialized_exported_program.json") for name in self._entries
            )
            _no_archive("an older PyTorch wrote it" if legacy else "it has no archive_format")
        root = found[0].removesuffix("archive_format")
        for name, wanted in (
            ("archive_format", "pt2"),
            ("archive_version", _ARCHIVE),
            ("byteorder", "little"),
        ):
            text = self.read(root + name, 100).decode(errors="replace").strip()
            if text != wanted:
                refuse(f"got {name} {shown(text)}; allowed: {wanted!r}", _SAVE)
        return root

    def _check_parts(self) -> None:
        for name in self._entries:
            inner = name.removeprefix(self.root)
            if inner.endswith(_COMPILED) or "aotinductor" in inner:
                refuse(
                    f"got an archive with compiled code, {shown(name)}; allowed: programs", _SAVE
                )

    def programs(self) -> list[str]:
        """Paths of the JSON of programs."""
        start = f"{self.root}models/"
        return [name for name in self._entries if name.startswith(start) and name.endswith(".json")]

    def read(self, name: str, limit: int) -> bytes:
        """A file of at most ``limit`` bytes."""
        entry = self._entries.get(name)
        if entry is None:
            _no_archive(f"it lacks {shown(name)}")
        if entry.file_size > limit:
            refuse(
                f"got {shown(name)} of {entry.file_size} bytes in the archive; at most {limit} are allowed"
            )
        if entry.compress_type not in _COMPRESSED:
            _no_archive(f"{shown(name)} is compressed in a way that PyTorch does not write")
        try:
            with self._zip.open(entry) as file:
                found = file.read(limit + 1)
        except DAMAGED as error:
            _no_archive(f"{shown(name)} is damaged ({str(error)[:80]})")
        if len(found) != entry.file_size:
            _no_archive(f"{shown(name)} is damaged")
        return found


def _no_archive(why: str) -> NoReturn:
    raise InvalidArchitecture(f"got a file that is no exported program: {why}", _SAVE)


class _Program:
    """The program of an archive as an architecture."""

    def __init__(self, archive: _Archive, limits: ArchitectureLimits) -> None:
        self._archive, self._limits = archive, limits
        names = archive.programs()
        if len(names) != 1:
            refuse(f"got an archive of {len(names)} programs; allowed: one", _SAVE)
        self._model = names[0].rpartition("/")[2].removesuffix(".json")
        self._program = as_json(archive.read(names[0], _MOST_JSON))
        self._check_version()
        self._weights = self._payloads("weights")
        self._constants = self._payloads("constants")

    def _check_version(self) -> None:
        version = self._program.get("schema_version")
        major = version.get("major") if isinstance(version, dict) else None
        if major != _SCHEMA or not isinstance(self._program.get("graph_module"), dict):
            wrote = shown(self._program.get("torch_version"))
            refuse(
                f"got schema version {shown(major)}, written by PyTorch {wrote}; allowed: {_SCHEMA}",
                _SAVE,
            )

    def _payloads(self, kind: str) -> dict[str, Payload]:
        path = f"{self._archive.root}data/{kind}/{self._model}_{kind}_config.json"
        return payloads_of(as_json(self._archive.read(path, _MOST_JSON)))

    def architecture(self) -> tuple[dict[str, Any], bytes]:
        """The architecture, and its weights."""
        part = self._part()
        graph = graph_of(part, self._limits.layers * OPERATIONS_OF_A_LAYER)
        held, shared = self._held(graph)
        self._check_count(held)
        arrays = {name: self._array(name) for name in held}
        version = self._program["schema_version"]
        found = {
            "framework": FRAMEWORK,
            "format": FORMAT,
            "torch_version": str(self._program.get("torch_version", ""))[:40],
            "schema": [version["major"], version.get("minor", 0)],
            "opset": self._program.get("opset_version", {}),
            "train": part,
            "eval": None,
            "mode": _mode(graph),
            "parameters": self._entries(held, arrays, "parameter"),
            "buffers": self._entries(held, arrays, "buffer"),
            "shared": shared,
            "constants": self._constant_arrays(graph),
            "inputs": [_input(graph, name) for name in graph.inputs],
            "outputs": _output_names(part, len(graph.outputs)),
        }
        order = [one["name"] for kind in ("parameters", "buffers") for one in found[kind]]
        return found, b"".join(as_floats(name, arrays[name]) for name in order)

    def _part(self) -> dict[str, Any]:
        """The program without stack traces."""
        module = self._program["graph_module"]
        try:
            graph = dict(module["graph"])
            graph["nodes"] = [
                {name: value for name, value in node.items() if name != "metadata"}
                for node in graph["nodes"]
            ]
            calls = [one for one in module.get("module_call_graph", []) if one.get("fqn") == ""]
            return {
                "graph": graph,
                "signature": module["signature"],
                "module_call_graph": calls,
                "range_constraints": self._program["range_constraints"],
                "guards_code": self._program.get("guards_code", []),
            }
        except (KeyError, TypeError, AttributeError) as error:
            refuse(f"got a program that lacks {shown(str(error))}", _SAVE)

    def _held(self, graph: Graph) -> tuple[dict[str, tuple[str, bool]], dict[str, str]]:
        """Parameters and buffers with their kind and whether they persist; further names of them."""
        held: dict[str, tuple[str, bool]] = {}
        shared: dict[str, str] = {}
        first: dict[tuple[str, str], str] = {}
        for kind, name in graph.sources.values():
            if kind not in ("parameter", "buffer"):
                continue
            place = self._payload(name)
            same = first.setdefault((place.path, repr(place.meta)), name)
            if same == name:
                held[name] = (kind, name in self._weights)
            else:
                shared[name] = same
        return held, shared

    def _check_count(self, held: Iterable[str]) -> None:
        """Refuse more numbers than are allowed before any of them is read."""
        count = sum(math.prod(self._payload(name).meta.shape) for name in held)
        if count > self._limits.parameters:
            refuse(
                f"got {count} parameters; at most {self._limits.parameters} are allowed",
                "An administrator may raise the setting max_parameters.",
            )

    def _payload(self, name: str) -> Payload:
        found = self._weights.get(name) or self._constants.get(name)
        if found is None:
            refuse(f"got a program whose archive lacks the numbers of {shown(name)}", _SAVE)
        kind = "weights" if name in self._weights else "constants"
        return found._replace(path=f"{kind}/{found.path}")

    def _array(self, name: str) -> np.ndarray:
        place = self._payload(name)
        limit = 8 * self._limits.parameters
        return array_of(
            name, place, self._archive.read(f"{self._archive.root}data/{place.path}", limit)
        )

    def _entries(
        self, held: Mapping[str, tuple[str, bool]], arrays: Mapping[str, np.ndarray], kind: str
    ) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "shape": list(arrays[name].shape),
                "dtype": arrays[name].dtype.name,
                **(
                    {"trainable": self._payload(name).trainable}
                    if kind == "parameter"
                    else {"persistent": persistent}
                ),
            }
            for name, (of_kind, persistent) in held.items()
            if of_kind == kind
        ]

    def _constant_arrays(self, graph: Graph) -> dict[str, dict[str, Any]]:
        found = {}
        for kind, name in graph.sources.values():
            if kind == "constant" and name not in found:
                array = self._array(name)
                if array.nbytes > _MOST_CONSTANT:
                    refuse(
                        f"got the constant {shown(name)} of {array.nbytes} bytes; at most {_MOST_CONSTANT} are allowed",
                        "register it as a buffer",
                    )
                data = base64.b64encode(array.tobytes()).decode()
                found[name] = {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}
        return found


def _mode(graph: Graph) -> str:
    """The mode of the module that was exported; of one that is the same in both, that of training."""
    flagged = [node for node in graph.nodes if flag_of(node) is not None]
    return EVAL if flagged and not any(map(is_on, flagged)) else TRAIN


def _input(graph: Graph, value: str) -> dict[str, Any]:
    dtype, sizes = graph.sizes[value]
    shape = list(sizes[1:])
    if None in shape:
        refuse(
            f"got the input {shown(value)} of the open shape {shown(list(sizes))}; allowed: every size but "
            "the batch fixed",
            "give dynamic_shapes for dimension 0 only",
        )
    return {"name": graph.sources[value][1], "shape": shape, "dtype": dtype}


def _output_names(part: Mapping[str, Any], count: int) -> list[str]:
    """The keys of a dictionary that a module returns; else ``output``, numbered where there are more."""
    names = _keys(part) if count > 1 else []
    if len(set(names)) == count:
        return names
    return [f"output_{place}" for place in range(count)] if count > 1 else ["output"]


def _keys(part: Mapping[str, Any]) -> list[str]:
    try:
        _, spec = json.loads(part["module_call_graph"][0]["signature"]["out_spec"])
        return (
            [str(key)[:_LONGEST_NAME] for key in json.loads(spec["context"])]
            if spec["type"].endswith("dict")
            else []
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
        return []
