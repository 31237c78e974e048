"""cerebro_fit_multiple where each partition is the rows of one segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from cerebro_db.decide import dispatch
from cerebro_db.postgres.calls.host import Client
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.driver import fit_multiple
from conftest import Sql
from tests.fitting.conftest import ADAM, FULL, PLAIN, select
from tests.greenplum.processes import computing

pytestmark = pytest.mark.slow

TABLES = "packed", "val", "models", "configs", "out", "again", "together"


def make_tables(sql: Any, blobs: Any, packing: str) -> None:
    """Packed tables, models and configurations."""
    sql.run("CREATE TABLE blobs (id int, x real[], label text)")
    features, labels = blobs
    for number, (row, label) in enumerate(zip(features.tolist(), labels.tolist(), strict=True)):
        sql.run("INSERT INTO blobs VALUES (%s, %s, %s)", (number, row, "abc"[label]))
    sql.run("CREATE VIEW train AS SELECT * FROM blobs WHERE id < 120")
    sql.run("CREATE VIEW test AS SELECT * FROM blobs WHERE id >= 120")
    sql.run(f"SELECT cerebro_pack('train', 'packed', 'label', 'x', 11{packing})")
    sql.run("SELECT cerebro_pack_validation('test', 'val', 'label', 'x', 'packed')")
    for text in (PLAIN, FULL):
        sql.run("SELECT cerebro_load_model('models', %s)", (text,))
    rates = [ADAM.replace("0.01", rate) for rate in ("0.01", "0.003", "0.001", "0.002", "0.005")]
    select(sql, "configs", [1, 2], rates, ["batch_size=8"])


@pytest.fixture
def cluster_sql(segments: Sql, blobs: Any) -> Iterator[Sql]:
    ends = ("", "_info", "_summary", "_states", "_history")
    names = ", ".join(f"{name}{end}" for name in TABLES for end in ends)
    # Views of these tables go with them; other files have tables of the same names.
    drop = f"DROP TABLE IF EXISTS blobs, {names} CASCADE"
    segments.run(drop)
    make_tables(segments, blobs, "")
    yield segments
    segments.run(drop)


def _weights(sql: Sql, table: str) -> dict[int, bytes]:
    rows = sql.fetch(f"SELECT mst_key, model_weights FROM {table} ORDER BY mst_key")
    return {key: bytes(weights) for key, weights in rows}


def _weights_made_together(sql: Sql, monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """Of a run whose hops are taken for short ones, however long they take on a busy machine."""
    monkeypatch.setattr(dispatch, "SHARED_SECONDS", 3600.0)
    client = Client.of(sql.dsn)
    request = FitRequest(
        source_table="packed",
        model_output_table="together",
        model_selection_table="configs",
        num_iterations=2,
        search_path=client.search_path,
        cores=client.cores,
    )
    try:
        run_id = fit_multiple(client.pool, client.dialect, request)
    finally:
        client.pool.close()
    # Only before the first hop of a statement did the worker wait at all.
    waited = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND waited = 0"
    assert sql.value(waited, (run_id,)) > 0
    return _weights(sql, "together")


def test_weights_equal_those_of_a_server_without_segments(
    cluster_sql: Sql,
    database: str,
    connect: Callable[[str], Sql],
    blobs: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = connect(database)
    partitions = cluster_sql.value("SELECT count(DISTINCT partition_key) FROM packed")
    make_tables(plain, blobs, f", num_partitions := {partitions}")
    for table in ("packed", "val"):
        # The rows lie elsewhere, so the shuffle differs: the same bytes are trained on.
        for row in cluster_sql.fetch(f"SELECT x, label, partition_key, buffer_id FROM {table}"):
            plain.run(
                f"UPDATE {table} SET x = %s, label = %s "
                "WHERE partition_key = %s AND buffer_id = %s",
                row,
            )
    runs = cluster_sql.value("SELECT count(*) FROM cerebro.runs")  # of other tests
    fit = "SELECT cerebro_fit_multiple('packed', 'out', 'configs', 2, validation_table := 'val')"
    with pytest.raises(psycopg2.Error, match="use_gpus := true; there is no GPU on"):
        cluster_sql.run(fit.replace("'val')", "'val', use_gpus := true)"))
    assert cluster_sql.value("SELECT count(*) FROM cerebro.runs") == runs
    with computing(cluster_sql.dsn) as trained:
        run_id = cluster_sql.value(fit)
    # One process has trained on each segment, and each is of a session of its own: a statement of
    # a session trains on its segment, and the processes that it has on the others do nothing. At
    # the end another session makes the models, wherever their states are.
    sessions = Counter(session for _, session in trained)
    alone = sorted(segment for segment, session in trained if sessions[session] == 1)
    assert alone == list(range(partitions))
    plain.run(fit)
    assert _weights(cluster_sql, "out") == _weights(plain, "out")
    cluster_sql.run("SET extra_float_digits = 3")
    losses = "SELECT training_loss, validation_loss FROM out_info ORDER BY mst_key"
    assert cluster_sql.fetch(losses) == plain.fetch(losses)
    hops = cluster_sql.row(
        "SELECT count(*), count(DISTINCT worker), count(DISTINCT partition_key) "
        "FROM cerebro.hops WHERE run_id = %s",
        (run_id,),
    )
    assert hops == (10 * partitions * 2, partitions, partitions)
    # Each partition was trained by one worker, whose process on its segment has it in memory.
    assert (
        cluster_sql.fetch(
            "SELECT partition_key FROM cerebro.hops WHERE run_id = %s GROUP BY 1 "
            "HAVING count(DISTINCT worker) > 1",
            (run_id,),
        )
        == []
    )
    # States are gone, and a second run finds programs and processes as they were.
    assert cluster_sql.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'run\\_%'") == []
    cluster_sql.run("SELECT cerebro_fit_multiple('packed', 'again', 'configs', 2)")
    assert _weights(cluster_sql, "again") == _weights(cluster_sql, "out")
    assert _weights_made_together(cluster_sql, monkeypatch) == _weights(cluster_sql, "out")
    # Both go on from there.
    for sql in (cluster_sql, plain):
        sql.run(f"{fit[:-1]}, seed := 3, warm_start := true)")
    assert _weights(cluster_sql, "out") == _weights(plain, "out")
    assert _weights(cluster_sql, "out") != _weights(cluster_sql, "again")


def test_a_worker_has_waited_from_one_hop_to_the_next(cluster_sql: Sql) -> None:
    select(cluster_sql, "alone", [1], [ADAM], ["batch_size=8"])
    run_id = cluster_sql.value("SELECT cerebro_fit_multiple('packed', 'out', 'alone', 4)")
    cluster_sql.run("DROP TABLE alone, alone_summary")
    found = cluster_sql.fetch(
        "SELECT waited, extract(epoch FROM started - lag(finished) OVER (ORDER BY started))::float8 "
        "FROM cerebro.hops WHERE run_id = %s",
        (run_id,),
    )
    later = [(waited, between) for waited, between in found if between is not None]
    assert len(later) == len(found) - 1 > 3
    # What is between two hops of the only worker was waited for, but for the way to the server.
    assert all(0 < waited < between for waited, between in later), later
