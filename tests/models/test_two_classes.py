"""Scores of two classes, through SQL: of the positive class, as scikit-learn computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import pytest
from sklearn import metrics as sk

METRICS = (
    "metrics=['AUC','F1Score','Precision',\"AUC(positive_class='no',name='other')\","
    "\"Recall(positive_class='no')\",'kl_divergence']"
)


@pytest.fixture(scope="module")
def answers(db: Any, network: Any) -> Any:
    """A packed table of two classes, and configurations of a softmax and a sigmoid."""
    db.fetch(
        "CREATE TABLE rows AS SELECT i AS id, ARRAY[sin(i), cos(3 * i)]::real[] AS x, "
        "CASE WHEN sin(i) + 0.8 * cos(7 * i) > 0.5 THEN 'yes' ELSE 'no' END AS y FROM generate_series(1, 200) i"
    )
    db.fetch("SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 2)")
    models = [
        ((2, "softmax"), "sparse_categorical_crossentropy"),
        ((1, "sigmoid"), "binary_crossentropy"),
    ]
    for number, (last, loss) in enumerate(models, 1):
        db.fetch("SELECT cerebro_load_model('nets', %s)", [network((2,), (4, "tanh"), last)])
        db.fetch(
            "SELECT cerebro_load_configs('nets', %s, ARRAY[%s], ARRAY[%s], ARRAY['batch_size=8'])",
            [f"configs_{number}", number, f"loss='{loss}',optimizer='Adam(0.05)',{METRICS}"],
        )
        db.fetch(
            "SELECT cerebro_fit_multiple('packed', %s, %s, 3)",
            [f"models_{number}", f"configs_{number}"],
        )
    return db


@pytest.mark.parametrize("number", [1, 2])
def test_values_are_those_of_scikit_learn(answers: Any, number: int) -> None:
    answers.fetch(f"SELECT cerebro_evaluate('models_{number}', 'packed', 'scores_{number}')")
    ((names, values),) = answers.fetch(f"SELECT metrics_type, metrics FROM scores_{number}")
    found = dict(zip(names, values, strict=True))
    answers.fetch(
        f"SELECT cerebro_predict('models_{number}', 'rows', 'id', 'x', 'all_{number}', pred_type := 'prob')"
    )
    rows = answers.fetch(
        f"SELECT r.y, p.prob FROM all_{number} p JOIN rows r USING (id) WHERE p.class_value = 'yes'"
    )
    truth, p = np.array([y == "yes" for y, _ in rows]), np.array([p for _, p in rows])
    assert 0.5 < sk.roc_auc_score(truth, p) < 0.99
    expected = {
        "auc": sk.roc_auc_score(truth, p),
        "f1_score": sk.f1_score(truth, p > 0.5),
        "precision": sk.precision_score(truth, p > 0.5),
        "other": sk.roc_auc_score(~truth, 1 - p),
        "recall": sk.recall_score(~truth, p <= 0.5),
        "kl_divergence": sk.log_loss(truth, p),
    }
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_class_that_does_not_exist_is_refused_before_any_work(answers: Any) -> None:
    text = "loss='binary_crossentropy',optimizer='SGD()',metrics=[\"AUC(positive_class='maybe')\"]"
    answers.fetch(
        "SELECT cerebro_load_configs('nets', 'wrong', ARRAY[2], ARRAY[%s], ARRAY['batch_size=8'])",
        [text],
    )
    told = "AUC: got positive_class='maybe'; allowed: 'no' or 'yes', the class values"
    with pytest.raises(psycopg2.Error, match=told):
        answers.fetch("SELECT cerebro_fit_multiple('packed', 'never', 'wrong', 1)")
