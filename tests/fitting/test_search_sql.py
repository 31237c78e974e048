"""cerebro_search in SQL and from the command line: what it leaves, and what is told of wrong arguments."""

from __future__ import annotations

import itertools
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import psycopg2
import pytest
from pace import stretched

from tests.fitting.conftest import DENSE, SOFTMAX, layer, model

PROGRAM = Path(sys.executable).parent / "cerebro"
COMPILE = (
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': ['accuracy'], 'optimizer_params_list': "
    "[{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}, {'optimizer': ['SGD'], 'lr': [0.01, 0.3]}]}"
)
FIT = "{'batch_size': [8, 16]}"
RIGHT: dict[str, Any] = {
    "source_table": "packed",
    "model_arch_table": "models",
    "model_selection_table": None,
    "model_id_list": [1, 2],
    "compile_params_grid": COMPILE,
    "fit_params_grid": FIT,
    "automl_method": "hyperband",
    "automl_params": "R=4, eta=2",
    "validation_table": "val",
}
_names = (f"found_{number}" for number in itertools.count(1))

Search = Callable[..., tuple[str, int]]


@pytest.fixture
def search(bench: Any) -> Search:
    """Searches; returns the name of the output table and the run_id."""

    def run(**changes: Any) -> tuple[str, int]:
        arguments = {"model_output_table": next(_names), **RIGHT, **changes}
        given = ", ".join(f"{key} := %s" for key in arguments)
        run_id = bench.value(f"SELECT cerebro_search({given})", tuple(arguments.values()))
        return arguments["model_output_table"], run_id

    return run


@pytest.fixture(scope="module")
def found(bench: Any) -> tuple[str, int]:
    """A search by Hyperband, with all that it leaves."""
    arguments = (
        "packed", "found", "models", "chosen", [1, 2], COMPILE, FIT, "hyperband", "R=4, eta=2", None,
        None, False, "val", None, "sought", "for tests", True,
    )  # fmt: skip
    places = ", ".join(["%s"] * len(arguments))
    query = f"SELECT cerebro_search({places}, objective := 'val_accuracy')"
    return "found", bench.value(query, arguments)


def test_it_leaves_the_tables_of_automl(bench: Any, found: tuple[str, int]) -> None:
    name, run_id = found
    # Brackets of R=4, eta=2: 4, 3 and 3 trials.
    rows = bench.fetch(
        f"SELECT s, count(*), max(i), max(model_epoch) FROM {name}_info GROUP BY 1 ORDER BY 1 DESC"
    )
    assert rows == [(2, 4, 2, 4), (1, 3, 1, 4), (0, 3, 0, 4)]
    assert bench.value(f"SELECT count(*) FROM {name}") == 10
    iters = bench.fetch(f"SELECT model_epoch, i, metrics_iters FROM {name}_info WHERE s = 2")
    by_rung = {0: [1], 1: [1, 2], 2: [1, 2, 4]}
    assert all(epochs == by_rung[i] for _, i, epochs in iters)
    summary = bench.row(
        "SELECT run_id, automl_method, automl_params, random_state, use_gpus, objective, "
        f"model_selection_table, name, description FROM {name}_summary"
    )
    assert summary == (
        run_id, "hyperband", "R=4, eta=2", None, False, ["val_accuracy"], "public.chosen", "sought",
        "for tests",
    )  # fmt: skip


def test_the_best_is_chosen(bench: Any, found: tuple[str, int]) -> None:
    name, run_id = found
    chosen = bench.fetch("SELECT * FROM chosen")
    best = bench.fetch(
        f"SELECT mst_key, model_id, compile_params, fit_params FROM {name}_info "
        "ORDER BY validation_metrics_final DESC, mst_key LIMIT 1"
    )
    assert chosen == best
    assert bench.value("SELECT model_arch_table FROM chosen_summary") == "public.models"
    search = "SELECT best_mst_key, best_objective, trials, status FROM cerebro.searches WHERE run_id = %s"
    accuracy = f"SELECT max(validation_metrics_final) FROM {name}_info"
    assert bench.row(search, (run_id,)) == (chosen[0][0], bench.value(accuracy), 10, "finished")
    # Only the validation table was scored, and the other views know the best one, too.
    progress = "SELECT best_mst_key, best_so_far FROM cerebro.progress WHERE run_id = %s"
    assert bench.row(progress, (run_id,))[1] == bench.value(accuracy)
    board = "SELECT DISTINCT metric_names FROM cerebro.leaderboard WHERE run_id = %s AND epoch > 0"
    assert bench.column(board, (run_id,)) == [["accuracy"]]
    assert bench.value("SELECT model_selection_table FROM cerebro.runs WHERE run_id = %s", (run_id,)) == (
        "public.chosen"
    )  # fmt: skip


