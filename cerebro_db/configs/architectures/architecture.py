"""Checks a model's JSON against an allow-list before Keras sees it.

Keras' own deserialisation imports modules that the JSON names, and has been tricked more than once;
`safe_mode` alone does not stop it. Here only known pairs of module and class pass, whatever
Keras would do with others. Strings may only mean what an allowed layer makes of them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from cerebro_db.configs.architectures import keras2
from cerebro_db.configs.architectures.limits import ArchitectureLimits, read_json, refuse
from cerebro_db.configs.architectures.names import (
    ACTIVATIONS,
    DROPOUT_LAYERS,
    DTYPES,
    LARGEST,
    LAYERS,
    MODELS,
    MODULES,
    NAMED_OBJECTS,
    NULL_PARAMETERS,
    REFUSED_CLASSES,
    VOCABULARIES,
)
from cerebro_db.configs.architectures.operations import SLICING, check_operation, is_operation
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_OBJECT_KEYS = frozenset(
    [
        "module",
        "class_name",
        "config",
        "registered_name",
        "build_config",
        "compile_config",
        "name",
        "inbound_nodes",
        "shared_object_id",
    ]
)
_MARKS = ("class_name", "module", "registered_name", "spec_name")
_TENSOR = "__keras_tensor__"
_TENSOR_KEYS = frozenset({"shape", "dtype", "keras_history"})
_SLICE, _ELLIPSIS = "__slice__", "__ellipsis__"
_ARRAYS = ("__numpy__", "__tensor__")
_CUSTOM = "custom."
_HINT_KERAS_3 = "Load the model with Keras 3 and take the text of its to_json()."

_DEFAULT_LIMITS = ArchitectureLimits()


def check_architecture(text: str, limits: ArchitectureLimits = _DEFAULT_LIMITS) -> dict[str, Any]:
    """Returns the configuration of an allowed model.

    Build the model from what this returns, never from the text: how the model was compiled is
    left out here, unchecked, because Keras would run it.
    """
    return checked(read_json(text, limits), limits)


def checked(read: dict[str, Any], limits: ArchitectureLimits = _DEFAULT_LIMITS) -> dict[str, Any]:
    """Returns the configuration of an allowed model, from JSON that keeps the limits of texts."""
    config: dict[str, Any] = _as_keras_3(_without_compile_config(read), limits)
    if config.get("class_name") not in sorted(MODELS):  # it may be anything, even unhashable
        refuse(f"got an object of class {shown(config.get('class_name'))} at the top; allowed are "
                "Sequential and Functional")  # fmt: skip
    config = _with_expressions(config)
    _Checker(limits).check(config)
    return _with_lists(config)


def with_dropout(config: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """Returns a copy in which every dropout layer, nested ones too, has this rate."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise InvalidArgument(f"dropout: got {rate!r}; it must be a number from 0 below 1")
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    layers = [found for found in _objects(changed) if found.get("class_name") in DROPOUT_LAYERS]
    if not layers:
        refuse(f"got dropout={rate}, but it has no dropout layer",
                "Leave dropout out of the parameters for this architecture.")  # fmt: skip
    for layer in layers:
        layer["config"]["rate"] = float(rate)
    return changed


