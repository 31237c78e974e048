"""Calls that go on without their session: queue, order, cancel, priorities, and what is told of them."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from pace import stretched, until
from reasons import NOBODY_TELLS
from servers import connected

from tests.fitting.conftest import ADAM

Weights = Callable[[str], dict[int, bytes]]
FIT = "SELECT cerebro_fit_multiple('packed', %s, 'configs', %s, validation_table := 'val', wait := false, priority := %s)"


@pytest.fixture
def submit(bench: Any) -> Iterator[Callable[..., int]]:
    """Submits a run; what is left of it at the end is cancelled and dropped."""
    runs: list[int] = []

    def run(out: str, epochs: int = 1, priority: int = 0) -> int:
        # In a session of its own, which ends at once.
        with closing(connected(bench.dsn)) as connection, connection.cursor() as cursor:
            cursor.execute(FIT, (out, epochs, priority))
            runs.append(cursor.fetchone()[0])
        return runs[-1]

    yield run
    there = bench.column("SELECT run_id FROM cerebro.runs WHERE run_id = ANY (%s)", (runs,))
    for run_id in there:
        for job_id in bench.column(
            "SELECT job_id FROM cerebro.jobs WHERE run_id = %s AND finished IS NULL", (run_id,)
        ):
            bench.run("SELECT cerebro_cancel_job(%s)", (job_id,))
        bench.run("SELECT cerebro_wait(%s, '900 s')", (run_id,))
        bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


@pytest.fixture
def setting(bench: Any) -> Iterator[Callable[[str, object], None]]:
    """Sets a setting for a test."""
    names = []

    def change(name: str, value: object) -> None:
        names.append(name)
        bench.run("SELECT cerebro_set(%s, %s)", (name, str(value)))

    yield change
    for name in names:
        bench.run("SELECT cerebro_set(%s, NULL)", (name,))
    bench.run("SELECT cerebro._start_jobs()")


def job_of(sql: Any, run_id: int, columns: str = "job_id") -> Any:
    """Columns of the job of a run."""
    row = sql.row(f"SELECT {columns} FROM cerebro.jobs WHERE run_id = %s", (run_id,))
    return row if len(row) > 1 else row[0]


def test_a_run_goes_on_without_its_session_and_ends_alike(
    bench: Any, submit: Any, weights: Weights, fit: Any
) -> None:
    run_id = submit("job_alike", 2)
    assert bench.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
    plain, _ = fit(epochs=2, validation_table="val")
    assert weights("job_alike") == weights(plain)
    status, call, attempts, error = job_of(bench, run_id, "status, call, attempts, error")
    assert (status, call, attempts, error) == ("finished", "cerebro_fit_multiple", 1, None)
    log = bench.column(
        "SELECT action FROM cerebro.job_log WHERE run_id = %s OR job_id = %s ORDER BY logged",
        (run_id, job_of(bench, run_id)),
    )
    assert [one for one in log if one != "told"] == ["run", "queued", "started", "done", "finished"]
    told = bench.column("SELECT message FROM cerebro.job_log WHERE action = 'told' ORDER BY logged")
    assert any(line.startswith("epoch 2 of 2: 4 configurations") for line in told)


def test_what_is_wrong_is_reported_before_the_call_returns(bench: Any, submit: Any) -> None:
    jobs, runs = (bench.value(f"SELECT count(*) FROM cerebro.{one}") for one in ("jobs", "runs"))
    for query, error in {
        "SELECT cerebro_fit_multiple('packed', 'o', 'none_such', 1, wait := false)": "42P01",
        "SELECT cerebro_fit_multiple('packed', 'o', 'configs', 0, wait := false)": "22023",
        "SELECT cerebro_fit_multiple('packed', 'o', 'configs', 1, wait := false, priority := 101)": "22023",
        f"SELECT cerebro_fit('packed', 'o', 'models', 9, $${ADAM}$$, '', 1, wait := false)": "22023",
        "SELECT cerebro_search('packed', 'o', 'models', NULL, ARRAY[1], '{', '{}', wait := false)": "22023",
        "SELECT cerebro_predict('none_such', 'blobs', 'id', 'x', 'o', wait := false)": "42P01",
        "SELECT cerebro_resume(999999999, wait := false)": "42704",
        "SELECT cerebro_wait(999999999)": "42704",
        "SELECT cerebro_wait_job(999999999)": "42704",
        "SELECT cerebro_cancel_job(999999999)": "42704",
        "SELECT cerebro_wait(1, '-1 s')": "22023",
    }.items():
        with pytest.raises(psycopg2.Error) as refused:
            bench.run(query)
        assert refused.value.pgcode == error, query
    assert bench.value("SELECT count(*) FROM cerebro.jobs") == jobs
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs


def test_jobs_wait_for_their_turn(
    bench: Any, submit: Any, setting: Any, has_segments: bool
) -> None:
    setting("max_jobs", 1)
    first = submit("job_first", 2000)
    until(lambda: job_of(bench, first, "status") == "running")
    low, high = submit("job_low", 1, -5), submit("job_high", 1, 5)
    assert job_of(bench, low, "status, place") == ("queued", 2)
    assert job_of(bench, high, "status, place") == ("queued", 1)
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (high,)) == "queued"
    assert bench.value("SELECT cerebro_wait(%s, '0.1 s')", (low,)) == "queued"
    hops = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s"
    until(lambda: bench.value(hops, (first,)))
    if has_segments:  # where nobody computes it
        assert job_of(bench, high, "estimated_start") is None
    else:
        until(lambda: job_of(bench, high, "estimated_start") is not None)
    # The driver of an ended job starts the next one.
    assert bench.value("SELECT cerebro_cancel(%s)", (first,)) == "cancelled"
    assert [bench.value("SELECT cerebro_wait(%s, '900 s')", (one,)) for one in (low, high)] == [
        "finished",
        "finished",
    ]
    assert job_of(bench, first, "status") == "cancelled"
    started = [job_of(bench, one, "started") for one in (high, low)]
    assert started == sorted(started)


def test_what_waits_can_be_cancelled_and_resumed(
    bench: Any, submit: Any, setting: Any, weights: Weights, fit: Any
) -> None:
    setting("max_jobs", 0)
    run_id = submit("job_waits")
    with pytest.raises(psycopg2.Error, match="which is queued; allowed: a run that is"):
        bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert bench.value("SELECT cerebro_cancel(%s)", (run_id,)) == "cancelled"
    assert job_of(bench, run_id, "status") == "cancelled"
    assert bench.value("SELECT cerebro_resume(%s, wait := false)", (run_id,)) == run_id
    job_id = bench.value("SELECT max(job_id) FROM cerebro.jobs WHERE run_id = %s", (run_id,))
    assert bench.value("SELECT cerebro_cancel_job(%s)", (job_id,)) == "cancelled"
    assert (
        bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "cancelled"
    )
    bench.run("SELECT cerebro_resume(%s, wait := false)", (run_id,))
    setting("max_jobs", 1)
    assert bench.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
    plain, _ = fit(epochs=1, validation_table="val")
    assert weights("job_waits") == weights(plain)


def test_a_job_under_way_can_be_cancelled_or_paused(bench: Any, submit: Any) -> None:
    one, other = submit("job_cancelled", 2000), submit("job_paused", 2000)
    for run_id in (one, other):
        until(lambda run_id=run_id: bench.value(
            "SELECT count(*) FROM cerebro.hops WHERE run_id = %s", (run_id,)
        ))  # fmt: skip
    assert bench.value("SELECT cerebro_cancel_job(%s)", (job_of(bench, one),)) == "cancelled"
    assert bench.value("SELECT cerebro_pause(%s)", (other,)) == "paused"
    assert bench.value("SELECT cerebro_wait(%s)", (other,)) == "paused"
    assert [job_of(bench, run_id, "status") for run_id in (one, other)] == ["cancelled", "paused"]
    error = bench.value("SELECT error FROM cerebro.runs WHERE run_id = %s", (one,))
    assert error.startswith("cancelled: cancelled by ")


def test_a_model_and_a_search_and_predictions_are_submitted_alike(bench: Any, fit: Any) -> None:
    run = f"'packed', 'job_one', 'models', 1, $${ADAM}$$, 'batch_size=8', 1, wait := false"
    one = bench.value(f"SELECT cerebro_fit({run})")
    compile_grid = (
        "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
        "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.001]}]}"
    )
    search = bench.value(
        "SELECT cerebro_search('packed', 'job_search', 'models', NULL, ARRAY[1], %s, "
        "'{''batch_size'': [8]}', 'grid', 'num_iterations=1', validation_table := 'val', wait := false)",
        (compile_grid,),
    )
    for run_id in (one, search):
        assert bench.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
    columns = "'blobs_test', 'id', 'x'"
    bench.run(f"SELECT cerebro_predict('job_one', {columns}, 'job_waited', 'response')")
    job_id = bench.value(
        f"SELECT cerebro_predict('job_one', {columns}, 'job_predicted', 'response', wait := false)"
    )
    assert bench.value("SELECT cerebro_wait_job(%s, '900 s')", (job_id,)) == "finished"
    both = "SELECT * FROM {} ORDER BY id"
    assert bench.fetch(both.format("job_predicted")) == bench.fetch(both.format("job_waited"))
    assert bench.row("SELECT call, run_id FROM cerebro.jobs WHERE job_id = %s", (job_id,)) == (
        "cerebro_predict",
        None,
    )


def test_a_failed_job_tells_why(bench: Any, submit: Any, setting: Any) -> None:
    setting("max_jobs", 0)
    run_id = submit("job_fails")
    bench.run("CREATE TABLE job_fails (mine int)")
    try:
        setting("max_jobs", 4)
        assert bench.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "failed"
    finally:
        bench.run("DROP TABLE job_fails")
    status, error = job_of(bench, run_id, "status, error")
    assert status == "failed"
    assert "job_fails" in error


@pytest.mark.not_on_segments(NOBODY_TELLS)
def test_who_listens_hears_of_changes(bench: Any, submit: Any) -> None:
    with closing(connected(bench.dsn)) as listener:
        with listener.cursor() as cursor:
            cursor.execute("LISTEN cerebro_runs")
        run_id = submit("job_heard")
        bench.run("SELECT cerebro_wait(%s, '900 s')", (run_id,))
        heard: list[Any] = []
        end = time.monotonic() + stretched(10)
        while len(heard) < 6 and time.monotonic() < end:
            select.select([listener], [], [], 0.2)
            listener.poll()
            heard += [json.loads(one.payload) for one in listener.notifies]
            listener.notifies.clear()
    job_id = job_of(bench, run_id)
    assert {"run_id": run_id} in heard
    assert {"job_id": job_id, "run_id": run_id} in heard
    assert {"job_id": job_id} in heard  # it has started
    assert all(set(one) <= {"job_id", "run_id"} for one in heard)


def test_old_runs_are_forgotten_but_not_those_of_the_registry(
    bench: Any, submit: Any, setting: Any
) -> None:
    kept, forgotten = submit("job_kept"), submit("job_forgotten")
    for run_id in (kept, forgotten):
        bench.run("SELECT cerebro_wait(%s, '900 s')", (run_id,))
    bench.run("SELECT cerebro_register_model(%s, 1, 'keeper')", (kept,))
    bench.run(
        "UPDATE cerebro.catalog_runs SET created = created - interval '91 days', "
        "resumed = NULL, finished = finished - interval '91 days' WHERE run_id IN (%s, %s)",
        (kept, forgotten),
    )
    with pytest.raises(psycopg2.Error, match="allowed: such as '90 days'"):
        setting("keep_runs", "soon")
    setting("keep_runs", "90 days")
    for _ in range(2):  # what one adds the next one starts
        bench.run("SELECT cerebro.cerebro_work()")
    job_id = bench.value("SELECT max(job_id) FROM cerebro.jobs WHERE schedule = 'keep_runs'")
    bench.run("SELECT cerebro_wait_job(%s, '900 s')", (job_id,))
    ended = bench.row("SELECT status, error FROM cerebro.jobs WHERE job_id = %s", (job_id,))
    assert ended == ("finished", None)
    left = bench.column(
        "SELECT run_id FROM cerebro.runs WHERE run_id IN (%s, %s)", (kept, forgotten)
    )
    assert left == [kept]
    assert bench.value("SELECT count(*) FROM job_forgotten") == 4  # the user's tables stay
    bench.run("SELECT cerebro_drop_model('keeper')")