def test_a_search_for_the_loss_is_ranked_by_it_everywhere(bench: Any, search: Search) -> None:
    """By default it looks for the loss, whatever metrics there are."""
    name, run_id = search(
        automl_method="random", automl_params="num_configs=16, num_iterations=2",
        compile_params_grid=COMPILE.replace("0.1, 'log'", "1.0, 'log'"),
        model_selection_table="least_loss",
    )  # fmt: skip
    by_loss = "ORDER BY validation_loss_final, mst_key"
    expected = bench.column(f"SELECT mst_key FROM {name}_info {by_loss}")
    ranked = "SELECT mst_key FROM {} WHERE run_id = %s ORDER BY rank"
    assert expected[:1] == bench.column("SELECT mst_key FROM least_loss")
    assert expected == bench.column(ranked.format("cerebro.trials"), (run_id,))
    assert expected == bench.column(ranked.format("cerebro.leaderboard"), (run_id,))
    progress = "SELECT best_mst_key FROM cerebro.progress WHERE run_id = %s"
    assert bench.value(progress, (run_id,)) == expected[0]
    # By accuracy the order is another one.
    by_accuracy = f"ORDER BY validation_metrics_final DESC, {by_loss.removeprefix('ORDER BY ')}"
    others = bench.column(f"SELECT mst_key FROM {name}_info {by_accuracy}")
    assert others != expected
    # An ensemble of so many that others would be in it by accuracy.
    count = next(n for n in range(1, 17) if set(others[:n]) != set(expected[:n]))
    apart = [answers(bench, name, f"mst_key := {key}") for key in expected[:count]]
    mean = {row: sum(one[row] for one in apart) / count for row in apart[0]}
    assert answers(bench, name, f"ensemble := {count}") == pytest.approx(mean, abs=1e-6)


def answers(bench: Any, name: str, which: str) -> dict[tuple[int, str], float]:
    """Probabilities by row and class."""
    call = f"'{name}', 'blobs', 'id', 'x', 'told', 'prob', {which}, replace := true"
    bench.run(f"SELECT cerebro_predict({call})")
    return {row[:2]: row[2] for row in bench.fetch("SELECT id, class_value, prob FROM told")}


def test_the_trials_tell_why(bench: Any, found: tuple[str, int]) -> None:
    _, run_id = found
    rows = bench.fetch(
        "SELECT status, bracket, rung, budget, epoch, objective IS NOT NULL, action, reason <> '', "
        "decided_by, parameters ->> 'optimizer', model_id = (parameters ->> 'model_id')::int "
        "FROM cerebro.trials WHERE run_id = %s",
        (run_id,),
    )
    assert {row[0] for row in rows} == {"finished", "stopped"}
    assert all(row[3] >= row[4] and row[5] and row[7] and row[8] is None for row in rows)
    assert {row[9] for row in rows} <= {"Adam", "SGD"}
    assert all(row[10] for row in rows)
    assert {row[6] for row in rows} <= {"add", "promote", "stop"}


def test_the_best_train_on(bench: Any, found: tuple[str, int], search: Search) -> None:
    out, run_id = search(automl_method="random", automl_params="num_configs=3, num_iterations=1")
    table = bench.value("SELECT cerebro_best(%s, 2)", (run_id,))
    assert table == f"public.{out}_best"
    keys = bench.column(f"SELECT mst_key FROM {table} ORDER BY 1")
    bench.run(f"SELECT cerebro_fit_multiple('packed', '{out}', '{table}', 1, warm_start := true)")
    assert bench.column(f"SELECT mst_key FROM {out} ORDER BY 1") == keys
    epochs = f"SELECT DISTINCT iteration FROM {out}_history WHERE mst_key = %s ORDER BY 1"
    assert bench.column(epochs, (keys[0],)) == [1, 2]


