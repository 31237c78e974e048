"""Values go into variables and come out of them as they are."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint32", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_what_is_assigned_is_read(dtype: str, shape: tuple[int, ...]) -> None:
    import keras
    import ml_dtypes

    from cerebro_db.training.backends.tensorflow.calls import assign, read

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    variable = keras.Variable(np.zeros(shape, kind), dtype=dtype, trainable=False)
    values = [
        np.full(shape, number).astype(kind) for number in (1.5, np.nan if dtype[0] == "f" else 1)
    ]
    found = []
    for value in values:
        assign(variable, value)
        found.append(read(variable))
    for value, got in zip(values, found, strict=True):  # what was read is not changed later
        assert (got.dtype, got.shape, got.tobytes()) == (value.dtype, shape, value.tobytes())
