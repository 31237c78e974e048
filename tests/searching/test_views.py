"""cerebro.trials and cerebro.searches: what they make of rows of the catalog, whoever wrote these."""

from __future__ import annotations

import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import optuna
import psycopg2
import pytest
from commands import command
from pace import stretched

from cerebro_db.cli import pictures
from cerebro_db.core import statuses as statuses_
from cerebro_db.models import studies
from cerebro_db.watching import reading, report
from cerebro_db.watching.view import view_of

RUN = (
    "INSERT INTO cerebro._runs (source_table, model_output_table, num_iterations, seed, "
    "metrics_compute_frequency, warm_start, num_partitions, num_workers, threads, manifest, status, "
    "driver_pid, name, model_arch_table, output_schema, output_name, schedule, replaces, use_gpus, "
    "use_caching, durability, source_oid, source_print, lock_key, cerebro_version, spec) "
    "VALUES ('t', 'o', 1, 0, 1, false, 2, 1, 1, '{}', 'finished', 0, 'views', 'models', 'public', "
    "'out', 'hopper', false, false, true, 'hop', 1, '', (random() * 1e9)::bigint * 2, '0', "
    '(\'{"version": 1, "epochs": 1, "seed": 0, "frequency": 1, "partitions": {}, "strategy": {"name": "hopper"}, '
    '"model_arch_table": "models", "name": "views"\' '
    "|| coalesce(', \"search\": ' || %s::text, '') || '}')::jsonb) RETURNING run_id"
)
CONFIGURATION = (
    "INSERT INTO cerebro._configurations (run_id, mst_key, model_id, compile_params, fit_params, "
    "hop_seconds, initial_seed, jit, steps_per_call, goal, status, budget) "
    "VALUES (%s, %s, 1, '', '', 1, 1, false, 1, 'max', %s, %s)"
)
DECISION = (
    "INSERT INTO cerebro._decisions (run_id, number, mst_key, action, epochs, source, source_epoch, "
    "reason, who, detail) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
MEASURE = (
    "INSERT INTO cerebro._metrics (run_id, mst_key, epoch, dataset, loss, metric_names, metrics, elapsed) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, 1.0)"
)
ACCURACY = {"metric": "accuracy", "dataset": "validation", "maximise": True}
LOSS = {"metric": "loss", "dataset": "training", "maximise": False}


def begin(sql: Any, *objectives: Any, **more: Any) -> int:
    """A search in the catalog; returns its run_id."""
    spec = {
        "replays": [], "method": "hyperband", "params": {"R": 9}, "objectives": list(objectives),
        "space": {"model_ids": [1], "compile_params_grid": "{}", "fit_params_grid": "{}"},
        "early_stopping": {}, "budget": {}, "seed": 0, "concurrency": 1, "deterministic": True,
        "goal": "max", "earlier": [], **more,
    }  # fmt: skip
    return int(sql.value(RUN, (json.dumps(spec),)))


def add(
    sql: Any, run_id: int, number: int, key: int, *, status: str = "finished", budget: int = 1,
    parameters: Any = None,
) -> None:  # fmt: skip
    """A trial that was added to bracket 2."""
    sql.run(CONFIGURATION, (run_id, key, status, budget))
    detail = json.dumps({"parameters": parameters or {}, "bracket": 2, "rung": 0})
    sql.run(DECISION, (run_id, number, key, "add", 1, None, None, "bracket 2", "", detail))


def measure(
    sql: Any, run_id: int, key: int, epoch: int, accuracy: float, loss: float = 1.0
) -> None:
    names = ["mae", "accuracy"]
    for dataset, value in (("training", 0.0), ("validation", accuracy)):
        sql.run(MEASURE, (run_id, key, epoch, dataset, loss, names, [9.0, value]))


@pytest.fixture
def search(sql: Any) -> int:
    """Three trials, of which one was promoted and one was stopped by somebody."""
    run_id = begin(sql, ACCURACY)
    for key in (1, 2, 3):
        add(sql, run_id, 1, key, budget=3 if key == 2 else 1, parameters={"lr": key / 10})
        measure(sql, run_id, key, 1, key / 10)
    measure(sql, run_id, 2, 3, 0.9)
    promoted = json.dumps({"bracket": 2, "rung": 1})
    sql.run(DECISION, (run_id, 2, 2, "promote", 3, None, None, "1 of 3", "", promoted))
    sql.run(DECISION, (run_id, 3, 3, "stop", 1, None, None, "hopeless", "alice", "{}"))
    return run_id


def test_trials(sql: Any, search: int) -> None:
    rows = sql.fetch(
        "SELECT mst_key, rank, status, bracket, rung, budget, epoch, objective, objectives, "
        "parameters ->> 'lr', action, reason, decided_by FROM cerebro.trials WHERE run_id = %s "
        "ORDER BY mst_key",
        (search,),
    )
    assert rows == [
        (1, 3, "finished", 2, 0, 1, 1, 0.1, [0.1], "0.1", "add", "bracket 2", None),
        (2, 1, "finished", 2, 1, 3, 3, 0.9, [0.9], "0.2", "promote", "1 of 3", None),
        (3, 2, "stopped", 2, 0, 1, 1, 0.3, [0.3], "0.3", "stop", "hopeless", "alice"),
    ]


def test_searches(sql: Any, search: int) -> None:
    row = sql.row(
        "SELECT name, status, method, params ->> 'R', trials, finished_trials, stopped, failed, epochs, "
        "best_mst_key, best_objective FROM cerebro.searches WHERE run_id = %s",
        (search,),
    )
    assert row == ("views", "finished", "hyperband", "9", 3, 2, 1, 0, 5, 2, 0.9)
    decided = "SELECT decided_by, detail ->> 'rung' FROM cerebro.decisions WHERE number > 1 ORDER BY number"
    assert sql.fetch(decided) == [(None, "1"), ("alice", None)]


def test_several_objectives_in_their_order(sql: Any) -> None:
    run_id = begin(sql, LOSS, ACCURACY)
    add(sql, run_id, 1, 1)
    add(sql, run_id, 1, 2)
    measure(sql, run_id, 1, 1, 0.5, loss=2.0)
    measure(sql, run_id, 2, 1, 0.4, loss=1.0)
    rows = "SELECT mst_key, objectives, rank FROM cerebro.trials WHERE run_id = %s ORDER BY 1"
    assert sql.fetch(rows, (run_id,)) == [(1, [2.0, 0.5], 2), (2, [1.0, 0.4], 1)]


def test_what_has_no_value_comes_last(sql: Any) -> None:
    run_id = begin(sql, ACCURACY)
    for key, status in ((1, "training"), (2, "training"), (3, "failed"), (4, "waiting")):
        add(sql, run_id, 1, key, status=status)
    measure(sql, run_id, 1, 1, float("nan"))
    measure(sql, run_id, 2, 1, 0.1)
    measure(sql, run_id, 3, 1, 0.9)
    rows = "SELECT mst_key, rank, status FROM cerebro.trials WHERE run_id = %s ORDER BY 2, 1"
    assert sql.fetch(rows, (run_id,)) == [
        (2, 1, "stopped"),  # nobody drives the run
        (1, 2, "stopped"),
        (4, 3, "stopped"),
        (3, 4, "failed"),
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_where_no_trial_has_a_number_nobody_is_best(sql: Any, value: str) -> None:
    run_id = begin(sql, ACCURACY)
    for key in (1, 2):
        add(sql, run_id, 1, key)
        measure(sql, run_id, key, 1, float(value))
    best = "SELECT trials, best_mst_key, best_objective FROM cerebro.searches WHERE run_id = %s"
    assert sql.row(best, (run_id,)) == (2, None, None)
    told = "no trial has a value of val_accuracy: 2 measured as NaN or infinite; allowed: a search with"
    with pytest.raises(psycopg2.Error, match=told):
        sql.fetch("SELECT cerebro.cerebro_best(%s)", (run_id,))
    add(sql, run_id, 2, 3)
    measure(sql, run_id, 3, 1, 0.25)
    assert sql.row(best, (run_id,)) == (3, 3, 0.25)
    assert sql.value("SELECT cerebro.cerebro_best(%s)", (run_id,)) == "public.out_best"
    assert sql.column("SELECT mst_key FROM out_best") == [3]


def test_nan_is_the_best_of_no_run(sql: Any) -> None:
    """The metric that ranks is NaN for all: so is what cerebro.progress would call the best so far."""
    run_id = begin(sql, LOSS)
    add(sql, run_id, 1, 1)
    sql.run(MEASURE, (run_id, 1, 1, "training", 1.0, ["auc"], [float("nan")]))
    best = "SELECT best_mst_key, best_so_far FROM cerebro.progress WHERE run_id = %s"
    assert sql.row(best, (run_id,)) == (None, None)
    add(sql, run_id, 1, 2)
    sql.run(MEASURE, (run_id, 2, 1, "training", 1.0, ["auc"], [0.5]))
    assert sql.row(best, (run_id,)) == (2, 0.5)


@pytest.mark.parametrize(
    "spec",
    ["{}", "[]", "3", '{"objectives": 3}', '{"objectives": [3, null, {"metric": {}}]}',
     '{"objectives": [{"metric": "loss", "dataset": "training", "maximise": "perhaps"}]}'],
)  # fmt: skip
def test_owners_may_write_anything(sql: Any, spec: str) -> None:
    run_id = sql.value(RUN, (spec,))
    add(sql, run_id, 1, 1)
    measure(sql, run_id, 1, 1, 0.5)
    detail = json.dumps({"parameters": 3, "bracket": "x", "rung": 1e300})
    sql.run(DECISION, (run_id, 2, 1, "promote", 2, None, None, "", "", detail))
    trials = "SELECT mst_key, bracket, rung FROM cerebro.trials WHERE run_id = %s"
    assert sql.fetch(trials, (run_id,)) == [(1, 2, 0)]
    assert sql.value("SELECT trials FROM cerebro.searches WHERE run_id = %s", (run_id,)) == 1


HOP = (
    "INSERT INTO cerebro._hops (run_id, mst_key, epoch, position, partition_key, worker, pid, started, finished, "
    "waited, read, trained, written, rows, loss, compiled, cached, memory_mb) VALUES (%s, %s, %s, %s, 0, %s, 7, "
    "timestamptz '2026-01-02 03:00+00' + %s * interval '1 second', "
    "timestamptz '2026-01-02 03:00+00' + %s * interval '1 second', %s, 0, 0, 0, 10, 1, false, false, 5)"
)


def statuses(sql: Any, run_id: int) -> dict[str, dict[int, str]]:
    """The status of each configuration as the views have it."""
    return {
        view: dict(sql.fetch(f"SELECT mst_key, status FROM cerebro.{view} WHERE run_id = %s", (run_id,)))
        for view in ("_statuses", "trials", "leaderboard", "dashboard")
    }  # fmt: skip


def test_one_status_for_all_who_show_it(sql: Any) -> None:
    """Who has come to its budget waits, and is counted as such above the rows that say so."""
    run_id = begin(sql, ACCURACY)
    sql.run("UPDATE cerebro._runs SET status = 'queued' WHERE run_id = %s", (run_id,))
    kinds = {1: "training", 2: "training", 3: "failed", 4: "waiting", 5: "training", 6: "stopped"}
    for key, status in kinds.items():
        add(sql, run_id, 1, key, status=status)
    measure(sql, run_id, 1, 1, 0.5)
    sql.run(DECISION, (run_id, 2, 5, "stop", 1, None, None, "hopeless", "", "{}"))
    right = {1: "waiting", 2: "training", 3: "failed", 4: "waiting", 5: "stopped", 6: "stopped"}
    assert statuses(sql, run_id) == dict.fromkeys(
        ("_statuses", "trials", "leaderboard", "dashboard"), right
    )
    counts = "SELECT finished_trials, stopped, failed FROM cerebro.searches WHERE run_id = %s"
    assert sql.row(counts, (run_id,)) == (0, 2, 1)
    with patch.dict(os.environ, COLUMNS="150"):
        done = command("watch", "--dsn", sql.dsn, "--once", run_id)
    assert "6 trials: 1 training, 2 waiting, 2 stopped, 1 failed" in done.stdout
    rows = [line.split()[2] for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert sorted(rows[-6:]) == sorted(right.values())
    # Nobody drives it any more.
    sql.run("UPDATE cerebro._runs SET status = 'paused' WHERE run_id = %s", (run_id,))
    stopped = {key: "failed" if key == 3 else "stopped" for key in right}
    assert statuses(sql, run_id) == dict.fromkeys(
        ("_statuses", "trials", "leaderboard", "dashboard"), stopped
    )


def test_every_status_has_its_place() -> None:
    """Who shows or exports statuses knows all of them."""
    assert list(pictures.STATUSES) == list(statuses_.CONFIGURATIONS)
    assert studies.STATES.keys() == statuses_.CONFIGURATIONS.keys()
    assert set(statuses_.WITH_MODEL) < statuses_.CONFIGURATIONS.keys()
    assert set(statuses_.GOING_ON) < set(statuses_.RUNS)


def test_bracket_and_rung_are_of_one_decision(sql: Any) -> None:
    """A trial that goes on in another bracket is in its first rung, and in none of the two before."""
    run_id = begin(sql, ACCURACY)
    add(sql, run_id, 1, 1)
    for number, place in ((2, (2, 1)), (3, (1, 0))):
        detail = json.dumps({"bracket": place[0], "rung": place[1]})
        sql.run(DECISION, (run_id, number, 1, "promote", 3, None, None, "", "", detail))
    sql.run(DECISION, (run_id, 4, 1, "stop", 3, None, None, "", "ann", "{}"))
    place = "SELECT bracket, rung FROM cerebro.trials WHERE run_id = %s"
    assert sql.row(place, (run_id,)) == (1, 0)


def test_scoring_is_not_idle(sql: Any) -> None:
    """Ten seconds: six in hops, one with nothing to do, and three in scans; before its first hop nothing counts."""
    run_id = begin(sql, ACCURACY)
    add(sql, run_id, 1, 1)
    for epoch, (began, ended, waited) in enumerate([(0, 2, 50), (2, 4, 0), (8, 10, 1)], 1):
        sql.run(HOP, (run_id, 1, epoch, 0, 3, began, ended, waited))
    times = (
        "SELECT worker, hops, busy, waited, seconds FROM cerebro._worker_times WHERE run_id = %s"
    )
    assert sql.row(times, (run_id,)) == (3, 3, 6.0, 1.0, 10.0)
    source = SimpleNamespace(run=lambda query, values=(): sql.fetch(query, values))
    (worker,) = view_of(source, run_id, 10).workers
    assert (worker.idle, worker.scoring) == (pytest.approx(0.1), pytest.approx(0.3))
    found = report.work(reading.hops(source, run_id), reading.worker_times(source, run_id))
    assert (found["idle"], found["scoring"]) == ([0.1], [0.3])


def test_a_fit_is_no_search(sql: Any) -> None:
    run_id = sql.value(RUN, (None,))
    sql.run(CONFIGURATION, (run_id, 1, "finished", 1))
    assert sql.fetch("SELECT * FROM cerebro.trials") == []
    assert sql.fetch("SELECT * FROM cerebro.searches") == []


class TestBest:
    """cerebro_best makes a table of configurations from what the view tells."""

    def test_the_best_keep_their_keys(self, sql: Any, search: int) -> None:
        assert sql.value("SELECT cerebro.cerebro_best(%s, 2, 'best')", (search,)) == "public.best"
        assert sql.fetch("SELECT * FROM best ORDER BY mst_key") == [(2, 1, "", ""), (3, 1, "", "")]
        assert sql.value("SELECT model_arch_table FROM best_summary") == "models"
        with pytest.raises(psycopg2.errors.DuplicateTable, match="best exists already"):
            sql.fetch("SELECT cerebro.cerebro_best(%s, 1, 'best')", (search,))
        sql.fetch("SELECT cerebro.cerebro_best(%s, 1, 'best', replace := true)", (search,))
        assert sql.column("SELECT mst_key FROM best") == [2]

    def test_beside_the_output_by_default(self, sql: Any, search: int) -> None:
        assert sql.value("SELECT cerebro.cerebro_best(%s)", (search,)) == "public.out_best"
        assert sql.column("SELECT mst_key FROM out_best") == [2]

    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            ("NULL", "42704", "run_id: got NULL"),
            ("-1", "42704", "run_id: got -1"),
            ("%(run)s, 0", "22023", "n: got 0; allowed: 1 to"),
            ("%(run)s, 1, ''", "22023", "model_selection_table: got ''"),
            ("%(fit)s", "22023", "which is no search; allowed: a run of cerebro.cerebro_search"),
            ("%(empty)s", "22023", "of which no trial has been measured yet"),
        ],
    )
    def test_bad_input(self, sql: Any, search: int, arguments: str, code: str, told: str) -> None:
        runs = {"run": search, "fit": sql.value(RUN, (None,)), "empty": begin(sql, ACCURACY)}
        with pytest.raises(psycopg2.Error, match=told) as caught:
            sql.fetch(f"SELECT cerebro.cerebro_best({arguments % runs})")
        assert caught.value.pgcode == code
        assert caught.value.diag.message_hint


class TestWatch:
    """cerebro watch shows what is in which rung."""

    def watch(self, sql: Any, run_id: int) -> subprocess.CompletedProcess[str]:
        with patch.dict(os.environ, COLUMNS="150"):
            return command("watch", "--dsn", sql.dsn, run_id)

    def test_a_search_that_has_ended(self, sql: Any, search: int) -> None:
        done = self.watch(sql, search)
        assert (done.returncode, done.stderr) == (0, "")
        told = "hyperband · finished · 3 trials: 2 finished, 1 stopped · best 0.9, trial 2"
        assert f"run {search} views · {told}" in done.stdout
        assert "stop 3: hopeless" in done.stdout

    def test_what_is_no_search_has_no_rungs(self, sql: Any) -> None:
        done = self.watch(sql, sql.value(RUN, (None,)))
        assert (done.returncode, done.stderr) == (0, "")
        assert "finished · 0 configurations: none" in done.stdout
        assert "rung" not in done.stdout

    def test_what_is_not_there(self, sql: Any) -> None:
        done = self.watch(sql, 4711)
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "cerebro: run_id: got 4711; you have no run of that number",
            "HINT: cerebro.runs shows your runs",
        ]


