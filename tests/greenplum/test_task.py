"""The strategy 'task' where partitions lie on segments: rows move to the worker of a configuration."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pace import until as wait_for
from servers import connected

from cerebro_db.postgres.calls.host import Client
from cerebro_db.postgres.dialects.segments.training import SegmentTraining
from cerebro_db.postgres.dialects.statements.orders import (
    HopOrder,
    ScanOrder,
    Statement,
    StateTables,
)
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.driver import fit_multiple
from conftest import Sql
from tests.fitting.conftest import ADAM, DENSE, SOFTMAX, model, select
from tests.fitting.test_progress import Background, until
from tests.fitting.test_resume import results
from tests.greenplum.processes import kill_trainer, trainers
from tests.greenplum.test_fitting import TABLES, make_tables

pytestmark = pytest.mark.slow

OPTIONS = "validation_table := 'val', metrics_compute_frequency := 1"
# Rows of a partition of the wide table, and numbers of a row: a cache of 1 MB holds one partition, and not two.
ROWS, WIDTH = 400, 512
HOPS = "SELECT mst_key, epoch, position, loss FROM cerebro.hops WHERE run_id = %s ORDER BY 1, 2, 3"
WORKERS = "SELECT mst_key, count(DISTINCT worker) FROM cerebro.hops WHERE run_id = %s GROUP BY 1 ORDER BY 1"
_names = (f"whole_{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def bench(segments_dsn: str, blobs: Any) -> Iterator[Sql]:
    """Small tables on segments, and one that is larger than the smallest cache."""
    sql = Sql(connected(segments_dsn), segments_dsn)
    ends = ("", "_info", "_summary", "_states", "_history")
    known = (*TABLES, "wide_packed", "wide_configs", "one", "four")
    drop = f"DROP TABLE IF EXISTS blobs, wide, {', '.join(f'{name}{end}' for name in known for end in ends)} CASCADE"
    sql.run(drop)
    make_tables(sql, blobs, "")
    rows = ROWS * sql.value("SELECT count(DISTINCT partition_key) FROM packed")
    sql.run(
        f"CREATE TABLE wide AS SELECT g AS id, g % 3 AS y, array_fill((g % 3)::real / 8, ARRAY[{WIDTH}]) AS x "
        f"FROM generate_series(1, {rows}) g DISTRIBUTED BY (id)"
    )
    sql.run("SELECT cerebro_pack('wide', 'wide_packed', 'y', 'x', 50)")
    sql.run("SELECT cerebro_load_model('models', %s)", (model(DENSE, SOFTMAX, shape=(WIDTH,)),))
    select(sql, "wide_configs", [3], [ADAM], ["batch_size=32,epochs=2", "batch_size=16"])
    select(sql, "one", [2], [ADAM], ["batch_size=8"])
    select(sql, "four", [1, 2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])
    yield sql
    # Others have left tables of their own names.
    made = (
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'whole\\_%'"
    )
    for name in sql.column(made):
        sql.run(f"DROP TABLE IF EXISTS {name}")
    sql.run(drop)
    sql.connection.close()


@pytest.fixture
def partitions(bench: Sql) -> int:
    return int(bench.value("SELECT count(DISTINCT partition_key) FROM packed"))


def fit(
    sql: Sql, strategy: str, configs: str = "four", epochs: int = 2, more: str = f", {OPTIONS}"
) -> tuple[str, int]:
    """A run over the small tables; returns its output and its number."""
    out = next(_names)
    call = f"SELECT cerebro_fit_multiple('packed', '{out}', '{configs}', {epochs}"
    return out, int(sql.value(f"{call}, strategy := '{strategy}'{more})"))


def test_a_worker_trains_whole_configurations_on_its_segment_to_the_bits_of_hopper(
    bench: Sql, partitions: int
) -> None:
    hopper = fit(bench, "hopper", "configs", 3)
    with trainers(bench.dsn) as seen:
        task = fit(bench, "task", "configs", 3)
    assert results(bench, *task) == results(bench, *hopper)
    assert bench.fetch(HOPS, (task[1],)) == bench.fetch(HOPS, (hopper[1],))
    # Ten configurations, each with one worker, each of which has read all partitions.
    assert bench.fetch(WORKERS, (task[1],)) == [(key, 1) for key in range(1, 11)]
    read = "SELECT worker, count(DISTINCT partition_key) FROM cerebro.hops WHERE run_id = %s GROUP BY 1 ORDER BY 1"
    assert bench.fetch(read, (task[1],)) == [(worker, partitions) for worker in range(partitions)]
    # A session has one trainer, on one segment, for all of its statements. At the end another one makes
    # the models, wherever their states are; it may be seen on some of these only.
    assert len(seen) == len({(segment, session) for segment, session, _ in seen})
    places = Counter(session for _, session, _ in seen)
    assert sum(count > 1 for count in places.values()) <= 1, sorted(seen)
    alone = {segment for segment, session, _ in seen if places[session] == 1}
    assert alone == set(range(partitions)), sorted(seen)


class Noted(SegmentTraining):
    """Statements of a run that are remembered.

    Args:
        settings: further ones of workers.
    """

    def __init__(self, settings: str = "") -> None:
        self._settings = settings
        self.hop_orders: list[HopOrder] = []
        self.scan_orders: list[tuple[str, ScanOrder]] = []

    def worker_settings(self, states: StateTables) -> str:
        return super().worker_settings(states) + self._settings

    def hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        self.hop_orders.append(order)
        return super().hop(packed, order)

    def scan(self, packed: PackedTable, order: ScanOrder) -> Statement:
        self.scan_orders.append((str(packed.relation.name), order))
        return super().scan(packed, order)

    def reads(self) -> Counter[tuple[str, int, int]]:
        """How often the rows of a partition went to a worker's home: table, partition and home."""
        found = [("public.packed", order) for order in self.hop_orders] + self.scan_orders
        return Counter(
            (name, order.partition_key, order.home.partition_key)
            for name, order in found
            if order.reads and order.home is not None
        )


