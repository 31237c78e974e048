"""Shapes that a model leaves open, and what a packed table fills in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_db.configs.architectures.nets import DataShape, filled, is_open, mlp
from cerebro_db.errors import InvalidArchitecture
from tests.networks import layer, network

ONE = DataShape("packed", ((4, 2),), (3,), (True,))


def test_a_perceptron_is_filled_in() -> None:
    config = json.loads(mlp(None, [5], None, "relu", 0.0, None))
    assert is_open(config)
    layers = filled(config, ONE)["config"]["layers"]
    assert [one["class_name"] for one in layers] == ["InputLayer", "Flatten", "Dense", "Dense"]
    assert layers[0]["config"]["batch_shape"] == [None, 4, 2]
    assert layers[-1]["config"] == {"name": "outputs", "units": 3, "activation": "softmax"}
    assert is_open(config)  # it is another one that was filled in
    assert not is_open(filled(config, ONE))


def test_what_is_not_open() -> None:
    of_keras_2 = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 4]}}
    for config in (
        json.loads(network()),
        {"class_name": "Model", "config": {"layers": [of_keras_2]}},
        {"config": {"layers": [None, 1, {"config": 2}]}},
        {"config": []},
        {},
    ):
        assert not is_open(config)


def several(*shapes: Any) -> dict[str, Any]:
    layers = [
        layer("InputLayer", name, [], batch_shape=shape)
        for name, shape in zip("ab", shapes, strict=True)
    ]
    heads = [layer("Dense", name, [], units=None) for name in ("one", "two")]
    ends = [["b", 0, 0], ["a", 0, 0]]
    return {"config": {"layers": [*layers, *heads], "input_layers": ends}}


def test_several_inputs_in_the_order_of_the_model() -> None:
    data = DataShape("packed", ((2,), (7, 3)), (1, 5), (False, True))
    found = filled(several([None, None, 3], None), data)["config"]["layers"]
    assert [one["config"].get("batch_shape") for one in found[:2]] == [[None, 7, 3], [None, 2]]
    assert [one["config"]["units"] for one in found[2:]] == [1, 5]
    with pytest.raises(InvalidArchitecture, match="got 2 inputs; packed has 1"):
        filled(several(None, None), ONE)
    with pytest.raises(InvalidArchitecture, match=r"shape \[None\]; packed has rows of \[7, 3\]"):
        filled(several([None, None], None), data)
