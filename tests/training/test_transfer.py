"""Values go into variables and come out of them as they are, one by one and all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "a": ((2, 3), "float32"),
    "b": ((), "int64"),
    "c": ((4,), "float32"),
    "d": ((2,), "int32"),
    "e": ((0, 3), "float32"),
    "f": ((), "float32"),
}


def transfer(shapes: dict[str, tuple[tuple[int, ...], str]]) -> tuple[Any, dict[str, Any]]:
    import keras

    from cerebro_db.training.transfer import Transfer

    variables = {
        name: keras.Variable(np.zeros(shape, dtype), dtype=dtype, trainable=False)
        for name, (shape, dtype) in shapes.items()
    }
    return Transfer(variables), variables


def values(seed: int, shapes: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    found = {n: generator.normal(size=s) * 1e3 for n, (s, _) in shapes.items()}
    state = {n: np.asarray(v).astype(shapes[n][1]) for n, v in found.items()}
    state["a"].flat[:2] = [np.nan, -0.0]
    return state


@pytest.mark.parametrize("more", [{}, {"g": ((600, 600), "float32")}, {"h": ((3,), "float16")}])
def test_what_is_loaded_is_saved(more: dict[str, tuple[tuple[int, ...], str]]) -> None:
    """Small ones, large ones, and those of a type that is moved one by one; again and again."""
    shapes = SHAPES | more
    ours, variables = transfer(shapes)
    before: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []
    for seed in range(6):
        state = values(seed, shapes)
        ours.load(state)
        saved = ours.save()
        assert list(saved) == list(shapes)
        for name, array in state.items():
            assert saved[name].dtype == array.dtype
            assert saved[name].shape == array.shape
            assert saved[name].tobytes() == array.tobytes()
            assert np.asarray(variables[name].value).tobytes() == array.tobytes()
        before.append((state, saved))
    assert all(  # what was saved is not changed by what is loaded later
        saved[name].tobytes() == state[name].tobytes() for state, saved in before for name in state
    )