def fingerprint(config: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the canonical JSON, in hexadecimal."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


EXPRESSION = "expression:"  # begins an activation that is one


def _with_expressions(value: Any) -> Any:
    """The model with each expression as a text, which Keras writes as a function of its name."""
    if isinstance(value, list):
        return [_with_expressions(child) for child in value]
    if not isinstance(value, dict):
        return value
    name = value.get("config")
    if value.get("class_name") == "function" and isinstance(name, str) and is_expression(name):
        return name
    return {key: _with_expressions(child) for key, child in value.items()}


def is_expression(value: object) -> bool:
    """True for an activation that is an expression."""
    return isinstance(value, str) and value.startswith(EXPRESSION)


def with_activations(config: dict[str, Any], expressions: Mapping[str, str]) -> dict[str, Any]:
    """Returns a copy in which each activation ``custom.name`` is the expression of that name.

    Args:
        config: JSON of a model, not checked.
        expressions: texts by name.

    Raises:
        InvalidArchitecture: an activation has a name that is not there.
    """

    changed: dict[str, Any] = _with_activations(config, "", expressions)
    return changed


def _with_activations(value: Any, key: str, expressions: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_activations(child, key, expressions) for child in value]
    name = _custom_name(value, expressions) if key.endswith("activation") else None
    if name is not None:
        return EXPRESSION + _expression_of(name, expressions)
    if isinstance(value, dict):
        return {
            inner: _with_activations(child, inner, expressions) for inner, child in value.items()
        }
    return value


def _custom_name(value: Any, expressions: Mapping[str, str]) -> str | None:
    """The name of an expression that an activation means; Keras writes functions as objects."""
    if isinstance(value, str) and value.startswith(_CUSTOM):
        return value.removeprefix(_CUSTOM)
    if isinstance(value, dict) and value.get("class_name") == "function":
        name = value.get("config")
        return name if isinstance(name, str) and name in expressions else None
    return None


def _expression_of(name: str, expressions: Mapping[str, str]) -> str:
    if name not in expressions:
        hint = "cerebro.cerebro_register_expression registers one"
        refuse(
            f"got the activation {shown(_CUSTOM + name)}; allowed: an expression of x that is registered",
            nearest(name, expressions) if expressions else hint,
        )
    return expressions[name]


def _without_compile_config(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_compile_config(child)
            for key, child in value.items()
            if key != "compile_config"
        }
    return [_without_compile_config(child) for child in value] if isinstance(value, list) else value


def _with_lists(config: dict[str, Any]) -> dict[str, Any]:
    """The model with its inputs and outputs in lists, where they are in dictionaries.

    They come in the order in which Keras itself makes lists of them: that of their names.
    """
    inner = config["config"]
    for key in ("input_layers", "output_layers"):
        ends = inner.get(key)
        if isinstance(ends, dict) and (len(ends) > 1 or key == "output_layers"):
            ends = [ends[name] for name in sorted(ends)]
            inner[key] = ends
        if isinstance(ends, dict):
            continue  # one input, which Keras takes as it is
        if isinstance(ends, list) and not all(map(_is_end, ends)) and not _is_end(ends):
            kind = key.partition("_")[0]
            refuse(
                f"its {kind}s are nested; allowed: one {kind}, a list of {kind}s, or a dictionary of them",
                "Make the model with keras.Model([first, second], [third, fourth]).",
            )
    return config


def _is_end(value: Any) -> bool:
    """True for one tensor: layer, call, output."""
    return isinstance(value, list) and len(value) == 3 and isinstance(value[0], str)


def _as_keras_3(config: dict[str, Any], limits: ArchitectureLimits) -> dict[str, Any]:
    if keras2.is_keras_2(config):
        # What is stored from here on is the new text, so that one must keep the limits.
        return read_json(json.dumps(keras2.converted(config)), limits)
    if "keras_version" in config or "module" not in config:
        version = str(config.get("keras_version", "1, or of something else"))[:60]
        refuse(f"got the JSON of Keras {version}; allowed is that of Keras 3 or 2", _HINT_KERAS_3)
    return config


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every serialised object, outer ones first."""
    if isinstance(value, dict):
        if isinstance(value.get("class_name"), str) and isinstance(value.get("config"), dict):
            yield value
        for child in value.values():
            yield from _objects(child)
    elif isinstance(value, list):
        for child in value:
            yield from _objects(child)


class _Checker:
    """Walks a configuration; `place` says where, for messages."""

    def __init__(self, limits: ArchitectureLimits) -> None:
        self._limits = limits
        self._layers = 0

    def check(self, config: dict[str, Any]) -> None:
        self._object(config, "the model")

    def _object(self, node: dict[str, Any], place: str) -> None:
        class_name, config = node.get("class_name"), node.get("config")
        _check_class(node, place)
        if not isinstance(config, dict):
            refuse(f"{place}: the config of {class_name} must be a JSON object")
        unknown = sorted(set(node) - _OBJECT_KEYS)
        if unknown:
            refuse(f"{place}: got the key {shown(unknown[0])}, which is not allowed there")
        place = _place(node, place)
        self._count(node)
        if class_name == "DTypePolicy":
            _check_policy(config.get("name"), place)
        if class_name in MODELS:
            config = self._without_layers(config, place)
        self._parameters(config, place)
        self._plain(node.get("build_config"), place)
        self._plain(node.get("shared_object_id"), place)
        for call in _list_of(dict, node.get("inbound_nodes", []), f"{place}: inbound_nodes"):
            self._call_arguments(call, place)

    def _operation(self, node: dict[str, Any], place: str) -> None:
        """An operation between the layers of a functional model."""
        if not isinstance(node.get("config"), dict):
            refuse(f"{place}: the config of an operation must be a JSON object")
        unknown = sorted(set(node) - _OBJECT_KEYS)
        if unknown:
            refuse(f"{place}: got the key {shown(unknown[0])}, which is not allowed there")
        name = node.get("name")
        place = f"operation {name[:60]!r}" if isinstance(name, str) else place
        if node.get("registered_name") not in (None, node.get("class_name")):
            refuse(f"{place}: got the registered name {shown(node['registered_name'])}; "
                    "custom objects are not allowed")  # fmt: skip
        try:
            check_operation(node, place)
        except InvalidArgument as error:
            refuse(error.message, error.hint)
        self._count(node)
        self._plain(node.get("build_config"), place)
        self._plain(node.get("shared_object_id"), place)
        slices = node["class_name"] in SLICING
        for call in _list_of(dict, node.get("inbound_nodes", []), f"{place}: inbound_nodes"):
            self._call_arguments(call, place, of_operation=True, slices=slices)

    def _count(self, node: dict[str, Any]) -> None:
        calls = node.get("inbound_nodes")
        if node["class_name"] in LAYERS | MODELS or is_operation(node):
            self._layers += max(len(calls), 1) if isinstance(calls, list) else 1
        if self._layers > self._limits.layers:
            refuse(f"it has more than the {self._limits.layers} layers that are allowed",
                   "An administrator may raise the setting max_layers.")  # fmt: skip

    def _without_layers(self, config: dict[str, Any], place: str) -> dict[str, Any]:
        """Checks the layers of a model and returns the rest."""
        for layer in _list_of(dict, config.get("layers"), f"{place}: layers"):
            if is_operation(layer) and "input_layers" in config:
                self._operation(layer, place)
                continue
            self._object(layer, place)
            if layer["class_name"] not in LAYERS | MODELS:
                _refuse_class(layer, place)
        return {key: value for key, value in config.items() if key != "layers"}

    def _parameters(self, config: dict[str, Any], place: str) -> None:
        for key, value in config.items():
            self._parameter(key, value, f"{place}: {key[:60]}")

    def _parameter(self, key: str, value: Any, place: str) -> None:
        if key in NULL_PARAMETERS and value is not None:
            refuse(f"{place}: got {shown(value)}; it must be null")
        if key in VOCABULARIES:
            _check_vocabulary(value, place)
        if key == "dtype" and not isinstance(value, dict):
            _check_policy(value, place)
        for ending, (module, names) in NAMED_OBJECTS.items():
            if key.endswith(ending):
                _check_named(value, module, names, place)
        if key in LARGEST:
            _check_largest(value, LARGEST[key], place)
        if key == "seed":
            return _check_seed(value, place)
        return self._value(value, place)

    def _value(self, value: Any, place: str) -> None:
        if isinstance(value, dict):
            if any(mark in value for mark in _MARKS):
                self._object(value, place)
            else:
                self._parameters(value, place)
        elif isinstance(value, list):
            for element in value:
                self._value(element, place)
        else:
            self._number(value, place)

    def _call_arguments(
        self, value: Any, place: str, of_operation: bool = False, slices: bool = False
    ) -> None:
        """Arguments that a layer is called with: tensors, numbers and null, in lists or objects.

        Args:
            value: them.
            place: for messages.
            of_operation: whether arrays may be among them.
            slices: whether parts of a shape may be.
        """
        kind = value.get("class_name") if isinstance(value, dict) else None
        if kind == _TENSOR:
            self._tensor(value, place)
        elif slices and kind in (_SLICE, _ELLIPSIS):
            _check_slice(value, place)
        elif of_operation and kind in _ARRAYS:
            self._array(value, place)
        elif isinstance(value, dict) and any(mark in value for mark in _MARKS):
            _refuse_class(value, f"{place}: inbound_nodes")
        elif isinstance(value, dict | list):
            for child in value.values() if isinstance(value, dict) else value:
                self._call_arguments(child, place, of_operation, slices)
        elif isinstance(value, str):
            refuse(f"{place}: inbound_nodes: got the text {shown(value)}; a layer is called "
                    "with tensors and numbers only")  # fmt: skip
        else:
            self._number(value, place)

    def _array(self, node: dict[str, Any], place: str) -> None:
        config = node.get("config")
        known = isinstance(config, dict) and set(config) == {"value", "dtype"}
        if not isinstance(config, dict) or not known or set(node) != {"class_name", "config"}:
            refuse(f"{place}: inbound_nodes: got an array that Keras would not have written")
        _check_dtype(config["dtype"], place)
        if not _is_array(config["value"]):
            refuse(f"{place}: inbound_nodes: got an array of other things than numbers")
        self._plain(config["value"], place)

    def _tensor(self, node: dict[str, Any], place: str) -> None:
        config = node.get("config")
        known = isinstance(config, dict) and set(config) == _TENSOR_KEYS
        if not isinstance(config, dict) or not known or set(node) != {"class_name", "config"}:
            refuse(f"{place}: inbound_nodes: got a tensor that Keras would not have written")
        _check_dtype(config["dtype"], place)
        self._plain(config, place)

    def _plain(self, value: Any, place: str) -> None:
        """Refuses objects where only shapes and names can be."""
        if isinstance(value, dict):
            if any(mark in value for mark in _MARKS):
                _refuse_class(value, place)
            for child in value.values():
                self._plain(child, place)
        elif isinstance(value, list):
            for child in value:
                self._plain(child, place)
        else:
            self._number(value, place)

    def _number(self, value: Any, place: str) -> None:
        if isinstance(value, int) and abs(value) > self._limits.integer:
            refuse(f"{place}: got {shown(value)}; at most {self._limits.integer} is allowed")
        if isinstance(value, float) and not math.isfinite(value):
            refuse(f"{place}: got a number that is too large")


def _check_class(node: Mapping[str, Any], place: str) -> None:
    module, class_name = node.get("module"), node.get("class_name")
    allowed = MODULES.get(module) if isinstance(module, str) else None
    if allowed is None or not isinstance(class_name, str) or class_name not in allowed:
        _refuse_class(node, place)
    if node.get("registered_name") not in (None, class_name):
        refuse(f"{place}: got the registered name {shown(node['registered_name'])} for {class_name}; "
                "custom objects are not allowed")  # fmt: skip


def _refuse_class(node: Mapping[str, Any], place: str) -> NoReturn:
    module, name = node.get("module"), node.get("class_name")
    found = f"{place}: got the class {str(name)[:60]!r} of the module {str(module)[:60]!r}"
    if isinstance(name, str) and name in REFUSED_CLASSES:
        refuse(f"{found}; {REFUSED_CLASSES[name]}")
    if isinstance(module, str) and module.startswith("keras.src.ops"):
        refuse(f"{found}; operations are allowed between the layers of a functional model only",
                "Use layers such as Add, Multiply or Concatenate there.")  # fmt: skip
    if isinstance(module, str) and module in MODULES:
        refuse(f"{found}, which is not allowed. {nearest(str(name)[:60], MODULES[module])}")
    refuse(f"{found}; allowed are classes of {', '.join(MODULES)}")


def _check_expression(text: str, place: str) -> None:
    try:
        expression = parse_expression(text.removeprefix(EXPRESSION), place)
    except InvalidArgument as error:
        refuse(error.message, error.hint)
    if expression.places != 1:
        refuse(
            f"{place}: got an expression of {' and '.join(expression.parameters)}; allowed: of x"
        )


def _check_named(value: Any, module: str, names: frozenset[str], place: str) -> None:
    if isinstance(value, str) and value.startswith(_CUSTOM) and names is ACTIVATIONS:
        refuse(f"{place}: got {value[:60]!r}; a registered expression takes its place when the model is loaded",
                "cerebro.cerebro_load_model loads models.")  # fmt: skip
    if is_expression(value) and names is ACTIVATIONS:
        _check_expression(value, place)
    elif isinstance(value, str):
        if value not in names:
            refuse(f"{place}: got {value[:60]!r}. {nearest(value[:60], names)}")
    elif isinstance(value, dict):
        if value.get("module") != module:
            _refuse_class(value, place)
    elif value is not None:
        refuse(f"{place}: got {shown(value)}; it must be a name, an object or null")


def _check_largest(value: Any, largest: int, place: str) -> None:
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int | float) and number > largest:
            refuse(f"{place}: got {shown(number)}; at most {largest} is allowed")


def _check_slice(node: Mapping[str, Any], place: str) -> None:
    """A slice from whole numbers, or the dots that stand for all axes between."""
    config = node.get("config")
    keys = {"start", "stop", "step"} if node["class_name"] == _SLICE else set()
    good = (
        isinstance(config, dict) and set(config) == keys and set(node) == {"class_name", "config"}
    )
    if not good or not all(one is None or type(one) is int for one in config.values()):  # type: ignore[union-attr]
        refuse(f"{place}: inbound_nodes: got {shown(config)} as a slice; it must have start, stop and "
               "step, whole numbers or null")  # fmt: skip


def _is_array(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_array, value))
    return isinstance(value, int | float)


def _check_vocabulary(value: Any, place: str) -> None:
    numbers = isinstance(value, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in value
    )
    if value is not None and not numbers:
        refuse(f"{place}: got {shown(value)}; it must be a list of numbers, and no file: the check "
               "reads no files of the server")  # fmt: skip


def _check_dtype(value: Any, place: str) -> None:
    if value is not None and (not isinstance(value, str) or value not in DTYPES):
        refuse(f"{place}: got the dtype {str(value)[:60]!r}; allowed are {sorted(DTYPES)}")


def _check_policy(value: Any, place: str) -> None:
    _check_dtype(value, place)
    if value in ("bfloat16", "float16"):
        refuse(f"{place}: got the dtype {value!r}, in which weights lose the small steps of training",
               f"Use 'mixed_{value}': it computes so and keeps weights in float32.")  # fmt: skip


def _check_seed(value: Any, place: str) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    if value is not None and not whole:
        refuse(f"{place}: got {str(value)[:60]!r}; it must be null or a whole number of 63 bits")


def _list_of(kind: type, value: Any, place: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(element, kind) for element in value):
        refuse(f"{place}: it must be a list of JSON objects")
    return value


def _place(node: Mapping[str, Any], place: str) -> str:
    name = node.get("name", node["config"].get("name"))
    if node["class_name"] not in LAYERS or not isinstance(name, str):
        return place
    return f"layer {name[:60]!r}"
