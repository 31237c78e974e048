"""What needs all predictions: exact AUC in cerebro_evaluate, and cerebro_confusion_matrix."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from psycopg2 import errors
from sklearn.metrics import roc_auc_score

FLOWERS = ["iris", "ro'se", None]


def predicted(trained, mst_key):
    """Actual class ids, and the probabilities of all classes, of the rows of flowers_packed."""
    trained.fetch("DROP TABLE IF EXISTS all_answers")
    trained.fetch(
        "SELECT cerebro_predict('flowers', 'flowers_packed', NULL, NULL, 'all_answers', "
        f"mst_key := {mst_key})"
    )
    rows = trained.fetch("SELECT * FROM all_answers ORDER BY partition_key, buffer_id, row_number")
    labels = trained.fetch("SELECT flower FROM flowers_packed ORDER BY partition_key, buffer_id")
    actual = np.concatenate([np.frombuffer(bytes(row[0]), np.int32) for row in labels])
    found = np.zeros((len(actual), 3))
    for number, row in enumerate(rows):
        found[number // 3, FLOWERS.index(row[4])] = row[5]
    return actual, found


def test_the_area_under_the_curve_is_exact(trained):
    trained.fetch("DROP TABLE IF EXISTS exact_scores")
    trained.fetch("SELECT cerebro_evaluate('flowers', 'flowers_packed', 'exact_scores')")
    scores = trained.fetch("SELECT metrics_type, metrics FROM exact_scores ORDER BY mst_key")
    known = trained.fetch(
        "SELECT m.metrics FROM cerebro.metrics m JOIN flowers_summary USING (run_id) "
        "WHERE dataset = 'training' ORDER BY mst_key"
    )
    for mst_key, (names, metrics) in enumerate(scores, 1):
        actual, found = predicted(trained, mst_key)
        assert names == ["accuracy", "auc"]
        exact = roc_auc_score(np.eye(3)[actual].ravel(), found.ravel())
        assert metrics[1] == pytest.approx(exact, abs=1e-12)
        assert metrics[1] == pytest.approx(known[mst_key - 1][0][1], abs=0.01)
        assert metrics[1] != known[mst_key - 1][0][1]  # Keras has it from 200 thresholds


@pytest.mark.parametrize("arguments", ["", ", false, 2"])
def test_who_is_taken_for_whom(trained, arguments):
    trained.fetch("DROP TABLE IF EXISTS taken_for")
    trained.fetch(
        f"SELECT cerebro_confusion_matrix('flowers', 'flowers_packed', 'taken_for'{arguments})"
    )
    rows = trained.fetch("SELECT mst_key, actual, predicted, num_rows FROM taken_for")
    assert len(rows) == len({row[:3] for row in rows})
    keys = [2] if arguments else [1, 2]
    assert {row[0] for row in rows} == set(keys)
    for key in keys:
        actual, found = predicted(trained, key)
        wanted = Counter(zip(actual.tolist(), found.argmax(axis=1).tolist(), strict=True))
        got = {(FLOWERS.index(a), FLOWERS.index(p)): n for k, a, p, n in rows if k == key}
        assert got == dict(wanted)


def test_one_output_of_two_classes(trained):
    trained.fetch("DROP TABLE IF EXISTS taken_for")
    trained.fetch("SELECT cerebro_confusion_matrix('halves', 'halves_packed', 'taken_for')")
    accuracy = trained.value("SELECT training_metrics_final FROM halves_info")
    assert trained.value(
        "SELECT (sum(num_rows) FILTER (WHERE actual = predicted) / sum(num_rows))::float FROM taken_for"
    ) == pytest.approx(accuracy)


BAD = {
    "'sums','sums_packed','o'": (errors.InvalidParameterValue, "'sum', a float target"),
    "'flowers','halves_packed','o'": (errors.InvalidParameterValue, "class values"),
    "'flowers','rows','o',dependent_varname:='nope'": (
        errors.UndefinedColumn,
        "dependent_varname: got 'nope'",
    ),
    "'flowers','flowers_packed','o',false,3": (errors.InvalidParameterValue, "got 3.*1, 2"),
    "'flowers','flowers_packed','rows'": (errors.DuplicateTable, "public.rows exists"),
    "NULL,'flowers_packed','o'": (errors.InvalidParameterValue, "model_table: got NULL"),
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls(trained, arguments):
    kind, message = BAD[arguments]
    before = trained.tables()
    with pytest.raises(kind) as caught:
        trained.fetch(f"SELECT cerebro_confusion_matrix({arguments})")
    assert caught.match(f"(?s){message}")
    assert trained.tables() == before