SPACE = {
    "model_ids": [1], "fit_params_grid": "{'batch_size': [8, 64, 'linear']}",
    "compile_params_grid": "{'loss': ['mse', 'mae'], 'optimizer_params_list': [{'optimizer': ['SGD'], "
    "'lr': [0.01, 1.0, 'log']}]}",
}  # fmt: skip


@pytest.fixture
def drawn(sql: Any) -> int:
    """A search in which nothing but the batch size matters; two trials of it went further."""
    run_id = begin(sql, ACCURACY, space=SPACE)
    for key in range(1, 21):
        parameters = {
            "model_id": 1, "optimizer": "SGD", "batch_size": 8 + 7 * key % 56,
            "lr": 0.01 * (1 + 13 * key % 97), "loss": ["mse", "mae"][key % 3 % 2],
        }  # fmt: skip
        status = "failed" if key == 20 else "finished" if key in (1, 2) else "stopped"
        add(sql, run_id, 1, key, parameters=parameters, status=status)
        measure(sql, run_id, key, 1, parameters["batch_size"] / 100)
    for key in (1, 2):
        measure(sql, run_id, key, 3, 0.99)
    sql.run(HOP, (run_id, 1, 1, 0, 0, 5, 6, 0))
    sql.run(HOP, (run_id, 1, 3, 0, 0, 20, 25, 0))
    # Somebody has added one that is of no space.
    add(sql, run_id, 2, 21, status="stopped")
    measure(sql, run_id, 21, 1, 0.5)
    return run_id


