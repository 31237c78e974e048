"""cerebro_fit_multiple in steps: one statement trains on all segments at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
from run_states import begin, finish, planned, run_state, view

from cerebro_db.core.spec import Hop
from cerebro_db.decide.strategies.rotation import next_step
from cerebro_db.postgres.calls.host import Client
from cerebro_db.postgres.dialects.segments.rotation import Rotation
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.driver import fit_multiple
from conftest import Sql
from tests.fitting.conftest import ADAM, FULL, PLAIN, select
from tests.fitting.test_progress import Background, until
from tests.greenplum.processes import computing

pytestmark = pytest.mark.slow

TABLES = "packed", "val", "models", "configs", "passes", "mixed"
DIVERGES = "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=1e30)',metrics=['accuracy']"
HOPS = (
    "SELECT mst_key, epoch, position, partition_key, rows, loss FROM cerebro.hops "
    "WHERE run_id = %s ORDER BY 1, 2, 3"
)
_names = (f"out_{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def bench(segments_dsn: str, blobs: Any) -> Iterator[Sql]:
    """A session whose workers stay warm, on a database with small tables."""
    connection = psycopg2.connect(segments_dsn)
    connection.autocommit = True
    sql = Sql(connection, segments_dsn)
    tables = ["blobs", *(f"{name}{end}" for name in TABLES for end in ("", "_summary"))]
    drop = f"DROP TABLE IF EXISTS {', '.join(tables)}"
    sql.run(f"{drop} CASCADE")  # other files have tables of the same names
    sql.run("SET extra_float_digits = 3; CREATE TABLE blobs (id int, x real[], label text)")
    features, labels = blobs
    rows = [
        (number, row, "abc"[label])
        for number, (row, label) in enumerate(zip(features.tolist(), labels.tolist(), strict=True))
    ]
    with connection.cursor() as cursor:
        psycopg2.extras.execute_values(cursor, "INSERT INTO blobs VALUES %s", rows)
    sql.run("CREATE VIEW train AS SELECT * FROM blobs WHERE id < 120")
    sql.run("CREATE VIEW test AS SELECT * FROM blobs WHERE id >= 120")
    sql.run("SELECT cerebro_pack('train', 'packed', 'label', 'x', 11)")
    sql.run("SELECT cerebro_pack_validation('test', 'val', 'label', 'x', 'packed')")
    for text in (PLAIN, FULL):
        sql.run("SELECT cerebro_load_model('models', %s)", (text,))
    both = [ADAM, ADAM.replace("0.01", "0.003")]
    select(sql, "configs", [1, 2], both, ["batch_size=8"])
    select(sql, "passes", [1, 2], [ADAM], ["batch_size=8,epochs=2", "batch_size=8,shuffle=False"])
    select(sql, "mixed", [1, 2], [ADAM, DIVERGES], ["batch_size=8"])
    yield sql
    made = sql.column("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'out\\_%'")
    sql.run(f"{', '.join([drop, *made])} CASCADE")
    connection.close()


def _fit(
    sql: Sql, schedule: str, configs: str = "configs", epochs: int = 2, more: str = ""
) -> tuple[str, int]:
    out = next(_names)
    call = f"SELECT cerebro_fit_multiple('packed', '{out}', '{configs}', {epochs}"
    return out, sql.value(f"{call}, schedule := '{schedule}'{more})")


def _results(sql: Sql, out: str) -> list[Any]:
    """Weights, states, losses and metrics, to the bit."""
    weights = f"SELECT mst_key, model_weights FROM {out} ORDER BY 1"
    states = f"SELECT mst_key, chunk, state FROM {out}_states ORDER BY 1, 2"
    scores = (
        "SELECT mst_key, training_loss, training_metrics, validation_loss, validation_metrics "
        f"FROM {out}_info ORDER BY 1"
    )
    found = [(key, chunk, bytes(data)) for key, chunk, data in sql.fetch(states)]
    return [[(key, bytes(data)) for key, data in sql.fetch(weights)], found, sql.fetch(scores)]


def _steps(sql: Sql, run_id: int) -> list[set[tuple[int, int, int, int]]]:
    """The hops of each statement, in the order of the statements."""
    hops: dict[Any, set[tuple[int, int, int, int]]] = {}
    for started, *hop in sql.fetch(
        "SELECT started, mst_key, epoch, position, partition_key FROM cerebro.hops "
        "WHERE run_id = %s ORDER BY started",
        (run_id,),
    ):
        hops.setdefault(started, set()).add(tuple(hop))  # type: ignore[arg-type]
    return list(hops.values())


def _planned(sql: Sql, run_id: int, partitions: int) -> list[set[tuple[int, int, int, int]]]:
    costs = "SELECT mst_key, hop_seconds FROM cerebro.catalog_configurations WHERE run_id = %s"
    plan = (
        "SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_plan WHERE run_id = %s"
    )
    state = run_state(dict(sql.fetch(costs, (run_id,))), range(partitions))
    planned(state, [Hop(*row) for row in sql.fetch(plan, (run_id,))])
    found = []
    while state.going_on:
        step = next_step(state, view(), [])
        found.append({(one.mst_key, one.epoch, one.position, one.partition_key) for one in step})
        begin(state, *step, step=True)
        finish(state, *step)
    return found


def test_a_rotation_trains_on_all_segments_and_gives_what_the_hopper_gives(bench: Sql) -> None:
    partitions = bench.value("SELECT count(DISTINCT partition_key) FROM packed")
    validation = ", validation_table := 'val'"
    with computing(bench.dsn) as trained:
        rotation = _fit(bench, "rotation", more=validation)
    # On each segment a process of one and the same session has trained.
    sessions = [session for _, session in trained]
    assert partitions in {sessions.count(session) for session in sessions}
    assert _steps(bench, rotation[1]) == _planned(bench, rotation[1], partitions)
    run = "SELECT schedule, num_workers FROM cerebro.runs WHERE run_id = %s"
    assert bench.row(run, (rotation[1],)) == ("rotation", 1)
    facts = (
        "SELECT count(*), count(DISTINCT worker), min(waited) >= 0, min(finished - started) > "
        "interval '0', min(written) > 0 FROM cerebro.hops WHERE run_id = %s"
    )
    assert bench.row(facts, (rotation[1],)) == (4 * partitions * 2, partitions, True, True, True)
    hopper = _fit(bench, "hopper", more=validation)
    assert _results(bench, rotation[0]) == _results(bench, hopper[0])
    assert bench.fetch(HOPS, (rotation[1],)) == bench.fetch(HOPS, (hopper[1],))
    assert bench.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'run\\_%'") == []


def test_the_same_with_passes_without_memory_in_chunks_and_with_less_durability(bench: Sql) -> None:
    more = ", use_caching := false, metrics_compute_frequency := 1, durability := 'epoch'"
    bench.run("SELECT cerebro_set('state_chunk_kb', '1')")
    try:
        rotation, _ = _fit(bench, "rotation", "passes", 3, more)
        hopper, _ = _fit(bench, "hopper", "passes", 3, more)
    finally:
        bench.run("SELECT cerebro_set('state_chunk_kb', NULL)")
    assert bench.value(f"SELECT max(chunk) FROM {rotation}_states") > 0
    assert _results(bench, rotation) == _results(bench, hopper)


def test_a_configuration_that_fails_leaves_the_others_alone(bench: Sql) -> None:
    rotation, run_id = _fit(bench, "rotation", "mixed")
    hopper, _ = _fit(bench, "hopper", "mixed")
    errors = "SELECT mst_key, status, error FROM {}_info ORDER BY 1"
    found = bench.fetch(errors.format(rotation))
    assert [status for _, status, _ in found].count("failed") == 2
    for ours, theirs in zip(found, bench.fetch(errors.format(hopper)), strict=True):
        assert ours[:2] == theirs[:2]
        # A statement that fails on a segment tells where.
        assert (theirs[2] or "").startswith((ours[2] or "").partition(" (")[0])
    assert "the loss became" in "".join(error or "" for _, _, error in found)
    assert _results(bench, rotation)[:2] == _results(bench, hopper)[:2]
    done = "SELECT status, hops_done FROM cerebro.progress WHERE run_id = %s"
    assert bench.row(done, (run_id,))[0] == "finished"


@pytest.mark.parametrize("stop", ["cancel", "terminate"])
def test_a_rotation_that_is_stopped_goes_on(bench: Sql, stop: str) -> None:
    epochs = 80  # so that there is time to stop it
    undisturbed = _fit(bench, "rotation", epochs=epochs)[0]
    out = next(_names)
    call = (
        f"SELECT cerebro_fit_multiple('packed', '{out}', 'configs', {epochs}, "
        f"schedule := 'rotation', name := '{out}')"
    )
    caller = Background(bench.dsn, call, ())
    hops = (
        "SELECT (SELECT h.run_id FROM cerebro.hops h JOIN cerebro.runs r USING (run_id) "
        "WHERE r.name = %s GROUP BY 1 HAVING count(*) >= 20)"
    )
    run_id = until(bench, hops, (out,), 200)
    if stop == "cancel":  # one configuration first: the others of its step go on
        bench.run("SELECT cerebro_cancel(%s, 4)", (run_id,))
        status = (
            "SELECT status = 'cancelled' FROM cerebro.leaderboard WHERE run_id = %s AND mst_key = 4"
        )
        until(bench, status, (run_id,))
    bench.run(f"SELECT pg_{stop}_backend(%s)", (caller.pid,))
    caller.join()
    until(
        bench,
        "SELECT status IN ('cancelled', 'interrupted') FROM cerebro.runs WHERE run_id = %s",
        (run_id,),
    )
    done = bench.value("SELECT count(*) FROM cerebro.hops WHERE run_id = %s", (run_id,))
    partitions = bench.value("SELECT count(DISTINCT partition_key) FROM packed")
    assert 20 <= done < 4 * partitions * epochs
    with pytest.raises(psycopg2.Error, match="num_workers: got 2; allowed with schedule"):
        bench.run("SELECT cerebro_resume(%s, num_workers := 2)", (run_id,))
    assert bench.value("SELECT cerebro_resume(%s)", (run_id,)) == run_id
    left = 4 if stop == "terminate" else 3
    for ours, theirs in zip(_results(bench, out), _results(bench, undisturbed), strict=True):
        assert [row for row in ours if row[0] <= left] == [row for row in theirs if row[0] <= left]
    assert {len(step) for step in _steps(bench, run_id)} <= set(range(1, partitions + 1))


class _Failing(Rotation):
    """Statements that the server refuses wherever one configuration is among those of a step."""

    def step(self, packed: Any, orders: Any) -> Any:
        if any(order.mst_key == 2 for order in orders):
            return "SELECT 1 / 0", []
        return super().step(packed, orders)


def test_a_step_that_fails_as_a_whole_is_made_hop_by_hop(bench: Sql) -> None:
    undisturbed, out = _fit(bench, "rotation")[0], next(_names)
    client = Client.of(bench.dsn)
    client.dialect.rotation = _Failing()
    request = FitRequest(
        source_table="packed", model_output_table=out, model_selection_table="configs", num_iterations=2, schedule="rotation", search_path=client.search_path,
        cores=client.cores,
    )  # fmt: skip
    try:
        fit_multiple(client.pool, client.dialect, request)
    finally:
        client.pool.close()
    found = bench.fetch(f"SELECT mst_key, status, error FROM {out}_info ORDER BY 1")
    assert [status for _, status, _ in found] == ["finished", "failed", "finished", "finished"]
    assert "division by zero" in found[1][2]
    for ours, theirs in zip(_results(bench, out), _results(bench, undisturbed), strict=True):
        assert [row for row in ours if row[0] != 2] == [row for row in theirs if row[0] != 2]


def test_what_cannot_be_is_reported(bench: Sql) -> None:
    with pytest.raises(
        psycopg2.Error, match="num_workers: got 2; allowed with schedule"
    ) as failure:
        _fit(bench, "rotation", more=", num_workers := 2")
    assert failure.value.pgcode == "22023"
    with pytest.raises(
        psycopg2.Error, match="schedule: got 'round'; allowed: 'hopper', 'rotation'"
    ):
        _fit(bench, "round")
