"""Ids beyond an embedding are told with their row and what is allowed, before they are computed with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.errors import ConfigurationFailed, InvalidData
from cerebro_db.training.partitions import Buffers
from cerebro_db.training.scores.id_fault import IdFault, IdsBeyond
from tests.training.conftest import CLASSES, FEATURES, Data, hop
from tests.training.test_scoring import Texted, scan_of

TEXT = "loss='sparse_categorical_crossentropy',optimizer='Adam'"


def nets() -> dict[str, str]:
    """Nets of :data:`FEATURES` whole numbers, of which the embedding has 5 rows."""
    import keras

    layers = keras.layers

    def end(hidden: Any) -> Any:
        return layers.Dense(CLASSES, activation="softmax")(layers.Flatten()(hidden))

    given = keras.Input((FEATURES,))
    plain = keras.Sequential(
        [keras.Input((FEATURES,)), layers.Embedding(5, 2, name="words"), layers.Flatten(),
         layers.Dense(CLASSES, activation="softmax")]
    )  # fmt: skip
    some = keras.Model(given, end(layers.Embedding(5, 2, name="words")(given[:, 2:4])))
    inner = keras.Sequential([keras.Input((FEATURES,)), layers.Embedding(5, 2, name="words")])
    nested = keras.Model(given, end(inner(given)))
    made = keras.Model(
        given, end(layers.Embedding(5, 2, name="words")(keras.ops.multiply(given, 2.0)))
    )
    named = {"plain": plain, "some columns": some, "nested": nested, "computed": made}
    return {name: str(model.to_json()) for name, model in named.items()}


def whole(partitions: int = 1) -> Data:
    data = Data(partitions=partitions)
    data.features = np.abs(data.features * 7).astype(int).astype(np.float32) % 5
    return data


FAULT = "got 7, the id 7 of the embedding 'words'; allowed: 0 to 4"


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("cache_bytes", [0, 2**20])
@pytest.mark.parametrize("name", ["plain", "some columns", "nested"])
def test_training(recipe: Callable[..., Any], name: str, cache_bytes: int, jit: bool) -> None:
    given = recipe(nets()[name], TEXT, jit=jit)
    data = whole()
    _, report = hop(given, data, None, cache_bytes=cache_bytes)
    assert report.loss > 0
    data.features[0, 20 + 11, 2] = 7
    told = f"row 12 of buffer 1 of partition 0: input 1, place 3 of its features: {FAULT}"
    with pytest.raises(ConfigurationFailed) as caught:
        hop(given, data, None, cache_bytes=cache_bytes)
    assert caught.value.message == told


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_scoring(recipe: Callable[..., Any], cache_bytes: int) -> None:
    given = Texted(recipe(nets()["plain"], TEXT), TEXT)
    data = whole(2)
    state, _ = hop(given._recipe, data, None)
    data.features[1, 20 + 11, 2] = 7
    fine, wrong = scan_of({1: given}, {1: state}, data, cache_bytes)
    assert not fine["errors"]
    assert wrong["errors"]["1"].startswith(
        f"row 12 of buffer 1 of partition 1: input 1, place 3 of its features: {FAULT}"
    )


def test_prediction(recipe: Callable[..., Any]) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    scorer = Scorer(recipe(nets()["plain"], TEXT))
    rows = whole().features[0]
    rows[3, 5] = 7
    with pytest.raises(IdsBeyond) as caught:
        scorer.predict(rows)
    assert caught.value.row == 3
    assert IdFault.of(caught.value.message) == IdFault("words", 7, 5, 0, 5, 7.0)


def test_what_is_no_copy_of_a_feature_has_no_place(recipe: Callable[..., Any]) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    scorer = Scorer(recipe(nets()["computed"], TEXT))
    rows = whole().features[0]
    rows %= 3
    rows[3, 5] = 4
    with pytest.raises(InvalidData) as caught:
        scorer.predict(rows)
    assert caught.value.message == "got the id 8 of the embedding 'words'; allowed: 0 to 4"
    assert IdFault.of(caught.value.message) is None


def test_columns_that_no_embedding_reads_may_be_anything(recipe: Callable[..., Any]) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    scorer = Scorer(recipe(nets()["some columns"], TEXT))
    rows = whole().features[0]
    rows[:, 0] = 1000
    assert scorer.predict(rows)[0].shape == (37, CLASSES)


@pytest.mark.parametrize(
    ("row", "words"),
    [(0, "row 1 of buffer 4"), (2, "row 3 of buffer 4"), (3, "row 1 of buffer 9"), (7, "row 5 of buffer 9")],
)  # fmt: skip
def test_rows_are_named(row: int, words: str) -> None:
    assert Buffers((4, 9), (3, 5)).named(row) == words
