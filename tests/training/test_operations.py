"""Models with operations between layers: built, sized, trained, asked, as in Keras."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.errors import InvalidArchitecture
from tests.training.conftest import CLASSES, FEATURES, Data, hop, weights_of

pytestmark = pytest.mark.slow


def operators(rows: Any) -> Any:
    """Arithmetic, indices, comparisons."""
    import keras

    x = keras.layers.Dense(8)(rows)
    x = 2.0 - x * 3 + x / 2 - x**2 + abs(-x)
    left, right = x[:, :4], x[..., 4:]
    x = keras.ops.where(left > right, left, right * np.arange(4, dtype="float32"))
    return keras.ops.concatenate([x, x[:, None, 0], keras.ops.expand_dims(x[:, 1], 1)], axis=-1)


def reductions(rows: Any) -> Any:
    """What keras.ops makes of axes."""
    import keras

    ops = keras.ops
    x = ops.reshape(keras.layers.Dense(12)(rows), (-1, 3, 4))
    y = ops.einsum("bij,bkj->bik", x, x) + ops.matmul(x, ops.transpose(x, (0, 2, 1)))
    parts = [
        ops.mean(x, axis=1), ops.sum(x, axis=(2,)), ops.max(x, axis=-1), ops.std(y, axis=1),
        ops.logsumexp(y, axis=2), ops.stack([x[:, 0], x[:, 1]], axis=1)[:, 0],
        ops.squeeze(ops.split(x, 3, axis=1)[1], axis=1), ops.norm(x, axis=-1),
    ]  # fmt: skip
    return ops.concatenate(parts, axis=1)


def activations(rows: Any) -> Any:
    """Activations of tensors."""
    import keras

    x = keras.layers.Dense(6)(rows)
    x = keras.activations.relu(x, negative_slope=0.1, max_value=2.0)
    x = keras.activations.gelu(x) + keras.ops.softmax(x, axis=-1)
    x = keras.ops.clip(keras.ops.pad(x, ((0, 0), (1, 1))), -1, 1)
    return keras.ops.cast(keras.ops.one_hot(keras.ops.argmax(x, axis=1), 8), "float32") + x


def whole_numbers(rows: Any) -> Any:
    """Layers that look whole numbers up."""
    import keras

    layers = keras.layers
    ids = keras.ops.cast(keras.ops.round(rows * 3), "int32")
    hashed = layers.Hashing(5, salt=7)(ids)
    found = layers.IntegerLookup(vocabulary=[-3, -2, -1, 0, 1, 2, 3], output_mode="multi_hot")(ids)
    return layers.Concatenate()([layers.Flatten()(layers.Embedding(5, 3)(hashed)), found])


def scaled(rows: Any) -> Any:
    """Layers of ConvNeXt and InceptionResNetV2."""
    from keras.src.applications.convnext import LayerScale
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    return CustomScaleLayer(0.3)([rows, LayerScale(0.5, FEATURES)(rows)])


BODIES = [operators, reductions, activations, whole_numbers, scaled]


def model_of(body: Callable[[Any], Any]) -> Any:
    import keras

    rows = keras.Input((FEATURES,), name="rows")
    return keras.Model(rows, keras.layers.Dense(CLASSES, activation="softmax")(body(rows)))


@pytest.mark.parametrize("body", BODIES)
def test_they_train_and_predict_as_in_keras(
    body: Any, recipe: Callable[..., Any], data: Data
) -> None:
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.backends.tensorflow.sizes import check_size

    theirs = model_of(body)
    config = check_architecture(theirs.to_json())
    size = check_size(config, ArchitectureLimits())
    assert size.parameters == theirs.count_params()
    assert size.row_bytes > 0
    ours = models.build(config, seed=1)
    theirs.set_weights(ours.get_weights())
    rows = data.features[0]
    np.testing.assert_array_equal(ours.predict(rows, verbose=0), theirs.predict(rows, verbose=0))
    made = recipe(theirs.to_json())
    state, _ = hop(made, data, None)
    again, _ = hop(made, data, None)
    assert state == again
    before = weights_of(state)
    after = weights_of(hop(made, data, state, partition=1)[0])
    assert any((a != b).any() for a, b in zip(before, after, strict=True))
    (found,) = Scorer(made).predict(rows)
    assert found.shape == (len(rows), CLASSES)


def inputs_and_outputs() -> Any:
    import keras

    first, second = keras.Input((2,), name="u"), keras.Input((3,), name="v")
    both = keras.ops.concatenate([first * 2, second], axis=1)
    kind = keras.layers.Dense(3, activation="softmax", name="sort")(both)
    return keras.Model({"b": first, "a": second}, {"y": kind, "x": keras.layers.Dense(1)(both)})


def test_dictionaries_of_inputs_are_taken_in_the_order_of_keras() -> None:
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.sizes import check_size

    theirs = inputs_and_outputs()
    config = check_architecture(theirs.to_json())
    check_size(config, ArchitectureLimits())
    ours = models.build(config, seed=1)
    theirs.set_weights(ours.get_weights())
    rows = {"a": np.ones((4, 3), np.float32), "b": np.full((4, 2), 0.5, np.float32)}
    told = theirs.predict(rows, verbose=0)
    found = ours.predict([rows["a"], rows["b"]], verbose=0)
    np.testing.assert_array_equal(found[0], told["x"])
    np.testing.assert_array_equal(found[1], told["y"])
    assert models.facts_of(ours).input_shapes == ((3,), (2,))


def refused(body: Callable[[Any], Any], message: str, **limits: int) -> None:
    from cerebro_db.training.backends.tensorflow.sizes import check_size

    allowed = ArchitectureLimits(**limits)
    with pytest.raises(InvalidArchitecture, match=message) as told:
        check_size(check_architecture(model_of(body).to_json(), allowed), allowed)
    assert told.value.hint


def test_operations_are_within_limits() -> None:
    import keras

    ops = keras.ops
    refused(lambda x: ops.tile(x, (1, 1000)), "6000 numbers for one row", elements=5999)
    refused(lambda x: ops.repeat(x, 2**20, axis=1), "numbers for one row", elements=10**6)
    refused(lambda x: ops.floor_divide(ops.cast(x, "int32"), 2), "got whole numbers")
    refused(lambda x: ops.cast(x, "int32") % 2, "got whole numbers")
    refused(lambda x: ops.concatenate([x, x[:, 3:3]], axis=1), "allowed: every size from 1")


@pytest.mark.parametrize("end", [lambda x: x[:, 0], lambda x: x[0], lambda x: x[:3, :]])
def test_outputs_have_rows(end: Callable[[Any], Any]) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.sizes import check_size

    rows = keras.Input((FEATURES,))
    model = keras.Model(rows, end(keras.layers.Dense(2)(rows)))
    with pytest.raises(InvalidArchitecture, match="got an output of the shape"):
        check_size(check_architecture(model.to_json()), ArchitectureLimits())


def test_every_operation_is_one_of_keras_with_these_arguments() -> None:
    """The allow-list agrees with the installed Keras."""
    import importlib
    import inspect

    import keras

    from cerebro_db.configs.architectures.operations import OPERATIONS

    for module, operations in OPERATIONS.items():
        there = vars(importlib.import_module(module))
        for name, arguments in operations.items():
            assert issubclass(there[name], keras.Operation), name
            taken = set(inspect.signature(there[name].__init__).parameters) - {"self", "name"}
            assert taken == {argument.name for argument in arguments}, name


def test_expressions_are_activations(recipe: Callable[..., Any], data: Data) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.sizes import check_size
    from tests.training.conftest import net

    def swish(text: str) -> str:
        model = json.loads(net(keras.layers.Dense(4, activation="silu")))
        model["config"]["layers"][2]["config"]["activation"] = text
        return json.dumps(model)

    ours, theirs = swish("expression:x * sigmoid(x)"), swish("silu")
    found = [weights_of(hop(recipe(one), data, None)[0]) for one in (ours, theirs)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    wrong = check_architecture(swish("expression:mean(x, axis=-1)"))
    with pytest.raises(InvalidArchitecture, match="keeps the shape"):
        check_size(wrong, ArchitectureLimits())
    with pytest.raises(InvalidArchitecture, match="allowed: of x"):
        check_architecture(swish("expression:y_true - y_pred"))
