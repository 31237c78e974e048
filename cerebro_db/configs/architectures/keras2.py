"""Writes the JSON of a Keras 2 model as that of Keras 3, or says which field cannot be.

Nothing is allowed here: what comes out is checked like any other JSON of Keras 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from cerebro_db.configs.architectures import keras2_operations as names
from cerebro_db.configs.architectures.keras2_operations import CLASSES, operation_of
from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.messages import shown

Starts = Mapping[str, int]


def _calls_of(value: Any, starts: Starts, place: str, *, recurrent: bool) -> list[dict[str, Any]]:
    """The calls of a layer.

    Args:
        value: ``inbound_nodes``.
        starts: number of the first call of each layer.
        place: for messages.
        recurrent: whether further tensors are states to begin with.
    """
    if not isinstance(value, list):
        _refuse_call(place, value)
    found = [_call(node, starts, place) for node in value]
    return [_with_states(call) for call in found] if recurrent else found


def _with_states(call: dict[str, Any]) -> dict[str, Any]:
    (inputs,) = call["args"]
    if not isinstance(inputs, list):
        return call
    return {"args": [inputs[0]], "kwargs": {**call["kwargs"], "initial_state": inputs[1:]}}


def _ends_of(value: Any, starts: Starts, place: str) -> Any:
    """Inputs or outputs of a model: one tensor, or a list of several."""
    if _is_reference(value):
        return _history(value, starts)
    if not isinstance(value, list) or not value or not all(map(_is_reference, value)):
        _refuse_call(place, value)
    found = [_history(reference, starts) for reference in value]
    return found[0] if len(found) == 1 else found


def _call(node: Any, starts: Starts, place: str) -> dict[str, Any]:
    references = [node] if _is_reference(node) else node
    if not isinstance(references, list) or not references:
        _refuse_call(place, node)
    for reference in references:
        if not _is_reference(reference):
            _refuse_call(place, reference)
    tensors = [_tensor(reference, starts) for reference in references]
    named = references[-1][3] if len(references[-1]) == 4 else {}
    return {
        "args": [tensors[0] if len(tensors) == 1 else tensors],
        "kwargs": {key: _argument(value, starts, place) for key, value in named.items()},
    }


def _argument(value: Any, starts: Starts, place: str) -> Any:
    if _is_reference(value):
        return _tensor(value, starts)
    if isinstance(value, list):
        return [_argument(element, starts, place) for element in value]
    if value is not None and not isinstance(value, bool | int | float):
        _refuse_call(place, value)
    return value


def _tensor(reference: list[Any], starts: Starts) -> dict[str, Any]:
    # Keras looks at where it comes from only, and takes shape and type from there.
    history = _history(reference, starts)
    config = {"shape": [], "dtype": "float32", "keras_history": history}
    return {"class_name": "__keras_tensor__", "config": config}


def _history(reference: list[Any], starts: Starts) -> list[Any]:
    name, call, output = reference[:3]
    return [name, max(call - starts.get(name, 0), 0), output]


def _is_reference(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (3, 4):
        return False
    whole = all(type(number) is int and number >= 0 for number in value[1:3])
    return isinstance(value[0], str) and whole and (len(value) == 3 or isinstance(value[3], dict))


def _refuse_call(place: str, value: Any) -> NoReturn:
    refuse(
        f"the JSON of Keras 2 cannot be converted: {place}: got {shown(value)}; allowed are tensors "
        "as [layer, call, output], numbers and null"
    )


Json = dict[str, Any]
_MODULE = re.compile(r"(tensorflow\.(python\.)?|tf_)?keras(\.\w+)*")
_NODE_KEYS = frozenset(
    ["build_config", "class_name", "config", "inbound_nodes", "module", "name", "registered_name"]
)
_SEQUENTIAL_KEYS = frozenset({"build_input_shape", "layers", "name", "trainable"})
_FUNCTIONAL_KEYS = frozenset({"input_layers", "layers", "name", "output_layers", "trainable"})
_BACKENDS = (None, "tensorflow", "tf", "jax")


def is_keras_2(config: Mapping[str, Any]) -> bool:
    """True if JSON is that of a model of Keras 2."""
    version = config.get("keras_version")
    if version is None:
        return "module" not in config and {"class_name", "config"} <= set(config)
    return isinstance(version, str) and version.startswith("2.")


def converted(config: Mapping[str, Any]) -> Json:
    """The same model in the JSON of Keras 3.

    Raises:
        InvalidArchitecture: naming the field that Keras 3 has no counterpart for.
    """
    top = {key: value for key, value in config.items() if key not in ("keras_version", "backend")}
    if not _is_one_of(config.get("backend"), _BACKENDS):
        _refuse("the model", f"backend: got {shown(config['backend'])}; allowed is tensorflow")
    if not _is_name(top.get("class_name"), names.MODELS):
        refuse(f"got an object of class {shown(top.get('class_name'))} of Keras 2 at the top; allowed are "
               "Sequential, Functional and Model")  # fmt: skip
    return _layer(top, "the model")


# -- layers ------------------------------------------------------------------------
def _layer(node: Any, place: str) -> Json:
    """A layer or a model within a model."""
    if not isinstance(node, dict) or not isinstance(node.get("class_name"), str):
        _refuse(place, f"got {shown(node)}; it must be an object with a class_name and a config")
    class_name = node["class_name"]
    _check_origin(node, place)
    if class_name in names.MODELS:
        return _model(node, place)
    config = node.get("config")
    if not isinstance(config, dict):
        _refuse(place, f"the config of {class_name[:60]} must be a JSON object")
    if isinstance(config.get("name"), str):
        place = f"layer {config['name'][:60]!r}"
    if class_name in names.REFUSED_LAYERS:
        _refuse(place, f"class_name: got {class_name!r}; {names.REFUSED_LAYERS[class_name]}")
    name = names.RENAMED_LAYERS.get(class_name, class_name)
    return _object("keras.layers", name, _config(class_name, config, place))


def _check_origin(node: Json, place: str) -> None:
    unknown = sorted(set(node) - _NODE_KEYS - {"shared_object_id"})
    if unknown:
        _refuse(place, f"got the field {shown(unknown[0])}, which is not known")
    module, registered = node.get("module"), node.get("registered_name")
    if module is not None and not (isinstance(module, str) and _MODULE.fullmatch(module)):
        _refuse(place, f"module: got {shown(module)}; custom objects are not allowed")
    if registered not in (None, node["class_name"]):
        _refuse(place, f"registered_name: got {shown(registered)}; custom objects are not allowed")


def _config(class_name: str, config: Json, place: str) -> Json:
    """The fields of a layer."""
    found: Json = {}
    for key, value in config.items():
        if _is_left_out(class_name, key, value, place):
            continue
        name = names.RENAMED_FIELDS.get((class_name, key), key)
        found[name] = _field(name, _plain(value), f"{place}: {key[:60]}")
    found.pop("batch_input_shape", None)  # it is an input layer of its own in Keras 3
    axis = found.get("axis")
    if class_name.startswith("BatchNormalization") and isinstance(axis, list) and len(axis) == 1:
        found["axis"] = axis[0]
    if class_name in ("GRU", "GRUCell"):
        found.setdefault("reset_after", False)  # what was there before the field was
    return found


def _is_left_out(class_name: str, key: str, value: Any, place: str) -> bool:
    for beginning, field, neutral in names.LEFT_OUT:
        if key == field and class_name.startswith(beginning):
            if neutral != names.ANY and not _is_one_of(value, neutral):
                _refuse(place, f"{key}: got {shown(value)}; Keras 3 has no such field")
            return True
    return False


def _field(key: str, value: Any, place: str) -> Any:
    if key == "dtype":
        return _dtype(value, place)
    if key in names.LAYER_FIELDS and value is not None:
        return _layer(value, place)
    if key == "cells" and isinstance(value, list):
        return [_layer(cell, place) for cell in value]
    if key.endswith("activation"):
        return _activation(value, place)
    for ending, module in names.OBJECT_MODULES.items():
        if key.endswith(ending):
            return _named(value, module, place)
    if isinstance(value, dict) and "class_name" in value:
        _refuse(place, f"got an object of class {shown(value['class_name'])}")
    return value


def _activation(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        if value.get("class_name") != "function":
            return _layer(value, place)
        value = value.get("config")
    if not isinstance(value, str):
        return value
    if value in names.REFUSED_ACTIVATIONS:
        _refuse(place, f"got {value!r}; {names.REFUSED_ACTIVATIONS[value]}")
    return names.RENAMED_ACTIVATIONS.get(value, value)


def _named(value: Any, module: str, place: str) -> Any:
    """An initializer, a regularizer or a constraint."""
    if not isinstance(value, dict):
        return value
    class_name, config = value.get("class_name"), value.get("config")
    if not isinstance(class_name, str) or not isinstance(config, dict):
        _refuse(place, f"got {shown(value)}; it must be an object with a class_name and a config")
    _check_origin(value, place)
    fields = {key: _plain(element) for key, element in config.items() if key != "dtype"}
    distribution = fields.get("distribution")
    if isinstance(distribution, str):
        fields["distribution"] = names.RENAMED_DISTRIBUTIONS.get(distribution, distribution)
    return _object(module, class_name, fields)


def _dtype(value: Any, place: str) -> Any:
    """The name of a type or of a policy of types."""
    if not isinstance(value, dict):
        return value
    config = value.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    if not isinstance(name, str):
        _refuse(place, f"got {shown(value)}; it must be the name of a type, or a policy")
    return None if name in ("infer", "_infer") else name


def _plain(value: Any) -> Any:
    """A value without the objects that Keras 2 made of tuples, shapes and numbers."""
    if isinstance(value, dict):
        if value.get("class_name") in ("__tuple__", "TensorShape") and "items" in value:
            return _plain(value["items"])
        if value.get("type") == "ndarray" and isinstance(value.get("value"), int | float):
            return value["value"]
    return [_plain(element) for element in value] if isinstance(value, list) else value


# -- models ------------------------------------------------------------------------
def _model(node: Json, place: str) -> Json:
    config = node.get("config")
    if node["class_name"] == "Sequential":
        return _sequential({"layers": config} if isinstance(config, list) else config, place)
    return _functional(config, place)


def _sequential(config: Any, place: str) -> Json:
    given = _layers(config, _SEQUENTIAL_KEYS, place)
    layers = [_layer(layer, place) for layer in given]
    shape = _shape_of_first(given)
    if shape is not None and layers[0]["class_name"] != "InputLayer":
        first = given[0]["config"]
        start = {"batch_shape": shape, "dtype": "float32", "name": f"{first.get('name')}_input"}
        layers.insert(0, _object("keras.layers", "InputLayer", start))
    found: Json = {"name": config.get("name", "sequential"), "layers": layers}
    if isinstance(_plain(config.get("build_input_shape")), list):
        found["build_input_shape"] = _plain(config["build_input_shape"])
    return _object("keras", "Sequential", found)


def _shape_of_first(layers: list[Any]) -> list[Any] | None:
    """The shape of the first layer's input, where it is written there."""
    first = layers[0].get("config") if layers and isinstance(layers[0], dict) else None
    shape = _plain(first.get("batch_input_shape")) if isinstance(first, dict) else None
    return shape if isinstance(shape, list) else None


