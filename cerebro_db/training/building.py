"""Makes a Keras model from a checked architecture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.backend.common import global_state

from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.causes import short

_SEQUENTIAL = "cerebro>Sequential"
_SCOPES = "name_scope_stack"  # where Keras keeps the names of the layers that it is inside of


def made(config: Mapping[str, Any]) -> keras.Model:
    """A model whose shapes are known, from a checked architecture.

    Raises:
        InvalidArchitecture: Keras refuses the architecture, or it has no input shape.
    """
    copied = _with_own_sequential(config)
    try:
        with _left_scopes():
            model = keras.saving.deserialize_keras_object(copied, {_SEQUENTIAL: _Sequential})
    except RecursionError:
        raise InvalidArchitecture(
            "Keras cannot build the architecture: too many layers follow one another",
            hint="take some of the layers away",
        ) from None
    except Exception as error:  # whatever Keras raises is about the architecture
        raise InvalidArchitecture(f"Keras cannot build the architecture: {short(error)}") from None
    if not model.built or not model.inputs:
        raise InvalidArchitecture(
            "got an architecture without an input shape",
            hint="start the model with keras.Input(...)",
        )
    return model


@contextmanager
def _left_scopes() -> Iterator[None]:
    """A layer whose name TensorFlow refuses stays in Keras' list, and in the way of later models."""
    before = list(global_state.get_global_attribute(_SCOPES, default=[]))
    try:
        yield
    finally:
        global_state.set_global_attribute(_SCOPES, before)


class _Sequential(keras.Sequential):
    """Makes a Sequential as Keras does, but builds it once and not again after every layer."""

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> keras.Model:
        """A plain ``keras.Sequential``."""
        layers = [
            keras.saving.deserialize_keras_object(layer, custom_objects)
            for layer in config["layers"]
        ]
        model = keras.Sequential(layers, name=config["name"])
        shape = config.get("build_input_shape")
        if not model.built and isinstance(shape, list) and shape:
            model.build(shape)
        return model


def _with_own_sequential(value: Any) -> Any:
    """A copy in which Keras looks for the class of every Sequential in ``_Sequential``.

    It is left to each layer whether it trains.
    """
    if isinstance(value, list):
        return [_with_own_sequential(element) for element in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _with_own_sequential(element) for key, element in value.items()}
    if copied.get("class_name") == "Functional" and isinstance(copied.get("config"), dict):
        # Keras would hand this on to every layer, also to those that are frozen.
        copied["config"].pop("trainable", None)
    is_sequential = copied.get("class_name") == "Sequential" and "module" in copied
    return {**copied, "registered_name": _SEQUENTIAL} if is_sequential else copied
