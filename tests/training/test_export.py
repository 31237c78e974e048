"""Exported models say elsewhere what they say here: plain Keras, ONNX Runtime, NumPy."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
from cerebro_db.configs.names import Format, export_format
from cerebro_db.errors import InvalidArgument, InvalidData, InvalidState, MissingLibrary
from tests.training.conftest import SOFTMAX

pytestmark = pytest.mark.slow

FACTS = '{"class_values": ["a", null], "normalizing_const": 255.0}'


def dense() -> Any:
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3, activation="softmax"),
        ]
    )


def images() -> Any:
    import keras

    layers = keras.layers
    rows = keras.Input((8, 8, 2), name="pixels")
    one = layers.Conv2D(4, 3, activation="relu", padding="same")(rows)
    two = layers.SeparableConv2D(4, 3, padding="same")(layers.MaxPooling2D(2)(one))
    both = layers.Concatenate()([layers.GlobalAveragePooling2D()(two), layers.Flatten()(two)])
    return keras.Model(rows, layers.Dense(3, activation="softmax")(both))


def sequences() -> Any:
    import keras

    layers = keras.layers
    rows = keras.Input((5, 4))
    read = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(rows)
    seen = layers.MultiHeadAttention(2, 4)(read, read)
    told = layers.LayerNormalization()(layers.Add()([read, seen]))
    return keras.Model(rows, layers.Dense(3)(layers.GRU(4)(told)))


def augmented() -> Any:
    """Known means, and random layers that would be active if nobody told them otherwise."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Normalization(mean=[0.3, -0.2], variance=[2.0, 0.5]),
            layers.RandomFlip(seed=1),
            layers.RandomRotation(0.2),
            layers.RandomContrast(0.3),
            layers.Flatten(),
            layers.GaussianNoise(0.3),
            layers.Dense(3, activation="softmax"),
        ]
    )


def adapted() -> Any:
    """Means that are weights, as ``adapt`` leaves them."""
    import keras

    layers = keras.layers
    rows = keras.Input((6,))
    inner = keras.Sequential([keras.Input((6,)), layers.Normalization(), layers.Dense(4)])
    return keras.Model(rows, layers.Dense(3)(inner(layers.Normalization(axis=None)(rows))))


def operations() -> Any:
    import keras

    rows = keras.Input((6,))
    seen = keras.layers.Dense(4, activation="tanh")(rows) * 2.0 + rows[:, :1]
    told = keras.ops.concatenate([seen, keras.ops.mean(rows, axis=1, keepdims=True)], axis=1)
    return keras.Model(rows, keras.layers.Dense(3)(told))


MODELS = {
    "dense": dense,
    "images": images,
    "sequences": sequences,
    "augmented": augmented,
    "adapted": adapted,
    "operations": operations,
}
ROWS = np.random.default_rng(1)


def finalize(model: Any) -> None:
    """Have adapted layers compute with their weights, which Keras does for files of its own only."""
    for layer in model._flatten_layers():
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


@pytest.fixture(scope="module", params=MODELS)
def trained(request: Any, tensorflow: None) -> tuple[Any, str, bytes]:
    """A model with weights of its own, its task and its state."""
    from cerebro_db.training import state as states
    from cerebro_db.training.backends.tensorflow.naming import named_model_variables

    model = MODELS[request.param]()
    for weight in model.weights:  # averages of normalisation must not be negative
        weight.assign(ROWS.uniform(0.1, 0.9, weight.shape).astype(weight.dtype))
    finalize(model)
    config = check_architecture(model.to_json())
    task = {
        "architecture": json.dumps(config),
        "architecture_id": fingerprint(config),
        "compile_params": SOFTMAX,
        "fit_params": "batch_size=8",
        "targets": {"kind": "class", "num_classes": 3, "shape": []},
        "jit": False,
        "steps_per_call": 1,
        "facts": FACTS,
    }
    values = {name: variable.numpy() for name, variable in named_model_variables(model).items()}
    state = values | {"optimizer/learning_rate": np.float32(0.01)}
    return model, json.dumps(task), states.to_bytes(state)


