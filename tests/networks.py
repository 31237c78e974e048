"""A model of two inputs and three outputs as JSON, made without Keras."""

from __future__ import annotations

import json
from typing import Any


def layer(kind: str, name: str, inbound: list[Any], **config: Any) -> dict[str, Any]:
    """A layer of a functional model, as ``model.to_json()`` writes it."""
    return {
        "module": "keras.layers",
        "class_name": kind,
        "config": {"name": name, **config},
        "registered_name": None,
        "name": name,
        "inbound_nodes": inbound,
    }


def tensor(name: str, *shape: int) -> dict[str, Any]:
    """What a layer is called with."""
    history = {"dtype": "float32", "keras_history": [name, 0, 0], "shape": [None, *shape]}
    return {"class_name": "__keras_tensor__", "config": history}


def call(*tensors: dict[str, Any]) -> list[Any]:
    """One call of a layer."""
    return [{"args": [tensors[0] if len(tensors) == 1 else list(tensors)], "kwargs": {}}]


def network(classes: int = 3) -> str:
    """The JSON of a model."""
    layers = [
        layer("InputLayer", "g", [], batch_shape=[None, 2, 2], dtype="float32"),
        layer("InputLayer", "s", [], batch_shape=[None, 1], dtype="float32"),
        layer("Flatten", "flat", call(tensor("g", 2, 2))),
        layer("Concatenate", "both", call(tensor("flat", 4), tensor("s", 1)), axis=-1),
        layer("Dense", "hidden", call(tensor("both", 5)), units=6, activation="tanh"),
        layer("Dense", "kind", call(tensor("hidden", 6)), units=classes, activation="softmax"),
        layer("Dense", "amount", call(tensor("hidden", 6)), units=1, activation="linear"),
        layer("Dense", "pair", call(tensor("hidden", 6)), units=2, activation="linear"),
    ]
    config = {
        "name": "several",
        "layers": layers,
        "input_layers": [["g", 0, 0], ["s", 0, 0]],
        "output_layers": [["kind", 0, 0], ["amount", 0, 0], ["pair", 0, 0]],
    }
    return json.dumps(
        {"module": "keras.src.models.functional", "class_name": "Functional", "config": config}
    )


def side_by_side(*sizes: int) -> str:
    """The JSON of a model of one number, out of inputs of these sizes."""
    names = [f"input_{place}" for place in range(len(sizes))]
    inputs = [
        layer("InputLayer", name, [], batch_shape=[None, size], dtype="float32")
        for name, size in zip(names, sizes, strict=True)
    ]
    given = [tensor(name, size) for name, size in zip(names, sizes, strict=True)]
    both = layer("Concatenate", "both", call(*given), axis=-1)
    output = layer("Dense", "y", call(tensor("both", sum(sizes))), units=1, activation="linear")
    config = {
        "name": "side_by_side",
        "layers": [*inputs, both, output],
        "input_layers": [[name, 0, 0] for name in names],
        "output_layers": [["y", 0, 0]],
    }
    return json.dumps(
        {"module": "keras.src.models.functional", "class_name": "Functional", "config": config}
    )