def test_hyperopt_is_tpe(bench: Any, search: Search) -> None:
    params = "num_configs=4, num_iterations=1, algorithm=tpe"
    name, run_id = search(automl_method="hyperopt", automl_params=params, random_state=3)
    row = bench.row(f"SELECT automl_method, automl_params, random_state FROM {name}_summary")
    assert row == ("hyperopt", params, 3)
    assert bench.column(f"SELECT DISTINCT s FROM {name}_info") == [None]
    told = "SELECT method, params ->> 'num_configs' FROM cerebro.searches WHERE run_id = %s"
    assert bench.row(told, (run_id,)) == ("tpe", "4")


def test_several_objectives_choose_the_pareto_set(bench: Any, search: Search) -> None:
    name, run_id = search(
        automl_method="random", automl_params="num_configs=5, num_iterations=1",
        objective="val_accuracy, loss", model_selection_table="pareto",
    )  # fmt: skip
    rows = bench.fetch(
        "SELECT mst_key, objectives FROM cerebro.trials WHERE run_id = %s ORDER BY 1", (run_id,)
    )
    values = {key: (-accuracy, loss) for key, (accuracy, loss) in rows}
    front = [
        key
        for key, ours in values.items()
        if not any(
            all(a <= b for a, b in zip(theirs, ours, strict=True)) and theirs != ours
            for theirs in values.values()
        )
    ]
    assert bench.column("SELECT mst_key FROM pareto ORDER BY 1") == front
    assert bench.value(f"SELECT objective FROM {name}_summary") == ["val_accuracy", "loss"]


def test_earlier_tables_give_way(bench: Any, search: Search) -> None:
    few: dict[str, Any] = {
        "automl_method": "random", "automl_params": "num_configs=2, num_iterations=1",
        "model_output_table": "again", "model_selection_table": "chosen_again",
    }  # fmt: skip
    search(**few)
    with pytest.raises(psycopg2.errors.DuplicateTable, match="again exists already"):
        search(**few)
    with pytest.raises(psycopg2.errors.DuplicateTable, match="chosen_again exists already"):
        search(**{**few, "model_output_table": next(_names)})
    _, run_id = search(**few, replace=True)
    assert bench.value("SELECT run_id FROM again_summary") == run_id
    assert bench.value("SELECT count(*) FROM chosen_again") == 1


def test_a_search_of_which_nothing_is_left(bench: Any, search: Search) -> None:
    """All of its trials fail; the tables tell why, and nothing was chosen."""
    grid = (
        "{'loss': ['sparse_categorical_crossentropy'], 'metrics': ['accuracy'], "
        "'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [1e30, 1e31]}]}"
    )
    name, run_id = search(
        automl_method="grid", automl_params="num_iterations=2", compile_params_grid=grid,
        model_id_list=[1], fit_params_grid="{'batch_size': [8]}", model_selection_table="none_chosen",
    )  # fmt: skip
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "failed"
    errors = bench.column(f"SELECT error FROM {name}_info")
    assert len(errors) == 2
    assert all(errors)
    assert bench.value(f"SELECT count(*) FROM {name}") == 0
    assert bench.value("SELECT count(*) FROM none_chosen") == 0
    told = "SELECT trials, failed, best_mst_key FROM cerebro.searches WHERE run_id = %s"
    assert bench.row(told, (run_id,)) == (2, 2, None)
    with pytest.raises(psycopg2.Error, match="of which no trial has a value of val_loss: 2 failed"):
        bench.value("SELECT cerebro_best(%s)", (run_id,))


