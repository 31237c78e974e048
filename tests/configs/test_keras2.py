"""The JSON of Keras 2 is written as that of Keras 3, or refused with the field that has no counterpart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.errors import InvalidArchitecture


def layer(class_name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "config": {"name": class_name.lower(), **config}}


def sequential(*layers: Any, **more: Any) -> dict[str, Any]:
    model: dict[str, Any] = {
        "class_name": "Sequential",
        "keras_version": "2.4.0",
        "backend": "tensorflow",
    }
    return {**model, "config": {"name": "net", "layers": list(layers)}, **more}  # fmt: skip


def functional(*layers: Any, **config: Any) -> dict[str, Any]:
    start = {**layer("InputLayer", batch_input_shape=[None, 4]), "name": "in", "inbound_nodes": []}
    ends = {"input_layers": [["in", 0, 0]], "output_layers": [["dense", 0, 0]]}
    return {
        "class_name": "Model", "keras_version": "2.2.4-tf",
        "config": {"name": "net", "layers": [start, *layers], **ends, **config},
    }  # fmt: skip


def dense(nodes: Any = None, **config: Any) -> dict[str, Any]:
    found = layer("Dense", **{"units": 2, "activation": "relu", **config})
    return found if nodes is None else {**found, "name": "dense", "inbound_nodes": nodes}


FIRST = dense(batch_input_shape=[None, 4])


def operation(function: str, call: Any) -> dict[str, Any]:
    """An operation as Keras 2 writes it."""
    found = layer("TFOpLambda", function=function, trainable=True, dtype="float32")
    return found | {"name": "op", "inbound_nodes": [call]}


def converted(model: dict[str, Any]) -> dict[str, Any]:
    return check_architecture(json.dumps(model))


def config_of(*layers: Any) -> dict[str, Any]:
    """Of the last layer."""
    found: dict[str, Any] = converted(sequential(*layers))["config"]["layers"][-1]["config"]
    return found


def test_the_shape_of_the_first_layer_becomes_an_input_layer() -> None:
    first, second = converted(sequential(FIRST))["config"]["layers"]
    assert first["class_name"] == "InputLayer"
    assert first["config"]["batch_shape"] == [None, 4]
    assert "batch_input_shape" not in second["config"]
    assert converted({**sequential(), "config": [FIRST]})["config"]["layers"][1] == second


def test_an_input_layer_is_not_doubled() -> None:
    start = layer("InputLayer", batch_input_shape=[None, 4], sparse=False, ragged=False)
    layers = converted(sequential(start, FIRST))["config"]["layers"]
    assert [found["class_name"] for found in layers] == ["InputLayer", "Dense"]
    assert layers[0]["config"] == {"name": "inputlayer", "batch_shape": [None, 4]}


POLICY = {"class_name": "Policy", "config": {"name": "float32"}}
SHAPE = {"class_name": "TensorShape", "items": [None, 4]}
NORMAL = {
    "class_name": "VarianceScaling",
    "config": {"scale": 2.0, "mode": "fan_in", "distribution": "normal", "dtype": "float32"},
}
CHANGES = [
    (dense(dtype=POLICY), "dtype", "float32"),
    (dense(dtype={**POLICY, "config": {"name": "infer"}}), "dtype", None),
    (dense(activation="softmax_v2"), "activation", "softmax"),
    (dense(activation={"class_name": "function", "config": "relu", "module": "builtins"}), "activation", "relu"),
    (layer("LeakyReLU", alpha={"type": "ndarray", "value": 0.25}), "negative_slope", 0.25),
    (layer("ThresholdedReLU", theta=0.5), "threshold", 0.5),
    (layer("BatchNormalizationV1", axis=[1], fused=True), "axis", 1),
    (layer("GRU", units=2), "reset_after", False),
    (layer("GRU", units=2, reset_after=True), "reset_after", True),
    (layer("Reshape", target_shape={"class_name": "__tuple__", "items": [2, 2]}), "target_shape", [2, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "field", "value"), CHANGES)
def test_changed(given: dict[str, Any], field: str, value: Any) -> None:
    assert config_of(FIRST, given)[field] == value


def test_initializers_get_their_module() -> None:
    found = config_of(FIRST, dense(kernel_initializer=NORMAL, kernel_regularizer="l2"))
    assert found["kernel_regularizer"] == "l2"
    assert found["kernel_initializer"] == {
        "module": "keras.initializers", "class_name": "VarianceScaling", "registered_name": None,
        "config": {"scale": 2.0, "mode": "fan_in", "distribution": "truncated_normal"},
    }  # fmt: skip


LEFT_OUT = [
    (layer("LSTM", units=2, implementation=1, time_major=False), {"implementation", "time_major"}),
    (layer("Embedding", input_dim=3, output_dim=2, input_length=4), {"input_length"}),
    (layer("SeparableConv2D", filters=2, kernel_size=[2, 2], groups=1, kernel_initializer="zeros"),
     {"groups", "kernel_initializer"}),
    (layer("SpatialDropout1D", rate=0.5, noise_shape=None), {"noise_shape"}),
    (layer("BatchNormalization", virtual_batch_size=None, adjustment=None),
     {"virtual_batch_size", "adjustment"}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "fields"), LEFT_OUT)
def test_left_out(given: dict[str, Any], fields: set[str]) -> None:
    assert fields.isdisjoint(config_of(FIRST, given))


def test_calls_of_layers() -> None:
    both = layer("Add") | {
        "name": "add",
        "inbound_nodes": [[["in", 0, 0, {}], ["dense", 0, 0, {}]]],
    }
    model = functional(
        dense([[["in", 0, 0, {"training": None}]]]), both, output_layers=["add", 0, 0]
    )
    _, single, merged = converted(model)["config"]["layers"]
    assert converted(model)["config"]["output_layers"] == ["add", 0, 0]
    (tensor,) = single["inbound_nodes"][0]["args"]
    assert tensor["config"]["keras_history"] == ["in", 0, 0]
    assert single["inbound_nodes"][0]["kwargs"] == {"training": None}
    ((first, second),) = merged["inbound_nodes"][0]["args"]
    assert second["config"]["keras_history"] == ["dense", 0, 0]
    assert first == tensor  # fmt: skip


SLICE = {"start": None, "stop": 2, "step": None}
OPERATIONS = {
    "a constant first": (
        ("math.subtract", ["_CONSTANT_VALUE", -1, 1.0, {"y": ["in", 0, 0], "name": None}]),
        ("Subtract", {}, [1.0, "in"]),
    ),
    "an array": (
        ("math.multiply", ["in", 0, 0, {"y": [1.0, 2.0, 3.0, 4.0]}]),
        ("Multiply", {}, ["in", {"class_name": "__numpy__", "config": {"value": [1.0, 2.0, 3.0, 4.0], "dtype": "float32"}}]),
    ),
    "several tensors": (
        ("concat", [["in", 0, 0, {"axis": 1}], ["in", 0, 0, {"axis": 1}]]),
        ("Concatenate", {"axis": 1}, [["in", "in"]]),
    ),
    "an axis": (
        ("math.reduce_mean", ["in", 0, 0, {"axis": [1], "keepdims": True, "name": None}]),
        ("Mean", {"axis": [1], "keepdims": True}, ["in"]),
    ),
    "an index": (
        ("__operators__.getitem", ["in", 0, 0, {"slice_spec": [{"class_name": "__ellipsis__"}, SLICE]}]),
        ("GetItem", {}, ["in", [{"class_name": "__ellipsis__", "config": {}}, {"class_name": "__slice__", "config": SLICE}]]),
    ),
    "other defaults": (("nn.gelu", ["in", 0, 0, {}]), ("Gelu", {"approximate": False}, ["in"])),
}  # fmt: skip


def shortened(value: Any) -> Any:
    """Tensors by the name of their layer."""
    if isinstance(value, list):
        return [shortened(one) for one in value]
    is_tensor = isinstance(value, dict) and value.get("class_name") == "__keras_tensor__"
    return value["config"]["keras_history"][0] if is_tensor else value


@pytest.mark.parametrize("case", OPERATIONS)
def test_operations(case: str) -> None:
    given, (kind, config, arguments) = OPERATIONS[case]
    found = converted(functional(operation(*given), dense([[["op", 0, 0, {}]]])))["config"][
        "layers"
    ][1]
    assert (found["class_name"], found["config"]) == (kind, {"name": "op", **config})
    (node,) = found["inbound_nodes"]
    assert (shortened(node["args"]), node["kwargs"]) == (arguments, {})


REFUSED = {
    "causal": (sequential(FIRST, layer("Attention", causal=True)), "layer 'attention': causal: got True"),
    "sparse": (sequential(layer("InputLayer", batch_input_shape=[None, 4], sparse=True)), "sparse: got True"),
    "groups": (sequential(layer("SeparableConv1D", groups=2)), "'separableconv1d': groups: got 2"),
    "virtual batches": (
        sequential(FIRST, layer("BatchNormalization", virtual_batch_size=8)), "virtual_batch_size: got 8",
    ),
    "another function": (
        sequential(layer("LSTM", recurrent_activation="hard_sigmoid")),
        "'lstm': recurrent_activation: got 'hard_sigmoid'; Keras 3 computes another function",
    ),
    "a layer that is gone": (sequential(layer("LocallyConnected1D")), "class_name: got 'LocallyConnected1D'"),
    "other weights": (sequential(layer("CuDNNLSTM", units=2)), "laid out in another way"),
    "a function of TensorFlow": (
        functional(operation("io.read_file", ["in", 0, 0, {}])), "'op': got the function 'io.read_file'",
    ),
    "no function": (functional(layer("TFOpLambda") | {"name": "op"}), "'op': got the function None"),
    "an argument without a counterpart": (
        functional(operation("linalg.matmul", ["in", 0, 0, {"b": ["in", 0, 0], "transpose_b": True}])),
        "'op': transpose_b: got True",
    ),
    "an argument that is missing": (
        functional(operation("math.multiply", ["in", 0, 0, {"name": None}])), "'op': y: got nothing",
    ),
    "an operation of nothing": (functional(operation("math.exp", [])), "'op': inbound_nodes: got"),
    "an operation of a text": (functional(operation("math.exp", ["in"])), "'op': inbound_nodes: got"),
    "an index of something else": (
        functional(operation("__operators__.getitem", ["in", 0, 0, {"slice_spec": [{"a": 1}]}]), dense([[["op", 0, 0, {}]]])),
        "'op': slice_spec: got",
    ),
    "a class of someone": (
        sequential({**FIRST, "registered_name": "Custom>Dense"}), "registered_name: got 'Custom>Dense'",
    ),
    "a module of someone": (sequential({**FIRST, "module": "os"}), "module: got 'os'"),
    "code": (sequential(layer("Lambda", function=["4wAA", None, None])), "runs code"),
    "an unknown layer": (sequential(layer("Dens")), "Did you mean 'Dense'"),
    "an unknown initializer": (
        sequential(dense(kernel_initializer={"class_name": "MyInit", "config": {}})), "MyInit",
    ),
    "another backend": (sequential(FIRST, backend="theano"), "backend: got 'theano'"),
    "a constant": (
        functional(dense([[["_CONSTANT_VALUE", -1, [1.0], {}]]])), "inbound_nodes: got .*_CONSTANT_VALUE",
    ),
    "a text in a call": (
        functional(dense([[["in", 0, 0, {"mode": "run"}]]])), "'dense': inbound_nodes: got 'run'",
    ),
    "no calls": (functional(dense() | {"name": "dense"}), "inbound_nodes: got None"),
    "no name": (functional(dense()), "without a name"),
    "no outputs": (functional(dense([]), output_layers=[]), "output_layers: got \\[\\]"),
    "no layers": (sequential() | {"config": 3}, "list of layers"),
    "no config": (sequential({"class_name": "Dense"}), "config of Dense"),
    "no layer": (sequential(7), "got 7"),
    "an unknown field": (sequential() | {"extra": 1}, "got the field 'extra'"),
    "a subclassed model": (sequential() | {"class_name": "MyModel"}, "Sequential, Functional and Model"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArchitecture, match=message):
        converted(model)


def test_what_comes_out_keeps_the_limits() -> None:
    from cerebro_db.configs.architectures.limits import ArchitectureLimits

    text = json.dumps(sequential(FIRST, *[dense() for _ in range(20)]), separators=(",", ":"))
    with pytest.raises(InvalidArchitecture, match="characters"):
        check_architecture(text, ArchitectureLimits(characters=len(text)))
