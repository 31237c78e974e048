"""Known tricks against Keras' deserialisation are refused before Keras sees them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from cerebro_db.configs.architectures.architecture import (
    check_architecture,
    fingerprint,
    with_dropout,
)
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.errors import InvalidArchitecture, InvalidArgument

POLICY = {
    "module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"},
    "registered_name": None,
}  # fmt: skip


def layer(
    class_name: str, name: str, module: str = "keras.layers", **config: Any
) -> dict[str, Any]:
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": name, "trainable": True, "dtype": copy.deepcopy(POLICY), **config},
        "registered_name": None,
    }


def sequential(*layers: dict[str, Any], name: str = "net") -> dict[str, Any]:
    model = layer("Sequential", name, "keras", layers=list(layers), build_input_shape=[None, 4])
    return {**model, "build_config": {"input_shape": [None, 4]}, "compile_config": {}}


def dense(**config: Any) -> dict[str, Any]:
    initializer = {
        "module": "keras.initializers", "class_name": "GlorotUniform", "config": {"seed": None},
        "registered_name": None,
    }  # fmt: skip
    values = {"units": 3, "activation": "relu", "kernel_initializer": initializer} | config
    return layer("Dense", "dense", **values)


def tensor(of: str) -> dict[str, Any]:
    config = {"shape": [None, 4], "dtype": "float32", "keras_history": [of, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def functional(call: dict[str, Any], of: dict[str, Any] | None = None) -> dict[str, Any]:
    start = layer("InputLayer", "input", batch_shape=[None, 4])
    layers = [
        {**start, "name": "input", "inbound_nodes": []},
        {**(of or dense()), "name": "dense", "inbound_nodes": [call]},
    ]
    config = {
        "name": "net", "trainable": True, "layers": layers, "input_layers": ["input", 0, 0],
        "output_layers": ["dense", 0, 0],
    }  # fmt: skip
    return {
        "module": "keras.src.models.functional", "class_name": "Functional", "config": config,
        "registered_name": "Functional", "build_config": {"input_shape": None},
    }  # fmt: skip


GOOD_CALL = {"args": [tensor("input")], "kwargs": {"training": None}}


@pytest.mark.parametrize(
    "model",
    [
        sequential(layer("InputLayer", "i", batch_shape=[None, 4], dtype="float32"), dense()),
        sequential(dense(), sequential(layer("Dropout", "d", rate=0.5, seed=2**40), name="inner")),
        sequential(layer("Bidirectional", "b", layer=layer("LSTM", "l", units=2))),
        sequential(dense(kernel_initializer="he_normal", kernel_regularizer=None)),
        functional(GOOD_CALL),
        functional({"args": [[tensor("input"), tensor("input")]], "kwargs": {"mask": None}}),
    ],
)
def test_allowed(model: dict[str, Any]) -> None:
    checked = check_architecture(json.dumps(model))
    model.pop("compile_config", None)
    assert fingerprint(checked) == fingerprint(check_architecture(json.dumps(model, indent=1)))


def test_compile_config_is_left_out() -> None:
    evil = {"optimizer": {"module": "os", "class_name": "function", "config": "system"}}
    inner = {**sequential(dense(), name="inner"), "compile_config": evil}
    model = {**sequential(inner), "compile_config": evil}
    assert "compile_config" not in json.dumps(check_architecture(json.dumps(model)))


def lambda_layer(function: Any) -> dict[str, Any]:
    return layer("Lambda", "l", function=function, arguments={"safe_mode": False})


BYTECODE = {"class_name": "__lambda__", "config": {"code": "4wEAAAA=", "defaults": None}}
GET_FILE = {
    "module": "keras.utils", "class_name": "function", "config": "get_file",
    "registered_name": "function",
}  # fmt: skip
SYSTEM = {
    "module": "os", "class_name": "function", "config": "system", "registered_name": "function",
}  # fmt: skip
UNSAFE = {
    "module": "keras.config", "class_name": "enable_unsafe_deserialization", "config": {},
    "registered_name": None,
}  # fmt: skip

TRICKS: dict[str, tuple[Any, str]] = {
    "CVE-2024-3660: bytecode in a Lambda": (sequential(lambda_layer(BYTECODE)), "runs code"),
    "bytecode elsewhere": (sequential(dense(activation=BYTECODE)), "runs code"),
    "CVE-2025-1550: any module": (sequential({**dense(), "module": "os"}), "module 'os'"),
    "CVE-2025-1550: a function as layer": (
        functional({"args": ["touch /tmp/x"], "kwargs": {}}, SYSTEM), "runs code",
    ),
    "CVE-2025-1550: its arguments": (
        functional({"args": [], "kwargs": {"inputs": "/tmp/model.keras"}}), "got the text",
    ),
    "CVE-2025-8747: gadget in Keras": (sequential(lambda_layer(GET_FILE)), "runs code"),
    "CVE-2025-9906: unsafe mode as layer": (sequential(UNSAFE), "allowed are classes of"),
    "CVE-2025-9906: as activation": (sequential(dense(activation=UNSAFE)), "keras.config"),
    "CVE-2025-49655: torch pickle": (
        sequential(layer("TorchModuleWrapper", "t", module="AAAA")), "runs code",
    ),
    "CVE-2025-12058: file as vocabulary": (
        sequential(layer("StringLookup", "s", vocabulary="/etc/passwd")), "read files",
    ),
    "integer vocabulary": (
        sequential(layer("IntegerLookup", "s", vocabulary="/etc/passwd")), "reads no files",
    ),
    "saved model": (sequential(layer("TFSMLayer", "t", filepath="/tmp/x")), "runs code"),
    "jax": (sequential(layer("JaxLayer", "t")), "runs code"),
    "operator": (
        sequential({**dense(), "module": "keras.src.ops.numpy", "class_name": "Add"}),
        "between the layers of a functional model only",
    ),
    "legacy module path": (
        sequential({**dense(), "module": "keras.src.layers.core.dense"}), "allowed are classes",
    ),
    "legacy layer without module": (
        sequential({key: value for key, value in dense().items() if key != "module"}),
        "module 'None'",
    ),
    "module is not a text": (sequential({**dense(), "module": ["keras.layers"]}), "module"),
    "class is not a text": (sequential({**dense(), "class_name": {"a": 1}}), "class"),
    "no class": (sequential({"config": {}}), "module 'None'"),
    "config is a text": (sequential({**dense(), "config": "x"}), "must be a JSON object"),
    "config is null": (sequential({**dense(), "config": None}), "must be a JSON object"),
    "custom object": (
        sequential({**dense(), "registered_name": "mine>Dense"}), "custom objects",
    ),
    "custom class": (sequential(layer("MyLayer", "m", "my.module")), "module 'my.module'"),
    "array": (
        sequential(dense(bias={"class_name": "__numpy__", "config": {"value": [1]}})), "arrays",
    ),
    "tensor": (
        functional({"args": [{"class_name": "__tensor__", "config": {"value": 1}}], "kwargs": {}}),
        "arrays",
    ),
    "tensor with more": (
        functional({"args": [{**tensor("input"), "module": "os"}], "kwargs": {}}), "a tensor that",
    ),
    "tensor as parameter": (sequential(dense(units=tensor("input"))), "__keras_tensor__"),
    "typespec": (
        sequential(dense(x={"class_name": "__typespec__", "spec_name": "S", "config": []})),
        "runs code",
    ),
    "slice": (
        functional({"args": [{"class_name": "__slice__", "config": {}}], "kwargs": {}}),
        "index of a tensor only",
    ),
    "object in a call": (functional({"args": [dense()], "kwargs": {}}), "inbound_nodes"),
    "legacy call": (functional([["input", 0, 0, {"x": 1}]]), "list of JSON objects"),  # type: ignore[arg-type]
    "object in build_config": (
        sequential({**dense(), "build_config": {"input_shape": SYSTEM}}), "runs code",
    ),
    "object deep inside": (sequential(dense(extra=[[{"a": [SYSTEM]}]])), "runs code"),
    "unknown key": (sequential({**dense(), "fn": "x"}), "the key 'fn'"),
    "layer as initializer": (sequential(dense(kernel_initializer=dense())), "'Dense'"),
    "number as initializer": (sequential(dense(kernel_initializer=3)), "must be a name"),
    "unknown activation": (sequential(dense(activation="rellu")), "Did you mean 'relu'"),
    "function as activation": (sequential(dense(activation="eval")), "Did you mean|Allowed"),
    "quantized": (sequential(dense(quantization_config={"a": 1})), "must be null"),
    "lora": (sequential(dense(lora_rank=4)), "must be null"),
    "dtype": (sequential(dense(dtype="float8")), "dtype 'float8'"),
    "dtype of a policy": (
        sequential(dense(dtype={**POLICY, "config": {"name": "int8_from_float32"}})), "dtype",
    ),
    "half weights": (sequential(dense(dtype="float16")), "weights lose the small steps"),
    "seed": (sequential(layer("Dropout", "d", rate=0.5, seed=-1)), "63 bits"),
    "huge number": (sequential(dense(units=2**40)), "at most 2147483647"),
    "unknown layer": (sequential(layer("Dens", "d")), "Did you mean 'Dense'"),
    "layers missing": ({**sequential(), "config": {}}, "list of JSON objects"),
    "layer is not an object": (sequential("Dense"), "list of JSON objects"),  # type: ignore[arg-type]
    "initializer as layer": (
        sequential(layer("Zeros", "z", "keras.initializers")), "'Zeros'",
    ),
    "a layer is not a model": (dense(), "Sequential and Functional"),
    "a model is not built by Model": (layer("Model", "m", "keras"), "Sequential and Functional"),
    "Keras 1": (
        {"class_name": "Sequential", "keras_version": "1.2.2", "config": []},
        "JSON of Keras 1.2.2; allowed is that of Keras 3 or 2",
    ),
    "not a model": ({"a": 1}, "allowed is that of Keras 3"),
    "a class that is no text": ({**sequential(), "class_name": {}}, "Sequential and Functional"),
    "a list": ([1], "not an object"),
    "a number": (3, "not an object"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "message"), TRICKS.values(), ids=TRICKS.keys())
def test_refused(model: Any, message: str) -> None:
    with pytest.raises(InvalidArchitecture, match=message):
        check_architecture(json.dumps(model))


TEXTS = {
    "": "not allowed JSON",
    "{": "not allowed JSON",
    "null": "not an object",
    '{"a": NaN}': "NaN is not a number",
    '{"a": 1, "a": 2}': "given twice",
    '{"a": ' + "9" * 5000 + "}": "not allowed JSON",
    "[" * 100_000: "nested too deeply|not allowed JSON",
    "[" * 500 + "]" * 500: "deeper than the 100",
    '{"a":' * 500 + "1" + "}" * 500: "deeper than the 100",
}


@pytest.mark.parametrize(("text", "message"), TEXTS.items(), ids=range(len(TEXTS)))
def test_refused_texts(text: str, message: str) -> None:
    with pytest.raises(InvalidArchitecture, match=message):
        check_architecture(text)


@pytest.mark.parametrize("value", [None, b"{}", {}, 1])
def test_not_a_text(value: Any) -> None:
    with pytest.raises(InvalidArchitecture, match="must be a JSON text"):
        check_architecture(value)


def test_too_large_a_number_of_the_text() -> None:
    text = json.dumps(sequential(dense(x=1))).replace('"x": 1', '"x": 1e999')
    with pytest.raises(InvalidArchitecture, match="too large"):
        check_architecture(text)


def test_limits() -> None:
    text = json.dumps(sequential(*[dense()] * 9))
    check_architecture(text, ArchitectureLimits(layers=10))
    with pytest.raises(InvalidArchitecture, match="more than the 9 layers"):
        check_architecture(text, ArchitectureLimits(layers=9))
    with pytest.raises(InvalidArchitecture, match="at most 100 are allowed"):
        check_architecture(text, ArchitectureLimits(characters=100))


def test_with_dropout() -> None:
    inner = sequential(layer("SpatialDropout1D", "s", rate=0.1), name="inner")
    model = sequential(dense(), layer("Dropout", "d", rate=0.5), inner)
    config = check_architecture(json.dumps(model))
    before = fingerprint(config)
    changed = with_dropout(config, 0.25)
    assert fingerprint(config) == before != fingerprint(changed)
    assert json.dumps(changed).count('"rate": 0.25') == 2
    for wrong in (1, -0.1, True, "x", float("nan")):
        with pytest.raises(InvalidArgument, match="from 0 below 1"):
            with_dropout(config, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArchitecture, match="no dropout layer"):
        with_dropout(check_architecture(json.dumps(sequential(dense()))), 0.5)