def test_a_search_is_made_again_by_its_decisions(bench: Any, search: Search) -> None:
    """One that took results as they came, and chose a best configuration, which the other leaves alone.

    The packed tables may be named anew.
    """
    name, run_id = search(
        automl_method="asha", automl_params="num_configs=6, R=4, eta=2", deterministic=False,
        model_selection_table="chosen_once",
    )  # fmt: skip
    again = bench.value(
        "SELECT cerebro_replay(%s, 'repeated', 'again', num_workers := 1, source_table := 'packed', validation_table := 'val')",
        (run_id,),
    )
    tables = "SELECT source_table, validation_table FROM cerebro.runs WHERE run_id = %s"
    assert bench.row(tables, (again,)) == bench.row(tables, (run_id,))
    weights = "SELECT mst_key, md5(model_weights) FROM {} ORDER BY 1"
    assert bench.fetch(weights.format("repeated")) == bench.fetch(weights.format(name))
    decided = "SELECT number, mst_key, action, epochs FROM cerebro.decisions WHERE run_id = %s ORDER BY 1, 2"
    assert bench.fetch(decided, (again,)) == bench.fetch(decided, (run_id,))
    told = "SELECT name, method, is_replay, status FROM cerebro.searches WHERE run_id = %s"
    assert bench.row(told, (again,)) == ("again", "asha", True, "finished")
    assert bench.row(told, (run_id,))[2] is False


def test_a_finished_search_goes_on_with_more(bench: Any, search: Search) -> None:
    name, run_id = search(
        automl_method="random", automl_params="num_configs=2, num_iterations=1",
        model_selection_table="chosen_of_more",
    )  # fmt: skip
    before = dict(bench.fetch(f"SELECT mst_key, md5(model_weights) FROM {name}"))
    assert bench.value("SELECT cerebro_extend(%s, 'num_configs=2')", (run_id,)) == run_id
    after = dict(bench.fetch(f"SELECT mst_key, md5(model_weights) FROM {name}"))
    assert len(after) == 4
    assert before.items() <= after.items()
    assert bench.value("SELECT count(*) FROM chosen_of_more") == 1
    assert bench.value("SELECT cerebro_extend(%s, 'num_iterations=2')", (run_id,)) == run_id
    assert bench.column(f"SELECT DISTINCT model_epoch FROM {name}_info") == [2]
    actions = "SELECT count(*) FROM cerebro.decisions WHERE run_id = %s AND action = 'extend'"
    assert bench.value(actions, (run_id,)) == 2


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        ("cerebro_extend(-1)", "42704", "run_id: got -1"),
        ("cerebro_extend({fit})", "22023", "which is no search"),
        ("cerebro_extend({run})", "22023", "got nothing more to do; allowed: automl_params with R"),
        ("cerebro_extend({run}, '')", "22023", "got nothing more to do"),
        ("cerebro_extend({run}, max_seconds := 5)", "22023", "got nothing more to do"),
        ("cerebro_extend({run}, 'skip_lst=2')", "22023", "Allowed: R"),
        ("cerebro_extend({run}, 'R=0')", "22023", "R=0"),
        ("cerebro_extend({run}, 'R=1000000')", "22023", "configurations or more; allowed: 100000"),
        (
            "cerebro_extend({run}, 'eta=4')",
            "22023",
            "got eta for a search that goes on; allowed: R",
        ),
        (
            "cerebro_extend({run}, max_epochs := 5)",
            "22023",
            "max_epochs: got 5 for a search that has no such",
        ),
        (
            "cerebro_extend({run}, max_configs := 5)",
            "22023",
            "max_configs: got 5 for a search that has no such",
        ),
        ("cerebro_extend({run}, max_seconds := 0)", "22023", "max_seconds: got 0"),
        ("cerebro_extend({run}, max_epochs := 0)", "22023", "max_epochs: got 0"),
        ("cerebro_extend({run}, max_configs := 0)", "22023", "max_configs: got 0"),
        ("cerebro_replay(-1, 'other')", "42704", "run_id: got -1"),
        (
            "cerebro_replay({fit}, 'other')",
            "22023",
            "of which no order is recorded; allowed: a search",
        ),
        ("cerebro_replay({run}, NULL)", "22023", "model_output_table: got NULL"),
        ("cerebro_replay({run}, 'blobs')", "42P07", "blobs exists already"),
        ("cerebro_replay({run}, 'other', repeat('x', 1001))", "22023", "name: got a text"),
        ("cerebro_replay({run}, 'other', NULL, repeat('x', 10001))", "22023", "description: got a"),
        ("cerebro_replay({run}, 'other', num_workers := 0)", "22023", "num_workers: got 0"),
        (
            "cerebro_replay({run}, 'other', source_table := 'packed')",
            "22023",
            "source_table: got one in the place of a table of run .*; allowed: source_table and validation_table",
        ),
    ],
)
def test_bad_arguments_for_what_is_done_again(
    bench: Any, found: tuple[str, int], call: str, code: str, told: str
) -> None:
    fit = "SELECT min(run_id) FROM cerebro.runs r WHERE run_id NOT IN (SELECT run_id FROM cerebro.searches)"
    if bench.value(fit) is None:
        bench.run("SELECT cerebro_fit_multiple('packed', 'no_search', 'configs', 1)")
    runs = {"run": found[1], "fit": bench.value(fit)}
    with pytest.raises(psycopg2.Error, match=told) as caught:
        bench.value(f"SELECT {call.format(**runs)}")
    assert caught.value.pgcode == code
    assert caught.value.diag.message_hint
    status = "SELECT status FROM cerebro.runs WHERE run_id = %s"
    assert bench.value(status, (found[1],)) == "finished"