def _functional(config: Any, place: str) -> Json:
    given = _layers(config, _FUNCTIONAL_KEYS, place)
    starts = {layer["name"]: _first_node(layer) for layer in given if _has_name(layer)}
    layers = [_called(layer, starts, place) for layer in given]
    # Keras 3 counts the calls of a Functional from one here, and from zero in the calls of layers.
    ends = {name: starts[name] for name in starts if not _is_functional(given, name)}
    found = {
        "name": config.get("name", "model"),
        "trainable": True,  # of a model that is frozen every layer is, too
        "layers": layers,
        "input_layers": _ends_of(config.get("input_layers"), ends, f"{place}: input_layers"),
        "output_layers": _ends_of(config.get("output_layers"), ends, f"{place}: output_layers"),
    }  # fmt: skip
    return _object("keras.src.models.functional", "Functional", found)


def _called(layer: Any, starts: Mapping[str, int], place: str) -> Json:
    """A layer together with its calls."""
    is_operation = isinstance(layer, dict) and _is_name(layer.get("class_name"), CLASSES)
    found = {} if is_operation else _layer(layer, place)
    if not _has_name(layer):
        _refuse(place, f"got the layer {shown(layer)} without a name")
    name = layer["name"]
    if is_operation:
        return _operation(layer, starts)
    calls = _calls_of(
        layer.get("inbound_nodes"),
        starts,
        f"layer {name[:60]!r}: inbound_nodes",
        recurrent=found["class_name"] in names.RECURRENT,
    )
    return {**found, "name": name, "inbound_nodes": calls}