def noted_run(
    bench: Sql, packed: str, configs: str, epochs: int, noted: Noted | None = None, **more: Any
) -> tuple[Noted, str]:
    """A run of a driver here, whose statements are remembered, and its output."""
    client, noted, out = Client.of(bench.dsn), noted or Noted(), next(_names)
    client.dialect.training = noted
    request = FitRequest(
        source_table=packed, model_output_table=out, model_selection_table=configs, num_iterations=epochs, strategy="task", search_path=client.search_path,
        cores=client.cores, **more,
    )  # fmt: skip
    try:
        fit_multiple(client.pool, client.dialect, request)
    finally:
        client.pool.close()
    return noted, out


def test_rows_go_to_a_worker_once(bench: Sql, partitions: int) -> None:
    noted, _ = noted_run(
        bench, "packed", "configs", 3, validation_table="val", metrics_compute_frequency=1
    )
    assert len(noted.hop_orders) == 10 * partitions * 3
    homes = {json.loads(order.task)["worker"]: order.home for order in noted.hop_orders}
    assert sorted(one.partition_key for one in homes.values() if one) == list(range(partitions))
    reads = noted.reads()
    assert set(reads.values()) == {1}
    trained = [(partition, home) for table, partition, home in reads if table == "public.packed"]
    assert sorted(trained) == list(itertools.product(range(partitions), repeat=2))


def test_rows_that_no_worker_can_keep_move_again_and_give_the_same_bits(
    bench: Sql, partitions: int
) -> None:
    weights = "SELECT mst_key, md5(model_weights) FROM {} ORDER BY 1"
    call = "SELECT cerebro_fit_multiple('wide_packed', '{}', 'wide_configs', 2)"
    bench.run(call.format("again"))
    calm = bench.fetch(weights.format("again"))
    bench.run("SELECT cerebro_set('cache_mb', '1')")
    try:
        small, out = noted_run(bench, "wide_packed", "wide_configs", 2)
    finally:
        bench.run("SELECT cerebro_set('cache_mb', NULL)")
    assert bench.fetch(weights.format(out)) == calm
    assert sum(small.reads().values()) > partitions * 2
    # Without any cache each pass over the rows is one of the statement, which has too little memory here.
    little = Noted("; SET statement_mem = '2MB'")
    none, out = noted_run(bench, "wide_packed", "wide_configs", 2, little, use_caching=False)
    assert bench.fetch(weights.format(out)) == calm
    assert {order.passes for order in none.hop_orders} == {1, 2}
    assert all(order.reads for order in none.hop_orders)


