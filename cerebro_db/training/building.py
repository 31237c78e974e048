"""Makes a Keras model from a checked architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from cerebro_db.errors import InvalidArchitecture

_SEQUENTIAL = "cerebro>Sequential"


def made(config: Mapping[str, Any]) -> keras.Model:
    """A model whose shapes are known, from a checked architecture.

    Raises:
        InvalidArchitecture: Keras refuses the architecture, or it has no input shape.
    """
    copied = _with_own_sequential(config)
    try:
        model = keras.saving.deserialize_keras_object(copied, {_SEQUENTIAL: _Sequential})
    except RecursionError:
        raise InvalidArchitecture(
            "Keras cannot build the architecture: too many layers follow one another"
        ) from None
    except Exception as error:  # whatever Keras raises is about the architecture
        raise InvalidArchitecture(f"Keras cannot build the architecture: {short(error)}") from None
    if not model.built or not model.inputs:
        raise InvalidArchitecture(
            "got an architecture without an input shape",
            hint="start the model with keras.Input(...)",
        )
    return model


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


def short(error: BaseException) -> str:
    """What an exception of Keras says, in one line."""
    # Keras wraps what went wrong in the whole configuration of each model around it.
    text = " ".join(str(error).split()).rpartition("Exception encountered: ")[2]
    return text[:500] or type(error).__name__
