"""Runs that stop and go on: whatever stops them, the end is the same to the bit."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import psycopg2
import pytest
from gates import Gate
from pace import stretched
from reasons import EMBEDDED_ONLY

from tests.fitting.conftest import (
    ADAM,
    SOFTMAX,
    TABLES_OF_STATES,
    layer,
    model,
)
from tests.fitting.sizes import PARTITIONS
from tests.fitting.test_progress import Background, until

Fit = Callable[..., tuple[str, int]]
EPOCHS = 12
HOPS = 4 * EPOCHS * PARTITIONS
_numbers = itertools.count(1)
OPTIONS = "validation_table := 'val', metrics_compute_frequency := 2, num_workers := 2"


def results(bench: Any, out: str, run_id: int) -> list[Any]:
    """All that a run leaves and that must not depend on what happened to it."""
    return [
        bench.fetch(f"SELECT mst_key, md5(model_weights) FROM {out} ORDER BY 1"),
        bench.fetch(
            f"SELECT mst_key, md5(string_agg(state, '' ORDER BY chunk)) FROM {out}_states "
            "GROUP BY 1 ORDER BY 1"
        ),
        bench.fetch(
            "SELECT mst_key, epoch, dataset, loss, metrics FROM cerebro.metrics "
            "WHERE run_id = %s ORDER BY 1, 2, 3",
            (run_id,),
        ),
        bench.fetch(
            f"SELECT mst_key, training_loss, validation_metrics, status FROM {out}_info ORDER BY 1"
        ),
        bench.fetch(
            "SELECT mst_key, epoch, position, partition_key, rows FROM cerebro.hops "
            "WHERE run_id = %s ORDER BY 1, 2, 3",
            (run_id,),
        ),
    ]


@pytest.fixture(scope="module")
def undisturbed(bench: Any) -> list[Any]:
    """What a run leaves that nothing stopped."""
    run_id = bench.value(
        f"SELECT cerebro_fit_multiple('packed', 'calm', 'configs', {EPOCHS}, {OPTIONS})"
    )
    return results(bench, "calm", run_id)


class Kept(Background):
    """Like that, in a connection that stays open with its workers as long as nothing ends it."""

    _connections: ClassVar[dict[str, Any]] = {}

    def _connect(self, dsn: str) -> Any:
        kept = self._connections.get(dsn)
        if kept is None or kept.closed:
            kept = self._connections[dsn] = super()._connect(dsn)
        del kept.notices[:]
        return kept

    def _close(self) -> None:
        pass


class Disturbed:
    """A run in a connection of its own that has made some hops, and makes all of them only when it may."""

    def __init__(
        self, bench: Any, gate: Gate, out: str, more: str = "", hops: int = 10, epoch: int = 0
    ) -> None:
        self.bench, self.gate, self.out = bench, gate, out
        gate.shut(hops=0 if epoch else hops + 30, epoch=epoch)
        call = f"SELECT cerebro_fit_multiple('packed', '{out}', 'configs', {EPOCHS}, {OPTIONS}"
        self.caller = Kept(bench.dsn, f"{call}, name := '{out}'{more})", ())
        seen = (
            "SELECT (SELECT h.run_id FROM cerebro.hops h JOIN cerebro.runs r USING (run_id) "
            "WHERE r.name = %s GROUP BY 1 HAVING count(*) >= %s)"
        )
        self.run_id = until(bench, seen, (out, hops))

    @property
    def status(self) -> str:
        """As the view tells it."""
        query = "SELECT status FROM cerebro.runs WHERE run_id = %s"
        return str(self.bench.value(query, (self.run_id,)))

    @property
    def done(self) -> int:
        """Hops so far."""
        query = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s"
        return int(self.bench.value(query, (self.run_id,)))

    def go_on(self) -> None:
        """Let the call come to its end."""
        self.gate.open()
        self.caller.join()

    def resume(self) -> list[Any]:
        """Go on to the end; returns the results."""
        self.gate.open()
        assert self.bench.value("SELECT cerebro_resume(%s)", (self.run_id,)) == self.run_id
        assert self.status == "finished"
        return results(self.bench, self.out, self.run_id)


@pytest.fixture
def disturbed(bench: Any, gate: Gate) -> Iterator[Callable[..., Disturbed]]:
    """Starts runs under fresh names; nothing of them stays."""
    made: list[Disturbed] = []

    def start(more: str = "", hops: int = 10, epoch: int = 0) -> Disturbed:
        made.append(Disturbed(bench, gate, f"stormy_{next(_numbers)}", more, hops, epoch))
        return made[-1]

    yield start
    for run in made:
        run.go_on()
        bench.run("SELECT cerebro_drop_run(%s)", (run.run_id,))
        for part in ("", "_info", "_summary", "_states", "_history"):
            bench.run(f"DROP TABLE IF EXISTS {run.out}{part}")
    assert leftovers(bench) == []


def leftovers(bench: Any) -> list[Any]:
    """What must not be there when no run goes on."""
    until(bench, f"SELECT NOT EXISTS ({HELD})")  # a session that was closed ends a moment later
    return bench.fetch(TABLES_OF_STATES) + bench.fetch("SELECT 'request' FROM cerebro._requests")


HELD = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
STOPS = {
    "cancelled": "SELECT cerebro_cancel(%(run_id)s)",
    "paused": "SELECT cerebro_pause(%(run_id)s)",
    "cancelled by the server": "SELECT pg_cancel_backend(%(pid)s)",
    "interrupted": "SELECT pg_terminate_backend(%(pid)s)",
}


@pytest.mark.parametrize("how", STOPS)
def test_a_run_that_was_stopped_ends_as_if_nothing_had_happened(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any], how: str
) -> None:
    run = disturbed()
    answer = bench.value(STOPS[how], {"run_id": run.run_id, "pid": run.caller.pid})
    run.caller.join()
    status = how.split()[0]
    assert answer in (True, status)
    until(bench, "SELECT status = %s FROM cerebro.runs WHERE run_id = %s", (status, run.run_id))
    run.gate.open()
    assert run.caller.error is None or how != "paused"
    assert 10 <= run.done < HOPS
    shown = "SELECT DISTINCT status FROM cerebro.leaderboard WHERE run_id = %s"
    assert bench.fetch(shown, (run.run_id,)) == [("stopped",)]
    if status == "interrupted":  # its driver might be one that comes back
        assert bench.value("SELECT cerebro_pause(%s)", (run.run_id,)) == "paused"
        assert run.status == "paused"
    assert run.resume() == undisturbed


def end_worker(bench: Any, run: Disturbed) -> bool:
    """End the session that has made the latest hop."""
    worker = "SELECT pid FROM cerebro.hops WHERE run_id = %s ORDER BY finished DESC LIMIT 1"
    pid = bench.value(worker, (run.run_id,))
    return bool(bench.value("SELECT pg_terminate_backend(%s)", (pid,)))


def test_a_run_survives_that_its_workers_are_ended(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    run = disturbed()
    assert end_worker(bench, run)
    run.go_on()
    assert run.caller.error is None
    assert run.status == "finished"
    assert any("lost its sessions" in line for line in run.caller.connection.notices)
    assert results(bench, run.out, run.run_id) == undisturbed


def test_a_run_without_retries_is_interrupted(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    bench.run("SELECT cerebro_set('worker_retries', '0')")
    try:
        run = disturbed()
        assert end_worker(bench, run)
        run.go_on()
    finally:
        bench.run("SELECT cerebro_set('worker_retries', NULL)")
    assert run.caller.error is not None
    assert "was interrupted: a server session ended" in str(run.caller.error)
    assert run.status == "interrupted"
    assert run.resume() == undisturbed


def test_with_durability_of_epochs_a_crash_goes_back_to_the_epoch(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    run = disturbed(", durability := 'epoch'", hops=40)
    bench.run("SELECT cerebro_cancel(%s)", (run.run_id,))
    run.caller.join()
    name = bench.value("SELECT states FROM cerebro._runs WHERE run_id = %s", (run.run_id,))
    kinds = dict(
        bench.fetch(
            "SELECT relname, relpersistence FROM pg_class "
            "WHERE relname LIKE %s AND relkind = 'r' ORDER BY 1",
            (name + "%",),
        )
    )
    passing = [table for table, kind in kinds.items() if kind == "u"]
    assert sorted(kinds.values()) == ["p", "u"]
    # What PostgreSQL does with an unlogged table when it recovers from a crash.
    bench.run(f"TRUNCATE cerebro_states.{passing[0]}")
    assert run.resume() == undisturbed


def test_a_hop_whose_record_and_state_are_lost_is_made_again_with_all_after_it(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    """What a segment leaves that has recovered alone: later states are on other segments."""
    run = disturbed(", durability := 'epoch'", hops=40)
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    name = bench.value("SELECT states FROM cerebro._runs WHERE run_id = %s", (run.run_id,))
    states = bench.column(
        "SELECT 'cerebro_states.' || quote_ident(relname) FROM pg_class "
        "WHERE relname LIKE %s AND relkind = 'r'",
        (name + "%",),
    )
    every = " UNION ALL ".join(f"SELECT mst_key, version FROM {table}" for table in states)
    # Within an epoch, if there is one: both of its last states are in the unlogged table.
    mst_key, version = bench.row(
        f"SELECT mst_key, max(version) FROM ({every}) s GROUP BY mst_key HAVING max(version) > 1 "
        "ORDER BY max(version) %% %s > 1 DESC, mst_key LIMIT 1",
        (PARTITIONS,),
    )
    lost = "mst_key = %s AND (epoch - 1) * %s + position + 2 = %s"
    of_hop = (run.run_id, mst_key, PARTITIONS, version)
    bench.run(f"DELETE FROM cerebro._hops WHERE run_id = %s AND {lost}", of_hop)
    for table in states:
        bench.run(
            f"DELETE FROM {table} WHERE mst_key = %s AND version = %s", (mst_key, version - 1)
        )
    assert run.resume() == undisturbed


def test_epochs_that_are_made_again_are_scored_again(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    run = disturbed(", durability := 'epoch'", hops=40)
    scored = "SELECT count(*) > 0 FROM cerebro._metrics WHERE run_id = %s"
    until(bench, scored, (run.run_id,))
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    found = bench.row(
        "SELECT mst_key, epoch FROM cerebro._metrics WHERE run_id = %s "
        "ORDER BY epoch, mst_key, dataset LIMIT 1",
        (run.run_id,),
    )
    of_hop = (run.run_id, *found, PARTITIONS - 1)
    lost = "run_id = %s AND mst_key = %s AND epoch = %s AND position = %s"
    bench.run(f"DELETE FROM cerebro._hops WHERE {lost}", of_hop)
    assert run.resume() == undisturbed


def test_a_state_that_someone_removed_is_missed_at_once(
    bench: Any, disturbed: Callable[..., Disturbed], has_segments: bool
) -> None:
    run = disturbed(epoch=4)
    scored = 2 * PARTITIONS  # hops after which a configuration is scored
    hops = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND mst_key = 1"
    # A run whose last state were that one would make its hop again.
    until(bench, f"SELECT ({hops}) >= {scored + PARTITIONS}", (run.run_id,))
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    made = bench.value(hops, (run.run_id,))
    bench.run(
        "DELETE FROM cerebro._metrics WHERE run_id = %s AND dataset = 'validation'", (run.run_id,)
    )
    name = bench.value("SELECT states FROM cerebro._runs WHERE run_id = %s", (run.run_id,))
    table = bench.value(
        "SELECT 'cerebro_states.' || quote_ident(relname) FROM pg_class "
        "WHERE relname LIKE %s AND relkind = 'r'",
        (name + "%",),
    )
    place = "segment_key, " if has_segments else ""
    bench.run(
        f"INSERT INTO {table} ({place}mst_key, version, chunk, partition_key, state) "
        f"SELECT {place}mst_key, {made + scored}, 0, 0, state FROM {table} "
        "WHERE chunk = 0 AND mst_key = 1 LIMIT 1"
    )
    bench.run(f"DELETE FROM {table} WHERE mst_key = 1 AND version = {scored}")
    told = f"got no state of mst_key 1 after {scored}"
    with pytest.raises(psycopg2.errors.DataException, match=told):
        run.resume()


def test_a_warm_start_that_stopped_before_its_first_hop_goes_on_from_where_it_began(
    bench: Any, fit: Fit, weights: Any
) -> None:
    whole, _ = fit()
    fit(out=whole, warm_start=True)
    stopped, _ = fit()
    _, run_id = fit(out=stopped, warm_start=True, max_seconds=0.001)
    of_run = (run_id,)
    status = (
        "SELECT status, hops_done FROM cerebro.runs JOIN cerebro.progress USING (run_id, status)"
    )
    assert bench.row(f"{status} WHERE run_id = %s", of_run) == ("paused", 0)
    name = bench.value("SELECT states FROM cerebro._runs WHERE run_id = %s", of_run)
    table = bench.value(
        "SELECT 'cerebro_states.' || relname FROM pg_class WHERE relname LIKE %s AND relkind = 'r'",
        (f"{name}%",),
    )
    bench.run(f"CREATE TABLE kept_state AS SELECT * FROM {table} WHERE mst_key = 2")
    bench.run(f"DELETE FROM {table} WHERE mst_key = 2")
    with pytest.raises(psycopg2.errors.DataException, match="got no state of mst_key 2 after 0"):
        bench.run("SELECT cerebro_resume(%s)", of_run)
    bench.run(f"INSERT INTO {table} TABLE kept_state")
    bench.run("DROP TABLE kept_state")
    bench.run("SELECT cerebro_resume(%s)", of_run)
    assert weights(stopped) == weights(whole)
    history = (
        "SELECT mst_key, iteration, epoch, dataset, loss, metrics FROM {}_history ORDER BY 1, 2"
    )
    assert bench.fetch(history.format(stopped)) == bench.fetch(history.format(whole))


def test_a_loss_that_was_no_number_when_the_run_stopped_fails_its_configuration(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    run = disturbed(hops=40, epoch=4)
    metrics = "run_id = %s AND mst_key = 3 AND epoch = 2 AND dataset = 'training'"
    scored = f"SELECT count(*) > 0 FROM cerebro._metrics WHERE {metrics}"
    until(bench, scored, (run.run_id,))
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    bench.run(f"UPDATE cerebro._metrics SET loss = 'NaN' WHERE {metrics}", (run.run_id,))
    run.gate.open()
    bench.run("SELECT cerebro_resume(%s)", (run.run_id,))
    info = bench.fetch(f"SELECT mst_key, status, error FROM {run.out}_info ORDER BY 1")
    assert info[2] == (3, "failed", "the training loss of epoch 2 is nan")
    assert {row[1] for row in info if row[0] != 3} == {"finished"}
    others = [row for row in undisturbed[0] if row[0] != 3]
    assert results(bench, run.out, run.run_id)[0] == others


def test_a_configuration_can_be_cancelled(
    bench: Any, disturbed: Callable[..., Disturbed], undisturbed: list[Any]
) -> None:
    run = disturbed()
    assert bench.value("SELECT cerebro_cancel(%s, 2)", (run.run_id,)) == "cancelled"
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="got 2, which is cancelled"):
        bench.value("SELECT cerebro_cancel(%s, 2)", (run.run_id,))
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="got 9; configurations of run"):
        bench.value("SELECT cerebro_cancel(%s, 9)", (run.run_id,))
    run.go_on()
    assert run.status == "finished"
    info = bench.fetch(f"SELECT mst_key, status, error FROM {run.out}_info ORDER BY 1")
    caller = bench.value("SELECT current_user")
    assert info[1] == (2, "cancelled", f"cancelled by {caller}")
    assert {row[1] for row in info if row[0] != 2} == {"finished"}
    found = results(bench, run.out, run.run_id)
    others = [row for row in undisturbed[0] if row[0] != 2]
    assert found[0] == others


def test_a_run_pauses_when_its_seconds_are_over(bench: Any, undisturbed: list[Any]) -> None:
    del bench.connection.notices[:]
    run_id = bench.value(
        "SELECT cerebro_fit_multiple('packed', 'brief', 'configs', 100000, max_seconds := 1.5)"
    )
    query = "SELECT status, error FROM cerebro.runs WHERE run_id = %s"
    assert bench.row(query, (run_id,)) == ("paused", "max_seconds := 1.5 are over")
    assert f"cerebro_resume({run_id}) goes on" in bench.connection.notices[-1]
    began = time.monotonic()
    bench.run("SELECT cerebro_resume(%s, max_seconds := 1)", (run_id,))
    assert time.monotonic() - began < stretched(20)
    assert bench.row(query, (run_id,)) == ("paused", "max_seconds := 1 are over")
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    assert bench.value("SELECT to_regclass('brief') IS NULL")


BAD = {
    "cerebro_resume(NULL)": ("UndefinedObject", "got NULL; you have no run"),
    "cerebro_resume(1000000)": ("UndefinedObject", "you have no run of that number"),
    "cerebro_cancel(1000000)": ("UndefinedObject", "you have no run of that number"),
    "cerebro_resume(%(finished)s)": ("ObjectNotInPrerequisiteState", "which is finished"),
    "cerebro_cancel(%(finished)s)": (
        "ObjectNotInPrerequisiteState",
        "which is finished; allowed: a run that is starting, running, queued or interrupted",
    ),
    "cerebro_pause(%(finished)s)": ("ObjectNotInPrerequisiteState", "which is finished"),
    "cerebro_resume(%(finished)s, max_seconds := -1)": ("InvalidParameterValue", "got -1.0"),
    "cerebro_resume(%(finished)s, num_workers := 0)": ("InvalidParameterValue", "1 to 256"),
    "cerebro_vacuum(NULL)": ("InvalidParameterValue", "older_than: got NULL"),
    "cerebro_vacuum('-1 day')": ("InvalidParameterValue", "not negative"),
}


@pytest.mark.parametrize("call", BAD)
def test_calls_that_are_refused(bench: Any, undisturbed: list[Any], call: str) -> None:
    kind, message = BAD[call]
    finished = bench.value("SELECT max(run_id) FROM cerebro.runs WHERE status = 'finished'")
    with pytest.raises(getattr(psycopg2.errors, kind), match=message):
        bench.value(f"SELECT {call}", {"finished": finished})


def test_a_run_whose_output_name_was_taken_goes_on_under_another_one(bench: Any, fit: Fit) -> None:
    _, run_id = fit(epochs=1, out="taken_later", max_seconds=0.001)
    bench.run("CREATE TABLE taken_later (a int)")
    bench.run("CREATE TABLE taken_too (a int)")
    resume = f"SELECT cerebro_resume({run_id}"
    for more in ("", ", model_output_table := 'taken_too'"):
        with pytest.raises(psycopg2.errors.DuplicateTable, match="exists already") as caught:
            bench.run(f"{resume}{more})")
        hint = f"SELECT cerebro.cerebro_resume({run_id}, model_output_table := 'another_name')"
        assert hint in (caught.value.diag.message_hint or "")
    for name, kind in (("no_schema.o", "UndefinedTable"), ("", "InvalidParameterValue")):
        with pytest.raises(getattr(psycopg2.errors, kind), match="model_output_table: got"):
            bench.run(f"{resume}, model_output_table := '{name}')")
    bench.run(f"{resume}, model_output_table := 'not_taken', max_seconds := 0.001)")
    bench.run(f"{resume})")  # the name stays
    assert bench.value("SELECT run_id FROM not_taken_summary") == run_id
    assert bench.value("SELECT count(*) FROM not_taken") == 4
    told = "SELECT model_output_table FROM cerebro.runs WHERE run_id = %s"
    assert bench.value(told, (run_id,)) == "public.not_taken"
    bench.run("DROP TABLE taken_later, taken_too")


def test_a_warm_start_keeps_its_output(bench: Any, fit: Fit) -> None:
    out, _ = fit(epochs=1)
    _, run_id = fit(epochs=1, out=out, warm_start=True, max_seconds=0.001)
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="warm_start := true"):
        bench.run("SELECT cerebro_resume(%s, model_output_table := 'elsewhere')", (run_id,))
    bench.run("SELECT cerebro_resume(%s)", (run_id,))


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_an_error_of_the_server_tells_how_to_go_on(bench: Any, fit: Fit) -> None:
    bench.run(
        "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no space is left' USING ERRCODE = '53100'; END $$"
    )
    bench.run(
        "CREATE TRIGGER full_disk BEFORE INSERT ON cerebro.catalog_hops "
        "FOR EACH ROW EXECUTE PROCEDURE no_space()"
    )
    out = "out_of_space"
    try:
        with pytest.raises(psycopg2.errors.DiskFull) as caught:
            fit(epochs=1, out=out)
    finally:
        bench.run("DROP FUNCTION no_space() CASCADE")
    run_id = bench.value("SELECT max(run_id) FROM cerebro.runs")
    assert caught.value.diag.message_primary == f"run {run_id} failed: no space is left"
    resume = f"SELECT cerebro.cerebro_resume({run_id})"
    assert (caught.value.diag.message_hint or "").endswith(f"; then {resume} goes on with it")
    bench.run(resume)
    assert bench.value(f"SELECT count(*) FROM {out}") == 4


def test_two_callers_never_drive_one_run(bench: Any, disturbed: Callable[..., Disturbed]) -> None:
    run = disturbed()
    for call in ("cerebro_resume(%s)", "cerebro_drop_run(%s)"):
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match=r"running|going on"):
            bench.value(f"SELECT {call}", (run.run_id,))
    run.go_on()
    assert run.status == "finished"


def test_a_run_whose_data_was_changed_does_not_go_on(
    bench: Any, disturbed: Callable[..., Disturbed]
) -> None:
    run = disturbed()
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    bench.run(
        "BEGIN; UPDATE packed SET x = x WHERE buffer_id = (SELECT min(buffer_id) FROM packed)"
    )
    bench.run("ROLLBACK")
    bench.run("CREATE TABLE packed_before AS TABLE packed")
    bench.run("UPDATE val SET x = x")
    try:
        with pytest.raises(psycopg2.errors.DataException, match=r"public\.val has been changed"):
            run.resume()
    finally:
        bench.run("DROP TABLE packed_before")
    assert run.status == "paused"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            """manifest = replace(manifest::text, '"tensorflow": "', '"tensorflow": "1.')::json""",
            r"began with tensorflow 1\.",
        ),
        (
            """spec = replace(spec::text, '"cerebro_version": "', '"cerebro_version": "0.0.1-')::jsonb""",
            r"began with version 0\.0\.1-.* of Cerebro-DB",
        ),
    ],
)
def test_other_software_is_refused_unless_it_is_wanted(
    bench: Any,
    disturbed: Callable[..., Disturbed],
    undisturbed: list[Any],
    change: str,
    message: str,
) -> None:
    run = disturbed()
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    bench.run(f"UPDATE cerebro.catalog_runs SET {change} WHERE run_id = %s", (run.run_id,))
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match=message):
        run.resume()
    run.gate.open()
    bench.run("SELECT cerebro_resume(%s, any_version := true)", (run.run_id,))
    assert results(bench, run.out, run.run_id) == undisturbed


def test_states_are_kept_in_chunks(
    bench: Any, fit: Fit, weights: Any, selection: Callable[..., str]
) -> None:
    configs = selection([2], [ADAM])
    whole, _ = fit(configs=configs, metrics_compute_frequency=1)
    bench.run("SELECT cerebro_set('state_chunk_kb', '1')")
    try:
        pieces, _ = fit(configs=configs, metrics_compute_frequency=1)
        count, largest = bench.row(f"SELECT count(*), max(length(state)) FROM {pieces}_states")
        assert count > 2
        assert largest == 1024
        assert weights(pieces) == weights(whole)
        joined = "SELECT string_agg(state, '' ORDER BY chunk) FROM {}_states"
        assert bench.value(joined.format(pieces)) == bench.value(joined.format(whole))
        # Whatever reads states puts the chunks together again.
        for out in (whole, pieces):
            bench.run(f"SELECT cerebro_evaluate('{out}', 'val', '{out}_scores')")
            bench.run(f"SELECT cerebro_predict('{out}', 'blobs', 'id', 'x', '{out}_probs')")
            fit(configs=configs, out=out, warm_start=True)
        for table in ("scores", "probs"):
            there = [bench.fetch(f"TABLE {out}_{table}") for out in (whole, pieces)]
            assert sorted(there[0]) == sorted(there[1])
        assert weights(pieces) == weights(whole)
    finally:
        bench.run("SELECT cerebro_set('state_chunk_kb', NULL)")


def test_vacuum_removes_the_states_of_runs_that_stopped_long_ago(
    bench: Any, disturbed: Callable[..., Disturbed]
) -> None:
    bench.run("SELECT * FROM cerebro_vacuum('0')")  # of runs of other tests
    run = disturbed()
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.caller.join()
    assert bench.fetch("SELECT * FROM cerebro_vacuum()") == []
    bench.run("CREATE TABLE cerebro_states.left_a (i int)")
    bench.run("CREATE VIEW depends_on_it AS TABLE cerebro_states.left_a")
    bench.run("CREATE TABLE cerebro_states.left_b ()")
    ((first, size), (second, _)) = bench.fetch("SELECT * FROM cerebro_vacuum('0')")
    assert (first, second) == (run.run_id, None)
    assert size > 0
    assert leftovers(bench) == [("left_a",)]
    bench.run("DROP VIEW depends_on_it")
    assert bench.fetch("SELECT run_id FROM cerebro_vacuum('0')") == [(None,)]
    assert leftovers(bench) == []
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="states are gone"):
        run.resume()


@pytest.mark.parametrize("durability", ["hop", "epoch"])
def test_the_space_of_states_that_nothing_needs_is_free_while_the_run_goes_on(
    bench: Any, disturbed: Callable[..., Disturbed], selection: Callable[..., str], durability: str
) -> None:
    wide = model(layer("Dense", units=20_000, activation="relu"), SOFTMAX)
    model_id = bench.value("SELECT cerebro_load_model('models', %s)", (wide,))
    configs = selection([model_id], [ADAM, ADAM.replace("0.01", "0.001")], ("batch_size=60",))
    call = (
        f"SELECT cerebro_fit_multiple('packed', 'spacious', '{configs}', 12, name := 'spacious', "
    )
    caller = Background(bench.dsn, f"{call} durability := '{durability}')", ())
    largest = 0
    taken = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
        "WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro_states') AND relkind = 'r'"
    )
    while caller.is_alive():
        with contextlib.suppress(psycopg2.errors.UndefinedTable, psycopg2.errors.UndefinedObject):
            largest = max(largest, bench.value(taken))
        time.sleep(0.02)
    caller.join()
    assert caller.error is None
    state = bench.value("SELECT max(length(state)) FROM spacious_states")
    assert state > 2_000_000
    hops = 2 * 12 * PARTITIONS
    assert 3 * 2 * state < hops * state / 3  # or this would show nothing
    # Up to three of each configuration, and two tables that are not full, or have just been filled.
    filled = 16 * 2**20 + 2 * state
    assert state < largest <= 3 * 2 * state + 2 * filled + 2**20
    for part in ("", "_info", "_summary", "_states", "_history"):
        bench.run(f"DROP TABLE spacious{part}")


SWAP = "ALTER TABLE {0} RENAME TO swapped; ALTER TABLE {1} RENAME TO {0}; ALTER TABLE swapped RENAME TO {1}"


@pytest.fixture
def other(bench: Any, gate: Gate) -> Iterator[Callable[[str], None]]:
    """Swaps the names of a packed table and of one with the same numbers of rows and other values.

    A worker that waits at the gate keeps a lock of the table: the gate opens when the swap has queued for its own.
    """
    swaps: list[str] = []
    waits = "SELECT count(*) > 0 FROM pg_locks WHERE pid = %s AND NOT granted"

    def swap(table: str) -> None:
        if not swaps:
            bench.run(f"CREATE TABLE other_rows AS TABLE {table}")
            bench.run("UPDATE other_rows SET x = decode(repeat('00', octet_length(x)), 'hex')")
        swapping = Background(bench.dsn, SWAP.format(table, "other_rows"), ())
        while swapping.is_alive() and not bench.value(waits, (swapping.pid,)):
            time.sleep(0.01)
        gate.open()
        swapping.join()
        assert swapping.error is None
        swaps.append(table)

    yield swap
    if len(swaps) % 2:
        swap(swaps[0])
    bench.run("DROP TABLE IF EXISTS other_rows")


@pytest.mark.parametrize("table", ["packed", "val"])
def test_a_table_that_took_the_name_in_mid_run_is_not_read(
    bench: Any,
    disturbed: Callable[..., Disturbed],
    undisturbed: list[Any],
    other: Callable[[str], None],
    table: str,
) -> None:
    run = disturbed()
    other(table)
    run.go_on()
    assert run.caller.error is not None
    message = (
        f"public.{table}: got another table; allowed: the table that was read at the beginning"
    )
    assert message in str(run.caller.error)
    assert run.status == "failed"
    other(table)
    assert run.resume() == undisturbed


def test_a_run_that_was_paused_goes_on_with_its_own_table_only(
    bench: Any,
    disturbed: Callable[..., Disturbed],
    undisturbed: list[Any],
    other: Callable[[str], None],
) -> None:
    run = disturbed()
    bench.run("SELECT cerebro_pause(%s)", (run.run_id,))
    run.go_on()
    other("packed")
    with pytest.raises(psycopg2.Error, match="other_rows has no summary table"):
        bench.run("SELECT cerebro_resume(%s)", (run.run_id,))
    other("packed")
    assert run.resume() == undisturbed
