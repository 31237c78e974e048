"""Goals: by which metric configurations are ranked."""

from __future__ import annotations

import pytest

from cerebro_db.configs.grids.outputs import outputs_of
from cerebro_db.configs.grids.parameters import parse_compile_params
from cerebro_db.scoring.prediction_models import badness, common_goal


@pytest.mark.parametrize(
    ("metrics", "goal"),
    [
        ("['accuracy']", "max"),
        ("['AUC','mae']", "max"),
        ("['mae','accuracy']", "min"),
        ("['RootMeanSquaredError']", "min"),
        ("['KLDivergence']", "min"),
        ("['BinaryCrossentropy']", "min"),
        ("['R2Score']", "max"),
        ("[]", "loss"),
    ],
)
def test_the_first_metric_decides_which_way_is_better(metrics: str, goal: str) -> None:
    params = parse_compile_params(f"loss='mse',optimizer='Adam',metrics={metrics}")
    assert common_goal([outputs_of(params, [""])]) == goal


@pytest.mark.parametrize(
    ("first", "second", "goal"),
    [
        ("['AUC']", "[AUC(name='area'),'mae']", "max"),
        ("['AUC']", "[AUC(num_thresholds=200)]", "max"),
        ("['AUC']", "['accuracy']", "loss"),
        ("['AUC']", "[AUC(curve='PR')]", "loss"),
        ("['mae']", "[]", "loss"),
    ],
)
def test_one_metric_is_never_ranked_against_another(first: str, second: str, goal: str) -> None:
    given = [
        outputs_of(parse_compile_params(f"loss='mse',optimizer='Adam',metrics={metrics}"), [""])
        for metrics in (first, second)
    ]
    assert common_goal(given) == common_goal(reversed(given)) == goal


def test_what_was_not_measured_is_last() -> None:
    nan = float("nan")
    assert badness("max", 0.9, 2.0) < badness("max", 0.8, 1.0) < badness("max", nan, 0.0)
    assert badness("min", 0.8, None) < badness("min", 0.9, 1.0) < badness("min", None, 0.0)
    assert badness("loss", None, 0.5) < badness("loss", 0.9, 0.6) < badness("loss", 0.9, nan)
