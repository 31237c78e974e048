"""Calibration of probabilities, their reliability, and thresholds, against NumPy, SciPy and scikit-learn."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from psycopg2 import errors
from scipy.optimize import minimize_scalar
from sklearn import metrics
from sklearn.isotonic import IsotonicRegression

from tests.models.conftest import fitted

KINDS = ("high", "low", "mid")
TRUE = np.asarray([[1.5, -1.0, 0.2], [0.3, 1.2, -0.9]])
HOT = 3.0


class Calls:
    """Rows whose classes were drawn from a softmax of linear logits, and nets whose logits are 3 times these.

    The models ``model:hot`` (a softmax), ``model:graph`` (the same as a graph), ``model:raw`` (logits), ``model:one``
    (a sigmoid, for ``is_low``) and ``model:mean`` (no classes).
    """

    def __init__(self, db: Any, network: Any) -> None:
        self.db = db
        generator = np.random.default_rng(12)
        self.rows = generator.normal(size=(600, 2)).astype(np.float32).astype(float)
        self.logits = self.rows @ TRUE
        chances = softmax(self.logits)
        self.classes = (chances.cumsum(axis=1) < generator.random((600, 1))).sum(axis=1)
        self._made()
        one = [*(HOT * (TRUE[:, 1] - TRUE[:, 0])), 0.5]
        weights = [*(HOT * TRUE).ravel(), 0, 0, 0]
        plain, sparse = "loss='categorical_crossentropy'", "loss='sparse_categorical_crossentropy'"
        graph = db.value("SELECT cerebro_tabular('calls_packed', depth := 0)")
        graph = graph if isinstance(graph, str) else json.dumps(graph)
        for name, net, data, loss, packed in (
            ("hot", network((2,), (3, "softmax")), weights, plain, "calls_packed"),
            ("graph", graph, weights, sparse, "calls_packed"),
            (
                "raw",
                network((2,), (3, "linear")),
                weights,
                "loss='SparseCategoricalCrossentropy(from_logits=True)'",
                "calls_packed",
            ),
            ("one", network((2,), (1, "sigmoid")), one, "loss='bce',metrics=['AUC']", "low_packed"),
            ("mean", network((2,), (1, "linear")), one, "loss='mse'", "mean_packed"),
        ):
            fitted(db, name, net, data, loss, packed)
            register = "SELECT cerebro_register_model((SELECT run_id FROM {0}_summary), 1, '{0}')"
            db.fetch(register.format(name))
        self.low = self.classes == 1
        self.low_logits = self.rows @ np.asarray(one[:2]) + one[2]

    def _made(self) -> None:
        self.db.fetch(
            "CREATE TABLE calls (id int, x real[], kind text, is_low boolean, mean float8)"
        )
        with self.db.connection.cursor() as cursor:
            for place, (row, kind) in enumerate(zip(self.rows, self.classes, strict=True)):
                values = (place, row.tolist(), KINDS[kind], bool(kind == 1), float(row[0]))
                cursor.execute("INSERT INTO calls VALUES (%s, %s, %s, %s, %s)", values)
        for table, column in (("calls", "kind"), ("low", "is_low"), ("mean", "mean")):
            self.db.fetch(
                f"SELECT cerebro_pack('calls', '{table}_packed', '{column}', 'x', num_partitions := 2)"
            )

    def calibrated(self, name: str, arguments: str = "") -> tuple[int, dict[str, Any]]:
        """The version that is made, and what its lineage tells of it."""
        sql = f"SELECT cerebro_calibrate('model:{name}', 'calls'{arguments})"
        version = self.db.value(sql)
        lineage = self.db.value(
            "SELECT lineage FROM cerebro.registered_versions WHERE name = %s AND version = %s",
            (re.split("[:@]", name)[0], version),
        )
        found: dict[str, Any] = lineage["calibration"]
        return version, found

    def probabilities(self, model: str) -> np.ndarray:
        """Of all classes, of the rows in their order."""
        self.db.fetch("DROP TABLE IF EXISTS told")
        self.db.fetch(f"SELECT cerebro_predict('{model}', 'calls', 'id', 'x', 'told')")
        rows = self.db.fetch("SELECT prob FROM told ORDER BY id, class_value")
        return np.asarray(rows).reshape(600, -1)


@pytest.fixture(scope="module")
def calls(db: Any, network: Any) -> Calls:
    return Calls(db, network)


def softmax(logits: np.ndarray) -> np.ndarray:
    values = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: np.ndarray = values / values.sum(axis=1, keepdims=True)
    return found


def log_loss(logits: np.ndarray, classes: np.ndarray) -> float:
    return float(-np.log(softmax(logits)[np.arange(len(classes)), classes]).mean())


def calibration_error(chances: np.ndarray, classes: np.ndarray, bins: int = 15) -> float:
    """As the paper has it: bins from above their lower end to their upper end."""
    top, right = chances.max(axis=1), chances.argmax(axis=1) == classes
    total = 0.0
    for place in range(bins):
        within = (top > place / bins) & (top <= (place + 1) / bins)
        if within.any():
            total += within.mean() * abs(top[within].mean() - right[within].mean())
    return total


@pytest.mark.parametrize("name", ["hot", "graph", "raw"])
def test_the_temperature_is_the_factor_of_the_logits(calls: Calls, name: str) -> None:
    best = minimize_scalar(
        lambda t: log_loss(calls.logits / t, calls.classes), bounds=(0.1, 9), method="bounded"
    )
    version, found = calls.calibrated(name)
    assert found["temperature"] == pytest.approx(HOT * best.x, rel=1e-4)
    assert found["temperature"] == pytest.approx(HOT, rel=0.2)
    assert (version, found["version"], found["rows"], found["table"]) == (2, 1, 600, "calls")
    hot, cool = HOT * calls.logits, HOT * calls.logits / found["temperature"]
    for side, logits in (("before", hot), ("after", cool)):
        wanted = log_loss(logits, calls.classes), calibration_error(softmax(logits), calls.classes)
        assert found[side]["loss"] == pytest.approx(wanted[0], rel=1e-5)
        assert found[side]["calibration_error"] == pytest.approx(wanted[1], abs=1e-5)
    assert found["after"]["calibration_error"] < found["before"]["calibration_error"] / 2
    for number, logits in ((1, hot), (2, cool)):
        chances = calls.probabilities(f"model:{name}:{number}")
        np.testing.assert_allclose(chances, softmax(logits), atol=1e-5)
    calls.db.fetch("DROP TABLE IF EXISTS scores")
    calls.db.fetch(f"SELECT cerebro_evaluate('model:{name}:2', 'calls_packed', 'scores')")
    assert calls.db.value("SELECT loss FROM scores") == pytest.approx(found["after"]["loss"], 1e-4)
    assert calls.db.value(f"SELECT octet_length(cerebro_export('model:{name}:2'))") > 1000


def test_a_calibrated_model_has_the_temperature_1(calls: Calls) -> None:
    calls.db.fetch("SELECT cerebro_set_alias('one', 'champion', 1)")
    version, found = calls.calibrated("one@champion")
    best = minimize_scalar(
        lambda t: metrics.log_loss(calls.low, 1 / (1 + np.exp(-calls.low_logits / t))),
        bounds=(0.1, 9),
        method="bounded",
    )
    assert found["temperature"] == pytest.approx(best.x, rel=1e-4)
    calls.db.notices()
    again = calls.calibrated(f"one:{version}", ", description := 'once more'")
    assert again[1]["temperature"] == pytest.approx(1, abs=1e-4)
    assert f"model:one:{again[0]} divides logits by 1" in calls.db.notices()
    cool = 1 / (1 + np.exp(-calls.low_logits / best.x))
    np.testing.assert_allclose(calls.probabilities("model:one")[:, 1], cool, atol=1e-4)
    told = "SELECT description, run_id = (SELECT run_id FROM one_summary) FROM cerebro.registered_versions"
    assert calls.db.fetch(f"{told} WHERE name = 'one' ORDER BY version DESC LIMIT 1") == [
        ("once more", True)
    ]


@pytest.mark.parametrize("name", ["hot", "raw", "one"])
def test_isotonic_probabilities_are_those_of_scikit_learn(calls: Calls, name: str) -> None:
    """Of the rows themselves, which are all on steps; those of several classes with a sum of 1."""
    before = calls.probabilities(f"model:{name}:1").astype(float)
    truth = np.stack([~calls.low, calls.low], 1) if name == "one" else np.eye(3)[calls.classes]
    least = 0.5 / 600
    wanted = np.stack(
        [
            IsotonicRegression(y_min=least, y_max=1 - least).fit_transform(*one)
            for one in zip(before.T, truth.T.astype(float), strict=True)
        ],
        axis=1,
    )
    wanted /= wanted.sum(axis=1, keepdims=True)
    version, found = calls.calibrated(f"{name}:1", ", method := 'isotonic'")
    after = calls.probabilities(f"model:{name}:{version}")
    # Logits of float32 order rows that probabilities of float32 cannot tell apart, and the other way round.
    assert np.mean(np.abs(after - wanted).max(axis=1) < 2e-3) > 0.98
    np.testing.assert_allclose(after, wanted, atol=0.05)
    assert (found["method"], found["rows"], found["table"]) == ("isotonic", 600, "calls")
    truths = truth.argmax(axis=1)
    loss = -np.log(after[np.arange(600), truths]).mean()
    assert found["after"]["loss"] == pytest.approx(loss, rel=1e-3)
    assert found["after"]["calibration_error"] < found["before"]["calibration_error"] / 2
    assert f"maps probabilities by {found['steps']} steps" in calls.db.notices()
    table = "low_packed" if name == "one" else "calls_packed"
    calls.db.fetch("DROP TABLE IF EXISTS scores")
    calls.db.fetch(f"SELECT cerebro_evaluate('model:{name}:{version}', '{table}', 'scores')")
    assert calls.db.value("SELECT loss FROM scores") == pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize("table", ["calls", "calls_packed"])
def test_confidence_and_accuracy_by_bins(calls: Calls, table: str) -> None:
    chances = softmax(HOT * calls.logits)
    calls.db.fetch("DROP TABLE IF EXISTS reliable")
    calls.db.fetch(f"SELECT cerebro_reliability('hot', '{table}', 'reliable', bins := 10)")
    rows = calls.db.fetch("SELECT * FROM reliable ORDER BY bin")
    top, right = chances.max(axis=1), chances.argmax(axis=1) == calls.classes
    for key, name, place, lower, upper, count, confidence, accuracy, error in rows:
        within = (top > lower) & (top <= upper)
        assert (key, name, upper) == (1, None, pytest.approx(place / 10))
        assert count == within.sum()
        assert confidence == pytest.approx(top[within].mean(), abs=1e-5)
        assert accuracy == pytest.approx(right[within].mean())
        assert error == pytest.approx(calibration_error(chances, calls.classes, 10), abs=1e-5)
    assert sum(row[5] for row in rows) == 600


def test_reliability_of_one_class(calls: Calls) -> None:
    calls.db.fetch("DROP TABLE IF EXISTS reliable")
    calls.db.fetch(
        "SELECT cerebro_reliability('model:hot:1', 'calls', 'reliable', class_value := 'mid', bins := 5)"
    )
    columns = "class_value, bin, num_rows, accuracy, model IS NOT NULL"
    chances = softmax(HOT * calls.logits)[:, 2]
    for name, place, count, accuracy, known in calls.db.fetch(f"SELECT {columns} FROM reliable"):
        within = (chances > (place - 1) / 5) & (chances <= place / 5)
        assert (name, count, known) == ("mid", within.sum(), True)
        assert accuracy == pytest.approx((calls.classes[within] == 2).mean())


MEASURES: dict[str, Any] = {
    "accuracy": metrics.accuracy_score,
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "f1": lambda truth, said: metrics.f1_score(truth, said, zero_division=0),
    "mcc": metrics.matthews_corrcoef,
    "youden": lambda truth, said: metrics.balanced_accuracy_score(truth, said, adjusted=True),
    "cost": lambda truth, said: -(1 * (said & ~truth).mean() + 7 * (truth & ~said).mean()),
}


def brute(truth: np.ndarray, chances: np.ndarray, name: str) -> float:
    """The best value that any threshold reaches."""
    found = []
    for one in [*chances, 1.1]:
        said = chances >= one
        tp, fp, fn, tn = (
            float(one.sum()) for one in (truth & said, ~truth & said, truth & ~said, ~truth & ~said)
        )
        spread = ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
        found.append(
            {
                "accuracy": (tp + tn) / len(truth),
                "balanced_accuracy": (tp / (tp + fn) + tn / (tn + fp)) / 2,
                "f1": 2 * tp / (2 * tp + fp + fn),
                "mcc": (tp * tn - fp * fn) / spread if spread else 0.0,
                "youden": tp / (tp + fn) + tn / (tn + fp) - 1,
                "cost": -(fp + 7 * fn) / len(truth),
            }[name]
        )
    return max(found)


@pytest.mark.parametrize(
    ("name", "table"), [("f1", "low_packed"), *((name, "calls") for name in MEASURES)]
)
def test_no_other_threshold_is_better(calls: Calls, name: str, table: str) -> None:
    measure, chances = MEASURES[name], 1 / (1 + np.exp(-calls.low_logits))
    given = f"metric := '{name}'"
    if name == "cost":
        given = "false_positive_cost := 1, false_negative_cost := 7"
    calls.db.fetch("DROP TABLE IF EXISTS best")
    calls.db.fetch(f"SELECT cerebro_threshold('model:one:1', '{table}', 'best', {given})")
    row = calls.db.fetch("SELECT * FROM best")[0]
    key, of_class, threshold, told, reached, *counts, model, _ = row
    assert (key, of_class, told) == (1, "true", name)
    assert model.endswith(".one:1")
    said = chances >= threshold
    sign = -1 if name == "cost" else 1
    assert sign * reached == pytest.approx(brute(calls.low, chances, name))
    assert sign * reached == pytest.approx(measure(calls.low, said))
    truth = calls.low
    wanted = [(truth & said), (~truth & said), (truth & ~said), (~truth & ~said)]
    assert counts == [one.sum() for one in wanted]


def test_a_threshold_of_the_other_class(calls: Calls) -> None:
    calls.db.fetch("DROP TABLE IF EXISTS best")
    calls.db.fetch("SELECT cerebro_threshold('one', 'calls', 'best', class_value := 'false')")
    of_class, threshold, metric, reached = calls.db.fetch(
        "SELECT class_value, threshold, metric, reached FROM best"
    )[0]
    said = 1 - 1 / (1 + np.exp(-calls.low_logits)) >= threshold
    assert (of_class, metric) == ("false", "f1")
    assert reached == pytest.approx(metrics.f1_score(~calls.low, said))


BAD = {
    "cerebro_calibrate('model:hot', 'calls', method := 'platt')": "method: got 'platt'; allowed: 'temperature', 'isotonic'",
    "cerebro_calibrate('hot', 'calls')": "model_table: got 'hot'; allowed: a registered model",
    "cerebro_calibrate(NULL, 'calls')": "model_table: got NULL; allowed: a registered model",
    "cerebro_calibrate('model:mean', 'calls')": "'mean', a float target; allowed: classes",
    "cerebro_reliability('mean', 'calls', 'o')": "'mean', a float target; allowed: classes",
    "cerebro_reliability('hot', 'calls', 'o', bins := 0)": "bins: got 0; allowed: 1 to 1000",
    "cerebro_reliability('hot', 'calls', 'o', class_value := 'lo')": "class_value: got 'lo'; allowed: 'high', 'low', 'mid'",
    "cerebro_threshold('hot', 'calls', 'o')": "'kind' with 3 classes; allowed: 2",
    "cerebro_threshold('one', 'calls', 'o', metric := 'f2')": "metric: got 'f2'; allowed: 'accuracy'",
    "cerebro_threshold('one', 'calls', 'o', false_positive_cost := 1)": "false_negative_cost: got NULL",
    "cerebro_threshold('one', 'calls', 'o', false_positive_cost := 0, false_negative_cost := 0)": "got 0 and 0",
    "cerebro_threshold('one', 'calls', 'o', metric := 'f1', false_positive_cost := 1, false_negative_cost := 2)": (
        "metric: got 'f1' and costs"
    ),
}


@pytest.mark.parametrize("call", BAD)
def test_bad_calls_are_refused_before_work(calls: Calls, call: str) -> None:
    before = calls.db.tables()
    with pytest.raises(errors.InvalidParameterValue, match=BAD[call]):
        calls.db.fetch(f"SELECT {call}")
    assert calls.db.tables() == before


def test_rows_of_which_nothing_can_be_learnt_are_refused(calls: Calls) -> None:
    calls.db.fetch("CREATE VIEW easy AS SELECT * FROM calls WHERE NOT is_low")
    with pytest.raises(
        errors.DataException, match=r"0 rows of the class and .* others; allowed: rows of both"
    ):
        calls.db.fetch("SELECT cerebro_threshold('one', 'easy', 'o')")
    calls.db.fetch("CREATE TABLE sure (id int, x real[], kind text)")
    with calls.db.connection.cursor() as cursor:
        for place, row in enumerate(calls.rows):
            kind = KINDS[int(calls.logits[place].argmax())]
            cursor.execute("INSERT INTO sure VALUES (%s, %s, %s)", (place, row.tolist(), kind))
    with pytest.raises(errors.DataException, match="tells rightly, all of them"):
        calls.db.fetch("SELECT cerebro_calibrate('model:hot:1', 'sure')")


def test_a_net_of_members_is_calibrated(calls: Calls) -> None:
    """Of a mean of probabilities the logits are their logarithms."""
    net = "cerebro_tabular('calls_packed', 'tabm', units := 8, depth := 1, dropout := 0, members := 2)"
    calls.db.fetch(f"SELECT cerebro_load_model('member_nets', {net})")
    calls.db.fetch(
        "SELECT cerebro_fit('calls_packed', 'members', 'member_nets', 1, "
        "$$loss='sparse_categorical_crossentropy',optimizer='Adam(lr=0.02)',loss_per_member=True$$, 'batch_size=32', 4)"
    )
    calls.db.fetch(
        "SELECT cerebro_register_model((SELECT run_id FROM members_summary), 1, 'members')"
    )
    _, found = calls.calibrated("members")
    before, after = (calls.probabilities(f"model:members:{version}") for version in (1, 2))
    powers = before ** (1 / found["temperature"])
    np.testing.assert_allclose(after, powers / powers.sum(axis=1, keepdims=True), atol=1e-5)
    assert found["after"]["loss"] <= found["before"]["loss"]