@pytest.mark.parametrize(
    ("change", "sqlstate", "message"),
    [
        ({"source_table": None}, "22023", "source_table: got NULL"),
        ({"source_table": "nowhere"}, "42P01", "source_table: got 'nowhere'"),
        ({"source_table": "blobs"}, "42809", "blobs is not packed"),
        ({"model_output_table": ""}, "22023", "model_output_table: got ''"),
        ({"model_output_table": "blobs"}, "42P07", "blobs exists already"),
        ({"model_arch_table": "nowhere"}, "42P01", "model_arch_table: got 'nowhere'"),
        ({"model_selection_table": ""}, "22023", "model_selection_table: got ''"),
        ({"model_selection_table": "blobs"}, "42P07", "blobs exists already"),
        ({"model_output_table": "twice", "model_selection_table": "twice"}, "22023",
         "model_selection_table: got public.twice, which is model_output_table"),
        ({"model_output_table": "twice", "model_selection_table": "twice_info"}, "22023",
         "got public.twice_info, for which public.twice_info is made, as it is for model_output_table"),
        ({"model_output_table": "twice_summary", "model_selection_table": "twice"}, "22023",
         "got public.twice, for which public.twice_summary is made"),
        ({"model_id_list": None}, "22023", "model_id_list: got no model"),
        ({"model_id_list": [1, 77]}, "22023", "model_id: got 77; allowed: those that public.models has exactly once"),
        ({"compile_params_grid": "{}"}, "22023", "'optimizer_params_list' is missing"),
        ({"compile_params_grid": COMPILE.replace("Adam", "Adagrda")}, "22023", "Did you mean 'Adagrad'"),
        ({"compile_params_grid": COMPILE.replace("'metrics'", "'dropout': [0.1], 'metrics'"),
          "model_id_list": [1]}, "22023", "no dropout layer"),
        ({"fit_params_grid": "{'batch_size': []}"}, "22023", "a list of at least one value"),
        ({"fit_params_grid": "{'batch_size': [0, 8, 'linear']}"}, "22023", "batch_size"),
        ({"automl_method": "hyperbnad"}, "22023", "automl_method: got 'hyperbnad'; allowed: grid"),
        ({"automl_params": "R=0"}, "22023", "R=0"),
        ({"automl_params": "eta=1"}, "22023", "eta=1"),
        ({"automl_params": "R=4, eta=2, skip_last=9"}, "22023", "skip_last=9"),
        ({"automl_params": "etta=2"}, "22023", "Did you mean 'eta'"),
        ({"automl_method": "grid", "automl_params": None}, "22023", "got a range"),
        ({"automl_method": "cma-es", "automl_params": None}, "22023", "cma-es"),
        ({"random_state": -1}, "22023", "random_state: got -1; allowed: 0 to 2147483647"),
        ({"object_table": "objects"}, "42P01", "object_table: got 'objects'; no table or view"),
        ({"validation_table": "blobs"}, "42809", "blobs is not packed"),
        ({"metrics_compute_frequency": 0}, "22023", "metrics_compute_frequency: got 0"),
        ({"name": "a\x1b"}, "22023", "name: got a text"),
        ({"description": "x" * 10_001}, "22023", "description: got a text"),
        ({"objective": "val_acuracy"}, "22023", "objective: got 'val_acuracy'; allowed: loss, accuracy"),
        ({"objective": "val_loss", "validation_table": None}, "22023", "objective: got 'val_loss'"),
        ({"early_stopping": "patience=-1"}, "22023", "patience=-1"),
        ({"early_stopping": ""}, "22023", "early_stopping: got ''; allowed: NULL, or a rule"),
        ({"early_stopping": "target=nan"}, "22023", "got target=nan; it must be a number"),
        ({"max_seconds": 0}, "22023", "max_seconds: got 0"),
        ({"max_epochs": 0}, "22023", "max_epochs: got 0"),
        ({"automl_method": "random", "automl_params": "num_iterations=3", "max_epochs": 2}, "22023",
         "max_epochs: got 2; allowed: at least 3"),
        ({"max_configs": 0}, "22023", "max_configs: got 0"),
        ({"warm_start_run": -1, "automl_method": "tpe", "automl_params": None}, "42704",
         "warm_start_run: got -1"),
        ({"warm_start_run": 1, "automl_method": "random", "automl_params": None}, "22023",
         "warm_start_run: got 1 for 'random'"),
        ({"seed": -1}, "22023", "seed: got -1"),
        ({"num_workers": 0}, "22023", "num_workers: got 0"),
        ({"concurrency": 0}, "22023", "concurrency: got 0"),
        ({"durability": "never"}, "22023", "durability: got 'never'"),
        ({"schedule": "spiral"}, "22023", "schedule: got 'spiral'"),
    ],
)  # fmt: skip
def test_bad_arguments(
    bench: Any, search: Search, change: dict[str, Any], sqlstate: str, message: str
) -> None:
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=message) as caught:
        search(**change)
    assert caught.value.pgcode == sqlstate
    assert 0 < len(caught.value.diag.message_hint) < 400
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs


