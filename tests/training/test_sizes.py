"""Architectures that are too large are refused at once, and before memory is taken for them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from pace import stretched

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidArchitecture

BIG = 2**31 - 1


def layer(class_name: str, **config: Any) -> dict[str, Any]:
    return {
        "module": "keras.layers", "class_name": class_name, "config": config,
        "registered_name": None,
    }  # fmt: skip


def sequential(shape: list[int], *layers: dict[str, Any]) -> dict[str, Any]:
    start = layer("InputLayer", batch_shape=[None, *shape], name="rows")
    config = {"name": "net", "layers": [start, *layers]}
    return layer("Sequential") | {"module": "keras", "config": config}


def attention(length: int, heads: int = 2) -> dict[str, Any]:
    def tensor(of: str) -> dict[str, Any]:
        config = {"shape": [None, length, 4], "dtype": "float32", "keras_history": [of, 0, 0]}
        return {"class_name": "__keras_tensor__", "config": config}

    start = layer("InputLayer", batch_shape=[None, length, 4], name="rows")
    meets = layer("MultiHeadAttention", num_heads=heads, key_dim=2, name="meets")
    call = {"args": [tensor("rows"), tensor("rows")], "kwargs": {}}
    layers = [
        start | {"name": "rows", "inbound_nodes": []},
        meets | {"name": "meets", "inbound_nodes": [call]},
    ]
    config = {
        "name": "net", "layers": layers, "input_layers": ["rows", 0, 0],
        "output_layers": ["meets", 0, 0],
    }  # fmt: skip
    return layer("Functional") | {"module": "keras.src.models.functional", "config": config}


def check(model: dict[str, Any], **limits: int) -> None:
    from cerebro_db.training.backends.tensorflow.sizes import check_size

    allowed = ArchitectureLimits(**limits)
    check_size(check_architecture(json.dumps(model), allowed), allowed)


def test_limits_are_those_of_the_settings() -> None:
    limits = ArchitectureLimits.of(Settings(max_layers=7, max_parameters=11))
    assert (limits.layers, limits.parameters) == (7, 11)
    assert ArchitectureLimits.of(Settings()) == ArchitectureLimits()


def test_parameters_are_counted_exactly() -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.models import build

    model = sequential(
        [8, 4],
        layer("BatchNormalization"),
        layer("Bidirectional", layer=layer("LSTM", units=3)),
        layer("Dropout", rate=0.1),
        layer("Dense", units=5),
    )
    count = build(check_architecture(json.dumps(model)), 0).count_params()
    check(model, parameters=count)
    with pytest.raises(InvalidArchitecture, match=f"got {count} parameters; at most {count - 1}"):
        check(model, parameters=count - 1)
    assert keras.src.backend.common.global_state.get_global_attribute("stateless_scope") is None


PARAMETERS = {
    "a product": sequential([10**6], layer("Dense", units=10**9)),
    "a product that overflows 64 bits": sequential(
        [8, 8, 3], layer("Conv2D", filters=BIG, kernel_size=[2**15, 2**15], padding="same")
    ),
    "by multiples of filters": sequential(
        [8, 8, BIG], layer("SeparableConv2D", filters=BIG, kernel_size=1, depth_multiplier=BIG)
    ),
    "an embedding": sequential([4], layer("Embedding", input_dim=BIG, output_dim=BIG)),
    "in a wrapper": sequential([5, 9], layer("TimeDistributed", layer=layer("Dense", units=BIG))),
    "in cells": sequential(
        [5, 9],
        layer("RNN", cell=layer("StackedRNNCells", cells=[layer("GRUCell", units=BIG)])),
    ),
    "in both directions": sequential(
        [5, 9], layer("Bidirectional", layer=layer("LSTM", units=BIG))
    ),
    "in a nested model": sequential(
        [9], sequential([9], layer("Dense", units=BIG)) | {"name": "inner"}
    ),
    "not trained": sequential([BIG], layer("Normalization")),
    "by the rows' sizes": sequential([BIG, BIG], layer("PReLU")),
}  # fmt: skip
ELEMENTS = {
    "the input": sequential([BIG, BIG, BIG], layer("Flatten")),
    "repeated": sequential([10**5], layer("RepeatVector", n=BIG)),
    "padded": sequential([10, 10], layer("ZeroPadding1D", padding=BIG)),
    "scaled": sequential([10, 10, 3], layer("UpSampling2D", size=[BIG, BIG])),
    "resized": sequential([10, 10, 3], layer("Resizing", height=BIG, width=BIG)),
    "transposed": sequential([9, 9, 1], layer("Conv2DTranspose", filters=1, kernel_size=1,
                                              strides=2**15)),
    "encoded": sequential([10], layer("CategoryEncoding", num_tokens=BIG, output_mode="one_hot")),
    "pooled to more": sequential([9, 9, 1], layer("AdaptiveMaxPooling2D", output_size=BIG)),
    "known, but made while it is built": sequential(
        [10**9], layer("Normalization", mean=0.5, variance=1.0)
    ),
    "small again at the end": sequential(
        [10, 10], layer("UpSampling1D", size=BIG), layer("GlobalMaxPooling1D")
    ),
    "attention": attention(20_000),
    "heads": attention(2_000, heads=100),
}  # fmt: skip


DENSE = (layer("Flatten"), layer("Dense", units=2))
NO_ELEMENTS = {
    "cropped to nothing": sequential(
        [2], layer("Reshape", target_shape=[1, 2, 1]),
        layer("CenterCrop", height=1, width=0), *DENSE,
    ),
    "the input": sequential([6, 0, 2], *DENSE),
    "the batch": layer("Sequential") | {
        "module": "keras",
        "config": {"name": "net", "layers": [layer("InputLayer", batch_shape=[0, 3]), DENSE[1]]},
    },
    "reshaped": sequential([0], layer("Reshape", target_shape=[3, 0]), *DENSE),
    "repeated": sequential([3], layer("RepeatVector", n=0), *DENSE),
    "resized": sequential([4, 4, 1], layer("Resizing", height=0, width=3), *DENSE),
    "cropped at random": sequential([4, 4, 1], layer("RandomCrop", height=0, width=3), *DENSE),
    "scaled": sequential([4, 4], layer("UpSampling1D", size=0), *DENSE),
    "pooled": sequential([3, 3, 1], layer("MaxPooling2D", pool_size=4), *DENSE),
    "in a wrapper": sequential(
        [2, 3, 3, 1], layer("TimeDistributed", layer=layer("CenterCrop", height=0, width=2)), *DENSE
    ),
    "in both directions": sequential(
        [3, 2], layer("Bidirectional", layer=layer("LSTM", units=0)), *DENSE
    ),
    "in a nested model": sequential(
        [3, 3, 1], sequential([3, 3, 1], layer("CenterCrop", height=0, width=2)), *DENSE
    ),
    "filters": sequential([3, 3, 1], layer("Conv2D", filters=0, kernel_size=1), *DENSE),
    "an embedding": sequential([4], layer("Embedding", input_dim=0, output_dim=2), *DENSE),
    "embedded in nothing": sequential([4], layer("Embedding", input_dim=3, output_dim=0), *DENSE),
    "the output": sequential([4, 4, 1], layer("CenterCrop", height=0, width=0)),
    "made within a layer": sequential(
        [6, 2], layer("RNN", cell=layer("StackedRNNCells", cells=[])), *DENSE
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", NO_ELEMENTS.values(), ids=NO_ELEMENTS.keys())
def test_no_tensor_is_without_elements(model: dict[str, Any]) -> None:
    with pytest.raises(InvalidArchitecture) as refused:
        check(model)
    assert refused.value.hint
    assert "\x1b" not in refused.value.message


def test_open_shapes() -> None:
    model = layer("Sequential") | {"module": "keras"}
    model["config"] = {
        "name": "net",
        "layers": [layer("InputLayer", batch_shape=[None, None, 3]), layer("Dense", units=2)],
    }
    with pytest.raises(InvalidArchitecture, match=r"open shape .* every size but the batch fixed"):
        check(model)


@pytest.mark.parametrize("model", PARAMETERS.values(), ids=PARAMETERS.keys())
def test_too_many_parameters(model: dict[str, Any]) -> None:
    with pytest.raises(InvalidArchitecture, match=r"got \d+ parameters; at most 1000000000"):
        check(model)


@pytest.mark.parametrize("model", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_too_large_rows(model: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidArchitecture, match=r"got \d+ numbers for one row; at most 268435456"
    ):
        check(model)


def test_unrolled_steps() -> None:
    cell = layer("LSTM", units=1, unroll=True)
    check(sequential([1000, 1], cell))
    for wrapped in (cell, layer("Bidirectional", layer=cell)):
        with pytest.raises(InvalidArchitecture, match="1001 time steps; at most 1000"):
            check(sequential([1001, 1], wrapped))


MEASURED = """
import json, resource, sys
from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.environment import configure
configure(threads=1)
from cerebro_db.training.backends.tensorflow.sizes import check_size

