"""Other sessions add, stop, clone and narrow while a search goes on; each is a decision with a name."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from commands import command
from pace import stretched

from tests.fitting.conftest import ADAM
from tests.fitting.test_progress import Background, until
from tests.fitting.test_search_sql import COMPILE, FIT, PROGRAM

LONG = (
    "SELECT cerebro_search('packed', 'led', 'models', NULL, ARRAY[1, 2], %s, %s, 'random', "
    "'num_configs=400, num_iterations=40', validation_table := 'val', objective := 'val_accuracy', "
    "concurrency := 2, name := 'led')"
)
MEASURED = "SELECT count(*) > 0 FROM cerebro.hops WHERE run_id = %s AND mst_key = %s AND epoch > 1"
DECIDED = (
    "SELECT mst_key, action, epochs, source, decided_by FROM cerebro.decisions "
    "WHERE run_id = %s AND decided_by IS NOT NULL ORDER BY number, mst_key"
)


@pytest.fixture(autouse=True)
def no_states_stay() -> None:
    """Those of the search stay as long as it goes on; it is dropped at the end."""


@pytest.fixture(scope="module")
def going_on(bench: Any) -> Iterator[int]:
    """A search that goes on while these tests do."""

    background = Background(bench.dsn, LONG, (COMPILE, FIT))
    begun = "SELECT (SELECT run_id FROM cerebro.searches WHERE name = 'led' AND epochs >= 2)"
    run_id = int(until(bench, begun))
    yield run_id
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "running"
    bench.run("SELECT cerebro.cerebro_cancel(%s)", (run_id,))
    background.join()
    bench.run("SELECT cerebro.cerebro_drop_run(%s)", (run_id,))


def trial(bench: Any, run_id: int, mst_key: int) -> dict[str, Any]:
    """A row of cerebro.trials."""
    names = ("status", "budget", "compile_params", "fit_params", "decided_by", "action", "model_id")
    query = f"SELECT {', '.join(names)} FROM cerebro.trials WHERE run_id = %s AND mst_key = %s"
    return dict(zip(names, bench.row(query, (run_id, mst_key)), strict=True))


def test_configurations_join(bench: Any, going_on: int) -> None:
    keys = bench.value(
        "SELECT cerebro_add_configs(%s, ARRAY[1, 2], ARRAY[%s], ARRAY['batch_size=4'], 2)",
        (going_on, ADAM),
    )
    assert len(keys) == 2
    found = [trial(bench, going_on, key) for key in keys]
    assert [one["model_id"] for one in found] == [1, 2]
    assert {one["compile_params"] for one in found} == {ADAM}
    assert {(one["budget"], one["decided_by"], one["action"]) for one in found} <= {
        (2, bench.value("SELECT current_user"), "add"),
        (2, None, "stop"),
    }
    done = "SELECT min(epoch) = 2 FROM cerebro.trials WHERE run_id = %s AND mst_key = ANY (%s)"
    until(bench, done, (going_on, keys))


def long_trial(bench: Any, run_id: int) -> int:
    """A configuration that joins the search, and trains until somebody stops it."""
    add = "SELECT (cerebro_add_configs(%s, ARRAY[1], ARRAY[%s], ARRAY['batch_size=8'], 100000))[1]"
    key = int(bench.value(add, (run_id, ADAM)))
    training = "SELECT status = 'training' FROM cerebro.trials WHERE run_id = %s AND mst_key = %s"
    until(bench, training, (run_id, key))
    return key


def test_a_trial_is_stopped(bench: Any, going_on: int) -> None:
    key = long_trial(bench, going_on)
    status = bench.value("SELECT cerebro_stop_config(%s, %s)", (going_on, key))
    assert status == trial(bench, going_on, key)["status"]
    assert status in ("stopped", "cancelled")
    with pytest.raises(psycopg2.Error, match=f"mst_key: got {key}; allowed") as caught:
        bench.value("SELECT cerebro_stop_config(%s, %s)", (going_on, key))
    assert caught.value.pgcode == "22023"


def test_a_trial_is_cloned(bench: Any, going_on: int) -> None:
    source = long_trial(bench, going_on)
    until(bench, MEASURED, (going_on, source))
    key = bench.value("SELECT cerebro_clone(%s, %s, 'lr=0.0625, batch_size=5')", (going_on, source))
    found = trial(bench, going_on, key)
    assert "lr=0.0625" in found["compile_params"]
    assert "batch_size=5" in found["fit_params"]
    assert (key, "clone", source) in [
        (row[0], row[1], row[3]) for row in bench.fetch(DECIDED, (going_on,))
    ]
    bench.value("SELECT cerebro_stop_config(%s, %s)", (going_on, source))


def test_the_space_becomes_smaller(bench: Any, going_on: int) -> None:
    bench.run(
        "SELECT cerebro_narrow(%s, ARRAY[2], fit_params_grid := '{''batch_size'': [16]}')",
        (going_on,),
    )
    number = "SELECT number FROM cerebro.decisions WHERE run_id = %s AND action = 'narrow'"
    after = bench.value(number, (going_on,))
    later = "SELECT count(*) >= 3 FROM cerebro.decisions WHERE run_id = %s AND action = 'add' AND number > %s"
    until(bench, later, (going_on, after))
    rows = bench.fetch(
        "SELECT DISTINCT t.model_id, t.fit_params FROM cerebro.trials t JOIN cerebro.decisions d "
        "USING (run_id, mst_key) WHERE t.run_id = %s AND d.action = 'add' AND d.number > %s",
        (going_on, after),
    )
    assert rows == [(2, "batch_size=16")]


WRONG = (
    ("cerebro_add_configs(-1, ARRAY[1], ARRAY['{adam}'], ARRAY[''])", "42704", "run_id: got -1"),
    ("cerebro_add_configs({run}, NULL, ARRAY['{adam}'], ARRAY[''])", "22023", "got no model"),
    ("cerebro_add_configs({run}, ARRAY[9], ARRAY['{adam}'], ARRAY[''])", "22023", "9"),
    ("cerebro_add_configs({run}, ARRAY[1], ARRAY['loss=3'], ARRAY[''])", "22023", "without optimizer"),
    ("cerebro_add_configs({run}, ARRAY[1], ARRAY['{adam}'], ARRAY['batch=1'])", "22023", "batch_size"),
    ("cerebro_add_configs({run}, ARRAY[1], ARRAY['{adam}'], ARRAY[''], 0)", "22023", "num_iterations: got 0"),
    ("cerebro_add_configs({run}, ARRAY[1], ARRAY['loss=''sparse_categorical_crossentropy'',optimizer=''Adam'''], ARRAY[''])", "22023", "without 'val_accuracy'"),
    ("cerebro_add_configs({run}, ARRAY[1], ARRAY['{adam}'], ARRAY['callbacks=[TensorBoard(log_dir=''a'')]'])", "22023", "TensorBoard: got a configuration that writes files"),
    ("cerebro_stop_config(-1, 1)", "42704", "run_id: got -1"),
    ("cerebro_stop_config({run}, NULL)", "22023", "mst_key: got NULL"),
    ("cerebro_stop_config({run}, -7)", "22023", "mst_key: got -7"),
    ("cerebro_clone(-1, 1)", "42704", "run_id: got -1"),
    ("cerebro_clone({run}, NULL)", "22023", "mst_key: got NULL"),
    ("cerebro_clone({run}, -7)", "22023", "mst_key: got -7"),
    ("cerebro_clone({run}, 1, NULL)", "22023", "changes: got NULL"),
    ("cerebro_clone({run}, 1, 'batch_sise=3')", "22023", "Did you mean 'batch_size'"),
    ("cerebro_clone({run}, 1, '', 0)", "22023", "num_iterations: got 0"),
    ("cerebro_clone({run}, 1, 'metrics=[''mae'']')", "22023", "without 'val_accuracy'"),
    ("cerebro_narrow(-1, ARRAY[1])", "42704", "run_id: got -1"),
    ("cerebro_narrow({run})", "22023", "got nothing that changes"),
    ("cerebro_narrow({run}, ARRAY[9])", "22023", "9"),
    ("cerebro_narrow({run}, ARRAY[]::int[])", "22023", "got no model"),
    ("cerebro_narrow({run}, NULL, '{{}}')", "22023", "optimizer_params_list"),
    ("cerebro_narrow({run}, NULL, '{{''loss'': [''sparse_categorical_crossentropy''], ''optimizer_params_list'': [{{''optimizer'': [''Adam'']}}]}}')", "22023", "without 'val_accuracy'"),
    ("cerebro_narrow({run}, NULL, NULL, '{{''batch_sise'': [3]}}')", "22023", "Did you mean 'batch_size'"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "code", "told"), WRONG)
def test_wrong_requests(bench: Any, going_on: int, call: str, code: str, told: str) -> None:
    before = bench.value("SELECT count(*) FROM cerebro.decisions WHERE decided_by IS NOT NULL")
    with pytest.raises(psycopg2.Error, match=told) as caught:
        bench.value(f"SELECT {call.format(run=going_on, adam=ADAM.replace(chr(39), chr(39) * 2))}")
    assert caught.value.pgcode == code
    assert caught.value.diag.message_hint
    assert (
        bench.value("SELECT count(*) FROM cerebro.decisions WHERE decided_by IS NOT NULL") == before
    )


GARBAGE = (
    ("stop", 3, '[]'), ("stop", 3, '"x"'), ("stop", None, "{}"), ("clone", None, "{}"),
    ("clone", 1, '{"compile_params": 3}'), ("clone", 1, '{"compile_params": "("}'),
    ("add", None, "{}"), ("add", None, '{"rows": [[1]]}'), ("add", None, '{"rows": [[1, "", "", null]]}'),
    ("add", None, '{"rows": [[1, "f(f(", "=", 1]]}'), ("narrow", None, "3"), ("narrow", None, "{}"),
    ("narrow", None, '{"model_ids": [], "compile_params_grid": "{}", "fit_params_grid": "{}"}'),
    ("cancel", -7, "{}"), ("pause", 3, "{}"), ("stop", 3, "9" * 5000), ("stop", 3, "[" * 4000 + "]" * 4000),
)  # fmt: skip


def test_what_is_no_request_is_refused_and_ends_nothing(bench: Any, going_on: int) -> None:
    """Whoever owns a run may write anything where requests are."""
    ids = [
        bench.value(
            "INSERT INTO cerebro._requests (run_id, action, mst_key, detail) VALUES (%s, %s, %s, %s) "
            "RETURNING request_id",
            (going_on, *one),
        )
        for one in GARBAGE
    ]
    answered = "SELECT count(*) = %s FROM cerebro._requests WHERE request_id = ANY (%s) AND answer IS NOT NULL"
    until(bench, answered, (len(ids), ids))
    answers = bench.column(
        "SELECT answer ->> 'error' FROM cerebro._requests WHERE request_id = ANY (%s) ORDER BY request_id",
        (ids,),
    )
    assert all("got" in one for one in answers), answers
    bench.run("DELETE FROM cerebro._requests WHERE request_id = ANY (%s)", (ids,))


def test_a_narrower_space_must_not_speak_of_other_models(bench: Any, going_on: int) -> None:
    grid = COMPILE.replace(
        "{'loss'", "{'model_params_list': [{'model_id': [2], 'l2': [0.1, 0.2]}], 'loss'", 1
    )
    bench.run("SELECT cerebro_narrow(%s, ARRAY[1, 2], %s)", (going_on, grid))
    with pytest.raises(psycopg2.Error, match="model_params_list: got the model_id 2") as caught:
        bench.run("SELECT cerebro_narrow(%s, ARRAY[1])", (going_on,))
    assert "give compile_params_grid" in caught.value.diag.message_hint
    bench.run("SELECT cerebro_narrow(%s, ARRAY[1], %s)", (going_on, COMPILE))


def cli(bench: Any, *arguments: object) -> subprocess.CompletedProcess[str]:
    name, *rest = arguments
    return command(name, "--dsn", bench.dsn, *rest)


def test_the_command_line_steers(bench: Any, going_on: int) -> None:
    added = cli(
        bench, "add-configs", going_on, "--model-id", 1, "--compile-params", ADAM, "--fit-params",
        "batch_size=3", "--num-iterations", 100_000,
    )  # fmt: skip
    assert (added.returncode, added.stderr) == (0, "")
    key = int(added.stdout.split("trials ")[1].split()[0])
    assert trial(bench, going_on, key)["fit_params"] == "batch_size=3"
    until(bench, MEASURED, (going_on, key))
    cloned = cli(bench, "clone", going_on, key, "lr=0.03125", "--num-iterations", 1)
    assert (cloned.returncode, cloned.stderr) == (0, "")
    copy = int(cloned.stdout.split("trial ")[1].split()[0])
    assert "lr=0.03125" in trial(bench, going_on, copy)["compile_params"]
    stopped = cli(bench, "stop-config", going_on, key)
    assert stopped.stdout == f"run {going_on}: trial {key} is stopped\n"
    narrowed = cli(bench, "narrow", going_on, "--fit-params-grid", "{'batch_size': [16]}")
    assert (narrowed.returncode, narrowed.stderr) == (0, "")
    narrow = "SELECT decided_by FROM cerebro.decisions WHERE run_id = %s AND action = 'narrow'"
    assert bench.column(narrow, (going_on,))
    wrong = cli(bench, "stop-config", going_on, -7 + 1_000_000)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("cerebro: mst_key: got 999993; allowed")


@pytest.mark.parametrize(
    "call",
    ["cerebro_add_configs({}, ARRAY[1], ARRAY['loss=''mse'',optimizer=''Adam'''], ARRAY[''])",
     "cerebro_stop_config({}, 1)", "cerebro_clone({}, 1)", "cerebro_narrow({}, ARRAY[1])"],
)  # fmt: skip
def test_only_a_search_that_goes_on(bench: Any, call: str) -> None:
    bench.run(
        "SELECT cerebro_search('packed', 'over_' || md5(%s), 'models', NULL, ARRAY[1, 2], %s, %s, "
        "'random', 'num_configs=1, num_iterations=1', name := %s)",
        (call, COMPILE, FIT, call),
    )
    run_id = bench.value("SELECT run_id FROM cerebro.searches WHERE name = %s", (call,))
    with pytest.raises(psycopg2.Error, match=f"got {run_id}, which is finished") as caught:
        bench.value(f"SELECT {call.format(run_id)}")
    assert caught.value.pgcode == "55000"
    assert "automl_params), with a larger budget" in caught.value.diag.message_hint
    fit = bench.value(
        "SELECT cerebro_fit_multiple('packed', 'fit_' || md5(%s), 'configs', 1)", (call,)
    )
    with pytest.raises(psycopg2.Error, match=f"got {fit}, which is no search") as caught:
        bench.value(f"SELECT {call.format(fit)}")
    assert caught.value.pgcode == "22023"


def test_somebody_watches_and_goes_away(bench: Any, going_on: int) -> None:
    """Ctrl-C ends the view, and not the search."""
    # A shell may have started the tests such that SIGINT is ignored, which is inherited.
    process = subprocess.Popen(
        ["/usr/bin/env", "--default-signal=INT", PROGRAM, "watch", "--dsn", bench.dsn, str(going_on)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "150"},
    )  # fmt: skip
    # It shows what it has found before it looks again.
    looks = (
        "SELECT string_agg(query_start::text, '') FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND query ~ 'cerebro.trials WHERE run_id'"
    )
    first = until(bench, looks)
    until(bench, f"SELECT ({looks}) <> %s", (first,))
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=stretched(60))
    assert (process.returncode, errors) == (130, "")
    assert f"run {going_on} led · random · running" in shown
    assert (
        bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (going_on,)) == "running"
    )


def test_an_administrator_steers_searches_of_others(bench: Any, going_on: int) -> None:
    """The decision tells who asked for it."""
    bench.run("CREATE ROLE steerer LOGIN IN ROLE cerebro_admin")
    key = long_trial(bench, going_on)
    bench.run("SET ROLE steerer")  # segments know of the role when it is committed
    try:
        bench.value("SELECT cerebro.cerebro_stop_config(%s, %s)", (going_on, key))
    finally:
        bench.run("RESET ROLE")
    assert trial(bench, going_on, key)["decided_by"] == "steerer"
    bench.run("DROP ROLE steerer")


POPULATION = (
    "SELECT cerebro_search('packed', 'narrowed_pbt', 'models', NULL, ARRAY[1, 2], %s, %s, 'pbt', "
    "'population=4, num_iterations=2000, quantile=0.5', validation_table := 'val', concurrency := 4, "
    "name := 'narrowed_pbt')"
)


def test_a_population_outlives_a_space_without_its_members(bench: Any) -> None:
    """The space keeps no optimizer that a member has, and a configuration that it does not have joins."""
    background = Background(bench.dsn, POPULATION, (COMPILE, FIT))
    begun = (
        "SELECT (SELECT run_id FROM cerebro.searches WHERE name = 'narrowed_pbt' AND epochs >= 4)"
    )
    run_id = int(until(bench, begun))
    grid = COMPILE[: COMPILE.index("'optimizer_params_list'")] + (
        "'optimizer_params_list': [{'optimizer': ['RMSprop'], 'lr': [0.001, 0.002, 'log']}]}"
    )
    bench.run("SELECT cerebro_narrow(%s, NULL, %s, %s)", (run_id, grid, "{'batch_size': [32]}"))
    adagrad = ADAM.replace("Adam(", "Adagrad(")
    bench.run(
        "SELECT cerebro_add_configs(%s, ARRAY[1], ARRAY[%s], ARRAY['batch_size=4'])",
        (run_id, adagrad),
    )
    number = "SELECT max(number) FROM cerebro.decisions WHERE run_id = %s AND action IN ('narrow', 'add')"
    after = bench.value(number, (run_id,))
    copies = "SELECT count(*) >= 3 FROM cerebro.decisions WHERE run_id = %s AND action = 'clone' AND number > %s"
    until(bench, copies, (run_id, after))
    rows = bench.fetch(
        "SELECT DISTINCT t.compile_params ~ 'RMSprop', t.fit_params FROM cerebro.trials t "
        "JOIN cerebro.decisions d USING (run_id, mst_key) "
        "WHERE t.run_id = %s AND d.action = 'clone' AND d.number > %s",
        (run_id, after),
    )
    assert rows == [(True, "batch_size=32")]
    bench.run("SELECT cerebro.cerebro_cancel(%s)", (run_id,))
    background.join()
    bench.run("SELECT cerebro.cerebro_drop_run(%s)", (run_id,))
