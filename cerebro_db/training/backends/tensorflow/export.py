"""Trained models as files that other programs read: Keras' own, ONNX, raw arrays."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.export.tf2onnx_lib import patch_tf2onnx

from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidData, MissingLibrary
from cerebro_db.training import exported_files
from cerebro_db.training.backends.tensorflow import models
from cerebro_db.training.backends.tensorflow.calls import alone, assign, listed
from cerebro_db.training.backends.tensorflow.naming import named_model_variables
from cerebro_db.training.causes import short
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.state import State, check_fits, of_model

ONNX_PACKAGES = ("tf2onnx", "onnx")
ONNX_RUNTIME = "onnxruntime"
Documents = Mapping[str, str]
_PLAIN = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*", re.ASCII)
_CACHES = "XDG_CACHE_HOME"
_CLOSE = 1e-3  # float32 in another order of sums, through many layers


def export(
    recipe: Recipe,
    state: State,
    wanted: Format,
    documents: Mapping[str, str],
    tick: Callable[[], None],
) -> bytes:
    """A file of a model; the arguments are those of ``Backend.export``.

    Raises:
        MissingLibrary: the virtual environment lacks what the format needs.
        InvalidData: the format cannot hold the model.
    """
    check_libraries(wanted)
    model = _model(recipe, state)
    tick()
    file = _WRITERS[wanted](model, documents)
    exported_files.check_size(file, wanted)
    return file


def check_libraries(wanted: Format) -> None:
    """Refuse a format for which packages are missing."""
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if wanted is Format.ONNX and missing:
        raise MissingLibrary(
            f"format: got 'onnx', for which the virtual environment lacks {' and '.join(missing)}",
            hint='install the extra "onnx": pip install "cerebro-db[cpu,onnx]"',
        )


def _model(recipe: Recipe, state: State) -> keras.Model:
    """The model as it is trained, not compiled."""
    params = recipe.compile_params
    model = models.build(
        recipe.architecture, seed=0, dropout=params.dropout, policy=params.dtype_policy
    )
    variables = named_model_variables(model)
    state = of_model(state)
    check_fits(state, {name: variable.numpy() for name, variable in variables.items()})
    for name, variable in variables.items():
        assign(variable, state[name])
    return model


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for all temporary files: TensorFlow leaves some that it removes only at its end."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="cerebro-") as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before


def _keras_file(model: keras.Model, documents: Documents) -> bytes:
    with _folder() as folder:
        path = folder / "model.keras"
        model.save(path)
        return path.read_bytes()


def _onnx_file(model: keras.Model, documents: Documents) -> bytes:
    import tf2onnx

    specs = [
        tf.TensorSpec((None, *row.shape[1:]), row.dtype, _input_name(row.name))
        for row in model.inputs
    ]
    forward = tf.function(
        # Some random layers are active unless they are switched off.
        lambda *rows: model(alone(rows), training=False),
        input_signature=specs,
        autograph=False,
    )
    patch_tf2onnx()  # as Keras does, for the names of NumPy that it still uses
    with _folder() as folder:
        path = folder / "model.onnx"
        try:
            _with_constants(model)
            tf2onnx.convert.from_function(forward, specs, output_path=str(path))
        except Exception as error:  # whatever the converter raises is about this model
            raise _no_onnx(short(error)) from None
        file = path.read_bytes()
    _check_onnx(model, file)
    return file


def _input_name(name: str) -> str | None:
    return name if _PLAIN.fullmatch(name) else None


def _with_constants(model: keras.Model) -> None:
    """Write into the graph what layers hold as tensors, which would become inputs of it."""
    for layer in model._flatten_layers(include_self=False, recursive=True):
        if isinstance(layer, keras.layers.Normalization) and layer.input_mean is not None:
            layer.mean, layer.variance = np.asarray(layer.mean), np.asarray(layer.variance)


def _no_onnx(why: str) -> InvalidData:
    return InvalidData(f"ONNX cannot hold the model: {why}", hint="'keras' holds any model")


def _check_onnx(model: keras.Model, file: bytes) -> None:
    """Refuse a file that is broken, or that says something else than the model.

    The converter itself does not tell either.
    """
    import onnx

    try:
        onnx.checker.check_model(file, full_check=True)
    except Exception as error:  # of onnx: whatever is wrong
        raise _no_onnx(short(error)) from None
    if importlib.util.find_spec(ONNX_RUNTIME) is None:
        return
    with _folder() as folder, _cache_in(folder):
        _compare(model, file)


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """The runtime leaves a file behind in the user's folder of caches, which is to be this one."""
    before = os.environ.get(_CACHES)
    os.environ[_CACHES] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHES]
        else:
            os.environ[_CACHES] = before


def _compare(model: keras.Model, file: bytes) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    rows = [np.zeros((2, *row.shape[1:]), row.dtype) for row in model.inputs]
    for one in rows:
        one[1:] = 1
    try:
        expected = listed(model(alone(rows), training=False))
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        found = session.run(None, dict(zip(names, rows, strict=True)))
    except Exception as error:  # of the runtime, or names that are not as many as rows
        raise _no_onnx(short(error)) from None
    for ours, theirs in zip(expected, found, strict=True):
        ours = keras.ops.convert_to_numpy(keras.ops.cast(ours, "float32"))
        if not np.allclose(ours, theirs, rtol=_CLOSE, atol=_CLOSE, equal_nan=True):
            raise _no_onnx("what the converter made of it predicts something else")


def _npz_file(model: keras.Model, documents: Documents) -> bytes:
    arrays: dict[str, Any] = {name: np.array(text) for name, text in documents.items()}
    for name, variable in named_model_variables(model).items():
        arrays[name] = variable.numpy()
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


_WRITERS: dict[Format, Callable[[Any, Documents], bytes]] = {
    Format.KERAS: _keras_file,
    Format.ONNX: _onnx_file,
    Format.NPZ: _npz_file,
}