def check(model):
    config = check_architecture(json.dumps(model))
    try:
        check_size(config, ArchitectureLimits())
    except InvalidArchitecture:
        return 1
    return 0

small, *large = json.load(sys.stdin)
check(small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = sum(map(check, large))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sys.stdout.write(json.dumps([refused, (after - before) // 1024]))
"""


def test_no_memory_is_taken() -> None:
    models = [sequential([4], layer("Dense", units=2)), *PARAMETERS.values(), *ELEMENTS.values()]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED],
        input=json.dumps(models),
        capture_output=True,
        text=True,
        check=True,
    )
    refused, mebibytes = json.loads(done.stdout)
    assert refused == len(PARAMETERS) + len(ELEMENTS)
    assert mebibytes < 100


def test_what_was_only_looked_at_is_not_made_later() -> None:
    """Keras keeps a list of variables without values, to give them values at another time."""
    import keras

    with pytest.raises(InvalidArchitecture):
        check(PARAMETERS["a product"])
    with keras.StatelessScope():
        dense = keras.layers.Dense(2)
        dense.build((None, 3))
    assert dense.kernel.numpy().shape == (3, 2)


def test_many_layers_one_after_another_take_seconds() -> None:
    """Keras alone builds a Sequential again after every layer: minutes."""
    started = time.monotonic()
    check(sequential([4], *[layer("Dense", units=4)] * 700))
    assert time.monotonic() - started < stretched(60)


def test_more_than_keras_can_follow() -> None:
    with pytest.raises(InvalidArchitecture, match="too many layers follow one another"):
        check(sequential([4], *[layer("Dense", units=4)] * 1500), layers=2000)


def test_a_sequential_is_what_keras_makes() -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.models import build

    inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4)], name="inner")
    model = keras.Sequential(
        [keras.Input((6,), dtype="float32"), keras.layers.Dense(5), inner, keras.layers.Dense(2)],
        name="outer",
    )
    made = build(check_architecture(model.to_json()), seed=1)
    assert type(made) is keras.Sequential
    assert type(made.get_layer("inner")) is keras.Sequential
    ours, theirs = json.loads(made.to_json()), json.loads(model.to_json())
    assert ours == theirs
    assert [w.shape for w in made.weights] == [w.shape for w in model.weights]
    deferred = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2)], name="deferred")
    deferred.build((None, 6))
    assert build(check_architecture(deferred.to_json()), seed=1).input_shape == (None, 6)
