"""Scores of PyTorch models are those of Keras' metrics, as sums that add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training.torch.nets import CLASSES, FEATURES, Exported, begun, rows, torch

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.torch import BACKEND
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.sums import add_partials
from cerebro_db.training.scores.targets import TargetFacts

LOGITS = "loss='sparse_categorical_crossentropy(from_logits=True)',optimizer='SGD'"


def scored(recipe: Any, net: Exported, features: np.ndarray, targets: np.ndarray) -> list[float]:
    """Loss and metrics, from the sums of two parts."""
    scorer = BACKEND.scorer(recipe)
    scorer.load(begun(recipe, net.weights).save(), recipe.compile_params)
    parts = [
        scorer.measure(features[part], targets[part]) for part in (slice(0, 9), slice(9, None))
    ]
    total = add_partials([type(one).from_json(one.to_json()) for one in parts])
    return [total.loss(recipe.outputs), *BACKEND.metrics(recipe, total)]


def test_a_scorer_knows_its_shapes(recipe: Any, plain_net: Exported) -> None:
    scorer = BACKEND.scorer(recipe(plain_net))
    assert (scorer.units, scorer.shapes, scorer.row) == ((CLASSES,), ((FEATURES,),), (FEATURES,))
    features, _ = rows()
    scorer.set_weights(plain_net.weights)
    (together,) = scorer.predict(features)
    (alone,) = scorer.predict_row(features[:1])
    np.testing.assert_allclose(alone, together[:1], rtol=1e-5)


def test_loss_and_accuracy(recipe: Any, plain_net: Exported) -> None:
    features, ids = rows()
    found = scored(recipe(plain_net, f"{LOGITS},metrics=['accuracy']"), plain_net, features, ids)
    outputs = plain_net.module(torch.from_numpy(features))
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(ids).long())
    accuracy = (outputs.argmax(1).numpy() == ids).mean()
    assert found == pytest.approx([float(loss.detach()), accuracy], rel=1e-6)


def test_unknown_metrics_are_refused(recipe: Any, plain_net: Exported) -> None:
    with pytest.raises(InvalidArgument, match="PearsonCorrelation for a PyTorch model"):
        BACKEND.scorer(recipe(plain_net, f"{LOGITS},metrics=['pearson_correlation']"))


def test_ids_beyond_an_embedding(recipe: Any) -> None:
    module = torch.nn.Sequential(
        torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(20, CLASSES)
    )
    net = Exported(module, torch.zeros(2, 5, dtype=torch.long))
    one = recipe(net, LOGITS)
    features = np.ones((3, 5), np.float32)
    features[1, 2] = 10
    program = begun(one, net.weights)
    for check in (program.check_ids, BACKEND.scorer(one).predict):
        with pytest.raises(IdsBeyond, match="place 3 of its features: got 10, the id 10") as caught:
            check(features)
        assert caught.value.row == 1


TWO = TargetFacts("class", 2, (), values=("no", "yes"))
METRICS = {
    "classes": (
        "loss='categorical_crossentropy(from_logits=True)'",
        "['accuracy','categorical_crossentropy(from_logits=True)','top_2_accuracy','auc',"
        "'f1_score(average=\"macro\")','precision(class_id=1)','recall(top_k=2)','kl_divergence',"
        "'auc(multi_label=True,num_labels=3,name=\"m\")','one_hot_mean_iou(num_classes=3)']",
        CLASSES,
        TargetFacts("class", CLASSES, ()),
    ),
    "two": (
        "loss='binary_crossentropy(from_logits=True)'",
        "['accuracy','auc','auc(curve=\"PR\",name=\"pr\")','precision','recall','f1_score',"
        "'true_positives','precision_at_recall(recall=0.5)','specificity_at_sensitivity(sensitivity=0.5)',"
        "'binary_iou','fbeta_score(beta=2.0)']",
        1,
        TWO,
    ),
    "numbers": (
        "loss='huber'",
        "['mse','mae','rmse','mape','msle','logcosh','r2_score','cosine_similarity','poisson']",
        2,
        TargetFacts("float", 0, (2,)),
    ),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_those_of_keras(recipe: Any, tensorflow: None, name: str) -> None:
    keras = pytest.importorskip("keras", reason="TensorFlow is not installed")
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from cerebro_db.configs.architectures.architecture import check_architecture
    from cerebro_db.training.backends.tensorflow import BACKEND as KERAS
    from cerebro_db.training.recipe import Recipe

    loss, metrics, units, facts = METRICS[name]
    text = f"{loss},optimizer='SGD',metrics={metrics}"
    features, ids = rows(60)
    ids = ids % 2 if facts is TWO else ids
    if facts.kind == "float":
        ids = np.abs(np.random.default_rng(2).normal(size=(60, 2))).astype(np.float32) + 0.1
    module = torch.nn.Sequential(torch.nn.Linear(FEATURES, units))
    if facts.kind == "float":
        module.append(torch.nn.Softplus())
    net = Exported(module, torch.zeros(2, FEATURES))
    ours = scored(recipe(net, text, targets=facts), net, features, ids)
    activation = "softplus" if facts.kind == "float" else "linear"
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(units, activation)])
    weight, bias = (one.detach().numpy() for one in module.parameters())
    config = check_architecture(model.to_json())
    one = recipe(net, text, targets=facts)
    theirs = Recipe(config, name, one.compile_params, one.fit_params, facts, False, 3)
    scorer = KERAS.scorer(theirs)
    scorer.set_weights(weight.T.tobytes() + bias.tobytes())
    total = scorer.measure(features, ids)
    wanted = [total.loss(theirs.outputs), *KERAS.metrics(theirs, total)]
    assert ours == pytest.approx(wanted, rel=1e-5, abs=1e-6)
