"""Architectures that pass the checks never end the process, whatever numbers are in them."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz import mutations
from fuzz.harness import INPUTS, counts

_NATIVE = Path(__file__).with_name("native.py")
NUMBERS = [
    0, 1, -1, 2, 3, 7, 100, 2**16, 2**31 - 1, -(2**31) + 1, 0.5, 1e-30, 1e30, -1e30, [0, 0], [1, 0],
]  # fmt: skip
_SEED = 17


def tried(models: list[Any]) -> list[str]:
    """Outcome of each of them, in processes of their own."""
    done = subprocess.run(
        [sys.executable, str(_NATIVE)],
        input=json.dumps(models),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    found: list[str] = json.loads(done.stdout)
    return found


def layer(class_name: str, **config: Any) -> dict[str, Any]:
    return {
        "module": "keras.layers", "class_name": class_name, "config": config,
        "registered_name": None,
    }  # fmt: skip


def model(shape: list[int], changed: dict[str, Any]) -> dict[str, Any]:
    """A net of the layer that is tried, and of layers that use what comes out of it."""
    layers = [
        layer("InputLayer", batch_shape=[None, *shape]),
        changed,
        layer("Flatten"),
        layer("Dense", units=2),
    ]
    return {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "n", "layers": layers},
    }


LAYERS: dict[tuple[int, ...], list[dict[str, Any]]] = {
    (6,): [
        layer("Dense", units=3),
        layer("RepeatVector", n=2),
        layer("Reshape", target_shape=[3, 2]),
        layer("Embedding", input_dim=4, output_dim=2),
        layer("CategoryEncoding", num_tokens=4, output_mode="multi_hot"),
        layer("GroupNormalization", groups=3),
    ],
    (6, 3): [
        layer("Conv1D", filters=2, kernel_size=2, strides=1, dilation_rate=1, groups=1),
        layer("Conv1DTranspose", filters=2, kernel_size=2, strides=1, dilation_rate=1),
        layer("SeparableConv1D", filters=2, kernel_size=2, strides=1, dilation_rate=1),
        layer("MaxPooling1D", pool_size=2, strides=1, padding="same"),
        layer("AveragePooling1D", pool_size=2, strides=1),
        layer("AdaptiveMaxPooling1D", output_size=2),
        layer("Cropping1D", cropping=[1, 1]),
        layer("ZeroPadding1D", padding=[1, 1]),
        layer("UpSampling1D", size=2),
        layer("GRU", units=2),
        layer("Permute", dims=[2, 1]),
        layer("BatchNormalization", axis=1),
        layer("Softmax", axis=1),
    ],
    (6, 5, 2): [
        layer("Conv2D", filters=2, kernel_size=[2, 2], strides=[1, 1], groups=1, padding="same"),
        layer("Conv2D", filters=2, kernel_size=[2, 2], dilation_rate=[1, 1]),
        layer("Conv2DTranspose", filters=2, kernel_size=[2, 2], strides=[1, 1]),
        layer("DepthwiseConv2D", kernel_size=[2, 2], strides=[1, 1], depth_multiplier=1),
        layer("MaxPooling2D", pool_size=[2, 2], strides=[1, 1], padding="same"),
        layer("AdaptiveAveragePooling2D", output_size=[2, 2]),
        layer("Cropping2D", cropping=[[1, 1], [1, 1]]),
        layer("Resizing", height=3, width=3, interpolation="bicubic"),
        layer("CenterCrop", height=3, width=3),
        layer("RandomCrop", height=3, width=3),
        layer("RandomRotation", factor=0.1),
        layer("RandomTranslation", height_factor=0.1, width_factor=0.1),
        layer("RandomZoom", height_factor=0.1),
        layer("TimeDistributed", layer=layer("Cropping1D", cropping=[1, 1])),
        layer("ConvLSTM1D", filters=2, kernel_size=2, strides=1),
    ],
    (4, 5, 4, 2): [
        layer("Conv3D", filters=2, kernel_size=[2, 2, 2], strides=[1, 1, 1]),
        layer("Conv3DTranspose", filters=2, kernel_size=[2, 2, 2], strides=[1, 1, 1]),
        layer("MaxPooling3D", pool_size=[2, 2, 2], strides=[1, 1, 1]),
        layer("UpSampling3D", size=[2, 2, 2]),
    ],
}


def operation(module: str, kind: str, *args: Any, **config: Any) -> dict[str, Any]:
    return {
        "module": f"keras.src.{module}", "class_name": kind, "config": config, "registered_name": kind,
        "name": "op", "inbound_nodes": [{"args": list(args) or [ROWS], "kwargs": {}}],
    }  # fmt: skip


def tensor(of: str) -> dict[str, Any]:
    config = {"shape": [None, 6, 4], "dtype": "float32", "keras_history": [of, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


ROWS = tensor("rows")
PART = {"class_name": "__slice__", "config": {"start": 1, "stop": 5, "step": 2}}
# Of rows of 6 x 4 numbers.
OPERATIONS = [
    operation("ops.numpy", "GetItem", ROWS, [PART, PART, 1]),
    operation("ops.numpy", "Reshape", newshape=[-1, 3, 8]),
    operation("ops.numpy", "Repeat", repeats=2, axis=1),
    operation("ops.numpy", "Tile", repeats=[1, 2, 1]),
    operation("ops.numpy", "Pad", pad_width=[[0, 0], [1, 1], [0, 2]]),
    operation("ops.numpy", "Split", indices_or_sections=2, axis=1),
    operation("ops.numpy", "Roll", shift=2, axis=1),
    operation("ops.numpy", "Take", ROWS, 2, axis=1),
    operation("ops.numpy", "Tensordot", ROWS, ROWS, axes=[[2], [2]]),
    operation("ops.numpy", "BroadcastTo", shape=[2, 6, 4]),
    operation("ops.numpy", "Swapaxes", axis1=1, axis2=2),
    operation("ops.numpy", "Moveaxis", source=[1], destination=[2]),
    operation("ops.numpy", "Mean", axis=[1], keepdims=True),
    operation("ops.numpy", "Argmax", axis=1),
    operation("ops.numpy", "Cumsum", axis=1),
    operation("ops.numpy", "Tril", k=1),
    operation("ops.numpy", "Sort", axis=1),
    operation("ops.numpy", "Mod", ROWS, 3),
    operation("ops.numpy", "FloorDivide", ROWS, 3),
    operation("ops.numpy", "Power", ROWS, 3),
    operation("ops.numpy", "Clip", x_min=-1.0, x_max=1.0),
    operation("ops.numpy", "Round", decimals=2),
    operation("ops.nn", "Normalize", axis=1, order=2),
    operation("ops.nn", "Softmax", axis=[1, 2]),
    operation("ops.math", "TopK", k=2),
    operation("ops.core", "Unstack", num=6, axis=1),
]


def functional(changed: dict[str, Any]) -> dict[str, Any]:
    """A net of the operation that is tried."""
    rows = layer("InputLayer", batch_shape=[None, 6, 4], name="rows")
    flat = layer("Flatten", name="flat") | {"name": "flat", "inbound_nodes": [_call("op")]}
    last = layer("Dense", units=2, name="last") | {"name": "last", "inbound_nodes": [_call("flat")]}
    layers = [{**rows, "name": "rows", "inbound_nodes": []}, changed, flat, last]
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": {
            "name": "n", "layers": layers, "input_layers": [["rows", 0, 0]],
            "output_layers": [["last", 0, 0]],
        },
    }  # fmt: skip


def _call(of: str) -> dict[str, Any]:
    return {"args": [tensor(of)], "kwargs": {}}


def _places(value: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of numbers and of lists of numbers."""
    if isinstance(value, int | float | list):
        yield start
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(child, (*start, key))