class TestImportance:
    """cerebro_importance compares trials after an epoch that most of them have."""

    def test_what_matters(self, sql: Any, drawn: int) -> None:
        rows = sql.fetch("SELECT * FROM cerebro.cerebro_importance(%s)", (drawn,))
        assert rows[0][0] == "batch_size"
        assert {name for name, _, _ in rows} == {"batch_size", "loss", "lr"}
        assert sum(value for _, value, _ in rows) == pytest.approx(1.0)
        assert {count for _, _, count in rows} == {20}
        assert rows == sql.fetch(
            "SELECT * FROM cerebro.cerebro_importance(%s, 'val_accuracy', 1)", (drawn,)
        )
        late = sql.fetch("SELECT * FROM cerebro.cerebro_importance(%s, epoch := 3)", (drawn,))
        assert {row[1:] for row in late} == {(0.0, 2)}  # both have the same value there

    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            ("-1", "42704", "run_id: got -1"),
            ("%(run)s, 'val_acuracy'", "22023", "objective: got 'val_acuracy'; allowed: val_accuracy"),
            ("%(run)s, NULL, 0", "22023", "epoch: got 0; allowed: 1 to"),
            ("%(run)s, NULL, 2", "22023", "of which 0 trials of its space were measured after epoch 2"),
            ("%(empty)s", "22023", "of which 0 trials of its space"),
        ],
    )  # fmt: skip
    def test_bad_input(self, sql: Any, drawn: int, arguments: str, code: str, told: str) -> None:
        runs = {"run": drawn, "empty": begin(sql, ACCURACY)}
        with pytest.raises(psycopg2.Error, match=told) as caught:
            sql.fetch(f"SELECT * FROM cerebro.cerebro_importance({arguments % runs})")
        assert caught.value.pgcode == code
        assert caught.value.diag.message_hint