def test_an_objective_that_only_some_configurations_have(bench: Any, search: Search) -> None:
    with pytest.raises(psycopg2.Error, match="objective: got 'val_mae'"):
        search(
            compile_params_grid=COMPILE.replace("['accuracy']", "['accuracy', 'mae']"),
            objective="val_mae",
        )


def test_a_space_that_fits_only_some_models(bench: Any, search: Search) -> None:
    wide = model(DENSE, layer("Dense", units=4, activation="relu"), SOFTMAX, shape=(7,))
    bench.run("SELECT cerebro_load_model('misshapen', %s)", (wide,))
    with pytest.raises(psycopg2.Error, match=r"input shape \[7\] for features of shape \[6\]"):
        search(model_arch_table="misshapen", model_id_list=[1])


def test_dropout_is_searched_where_there_are_such_layers(bench: Any, search: Search) -> None:
    dropped = "{'dropout': [0.0, 0.5, 'linear'], " + COMPILE[1:]
    params = "num_configs=8, num_iterations=1"
    bench.connection.notices.clear()
    name, run_id = search(compile_params_grid=dropped, automl_method="random", automl_params=params)
    told = "dropout is left out where no layer of the architecture has it: model_id 1"
    assert told in "".join(bench.connection.notices)
    rows = bench.fetch(
        "SELECT i.model_id, strpos(i.compile_params, 'dropout=') > 0, t.parameters::jsonb ? 'dropout' "
        f"FROM {name}_info i JOIN cerebro.trials t USING (mst_key) WHERE t.run_id = %s",
        (run_id,),
    )
    assert len(rows) == 8
    assert set(rows) == {(1, False, False), (2, True, True)}
    with pytest.raises(psycopg2.Error, match="no dropout layer"):
        search(compile_params_grid=dropped, model_id_list=[1])


def command(bench: Any, out: str, *options: str) -> list[str]:
    """``cerebro search`` with the arguments of the search of these tests."""
    return [
        str(PROGRAM), "search", "--dsn", bench.dsn, "packed", out, "models", COMPILE, FIT, "--model-id", "1",
        "--model-id", "2", "--params", "R=4, eta=2", "--validation-table", "val", "--objective",
        "val_accuracy", *options,
    ]  # fmt: skip