def _with(value: Any, path: tuple[Any, ...], number: Any) -> Any:
    changed = copy.deepcopy(value)
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = number
    return changed


def changed_operations() -> Iterator[dict[str, Any]]:
    """The same for numbers of operations, and those that they are called with."""
    for one in OPERATIONS:
        for key in ("config", "inbound_nodes"):
            for path in _places(one[key], (key,)):
                if key == "config" or not {"keras_history", "shape"} & set(path):
                    for number in NUMBERS:
                        yield functional(_with(one, path, number))


def changed_models() -> Iterator[dict[str, Any]]:
    """Each number of each layer, replaced by each that has broken something, somewhere."""
    for shape, layers in LAYERS.items():
        for one in layers:
            for path in _places(one["config"], ("config",)):
                for number in NUMBERS:
                    yield model(list(shape), _with(one, path, number))
    yield from changed_operations()
    for stored in mutations.MODELS.values():
        for path in _places(stored["config"], ("config",)):
            yield _with(stored, path, 0)


def test_the_end_of_a_process_is_reported() -> None:
    small = model([6], LAYERS[(6,)][0])
    assert tried([small, "abort", small]) == ["trained", "SIGABRT", "trained"]


@pytest.mark.slow
def test_no_number_in_an_architecture_ends_the_process() -> None:
    models = list(changed_models())
    count = min(len(models), max(INPUTS // 50, 40))
    chosen = random.Random(_SEED).sample(models, count)
    found = tried(chosen)
    ended = [(end, one) for end, one in zip(found, chosen, strict=True) if end.startswith("SIG")]
    assert ended == []
    counts["native"] += count
    counts["native, accepted"] += found.count("trained")
    assert found.count("trained") > 0
