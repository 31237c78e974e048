"""Metrics of two classes are those of the positive one, as scikit-learn computes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.scores.targets import TargetFacts

ROWS = 400
Make = Callable[..., Any]


def two_classes(values: tuple[str, str] = ("no", "yes")) -> TargetFacts:
    return TargetFacts("class", 2, (), values=values)


def net(units: int, activation: str) -> str:
    import keras

    layers = [keras.Input((4,)), keras.layers.Dense(units, activation=activation)]
    return str(keras.Sequential(layers).to_json())


def rows() -> tuple[Any, Any]:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(ROWS, 4)).astype(np.float32)
    y = (x[:, 0] - x[:, 1] + generator.normal(size=ROWS) > 0.7).astype(np.int32)
    return x, y


def scored(recipe: Any, detail: str | None = None) -> tuple[dict[str, float], Any]:
    """Values of the metrics by their labels, and the probability of the second class."""
    from cerebro_db.training.backends.tensorflow.scoring import Scorer, results_of
    from cerebro_db.training.scores.scan import _with_exact, details_for, probabilities

    x, y = rows()
    scorer = Scorer(recipe)
    kernel, bias = scorer._names.values()
    rise = np.array([[1.0], [-0.6], [0.3], [0.0]], np.float32)
    kernel.assign(rise if kernel.shape[1] == 1 else np.concatenate([-0.4 * rise, 0.6 * rise], 1))
    bias.assign(np.full(bias.shape, 0.1, np.float32))
    values = results_of(recipe, scorer.measure(x, y))
    outputs = scorer.predict(x)[0]
    if detail:
        details = details_for(detail, recipe, scorer.units)
        details[0].add(outputs, y)
        values = _with_exact(recipe, values, [[details[0].to_json()]])
    labels = [metric.label for metric in recipe.compile_params.metrics]
    found = probabilities(outputs.astype(np.float64), recipe.outputs[0].loss, 2)
    return dict(zip(labels, values, strict=True)), found


NETS = {
    "softmax": (2, "softmax", "sparse_categorical_crossentropy"),
    "sigmoid": (1, "sigmoid", "binary_crossentropy"),
    "logits of two": (2, "linear", "SparseCategoricalCrossentropy(from_logits=True)"),
    "logit of one": (1, "linear", "BinaryCrossentropy(from_logits=True)"),
    "two sigmoids": (2, "sigmoid", "binary_crossentropy"),
    "two logits": (2, "linear", "BinaryCrossentropy(from_logits=True)"),
}
METRICS = [
    "AUC", "Precision", "Recall", "F1Score", "FBetaScore(beta=0.5)", "TruePositives", "FalsePositives",
    "TrueNegatives", "FalseNegatives", "AUC(curve='PR',name='ap')", "F1Score(threshold=0.3,name='low')",
    "BinaryIoU(target_class_ids=[1])",
]  # fmt: skip


@pytest.fixture
def made(recipe: Make) -> Make:
    """The recipe of a net of :data:`NETS` with metrics."""

    def make(name: str, metrics: list[str], facts: TargetFacts | None = None) -> Any:
        units, activation, loss = NETS[name]
        text = f"loss={loss if '(' in loss else repr(loss)},optimizer='SGD',metrics=[{','.join(map(named, metrics))}]"
        return recipe(net(units, activation), text, targets=facts or two_classes())

    return make


def named(metric: str) -> str:
    return metric if "(" in metric else repr(metric)


@pytest.mark.parametrize("positive", ["no", None])
@pytest.mark.parametrize("name", NETS)
def test_values_are_those_of_scikit_learn(made: Make, name: str, positive: str | None) -> None:
    _, y = rows()
    chosen = METRICS if positive is None else [with_class(metric, positive) for metric in METRICS]
    found, both = scored(made(name, chosen))
    place = 0 if positive == "no" else 1
    truth, p = y == place, both[:, place]
    sure = p > 0.5
    confusion = sk.confusion_matrix(truth, sure)
    expected = {
        "precision": sk.precision_score(truth, sure),
        "recall": sk.recall_score(truth, sure),
        "f1_score": sk.f1_score(truth, sure),
        "fbeta_score": sk.fbeta_score(truth, sure, beta=0.5),
        "low": sk.f1_score(truth, p > 0.3),
        "true_positives": confusion[1, 1],
        "false_positives": confusion[0, 1],
        "true_negatives": confusion[0, 0],
        "false_negatives": confusion[1, 0],
        "binary_iou": sk.jaccard_score(truth, sure),
    }
    assert {label: found[label] for label in expected} == pytest.approx(expected, rel=1e-5)
    # Keras has 200 thresholds.
    assert found["auc"] == pytest.approx(sk.roc_auc_score(truth, p), abs=2e-3)
    assert found["ap"] == pytest.approx(sk.average_precision_score(truth, p), abs=5e-3)


def with_class(metric: str, positive: str) -> str:
    name, _, given = metric.partition("(")
    return f"{name}({given.rstrip(')') + ',' if given else ''}positive_class='{positive}')"


@pytest.mark.parametrize("positive", ["no", "yes", None])
@pytest.mark.parametrize("name", ["softmax", "sigmoid", "logits of two"])
def test_the_exact_area_is_of_the_positive_class(
    made: Make, name: str, positive: str | None
) -> None:
    _, y = rows()
    metric = "AUC" if positive is None else f"AUC(positive_class='{positive}')"
    found, both = scored(made(name, [metric]), "auc")
    place = 0 if positive == "no" else 1
    assert found["auc"] == pytest.approx(sk.roc_auc_score(y == place, both[:, place]), abs=1e-6)


def test_each_exact_area_is_of_its_own_class(recipe: Make) -> None:
    """Two sigmoids need not add up to 1, so that the areas of their classes differ."""
    from cerebro_db.training.scores.scan import _with_exact, details_for

    text = "loss='binary_crossentropy',optimizer='SGD',metrics=['AUC',\"AUC(positive_class='no')\"]"
    given = recipe(net(2, "sigmoid"), text, targets=two_classes())
    y = np.array([0, 1, 0, 1], np.int32)
    outputs = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.4], [0.3, 0.3]], np.float32)
    parts = []
    for rows_of_one in (slice(0, 2), slice(2, 4)):  # two partitions
        (detail,) = details_for("auc", given, (2,))
        detail.add(outputs[rows_of_one], y[rows_of_one])
        parts.append(detail.to_json())
    found = _with_exact(given, [0.0, 0.0], [parts])
    expected = [sk.roc_auc_score(y == 1, outputs[:, 1]), sk.roc_auc_score(y == 0, outputs[:, 0])]
    assert expected == [0.5, 0.75]
    assert found == expected


@pytest.mark.parametrize("name", ["softmax", "sigmoid", "logits of two", "logit of one"])
def test_the_exact_area_over_both_classes(made: Make, name: str) -> None:
    _, y = rows()
    found, both = scored(made(name, ["AUC(average='micro')"]), "auc")
    expected = sk.roc_auc_score(np.eye(2)[y], both, average="micro")
    assert found["auc"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["logit of one", "sigmoid"])
def test_accuracy_of_a_logit_is_that_of_its_probability(made: Make, name: str) -> None:
    """Keras compares the logit itself with 0.5, unless it is given another threshold."""
    _, y = rows()
    metrics = ["accuracy", "BinaryAccuracy", "binary_crossentropy", "Hinge"]
    if name == "logit of one":
        metrics += ["BinaryAccuracy(threshold=0.0,name='keras')", "Precision(thresholds=0.0)"]
    found, both = scored(made(name, metrics))
    p = both[:, 1]
    assert np.mean((p > 0.5) == y) != np.mean((np.log(p / (1 - p)) > 0.5) == y)
    assert found["accuracy"] == found["binary_accuracy"] == pytest.approx(np.mean((p > 0.5) == y))
    assert found["binary_crossentropy"] == pytest.approx(sk.log_loss(y, p), rel=1e-5)
    margin = p if name == "sigmoid" else np.log(p / (1 - p))
    assert found["hinge"] == pytest.approx(np.maximum(1 - (2 * y - 1) * margin, 0).mean(), rel=1e-5)
    if name == "logit of one":
        assert found["keras"] == found["accuracy"]
        assert found["precision"] == pytest.approx(sk.precision_score(y, p > 0.5))


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_averages(made: Make, name: str) -> None:
    _, y = rows()
    averages = ("micro", "macro", "weighted")
    metrics = [f"{m}(average='{a}',name='{m}_{a}')" for m in ("F1Score", "AUC") for a in averages]
    found, both = scored(made(name, [*metrics, "Precision(average='micro')"]))
    sure = both[:, 1] > 0.5
    for average in averages:
        f1 = sk.f1_score(y, sure, average=average)
        assert found[f"F1Score_{average}"] == pytest.approx(f1, rel=1e-5)
        area = sk.roc_auc_score(np.eye(2)[y], both, average=average)
        assert found[f"AUC_{average}"] == pytest.approx(area, abs=2e-3)
    assert found["precision"] == pytest.approx(sk.precision_score(y, sure, average="micro"))


def test_averages_of_three_classes(recipe: Make) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer, results_of

    x, _ = rows()
    y = np.digitize(x[:, 0] + x[:, 2], [-0.5, 1.5]).astype(np.int32)
    metrics = ",".join(f"AUC(average='{a}')" for a in ("micro", "macro", "weighted"))
    text = f"loss='categorical_crossentropy',optimizer='SGD',metrics=['AUC',{metrics}]"
    given = recipe(net(3, "softmax"), text, targets=TargetFacts("class", 3, ()))
    scorer = Scorer(given)
    default, *found = results_of(given, scorer.measure(x, y))
    p, truth = scorer.predict(x)[0], np.eye(3)[y]
    expected = [sk.roc_auc_score(truth, p, average=a) for a in ("micro", "macro", "weighted")]
    assert found == pytest.approx(expected, abs=2e-3)
    assert default == found[0]


THREE = [
    "AUC", "AUC(average='macro',name='macro')", "AUC(curve='PR',name='ap')", "Precision", "Recall",
    "Precision(class_id=1,name='second')", "Precision(top_k=2,name='two')", "F1Score(threshold=0.4)", "TruePositives",
    "BinaryAccuracy", "PrecisionAtRecall(recall=0.5)", "kl_divergence", "categorical_crossentropy",
    "sparse_categorical_crossentropy", "accuracy", "top_2_accuracy", "OneHotMeanIoU(num_classes=3)",
]  # fmt: skip


def test_metrics_of_logits_are_those_of_probabilities(recipe: Make) -> None:
    """Also of several classes, and the exact area; one that says itself that it takes logits is given them."""
    from cerebro_db.training.backends.tensorflow.scoring import Scorer, results_of
    from cerebro_db.training.scores.scan import _with_exact, details_for

    x, _ = rows()
    y = np.digitize(x[:, 0] + x[:, 2], [-0.5, 1.5]).astype(np.int32)
    found = []
    for activation, logits in (("softmax", False), ("linear", True)):
        own = ["CategoricalCrossentropy(from_logits=True,name='own')"] if logits else []
        chosen = ",".join(map(named, [*THREE, *own]))
        loss = f"SparseCategoricalCrossentropy(from_logits={logits})"
        text = f"loss={loss},optimizer='SGD',metrics=[{chosen}]"
        given = recipe(net(3, activation), text, targets=TargetFacts("class", 3, ()))
        scorer = Scorer(given)
        kernel, _ = scorer._names.values()
        kernel.assign(np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32))
        values = results_of(given, scorer.measure(x, y))
        (detail,) = details_for("auc", given, scorer.units)
        outputs = scorer.predict(x)[0]
        detail.add(outputs, y)
        labels = [metric.label for metric in given.compile_params.metrics]
        exact = _with_exact(given, values, [[detail.to_json()]])
        found.append(dict(zip(labels, values, strict=True)) | {"exact": exact[0]})
        if not logits:
            expected = sk.roc_auc_score(np.eye(3)[y], outputs, average="micro")
    assert found[1].pop("own") == pytest.approx(found[0]["categorical_crossentropy"], rel=1e-5)
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[1]["exact"] == pytest.approx(expected, abs=1e-6)


def test_columns_for_one_sigmoid(made: Make) -> None:
    """Metrics that want a column for each class are given one."""
    _, y = rows()
    metrics = [
        "kl_divergence", "MeanIoU(num_classes=2)", "IoU(num_classes=2,target_class_ids=[0])",
        "OneHotMeanIoU(num_classes=2)", "CategoricalAccuracy", "SparseCategoricalAccuracy",
        "SparseCategoricalCrossentropy",
    ]  # fmt: skip
    found, both = scored(made("sigmoid", metrics))
    sure = both[:, 1] > 0.5
    each = sk.jaccard_score(y, sure, average=None)
    assert found == pytest.approx(
        {
            "kl_divergence": sk.log_loss(y, both[:, 1]),
            "mean_iou": each.mean(),
            "iou": each[0],
            "one_hot_mean_iou": each.mean(),
            "categorical_accuracy": np.mean(sure == y),
            "sparse_categorical_accuracy": np.mean(sure == y),
            "sparse_categorical_crossentropy": sk.log_loss(y, both[:, 1]),
        },
        rel=1e-4,
    )
    assert found.keys() == {m.label for m in made("softmax", metrics).compile_params.metrics}


def test_f1_with_a_threshold_is_that_of_keras_for_one_sigmoid(made: Make) -> None:
    import keras

    _, y = rows()
    found, both = scored(made("sigmoid", ["F1Score(threshold=0.4)"]))
    metric = keras.metrics.F1Score(threshold=0.4)
    metric.update_state(y[:, np.newaxis].astype(np.float32), both[:, 1:].astype(np.float32))
    assert found["f1_score"] == pytest.approx(float(metric.result()[0]))


def test_f1_without_a_threshold_counts_probable_rows_where_keras_counts_all(made: Make) -> None:
    """Keras takes the largest output of a row for its class; of one output that is each row's."""
    import keras

    _, y = rows()
    found, both = scored(made("sigmoid", ["F1Score"]))
    metric = keras.metrics.F1Score()
    metric.update_state(y[:, np.newaxis].astype(np.float32), both[:, 1:].astype(np.float32))
    share = y.mean()
    assert float(metric.result()[0]) == pytest.approx(2 * share / (1 + share))
    assert found["f1_score"] == pytest.approx(sk.f1_score(y, both[:, 1] > 0.5))
    assert found["f1_score"] != pytest.approx(float(metric.result()[0]), abs=1e-3)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("AUC(positive_class='maybe')", "got positive_class='maybe'; allowed: 'no' or 'yes'"),
        ("AUC(positive_class=1)", "allowed: 'no' or 'yes'"),
        ("F1Score(positive_class='no',average='macro')", "and average; allowed: one of them"),
        ("Precision(positive_class='no',class_id=0)", "and class_id; allowed: one of them"),
    ],
)
def test_what_is_refused(made: Make, metric: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        scored(made("softmax", [metric]))


@pytest.mark.parametrize(
    ("values", "given", "place"),
    [(("1", "2"), "1", 0), (("1", "2"), "2.0", 1), (("0.5", "1.5"), "0.5", 0),
     (("false", "true"), "False", 0), (("f", "t"), "False", 0), (("-1", "1"), "-1", 0)],
)  # fmt: skip
def test_class_values_may_be_numbers(
    made: Make, values: tuple[str, str], given: str, place: int
) -> None:
    _, y = rows()
    found, _ = scored(made("softmax", [f"Recall(positive_class={given},thresholds=0.0)",
                                       f"TruePositives(positive_class={given},thresholds=0.0)"],
                           two_classes(values)))  # fmt: skip
    assert found["true_positives"] == np.sum(y == place)


def test_three_classes_have_no_positive_one(recipe: Make) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    text = "loss='categorical_crossentropy',optimizer='SGD',metrics=[AUC(positive_class=1)]"
    with pytest.raises(
        InvalidArgument, match="for a target of 3 classes; allowed: for targets of two"
    ):
        Scorer(recipe(net(3, "softmax"), text, targets=TargetFacts("class", 3, ())))


def test_class_values_reach_a_worker() -> None:
    from cerebro_db.executors.tasks import target_task
    from cerebro_db.training.fields import Fields
    from cerebro_db.training.tasks import _targets

    one = TargetFacts("class", 2, ())
    facts = TargetFacts("float", 0, (3,), True, (one,)).with_values([(), ("no", None)])
    assert _targets(Fields(json.loads(json.dumps(target_task(facts))))) == facts