def test_from_the_command_line_it_is_the_same(bench: Any, found: tuple[str, int]) -> None:
    done = subprocess.run(
        command(bench, "from_cli", "--model-selection-table", "chosen_cli", "--num-workers", "1"),
        capture_output=True, text=True, timeout=stretched(300), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith(": finished")
    weights = "SELECT mst_key, md5(model_weights) FROM {} ORDER BY 1"
    assert bench.fetch(weights.format("from_cli")) == bench.fetch(weights.format("found"))
    assert bench.fetch("SELECT * FROM chosen_cli") == bench.fetch("SELECT * FROM chosen")


def cli(bench: Any, *arguments: object) -> list[str]:
    """What a command tells, line by line."""
    name, *rest = arguments
    done = commands.command(name, "--dsn", bench.dsn, *rest)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_command_line_goes_on_and_repeats(bench: Any, search: Search) -> None:
    name, run_id = search(automl_method="random", automl_params="num_configs=3, num_iterations=1")
    assert cli(bench, "extend", run_id, "num_configs=2")[-1] == f"run {run_id}: finished"
    assert bench.value(f"SELECT count(*) FROM {name}") == 5
    repeated = cli(bench, "replay", run_id, f"{name}_again", "--num-workers", 1)[-1]
    assert repeated.endswith(": finished")
    weights = "SELECT mst_key, md5(model_weights) FROM {} ORDER BY 1"
    assert bench.fetch(weights.format(f"{name}_again")) == bench.fetch(weights.format(name))
    assert cli(bench, "best", run_id, "-n", 2) == [
        f"public.{name}_best: the best trials of run {run_id}"
    ]
    assert bench.value(f"SELECT count(*) FROM {name}_best") == 2
    again = json.loads("".join(cli(bench, "best", run_id, "-n", 3, "--replace", "--json")))
    assert again == {"run_id": run_id, "table": f"public.{name}_best"}
    assert bench.value(f"SELECT count(*) FROM {name}_best") == 3
    told = cli(bench, "importance", run_id)
    names = bench.column("SELECT parameter FROM cerebro_importance(%s)", (run_id,))
    assert [line.split()[1] for line in told] == [one.split()[0] for one in names]


def test_only_what_decides_is_scored(bench: Any, found: tuple[str, int]) -> None:
    """On the validation table, at rungs: and there each trial once."""
    _, run_id = found
    scored = bench.fetch(
        "SELECT mst_key, epoch, dataset FROM cerebro._metrics WHERE run_id = %s ORDER BY 1, 2",
        (run_id,),
    )
    rungs = bench.fetch(
        "SELECT mst_key, epochs, 'validation' FROM cerebro._decisions WHERE run_id = %s "
        "AND action IN ('add', 'promote') ORDER BY 1, 2",
        (run_id,),
    )
    assert scored == rungs
    assert len(scored) > bench.value(
        "SELECT count(*) FROM cerebro.trials WHERE run_id = %s", (run_id,)
    )


def test_wrong_arguments_from_the_command_line(bench: Any) -> None:
    done = commands.command(*command(bench, "from_cli_2", "--method", "hyperbnad")[1:])
    assert done.returncode == 1
    first, hint = done.stderr.splitlines()
    assert first.startswith("cerebro: automl_method: got 'hyperbnad'; allowed: grid")
    assert hint == "HINT: Did you mean 'hyperband'?"


def test_the_rungs_are_shown_in_a_terminal(bench: Any) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(bench, "in_terminal"), stdout=theirs, stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"},
    )  # fmt: skip
    os.close(theirs)
    shown = read_all(ours, process)
    assert (process.wait(), process.stderr and process.stderr.read()) == (0, b"")
    assert "hyperband · finished · 10 trials" in shown
    assert "rung 2" in shown
    assert ": finished" in shown


def read_all(ours: int, process: subprocess.Popen[bytes]) -> str:
    """What a process writes to a terminal until it ends."""
    data, end = b"", time.monotonic() + stretched(300)
    while time.monotonic() < end:
        ready, _, _ = select.select([ours], [], [], 0.2)
        try:
            data += os.read(ours, 65536) if ready else b""
        except OSError:  # it has closed its end
            break
        if process.poll() is not None and not ready:
            break
    os.close(ours)
    return data.decode()


