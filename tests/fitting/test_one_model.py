"""cerebro_fit: one model, with the positions of MADlib."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM

CALL = "SELECT cerebro_fit('packed', %s, 'models', 1, %s, 'batch_size=8', 2)"


def test_one_model_equals_a_selection_of_one(
    bench: Any, fit: Any, weights: Any, selection: Any
) -> None:
    out, run_id = fit(configs=selection([1], [ADAM]))
    alone = bench.value(CALL, ("single", ADAM))
    assert weights("single") == weights(out)
    assert alone > run_id
    assert bench.row(
        "SELECT model_selection_table, model_arch_table, num_iterations FROM single_summary"
    ) == (None, "public.models", 2)
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (alone,)) == "finished"
    of_the_model = "model_id, compile_params, fit_params, model_type, metrics_type, training_loss"
    summary = bench.row(f"SELECT {of_the_model}, validation_loss_final FROM single_summary")
    assert summary == bench.row(f"SELECT {of_the_model}, validation_loss_final FROM single_info")
    assert summary[:3] == (1, ADAM, "batch_size=8")
    bench.run(
        "SELECT cerebro_fit('packed', 'single', 'models', 1, %s, 'batch_size=8', 1, warm_start := true)",
        (ADAM,),
    )
    assert weights("single") != weights(out)
    bench.run("SELECT cerebro_predict('single', 'blobs_test', 'id', 'x', 'single_predictions')")
    assert bench.value("SELECT count(DISTINCT id) FROM single_predictions") == 30


def test_no_fit_params_are_those_of_keras(bench: Any, weights: Any) -> None:
    for name, text in (("absent", None), ("thirty_two", "batch_size=32,epochs=1")):
        bench.run("SELECT cerebro_fit('packed', %s, 'models', 1, %s, %s, 1)", (name, ADAM, text))
    assert weights("absent") == weights("thirty_two")


def test_a_schedule_and_frozen_layers_train(bench: Any) -> None:
    schedule = ADAM.replace("0.01", "CosineDecay(0.01, 100)") + ",freeze='*'"
    with pytest.raises(psycopg2.Error, match="no layer has such a name"):
        bench.run(CALL, ("frozen", ADAM + ",freeze='conv*'"))
    with pytest.raises(psycopg2.Error, match="no layer has such a name"):
        bench.run(CALL, ("frozen", schedule))  # these layers have no names in their JSON
    bench.run(CALL, ("scheduled", schedule.replace(",freeze='*'", "")))
    assert bench.value("SELECT status FROM scheduled_info") == "finished"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'packed', 'bad', 'models', NULL, 'x', 'y', 1", "model_id: got NULL"),
        ("'packed', 'bad', 'models', 9, 'x', 'y', 1", "model_ids \\[9\\]"),
        ("'packed', 'bad', NULL, 1, 'x', 'y', 1", "model_arch_table: got NULL"),
        ("'packed', 'bad', 'models', 1, NULL, 'y', 1", "compile_params: got NULL"),
        ("'packed', 'bad', 'models', 1, 'x=1', 'y', 1", "unknown parameter 'x'"),
        ("'packed', 'bad', 'models', 1, 'x', 'y', 1, object_table := 'o'", "object_table: got 'o'"),
        ("'packed', 'bad', 'models', 1, 'x', 'y', 0", "num_iterations: got 0"),
    ],
)
def test_refused(bench: Any, arguments: str, message: str) -> None:
    with pytest.raises(psycopg2.Error, match=message) as caught:
        bench.run(f"SELECT cerebro_fit({arguments})")
    assert caught.value.pgcode in ("22023", "22004", "42P01")
