"""A loss or metric has one value, however the rows are packed: that of Keras for all rows in one batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.arguments import Target
from cerebro_db.configs.functions.losses import LOSSES
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.training.scores.targets import TargetFacts

ROWS, STEPS = 30, 5
# It compares the rows of a batch with each other.
ACROSS_ROWS = {"Circle"}
WAYS: dict[str, Sequence[int]] = {
    "one buffer": (30,),
    "buffers of 7": (7, 7, 7, 7, 2),
    "buffers of 1": (1,) * 30,
    "6 partitions": (11, 1, 3, 8, 5, 2),
}
Make = Callable[..., Any]


def dense(units: int, activation: str, features: int = 4) -> str:
    import keras

    layers = [keras.Input((features,)), keras.layers.Dense(units, activation=activation)]
    return str(keras.Sequential(layers).to_json())


def masked(**arguments: Any) -> str:
    """A net that leaves out steps of zeros."""
    import keras

    layers = [
        keras.Input((STEPS, 2)),
        keras.layers.Masking(),
        keras.layers.SimpleRNN(3, return_sequences=True, **arguments),
        keras.layers.Dense(2, activation="sigmoid"),
    ]
    return str(keras.Sequential(layers).to_json())


def scorer_of(recipe: Any) -> Any:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    scorer = Scorer(recipe)
    scorer._penalty.assign(recipe.compile_params)
    return scorer


def packed(scorer: Any, recipe: Any, ways: Sequence[int], x: Any, *y: Any) -> dict[str, Any]:
    """The result of a scan over buffers of these sizes."""
    from cerebro_db.training.backends.tensorflow.scoring import results_of
    from cerebro_db.training.scores.sums import Partial, add_partials

    ends = np.cumsum(ways).tolist()
    starts = [0, *ends[:-1]]
    parts = [
        Partial.from_json(
            json.loads(json.dumps(scorer.measure(x[a:b], *(one[a:b] for one in y)).to_json()))
        )
        for a, b in zip(starts, ends, strict=True)
    ]
    total = add_partials(parts)
    values = results_of(recipe, total) + total.loss_of_each(recipe.outputs)
    return {"loss": total.loss(recipe.outputs), "values": values}


def keras_for_all(scorer: Any, recipe: Any, x: Any, *y: Any) -> tuple[float, list[float]]:
    """Loss and losses of outputs as ``evaluate`` of Keras gives them for one batch."""
    from cerebro_db.training.backends.tensorflow import models

    losses = [models.make_loss(output.loss) for output in recipe.outputs]
    model = scorer.model
    model.compile(
        loss=losses if len(losses) > 1 else losses[0],
        loss_weights=[o.weight for o in recipe.outputs] if len(losses) > 1 else None,
    )
    found = model.evaluate(x, list(y) if len(y) > 1 else y[0], batch_size=len(x), verbose=0)
    total, *each = found if isinstance(found, list) else [found]
    return total, each


def rows_of(features: int = 4) -> Any:
    return np.random.default_rng(0).normal(size=(ROWS, features)).astype(np.float32)


def classes(count: int) -> Any:
    return np.random.default_rng(1).integers(0, count, ROWS).astype(np.int32)


def check_alike(recipe: Any, expected: float | None, x: Any, *y: Any) -> dict[str, Any]:
    scorer = scorer_of(recipe)
    found = {way: packed(scorer, recipe, sizes, x, *y) for way, sizes in WAYS.items()}
    first = found["one buffer"]
    for result in found.values():
        assert result["loss"] == pytest.approx(first["loss"], rel=2e-5, abs=1e-6)
        assert result["values"] == pytest.approx(first["values"], rel=1e-4, abs=1e-5)
    if expected is not None:
        assert first["loss"] == pytest.approx(expected, rel=2e-5, abs=1e-6)
    return first


@pytest.mark.parametrize("reduction", ["", "reduction='sum'"])
@pytest.mark.parametrize("name", sorted(LOSSES.keys() - ACROSS_ROWS))
def test_losses(recipe: Make, name: str, reduction: str) -> None:
    loss = LOSSES[name]
    if loss.target is Target.FLOAT:
        facts, y = TargetFacts("float", 0, (3,)), np.abs(rows_of(3))
        net, truth = dense(3, "softplus"), y
    else:
        facts, y = TargetFacts("class", 3, ()), classes(3)
        net = dense(3, "softmax")
        truth = y[:, np.newaxis] if loss.target is Target.IDS else np.eye(3, dtype=np.float32)[y]
    given = recipe(net, f"loss={name}({reduction}),optimizer='SGD'", targets=facts)
    expected, _ = keras_for_all(scorer_of(given), given, rows_of(), truth)
    check_alike(given, expected, rows_of(), y)


@pytest.mark.parametrize("text", ["Dice(axis=[0])", "Dice(axis=[0],reduction='sum')", "Dice(axis=[1])",
                                  "Tversky(alpha=0.3,beta=0.9,axis=[0])"])  # fmt: skip
def test_losses_of_overlaps(recipe: Make, text: str) -> None:
    y = classes(3)
    given = recipe(
        dense(3, "softmax"), f'loss="{text}",optimizer="SGD"', targets=TargetFacts("class", 3, ())
    )
    expected, _ = keras_for_all(scorer_of(given), given, rows_of(), np.eye(3, dtype=np.float32)[y])
    check_alike(given, expected, rows_of(), y)


def metrics_for(kind: str) -> Iterator[str]:
    needed = {
        "PrecisionAtRecall": "recall=0.5", "RecallAtPrecision": "precision=0.5",
        "SensitivityAtSpecificity": "specificity=0.5", "SpecificityAtSensitivity": "sensitivity=0.5",
        "IoU": "num_classes=3,target_class_ids=[0,2],sparse_y_pred=False",
        "MeanIoU": "num_classes=3,sparse_y_pred=False",
        "OneHotIoU": "num_classes=3,target_class_ids=[0,2]", "OneHotMeanIoU": "num_classes=3",
    }  # fmt: skip
    for name, metric in METRICS.items():
        if (metric.target is Target.FLOAT) == (kind == "float"):
            yield f"{name}({needed.get(name, '')})"


@pytest.mark.parametrize("kind", ["float", "class"])
def test_metrics(recipe: Make, kind: str) -> None:
    metrics = ",".join(f'"{name}"' for name in metrics_for(kind) if name != "accuracy()")
    if kind == "float":
        text = f"loss='mse',optimizer='SGD',metrics=[{metrics}]"
        given = recipe(dense(3, "softplus"), text, targets=TargetFacts("float", 0, (3,)))
        found = check_alike(given, None, rows_of(), np.abs(rows_of(3)))
    else:
        text = f"loss='categorical_crossentropy',optimizer='SGD',metrics=['accuracy',{metrics}]"
        given = recipe(dense(3, "softmax"), text, targets=TargetFacts("class", 3, ()))
        found = check_alike(given, None, rows_of(), classes(3))
    assert len(found["values"]) > 10
    assert np.isfinite(found["values"]).all()


def sequences(valid: Sequence[int]) -> Any:
    """Rows of which so many steps count; the others are zeros."""
    x = np.random.default_rng(2).normal(size=(len(valid), STEPS, 2)).astype(np.float32)
    for row, steps in enumerate(valid):
        x[row, steps:] = 0
    return x


VALID = [1 + (row * 7) % STEPS if row % 6 else 0 for row in range(ROWS)]


@pytest.mark.parametrize("loss", ["mse", "Huber(delta=0.3)", "mae", "MeanSquaredError(reduction='sum')",
                                  "MeanSquaredError(reduction='mean_with_sample_weight')"])  # fmt: skip
def test_masked_steps(recipe: Make, loss: str) -> None:
    x, y = sequences(VALID), np.random.default_rng(3).normal(size=(ROWS, STEPS, 2))
    facts = TargetFacts("float", 0, (STEPS, 2))
    text = f"loss=\"{loss}\",optimizer='SGD',metrics=['mse','mae','CosineSimilarity'],l2=0.01"
    given = recipe(masked(), text, targets=facts)
    targets = y.astype(np.float32)
    expected, _ = keras_for_all(scorer_of(given), given, x, targets)
    found = check_alike(given, expected, x, targets)
    plain = check_alike(
        recipe(masked(), text.replace(",l2=0.01", ""), targets=facts), None, x, targets
    )
    assert plain["loss"] == pytest.approx(by_numpy(given, x, targets), rel=1e-5)
    assert found["loss"] > plain["loss"] + 0.001
    if loss == "mse":
        assert plain["values"][0] == pytest.approx(plain["loss"], rel=1e-5)


def by_numpy(given: Any, x: Any, y: Any) -> float:
    """The mean, or the sum, over the steps that count."""
    from cerebro_db.training.backends.tensorflow import models

    loss = models.make_loss(given.compile_params.loss)
    values = np.asarray(loss.call(y, scorer_of(given).predict(x)[0]))
    total = np.concatenate([values[row, :steps] for row, steps in enumerate(VALID)])
    return float(total.sum() if loss.reduction == "sum" else total.mean())


def test_a_loss_of_known_value(recipe: Make) -> None:
    """180 of 60 steps: 3, as a mean of means it was 3.32, 6 or 3.69."""
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    valid = [5, 1] * 10
    x, y = sequences(valid), np.zeros((20, STEPS, 2), np.float32)
    for row, steps in enumerate(valid):
        y[row, :steps] = np.sqrt(2.0 if steps == 5 else 8.0)
    given = recipe(
        masked(), "loss='mse',optimizer='SGD'", targets=TargetFacts("float", 0, (STEPS, 2))
    )
    scorer = Scorer(given)
    for variable in scorer._names.values():
        variable.assign(np.zeros(variable.shape, np.float32))
    scorer.model.layers[-1].activation = lambda x: x * 0
    for sizes in ((20,), (7, 7, 6), (1,) * 20, (11, 4, 5)):
        found = packed(scorer, given, sizes, x, y)["loss"]
        assert found == pytest.approx((50 * 2 + 10 * 8) / 60)


def test_ignored_classes(recipe: Make) -> None:
    y = classes(3)
    text = "loss='SparseCategoricalCrossentropy(ignore_class=1)',optimizer='SGD'"
    given = recipe(dense(3, "softmax"), text, targets=TargetFacts("class", 3, ()))
    expected, _ = keras_for_all(scorer_of(given), given, rows_of(), y)
    check_alike(given, expected, rows_of(), y)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_masks_in_16_bits(recipe: Make, policy: str) -> None:
    x, y = sequences(VALID), np.random.default_rng(3).normal(size=(ROWS, STEPS, 2))
    facts, text = TargetFacts("float", 0, (STEPS, 2)), "loss='mse',optimizer='SGD',metrics=['mse']"
    found = check_alike(
        recipe(masked(), f"{text},dtype_policy='{policy}'", targets=facts),
        None,
        x,
        y.astype(np.float32),
    )
    whole = check_alike(recipe(masked(), text, targets=facts), None, x, y.astype(np.float32))
    assert found["loss"] == pytest.approx(whole["loss"], rel=0.02)
    assert found["values"] == pytest.approx(whole["values"], rel=0.02)


def test_generalized_cross_entropy_is_of_each_row(recipe: Make) -> None:
    """Keras 3.15 compares each row with the outputs of all others where ids are of shape [rows, 1]."""
    text, y = "loss=CategoricalGeneralizedCrossEntropy(q=0.5),optimizer='SGD'", classes(3)
    given = recipe(dense(3, "softmax"), text, targets=TargetFacts("class", 3, ()))
    output = scorer_of(given).predict(rows_of())[0]
    expected = np.mean((1 - np.sqrt(output[np.arange(ROWS), y])) / 0.5)
    check_alike(given, float(expected), rows_of(), y)


def test_activity_is_of_a_row(recipe: Make) -> None:
    import keras

    layers = [
        keras.Input((4,)),
        keras.layers.Dense(3, activity_regularizer=keras.regularizers.L2(0.5)),
    ]
    net = str(keras.Sequential(layers).to_json())
    y, facts = np.zeros((ROWS, 3), np.float32), TargetFacts("float", 0, (3,))
    given = recipe(net, "loss='mse',optimizer='SGD'", targets=facts)
    outputs = scorer_of(given).predict(rows_of())[0]
    expected = float(np.mean(outputs**2) + 0.5 * np.sum(outputs**2) / ROWS)
    check_alike(given, expected, rows_of(), y)


def test_several_outputs_with_masks_of_their_own(recipe: Make) -> None:
    import keras

    given = keras.Input((STEPS, 2))
    hidden = keras.layers.SimpleRNN(3, return_sequences=True)(keras.layers.Masking()(given))
    steps = keras.layers.Dense(1, name="steps")(hidden)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(
        keras.layers.GlobalAveragePooling1D()(hidden)
    )
    net = str(keras.Model(given, [steps, kind]).to_json())
    facts = TargetFacts("float", 0, (STEPS, 1), False, (TargetFacts("class", 3, ()),))
    text = "loss=['mse','sparse_categorical_crossentropy'],loss_weights=[0.5,2.0],optimizer='SGD'"
    made = recipe(net, text, targets=facts)
    x = sequences([valid or 3 for valid in VALID])  # Keras makes NaN of a mean of no step
    y = np.random.default_rng(3).normal(size=(ROWS, STEPS, 1))
    targets = (y.astype(np.float32), classes(3))
    expected, each = keras_for_all(scorer_of(made), made, x, *targets)
    found = check_alike(made, expected, x, *targets)
    assert found["values"] == pytest.approx(each, rel=1e-5)