def _operation(layer: Json, starts: Mapping[str, int]) -> Json:
    place = f"layer {layer['name'][:60]!r}"
    _check_origin(layer, place)
    if not isinstance(layer.get("config"), dict):
        _refuse(place, f"the config of {layer['class_name']} must be a JSON object")
    return operation_of(
        layer, lambda value: _tensor(value, starts) if _is_reference(value) else None, place
    )


def _layers(config: Any, known: frozenset[str], place: str) -> list[Any]:
    if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
        _refuse(place, "config: it must be an object with a list of layers")
    unknown = sorted(set(config) - known)
    if unknown:
        _refuse(place, f"config: got the field {shown(unknown[0])}, which is not known")
    return list(config["layers"])


def _has_name(layer: Any) -> bool:
    return isinstance(layer, dict) and isinstance(layer.get("name"), str)


def _is_functional(layers: list[Any], name: str) -> bool:
    return any(
        layer["name"] == name and layer.get("class_name") in ("Functional", "Model")
        for layer in layers
        if _has_name(layer)
    )


def _first_node(layer: Json) -> int:
    """Number that Keras 2 gave the first call of a layer: a model with an input had called itself before."""
    if layer.get("class_name") in ("Functional", "Model"):
        return 1
    if layer.get("class_name") != "Sequential":
        return 0
    config = layer.get("config")
    layers = config.get("layers") if isinstance(config, dict) else config
    if not isinstance(layers, list) or not layers or not isinstance(layers[0], dict):
        return 0
    is_model = _is_name(layers[0].get("class_name"), names.MODELS)
    return int(_shape_of_first(layers) is not None or is_model)


# -- values ------------------------------------------------------------------------
def _object(module: str, class_name: str, config: Json) -> Json:
    registered = class_name if class_name == "Functional" else None
    return {
        "module": module,
        "class_name": class_name,
        "config": config,
        "registered_name": registered,
    }


def _is_name(value: Any, allowed: frozenset[str]) -> bool:
    return isinstance(value, str) and value in allowed


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    """By type, too: false is not zero, and a list is nothing that could be hashed."""
    return any(type(value) is type(one) and value == one for one in allowed)


def _refuse(place: str, message: str) -> NoReturn:
    refuse(
        f"the JSON of Keras 2 cannot be converted: {place}: {message}",
        "The text of to_json() of Keras 3 needs no conversion.",
    )