TWO = "num_configs=20, num_iterations=1"
SMALL = COMPILE.replace("[0.001, 0.1, 'log']", "[0.01]").replace("[0.01, 0.3]", "[0.3]")
LOSSES = SMALL.replace(
    "['sparse_categorical_crossentropy']", "['categorical_crossentropy', 'kl_divergence']"
)


def notices(bench: Any, search: Search, **changes: Any) -> tuple[int, str]:
    """The run_id of a search, and all that it has told."""
    bench.connection.notices.clear()
    _, run_id = search(automl_method="random", automl_params=TWO, **changes)
    return run_id, "".join(bench.connection.notices)


def test_a_small_space_and_two_lists_of_metrics_are_named(bench: Any, search: Search) -> None:
    run_id, told = notices(
        bench, search, model_id_list=[1], objective="val_loss",
        compile_params_grid=SMALL.replace("['accuracy']", "['accuracy', 'mae']"), fit_params_grid="{}",
    )  # fmt: skip
    assert "the space has 4 configurations, and random wants 20: each is tried once" in told
    assert "'metrics': ['accuracy', 'mae'] are 2 choices, each in configurations of its own" in told
    assert bench.value("SELECT trials FROM cerebro.searches WHERE run_id = %s", (run_id,)) == 4
    _, told = notices(bench, search, model_id_list=[1], compile_params_grid=SMALL)
    assert "are 2 choices" not in told


def test_different_losses_are_not_compared_unless_somebody_wants_it(
    bench: Any, search: Search
) -> None:
    objective = "SELECT objectives -> 0 ->> 'metric' FROM cerebro.searches WHERE run_id = %s"
    run_id, told = notices(bench, search, model_id_list=[1], compile_params_grid=LOSSES)
    assert "the space has different losses (CategoricalCrossentropy, KLDivergence)" in told
    assert "the objective is val_accuracy" in told
    assert bench.value(objective, (run_id,)) == "accuracy"
    run_id, told = notices(
        bench, search, model_id_list=[1], compile_params_grid=LOSSES, objective="val_loss"
    )
    assert "val_loss compares values of different losses" in told
    assert bench.value(objective, (run_id,)) == "loss"
    with pytest.raises(
        psycopg2.Error, match="objective: got none for a space with different losses"
    ):
        search(compile_params_grid=LOSSES.replace("'metrics': ['accuracy'], ", ""))
    penalties = SMALL.replace("{'loss'", "{'l2': [0.1, 0.2], 'loss'", 1)
    run_id, told = notices(bench, search, model_id_list=[1], compile_params_grid=penalties)
    assert "val_loss has the penalties of l2 in it, which the search changes" in told
    assert bench.value(objective, (run_id,)) == "loss"


def test_a_leaderboard_of_different_losses_says_so(bench: Any) -> None:
    losses = ("categorical_crossentropy", "kl_divergence")
    texts = [f"loss='{one}',optimizer='Adam'" for one in losses]
    bench.run(
        "SELECT cerebro_load_configs('models', 'lossy', ARRAY[1], %s, ARRAY['batch_size=8'])",
        (texts,),
    )
    bench.connection.notices.clear()
    bench.run("SELECT cerebro_fit_multiple('packed', 'lossy_out', 'lossy', 1)")
    told = "the leaderboard compares values of different losses (CategoricalCrossentropy, KLDivergence)"
    assert told in "".join(bench.connection.notices)


def test_more_of_a_search_is_more(bench: Any, search: Search) -> None:
    _, run_id = search(automl_method="hyperband", automl_params="R=4, eta=2")
    with pytest.raises(
        psycopg2.Error, match="got R=2 for a search that has R=4; allowed: at least 4"
    ):
        bench.run("SELECT cerebro_extend(%s, 'R=2')", (run_id,))
    _, run_id = search(automl_method="pbt", automl_params="population=4, num_iterations=2")
    bench.run("SELECT cerebro_extend(%s, 'population=1')", (run_id,))
    trained = "SELECT count(*) FROM cerebro.decisions WHERE run_id = %s AND action = 'add'"
    assert bench.value(trained, (run_id,)) == 5
