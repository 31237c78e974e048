"""cerebro_fit: one model, with the positions of MADlib."""

from __future__ import annotations

import subprocess
from typing import Any

import psycopg2
import pytest
from pace import stretched

from tests.fitting.conftest import ADAM
from tests.fitting.test_client import PROGRAM

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
        ("'packed', 'bad', 'models', 9, 'x', 'y', 1", "model_id: got 9; allowed: those that"),
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


def tables(bench: Any, name: str) -> list[str]:
    """Those of a name."""
    found: list[str] = bench.column(
        "SELECT tablename::text FROM pg_tables WHERE tablename LIKE %s ORDER BY 1", (f"{name}%",)
    )
    return found


def test_a_model_that_fails_raises_its_error(bench: Any, weights: Any) -> None:
    diverging = ADAM.replace("Adam(lr=0.01)", "SGD(lr=1e38)")
    with pytest.raises(psycopg2.errors.DataException) as caught:
        bench.run(CALL, ("lone", diverging))
    run_id, status, error = bench.row(
        "SELECT run_id, status, error FROM cerebro.runs ORDER BY run_id DESC LIMIT 1"
    )
    told = caught.value.diag.message_primary
    assert told == f"run {run_id} failed: {error}"
    assert status == "failed"
    assert error.startswith("the loss became ")
    assert "no table was made" in (caught.value.diag.message_hint or "")
    assert tables(bench, "lone") == []
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="no model was trained"):
        bench.run("SELECT cerebro_resume(%s)", (run_id,))
    bench.run(CALL, ("lone", ADAM))  # the name is free
    before = weights("lone"), bench.fetch("SELECT * FROM lone_info")
    with pytest.raises(psycopg2.errors.DataException, match="the loss became"):
        bench.run(CALL.replace(", 2)", ", 2, warm_start := true)"), ("lone", diverging))
    assert (weights("lone"), bench.fetch("SELECT * FROM lone_info")) == before


def test_a_program_tells_of_a_run_that_failed(bench: Any, selection: Any) -> None:
    diverging = ADAM.replace("Adam(lr=0.01)", "SGD(lr=1e38)")
    configs = selection([1], [diverging])
    command = [PROGRAM, "fit", "--dsn", bench.dsn, "packed", "all_failed", configs, "1"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=stretched(120), check=False
    )
    assert done.returncode == 1
    told, hint = done.stderr.splitlines()
    assert told.endswith("failed: no configuration was trained to the end")
    assert "SELECT mst_key, error FROM cerebro.leaderboard WHERE run_id = " in hint
