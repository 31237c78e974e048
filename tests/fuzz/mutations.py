"""Strategies: valid texts, changed at random places."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

MODELS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("architectures.json").read_text(encoding="utf-8")
)
_KERAS_2 = Path(__file__).parent.parent / "training" / "data" / "keras2_models.json"
MODELS |= {
    f"keras2_{name}": stored["model"]
    for name, stored in json.loads(_KERAS_2.read_text(encoding="utf-8")).items()
}

Path_ = tuple[Any, ...]


def _object(module: Any, class_name: Any, config: Any, **more: Any) -> dict[str, Any]:
    return {
        "module": module, "class_name": class_name, "config": config, "registered_name": None, **more,
    }  # fmt: skip


# Values that have broken something, somewhere.
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 2**31 - 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0,
    1e-320, 1e308, float("nan"), float("inf"), "", "a", "..", "../../etc/passwd", "\0", "\ud800",
    "x" * 2000, "os.system", "eval", "relu", "float32", "Lambda", "keras.layers", "Dense", "__class__",
    "http://127.0.0.1:9/", [], {}, [[]], [None], [None, None], [2**31 - 1] * 4, [0], [-1, -1],
    [[1]] * 50, {"a": {"b": {}}}, {"class_name": "Dense"}, {"module": "os"}, {"": None},
    {"config": {}}, {"registered_name": "a>b"}, {"compile_config": {"optimizer": "x"}},
    {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}},
    {"class_name": "__keras_tensor__", "config": {}},
    {"class_name": "__keras_tensor__",
     "config": {"shape": [None], "dtype": "float32", "keras_history": ["a", 9, 9]}},
    {"class_name": "__numpy__", "config": {"value": [1], "dtype": "float32"}},
    _object("os", "function", "system"), _object("builtins", "function", "eval"),
    _object("keras.layers", "Lambda", {"function": "x"}),
    _object("keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"}),
    _object("keras.layers", "TFSMLayer", {"filepath": "/tmp"}),
    _object("keras.layers", "Dense", {"units": 2**31 - 1, "name": "wide"}),
    _object("keras.layers", "Flatten", {}), _object("keras.layers", "RepeatVector", {"n": 2**20}),
    _object("keras.layers", "InputLayer", {"batch_shape": [2**20, 2**20]}),
    {"class_name": "__slice__", "config": {"start": 1, "stop": 0, "step": -1}},
    {"class_name": "__slice__", "config": {"start": 0, "stop": 2**31 - 1, "step": 0}},
    {"class_name": "__ellipsis__", "config": {}},
    {"class_name": "__numpy__", "config": {"value": [[1.0], [2.0]], "dtype": "float32"}},
    {"class_name": "__tensor__", "config": {"value": [], "dtype": "int32"}},
    _object("keras.src.ops.numpy", "Repeat", {"repeats": 2**31 - 1, "axis": 1}),
    _object("keras.src.ops.numpy", "Reshape", {"newshape": [-1, 0]}),
    _object("keras.src.ops.core", "Map", {}),
    _object("keras.src.ops.numpy", "Add", {}),
    "expression:x * x", "expression:__import__('os')", "expression:mean(x)",
    _object("keras", "Sequential", {"name": "s", "layers": []}),
    _object("keras", "DTypePolicy", {"name": "float16"}),
    _object("keras.initializers", "Constant", {"value": [[1.0]]}),
    _object("keras.initializers", "Identity", {"gain": 1e30}),
    _object("keras.layers", "Dense", {"units": 2}, inbound_nodes=[{"args": [], "kwargs": {}}]),
]  # fmt: skip


def _paths(value: Any, start: Path_ = ()) -> list[Path_]:
    """Where something can be changed."""
    found = [start] if start else []
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            found += _paths(child, (*start, key))
    return found


def _at(document: Any, path: Path_) -> Any:
    for key in path:
        document = document[key]
    return document


PATHS = {name: _paths(model) for name, model in MODELS.items()}
_CLASSES = sorted({
    _at(model, path)
    for name, model in MODELS.items()
    for path in PATHS[name]
    if path[-1] in ("class_name", "module", "activation", "dtype")
    and isinstance(_at(model, path), str)
})  # fmt: skip

_leaves = (
    st.sampled_from(HOSTILE)
    | st.sampled_from(_CLASSES)
    | st.integers(-9, 99)
    | st.floats()
    | st.text(max_size=9)
)
values = _leaves | st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
_CHANGES = ("replace", "drop", "insert", "swap", "repeat", "wrap", "rename")


def _change(document: Any, change: str, path: Path_, other: Path_, value: Any) -> None:
    """Change a document in place; a path that an earlier change took away changes nothing."""
    try:
        parent = _at(document, path[:-1])
        old = copy.deepcopy(parent[path[-1]])
        if change == "drop":
            del parent[path[-1]]
        elif change == "insert" and isinstance(parent, list):
            parent.insert(path[-1], value)
        elif change == "swap":
            parent[path[-1]], _at(document, other[:-1])[other[-1]] = _at(document, other), old
        elif change == "repeat" and isinstance(parent, list):
            parent.extend([old] * 3)
        elif change == "wrap":
            parent[path[-1]] = [old] if isinstance(value, list) else {"config": old}
        elif change == "rename" and isinstance(parent, dict):
            parent[str(value)[:30]] = parent.pop(path[-1])
        else:
            parent[path[-1]] = copy.deepcopy(value)
    except (KeyError, IndexError, TypeError):
        return


@st.composite
def architectures(draw: st.DrawFn) -> str:
    """The JSON of a model, changed one to four times; sometimes the text is, too."""
    name = draw(st.sampled_from(sorted(MODELS)))
    document = copy.deepcopy(MODELS[name])
    places = st.sampled_from(PATHS[name])
    for _ in range(draw(st.integers(1, 4))):
        change = draw(st.sampled_from(_CHANGES))
        _change(document, change, draw(places), draw(places), draw(values))
    try:
        text = json.dumps(document, ensure_ascii=draw(st.booleans()))
    except (ValueError, RecursionError):  # a document that now holds itself
        return "[]"
    return text if draw(st.integers(0, 4)) else draw(edited(text, JSON_PIECES))


JSON_PIECES = [
    "{", "}", "[", "]", ",", ":", '"', "\\", "\\u0000", "\\ud800", "null", "NaN", "1e999", "-", "9" * 5000,
    "[" * 200, '{"a":' * 200, '"module":"os",', '"class_name":"Lambda",', "\0", "\ufeff", "//", "0x1",
]  # fmt: skip


@st.composite
def edited(draw: st.DrawFn, text: str, pieces: list[str]) -> str:
    """A text with pieces put in, cut out or doubled."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(start + draw(st.integers(0, 12)), len(text))
        middle = draw(st.sampled_from([*pieces, "", text[start:stop] * 2]))
        text = text[:start] + middle + text[stop:]
    return text
