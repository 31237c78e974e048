"""A search whose configurations come from outside: asked for, answered, paused, ended; also with none at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from pace import stretched

from cerebro_db import connect
from cerebro_db.client.database import Database
from cerebro_db.client.run import Run
from cerebro_db.errors import CerebroError, InvalidArgument
from tests.fitting.conftest import ADAM
from tests.fitting.test_progress import until
from tests.fitting.test_search_sql import COMPILE, FIT

FEW = stretched(120)
WAITS = "SELECT waits_for = 'configurations' FROM cerebro.progress WHERE run_id = %s"


@pytest.fixture(autouse=True)
def no_states_stay() -> None:
    """A search that waits in the background keeps its states."""


@pytest.fixture(scope="module")
def db(bench: Any) -> Iterator[Database]:
    with connect(bench.dsn) as database:
        yield database


def begin(db: Database, name: str, **more: Any) -> Run:
    """A search that waits."""
    given = {
        "source_table": "packed", "model_output_table": name, "model_arch_table": "models", "model_id_list": [1, 2],
        "compile_params_grid": COMPILE, "fit_params_grid": FIT, "automl_method": "external",
        "automl_params": "num_iterations=2", "validation_table": "val", "objective": "val_accuracy",
    }  # fmt: skip
    run: Run = db.search(**given, **more, wait=False)
    return run


def rate(value: float) -> str:
    """Compile parameters with a learning rate."""
    return ADAM.replace("0.01", str(value))


def test_results_decide_what_is_added(bench: Any, db: Database) -> None:
    run = begin(db, "steered")
    first = run.add(1, rate(0.0001), "batch_size=8")
    until(bench, WAITS, (run.run_id,))
    assert "waits for configurations" in run._repr_html_()
    found = run.objective(first, timeout=FEW)
    assert found is not None
    second = run.add(2, rate(0.03), "batch_size=8", num_iterations=3)
    assert (first, second) == (1, 2)
    assert run.objectives(second, timeout=FEW)[0] >= found
    with pytest.raises(InvalidArgument, match="mst_key: got 7; allowed"):
        run.objective(7)
    run.finish()
    assert run.wait(timeout=FEW).status == "finished"
    assert run.objective(first) == found
    trials = "SELECT mst_key, status, budget, parameters IS NOT NULL FROM cerebro.trials WHERE run_id = %s ORDER BY 1"
    assert bench.fetch(trials, (run.run_id,)) == [
        (1, "finished", 2, True),
        (2, "finished", 3, True),
    ]
    assert run.best().mst_key == bench.value(
        "SELECT best_mst_key FROM cerebro.searches WHERE run_id = %s", (run.run_id,)
    )
    assert (
        bench.value("SELECT waits_for FROM cerebro.progress WHERE run_id = %s", (run.run_id,))
        is None
    )
    actions = bench.fetch(
        "SELECT action, decided_by IS NOT NULL FROM cerebro.decisions WHERE run_id = %s ORDER BY number",
        (run.run_id,),
    )
    assert actions == [("add", True), ("add", True), ("finish", True)]
    with pytest.raises(
        CerebroError, match="which is finished; allowed: a search that is"
    ) as refused:
        run.add(1, rate(0.01))
    assert "cerebro_extend" in str(refused.value.hint)
    again = bench.value("SELECT cerebro_replay(%s, 'steered_again')", (run.run_id,))
    weights = "SELECT mst_key, model_weights FROM {} ORDER BY 1"
    assert bench.fetch(weights.format("steered_again")) == bench.fetch(weights.format("steered"))
    bench.run("SELECT cerebro.cerebro_drop_run(%s)", (again,))


def test_it_goes_on_after_a_pause_and_ends_with_as_many_as_it_may_have(
    bench: Any, db: Database
) -> None:
    run = begin(db, "rested", max_configs=2)
    first = run.add(1, rate(0.01), "batch_size=8")
    found = run.objective(first, timeout=FEW)
    until(bench, WAITS, (run.run_id,))
    assert run.pause() == "paused"
    assert run.objective(first) == found
    run = run.resume(wait=False)
    assert run.objective(first, timeout=FEW) == found
    with pytest.raises(psycopg2.Error, match="max_configs := 2; allowed: 1 more"):
        bench.run(
            "SELECT cerebro_add_configs(%s, ARRAY[1, 2], ARRAY[%s], ARRAY['batch_size=8'])",
            (run.run_id, rate(0.1)),
        )
    run.add(1, rate(0.002), "batch_size=8")
    assert run.wait(timeout=FEW).status == "finished"
    assert len(run.leaderboard()) == 2


def test_one_that_nobody_proposes_anything_to_leaves_empty_tables(bench: Any, db: Database) -> None:
    run = begin(db, "ignored", model_selection_table="ignored_best")
    until(bench, WAITS, (run.run_id,))
    bench.run("SELECT cerebro_finish(%s)", (run.run_id,))
    assert run.wait(timeout=FEW).status == "failed"
    assert run.facts.error == "no configuration was trained to the end"
    assert bench.value("SELECT count(*) FROM ignored") == 0
    assert begin(db, "hurried", max_seconds=0.5).wait(timeout=FEW).status == "failed"
    assert bench.value("SELECT count(*) FROM hurried_info") == 0


def test_any_search_can_be_ended(bench: Any, db: Database) -> None:
    run = db.search(
        "packed", "ended", "models", None, [1, 2], COMPILE, FIT, automl_method="random",
        automl_params="num_configs=200, num_iterations=2", validation_table="val", concurrency=2, wait=False,
    )  # fmt: skip
    until(
        bench,
        "SELECT count(*) > 2 FROM cerebro.trials WHERE run_id = %s AND epoch > 1",
        (run.run_id,),
    )
    run.finish()
    assert run.wait(timeout=FEW).status == "finished"
    assert 2 < bench.value("SELECT count(*) FROM ended") < 200


WRONG = (
    ({"random_state": 3}, "random_state: got 3; it must be NULL for automl_method := 'external'"),
    ({"max_epochs": 3}, "max_epochs: got 3; it must be NULL"),
    ({"concurrency": 3}, "concurrency: got 3; it must be NULL"),
    (
        {"automl_params": "num_configs=3"},
        "automl_params of external: got the unknown parameter 'num_configs'",
    ),
    ({"warm_start_run": 1}, "warm_start_run: got 1 for 'external', which learns nothing"),
)


@pytest.mark.parametrize(("changes", "told"), WRONG)
def test_what_does_not_belong_to_it_is_refused(
    bench: Any, changes: dict[str, Any], told: str
) -> None:
    given = {"automl_method": "external", "validation_table": "val", **changes}
    names = ", ".join(f"{name} := %s" for name in given)
    with pytest.raises(psycopg2.Error) as refused:
        bench.run(
            f"SELECT cerebro_search('packed', 'refused', 'models', NULL, ARRAY[1], %s, %s, {names})",
            (COMPILE, FIT, *given.values()),
        )
    assert told in str(refused.value)
    assert refused.value.pgcode == "22023"


def test_a_run_that_is_no_search_cannot_be_ended(bench: Any) -> None:
    with pytest.raises(psycopg2.Error, match="run_id: got -1"):
        bench.run("SELECT cerebro_finish(-1)")
    with pytest.raises(psycopg2.Error, match="run_id: got NULL"):
        bench.run("SELECT cerebro_finish(NULL)")