def test_one_configuration_has_one_worker_and_begins_with_any_weights(
    bench: Sql, partitions: int
) -> None:
    hopper, task = fit(bench, "hopper", "one"), fit(bench, "task", "one")
    assert results(bench, *task) == results(bench, *hopper)
    shown = "SELECT schedule, num_workers FROM cerebro.runs WHERE run_id = %s"
    assert bench.row(shown, (task[1],)) == ("task", 1)
    assert bench.fetch(WORKERS, (task[1],)) == [(1, 1)]
    bench.run(
        f"UPDATE models SET model_weights = (SELECT model_weights FROM {task[0]}) WHERE model_id = 2"
    )
    try:
        later = [fit(bench, strategy, "one", 1) for strategy in ("hopper", "task")]
    finally:
        bench.run("UPDATE models SET model_weights = NULL WHERE model_id = 2")
    assert results(bench, *later[0]) == results(bench, *later[1])
    assert results(bench, *later[0])[0] != results(bench, *task)[0]
    # From where a run has ended, by states of other segments.
    for out, strategy in ((hopper[0], "task"), (task[0], "hopper")):
        bench.run(
            f"SELECT cerebro_fit_multiple('packed', '{out}', 'one', 1, strategy := '{strategy}', warm_start := true)"
        )
    weights = "SELECT md5(model_weights) FROM {}"
    assert bench.value(weights.format(hopper[0])) == bench.value(weights.format(task[0]))


EPOCHS = 20


@pytest.fixture(scope="module")
def calm(bench: Sql) -> list[Any]:
    """What a run leaves that nothing stopped."""
    return results(bench, *fit(bench, "hopper", epochs=EPOCHS))


@pytest.fixture
def under_way(bench: Sql) -> Callable[[], tuple[Background, str, int]]:
    """Begins a run, and returns when it has made some hops."""

    def begin() -> tuple[Background, str, int]:
        out = next(_names)
        call = (
            f"SELECT cerebro_fit_multiple('packed', '{out}', 'four', {EPOCHS}, strategy := 'task', "
            f"{OPTIONS}, name := '{out}')"
        )
        caller = Background(bench.dsn, call, ())
        hops = (
            "SELECT (SELECT h.run_id FROM cerebro.hops h JOIN cerebro.runs r USING (run_id) "
            "WHERE r.name = %s GROUP BY 1 HAVING count(*) >= 20)"
        )
        return caller, out, until(bench, hops, (out,), 200)

    return begin


def interrupted(bench: Sql, caller: Background, run_id: int) -> None:
    """End the session of a run's driver, and wait until it has stopped."""
    bench.run("SELECT pg_terminate_backend(%s)", (caller.pid,))
    caller.join()
    stopped = "SELECT status IN ('cancelled', 'interrupted') FROM cerebro.runs WHERE run_id = %s"
    until(bench, stopped, (run_id,))


@pytest.mark.parametrize("workers", ["", ", num_workers := 1"])
def test_a_run_whose_driver_ends_goes_on_by_whatever_workers(
    bench: Sql,
    calm: list[Any],
    under_way: Callable[[], tuple[Background, str, int]],
    workers: str,
) -> None:
    caller, out, run_id = under_way()
    interrupted(bench, caller, run_id)
    done = bench.value("SELECT count(*) FROM cerebro.hops WHERE run_id = %s", (run_id,))
    assert done < len(calm[-1])
    assert bench.value(f"SELECT cerebro_resume(%s{workers})", (run_id,)) == run_id
    assert results(bench, out, run_id) == calm


def test_hops_that_no_driver_wrote_down_have_the_worker_that_made_them(
    bench: Sql, under_way: Callable[[], tuple[Background, str, int]]
) -> None:
    caller, _, run_id = under_way()
    interrupted(bench, caller, run_id)
    made = "SELECT mst_key, epoch, position, worker FROM cerebro.hops WHERE run_id = %s"
    before = set(bench.fetch(made, (run_id,)))
    bench.run("DELETE FROM cerebro.catalog_hops WHERE run_id = %s", (run_id,))
    bench.value("SELECT cerebro_resume(%s, max_seconds := 0.01)", (run_id,))
    known = {one[:3] for one in before}
    found = {one for one in bench.fetch(made, (run_id,)) if one[:3] in known}
    assert len({worker for *_, worker in found}) > 1
    assert found <= before
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_a_trainer_that_is_killed_costs_a_hop(
    bench: Sql, calm: list[Any], under_way: Callable[[], tuple[Background, str, int]]
) -> None:
    with closing(connected(bench.dsn)) as connection:
        other = Sql(connection, bench.dsn)
        caller, out, run_id = under_way()
        wait_for(lambda: kill_trainer(other))
        caller.join()
    assert caller.error is None
    assert any("done again" in line for line in caller.connection.notices)
    assert results(bench, out, run_id) == calm
