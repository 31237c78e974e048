"""How long it takes to look at a large run: ``python -m benchmarks.watching DSN``, as a superuser.

The run has 1,000 configurations, 20 epochs and 4 partitions, and was never trained: its rows are made in the
catalog, and dropped at the end.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

CONFIGURATIONS, EPOCHS, PARTITIONS, WORKERS = 1000, 20, 4, 8
REPEATS = 3


def make_run(
    execute: Any,
    configurations: int = CONFIGURATIONS,
    epochs: int = EPOCHS,
    partitions: int = PARTITIONS,
    workers: int = WORKERS,
) -> int:
    """Rows of a run as its driver would leave them; returns its run_id.

    Args:
        execute: runs a statement with values, and returns its rows.
    """
    shape = {"c": configurations, "e": epochs, "p": partitions, "w": workers}
    ((run_id,),) = execute(_RUN, shape)
    execute("SET session_replication_role = replica", None)  # no trigger looks at each row
    for statement in (_CONFIGURATIONS, _HOPS, _METRICS):
        execute(statement, shape | {"r": run_id})
    execute("RESET session_replication_role", None)
    return int(run_id)


_RUN = """
INSERT INTO cerebro.catalog_runs
       (name, source_table, validation_table, model_output_table, model_selection_table, model_arch_table,
        num_iterations, metrics_compute_frequency, warm_start, seed, num_partitions, num_workers, threads, manifest,
        status, driver_pid, created, started, finished, cerebro_version, durability, lock_key, output_schema, output_name)
SELECT 'large', 'public.large', 'public.large_val', 'public.large_out', 'public.large_configs', 'public.large_models',
       %(e)s, 1, false, 0, %(p)s, %(w)s, 1, '{"tensorflow": "2.21.0"}', 'finished', 1, '2026-01-01 00:00+00',
       '2026-01-01 00:00+00', '2026-01-01 02:00+00', '0.1.0', 'hop', 4 * (random() * 1e15)::bigint, 'public', 'large_out'
RETURNING run_id
"""
_CONFIGURATIONS = """
INSERT INTO cerebro.catalog_configurations
       (run_id, mst_key, model_id, compile_params, fit_params, hop_seconds, initial_seed, jit, steps_per_call, goal,
        status, budget)
SELECT %(r)s, k, 1 + k %% 3,
       'optimizer=''' || (ARRAY['Adam', 'SGD', 'RMSprop'])[1 + k / 3 %% 3] || '(lr='
       || round((10 ^ (-1 - k %% 7 / 2.0))::numeric, 6) || ')'',metrics=[''accuracy''],loss=''categorical_crossentropy''',
       'epochs=1,batch_size=' || (ARRAY[16, 32, 64, 128])[1 + k %% 4], 0.1, k, false, 1, 'max', 'finished', %(e)s
  FROM generate_series(1, %(c)s) AS k
"""
# Workers take the hops one after another; every tenth of a second one of them waits a little.
_HOPS = """
INSERT INTO cerebro.catalog_hops
SELECT %(r)s, k, e, p, p, n %% %(w)s, 100 + n %% %(w)s, s.began, s.began + interval '80 milliseconds', 0.02, 0.01, 0.06,
       0.01, 1000, 1.0 / e, false, true, 400
  FROM (SELECT k, e, p, ((e - 1) * %(c)s * %(p)s + (k - 1) * %(p)s + p) AS n
          FROM generate_series(1, %(c)s) AS k, generate_series(1, %(e)s) AS e, generate_series(0, %(p)s - 1) AS p) h,
       LATERAL (SELECT timestamptz '2026-01-01 00:00+00' + (n / %(w)s) * interval '100 milliseconds' AS began) s
"""
_METRICS = """
INSERT INTO cerebro.catalog_metrics
SELECT %(r)s, k, e, d.name, d.lag + (1 + k %% 7 + k * 37 %% 101 / 40.0) / (1.0 + e * (1 + k %% 5)), ARRAY['accuracy'],
       ARRAY[1 - (d.lag + (1 + k %% 7 + k * 37 %% 101 / 40.0) / 12.0) / (1.0 + e * (1 + k %% 5))], e * 60.0
  FROM generate_series(1, %(c)s) AS k, generate_series(1, %(e)s) AS e,
       (VALUES ('training', 0.0), ('validation', 0.05)) AS d (name, lag)
"""


def drop_run(execute: Any, run_id: int) -> None:
    """Remove the rows again."""
    for table in ("metrics", "hops", "configurations", "runs"):
        execute(f"DELETE FROM cerebro.catalog_{table} WHERE run_id = %(r)s", {"r": run_id})


def main() -> None:
    """Measure, and print medians in seconds."""
    import psycopg2

    dsn = sys.argv[1]
    connection = psycopg2.connect(dsn)
    connection.autocommit = True

    def execute(sql: str, values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    run_id = make_run(execute)
    execute("ANALYZE", None)
    number = str(run_id)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.html"
            board = f"SELECT * FROM cerebro.dashboard WHERE run_id = {run_id} ORDER BY rank"
            for name, work in {
                "view cerebro.dashboard": lambda: execute(board, None),
                "cerebro watch --once": lambda: _cerebro("watch", number, "--once", "--dsn", dsn),
                "cerebro report": lambda: _cerebro("report", number, "-o", str(file), "--dsn", dsn),
                "cerebro metrics": lambda: _cerebro("metrics", "--dsn", dsn),
                "cerebro runs": lambda: _cerebro("runs", "--dsn", dsn),
            }.items():
                taken = [_seconds(work) for _ in range(REPEATS)]
                wall, own = (median(one[place] for one in taken) for place in (0, 1))
                print(f"{name}: {wall:.2f} s, of which the program computes {own:.2f} s")
            print(f"report: {file.stat().st_size / 1e6:.2f} MB")
    finally:
        drop_run(execute, run_id)


def _cerebro(*arguments: str) -> None:
    code = "from cerebro_db.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


def _seconds(work: Any) -> tuple[float, float]:
    """Seconds on the clock, and those that processes of this one have computed."""
    began, before = time.perf_counter(), _computed()
    work()
    return time.perf_counter() - began, _computed() - before


def _computed() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


if __name__ == "__main__":
    main()