@pytest.fixture
def exported(
    trained: tuple[Any, str, bytes], tmp_path: Path, monkeypatch: Any
) -> Callable[[str], bytes]:
    """Writes the model as a file, and leaves no other behind."""
    from cerebro_db.training.tasks import Architectures, export

    def write(kind: str) -> bytes:
        aside = tmp_path / "aside"
        aside.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(aside))
        data = export(trained[1], trained[2], Format(kind), Architectures(), lambda: None)
        assert list(aside.iterdir()) == []
        return data

    return write


def rows_of(model: Any) -> np.ndarray:
    return ROWS.normal(size=(7, *model.inputs[0].shape[1:])).astype(np.float32)


def test_a_keras_file_predicts_the_same_in_plain_keras(
    trained: Any, exported: Any, tmp_path: Path
) -> None:
    import keras

    path = tmp_path / "model.keras"
    path.write_bytes(exported("keras"))
    loaded = keras.models.load_model(path)
    assert not loaded.compiled
    rows = rows_of(trained[0])
    np.testing.assert_allclose(
        loaded.predict(rows, verbose=0), trained[0].predict(rows, verbose=0), atol=1e-6, rtol=0
    )
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["config.json", "metadata.json", "model.weights.h5"]


def test_onnx_predicts_the_same_in_onnx_runtime(trained: Any, exported: Any) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(exported("onnx"), providers=["CPUExecutionProvider"])
    rows = rows_of(trained[0])
    (found,) = session.run(None, {session.get_inputs()[0].name: rows})
    expected = trained[0].predict(rows, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    assert session.get_inputs()[0].shape[1:] == list(rows.shape[1:])


def test_a_broken_file_is_not_returned(monkeypatch: Any) -> None:
    """The converter writes what it cannot convert into the file, and says nothing."""
    from cerebro_db.training.backends.tensorflow import export

    model = dense()
    good = export._onnx_file(model, {})
    for weight in model.weights:
        weight.assign(weight + 1.0)
    with pytest.raises(InvalidData, match="predicts something else"):
        export._check_onnx(model, good)
    with pytest.raises(InvalidData, match="ONNX cannot hold the model"):
        export._check_onnx(model, good[:-40])
    find = export.importlib.util.find_spec
    monkeypatch.setattr(
        export.importlib.util, "find_spec", lambda name: None if "runtime" in name else find(name)
    )
    export._check_onnx(model, good)  # without the runtime only its form is checked


def test_arrays_are_those_of_the_model(trained: Any, exported: Any) -> None:
    import keras

    with np.load(io.BytesIO(exported("npz")), allow_pickle=False) as arrays:
        facts = json.loads(str(arrays["facts"]))
        model = keras.models.model_from_json(str(arrays["architecture"]))
        weights = [arrays[name] for name in arrays.files if name.startswith("weights/")]
    assert facts == json.loads(FACTS)
    model.set_weights(weights)
    finalize(model)
    rows = rows_of(trained[0])
    expected = trained[0].predict(rows, verbose=0)
    np.testing.assert_allclose(model.predict(rows, verbose=0), expected, atol=1e-6, rtol=0)


def test_a_state_of_another_model(trained: Any) -> None:
    from cerebro_db.training import state as states
    from cerebro_db.training.tasks import Architectures, export

    values = dict(states.from_bytes(trained[2]))
    name = next(iter(values))
    values[name] = np.zeros((1, 2, 3), np.float32)
    with pytest.raises(InvalidState, match="of a state; allowed"):
        export(trained[1], states.to_bytes(values), Format.NPZ, Architectures(), lambda: None)


def test_a_package_that_is_missing(monkeypatch: Any) -> None:
    from cerebro_db.training.backends.tensorflow.export import check_libraries

    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "tf2onnx" else name
    )
    with pytest.raises(MissingLibrary, match="lacks tf2onnx") as caught:
        check_libraries(Format.ONNX)
    assert "onnx" in (caught.value.hint or "")
    check_libraries(Format.KERAS)


@pytest.mark.parametrize("given", ["", "h5", "kears", "pickle", None])
def test_formats_that_are_not_known(given: str | None) -> None:
    with pytest.raises(
        InvalidArgument, match="allowed: 'keras', 'onnx', 'npz', 'safetensors', 'pt2'"
    ):
        export_format(given)
    assert export_format(" .Keras ") is Format.KERAS
