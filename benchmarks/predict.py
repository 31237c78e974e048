"""Predictions: rows a second and worker, one row at a time as the peers do, and a call for one row."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import database
from benchmarks.crew import run_jobs
from benchmarks.server import Server
from benchmarks.workload import Workload

_REPEATS, _ROW_CALLS, _PEER_CALLS = 3, 2000, 100
_ROWS, _MODELS, _OUTPUT = "predict_rows", "predict_out", "predict_answers"
_ADAM = "loss='sparse_categorical_crossentropy',optimizer='Adam()'"
# What is timed: name, test table, its id and features, pred_type, whether by all workers.
_CALLS = (
    ("response, 1 worker", "{rows}", "'id', 'x'", "response", False),
    ("response, all workers", "{rows}", "'id', 'x'", "response", True),
    ("packed, response, 1 worker", "{packed}", "NULL, NULL", "response", False),
    ("packed, response, all workers", "{packed}", "NULL, NULL", "response", True),
    ("all classes, 1 worker", "{rows}", "'id', 'x'", "prob", False),
)


def measure(server: Server, workload: Workload, workers: int) -> dict[str, Any]:
    """Train a model of the workload for an epoch, and ask it; medians of warm calls."""
    tables = database.load(server, workload)
    count = len(workload.features)
    with server.session() as cursor:
        _train(cursor, tables, workload, workers)
        calls = {}
        for name, table, columns, answer, together in _CALLS:
            table = table.format(rows=_ROWS, packed=tables.packed)
            used = workers if together else 1
            call = (
                f"SELECT cerebro_predict('{_MODELS}', '{table}', {columns}, '{_OUTPUT}', "
                f"'{answer}', num_workers := {used})"
            )
            seconds = _median_seconds(cursor, call)
            calls[name] = {"seconds": seconds, "rate": round(count / seconds / used)}
        row_ms = _row_milliseconds(cursor)
        names = [_MODELS, *(f"{_MODELS}_{part}" for part in ("info", "summary", "states")), _ROWS]
        cursor.execute(f"DROP TABLE {', '.join(names)}")
    database.drop(server, tables)
    return {
        "rows": count,
        "columns": workload.features.shape[1],
        "calls": calls,
        "row_ms": row_ms,
        "peer_ms": _peer_milliseconds(workload),
    }


def _train(cursor: Any, tables: database.Tables, workload: Workload, workers: int) -> None:
    cursor.execute(
        f"CREATE TABLE {_ROWS} AS SELECT row_number() OVER ()::integer AS id, x FROM {tables.source}"
    )
    cursor.execute(f"VACUUM ANALYZE {_ROWS}")
    cursor.execute(
        "SELECT cerebro_pack(%s, %s, 'y', 'x', num_partitions := %s)",
        (tables.source, tables.packed, max(workload.partitions, workers)),
    )
    cursor.execute(
        "SELECT cerebro_load_configs(%s, 'predict_configs', ARRAY[1], ARRAY[%s], "
        "ARRAY['batch_size=256'])",
        (tables.models, _ADAM),
    )
    cursor.execute(
        f"SELECT cerebro_fit_multiple(%s, '{_MODELS}', 'predict_configs', 1)", (tables.packed,)
    )


def _median_seconds(cursor: Any, call: str) -> float:
    """Median seconds of warm calls, after one that starts the workers."""
    seconds = []
    for _ in range(_REPEATS + 1):
        cursor.execute(f"DROP TABLE IF EXISTS {_OUTPUT}")
        started = time.perf_counter()
        cursor.execute(call)
        seconds.append(time.perf_counter() - started)
    cursor.execute(f"DROP TABLE {_OUTPUT}")
    return round(statistics.median(seconds[1:]), 4)


def _row_milliseconds(cursor: Any) -> dict[str, float]:
    """Milliseconds of ``cerebro_predict_row``: the first call of a session, median and 99 % of warm ones."""
    cursor.execute("CREATE TEMPORARY TABLE row_times (ms double precision)")
    cursor.execute(f"""
        DO $$
        DECLARE
            features real[];
            began timestamptz;
        BEGIN
            FOR features IN SELECT x FROM {_ROWS} ORDER BY id LIMIT {_ROW_CALLS} LOOP
                began := clock_timestamp();
                PERFORM cerebro_predict_row('{_MODELS}', features);
                INSERT INTO row_times
                SELECT 1000 * extract(epoch FROM clock_timestamp() - began);
            END LOOP;
        END
        $$
    """)
    cursor.execute(
        "SELECT (SELECT ms FROM row_times LIMIT 1), "
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), "
        "percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) FROM row_times"
    )
    first, median, slow = cursor.fetchone()
    cursor.execute("DROP TABLE row_times")
    return {"first": round(first, 1), "median": round(median, 3), "slow": round(slow, 3)}


def _peer_milliseconds(workload: Workload) -> float:
    """Time that Keras takes for a row where a function is called for each: the median."""
    arguments = (workload.architectures[0], workload.features[:_PEER_CALLS])
    environment = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    (seconds,) = run_jobs(prepare, arguments, [0], 1, environment)
    return round(1000 * seconds, 3)


def prepare(architecture: str, features: Any) -> Callable[[int], float]:
    """In the process: import TensorFlow; returns what times ``predict`` row by row."""
    from cerebro_db.training.environment import configure

    configure(threads=1)
    import keras

    model = keras.models.model_from_json(architecture)

    def handle(job: int) -> float:
        seconds = []
        for row in features:
            started = time.perf_counter()
            model.predict(row[None], verbose=0)
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)

    return handle