class TestStudy:
    """cerebro optuna-study writes what Optuna reads."""

    def write(self, sql: Any, run_id: int, file: Path) -> subprocess.CompletedProcess[str]:
        return command("optuna-study", "--dsn", sql.dsn, run_id, file)

    @pytest.mark.parametrize("name", ["study.db", "study.log"])
    def test_a_storage(self, sql: Any, drawn: int, tmp_path: Path, name: str) -> None:
        file = tmp_path / name
        done = self.write(sql, drawn, file)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{file}: 21 trials of run {drawn}\n"
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        storage = (
            f"sqlite:///{file}" if name.endswith(".db") else optuna.storages.JournalStorage(backend)
        )
        (told,) = optuna.get_all_study_summaries(storage)
        assert told.study_name == "views"
        study = optuna.load_study(study_name="views", storage=storage)
        assert study.direction.name == "MAXIMIZE"
        assert study.metric_names == ["val_accuracy"]
        assert study.best_value == 0.99
        assert len(study.trials) == 21
        # Two came to the last of nine epochs; the others were stopped after the first.
        states = [one.state.name for one in study.trials]
        assert (states.count("COMPLETE"), states.count("PRUNED")) == (2, 18)
        first = study.trials[0]
        zone = datetime.now().astimezone().tzinfo
        began = datetime(2026, 1, 2, 3, 0, 5, tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        assert first.datetime_start == began
        assert first.duration == timedelta(seconds=20)
        assert first.intermediate_values == {1: 0.15, 3: 0.99}
        assert first.params == {"batch_size": 15, "lr": 0.14, "loss": "mae"}
        assert first.user_attrs["mst_key"] == 1
        assert study.trials[19].state.name == "FAIL"
        assert study.trials[20].params == {}
        again = self.write(sql, drawn, file)
        assert again.returncode == 1
        assert "which exists; allowed: a new one" in again.stderr

    @pytest.mark.parametrize(
        ("file", "told"),
        [("study.txt", "allowed: a name that ends in .db"), ("no/such/study.db", "its folder")],
    )
    def test_wrong_files(self, sql: Any, drawn: int, tmp_path: Path, file: str, told: str) -> None:
        done = self.write(sql, drawn, tmp_path / file)
        assert done.returncode == 1
        assert told in done.stderr


def test_a_thousand_trials_are_read_at_once(sql: Any) -> None:
    """As many as a large search has, each measured after four epochs, among other runs as large."""
    for _ in range(3):
        run_id = begin(sql, ACCURACY)
        sql.run(
            "INSERT INTO cerebro._configurations (run_id, mst_key, model_id, compile_params, "
            "fit_params, hop_seconds, initial_seed, jit, steps_per_call, goal, status, budget) "
            "SELECT %s, k, 1, '', '', 1, 1, false, 1, 'max', 'finished', 4 FROM generate_series(1, 1000) k",
            (run_id,),
        )
        sql.run(
            "INSERT INTO cerebro._decisions (run_id, number, mst_key, action, epochs, reason, detail) "
            "SELECT %s, n * 1000 + k, k, CASE n WHEN 0 THEN 'add' ELSE 'promote' END, 1 + n, '', "
            """format('{"bracket": 1, "rung": %%s, "parameters": {"lr": %%s}}', n, k)::jsonb """
            "FROM generate_series(1, 1000) k, generate_series(0, 2) n",
            (run_id,),
        )
        sql.run(
            "INSERT INTO cerebro._metrics (run_id, mst_key, epoch, dataset, loss, metric_names, metrics, "
            "elapsed) SELECT %s, k, e, d, 1, ARRAY['accuracy'], ARRAY[k / 1000.0], 1 FROM generate_series(1, 1000) k, "
            "generate_series(1, 4) e, unnest(ARRAY['training', 'validation']) d",
            (run_id,),
        )
    sql.run(
        "ANALYZE cerebro.catalog_metrics; ANALYZE cerebro.catalog_decisions; ANALYZE cerebro.catalog_configurations"
    )
    for query in (
        "SELECT count(*), max(rung) FROM cerebro.trials WHERE run_id = %s",
        "SELECT trials, 2 FROM cerebro.searches WHERE run_id = %s",
    ):
        began = time.monotonic()
        assert sql.row(query, (run_id,)) == (1000, 2)
        assert time.monotonic() - began < stretched(2)
