"""Trains a case by a strategy; figures of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psycopg2

from benchmarks.database import load_apart
from benchmarks.hops import idle_share, read, span
from benchmarks.paper.cases import MOMENTUM, PARTITIONS, ROWS, Case, Strategy
from benchmarks.server import Server
from cerebro_db.postgres.names import STATES_SCHEMA

_FIT = (
    "SELECT cerebro_fit_multiple(%s, %s, %s, %s, validation_table := %s, metrics_compute_frequency := 1, "
    "strategy := %s, strategy_params := %s, num_workers := %s)"
)
_CURVE = """
SELECT m.mst_key, m.epoch, m.elapsed, m.metrics[1] FROM cerebro.metrics m
 WHERE m.run_id = %s AND m.dataset = 'validation' ORDER BY m.mst_key, m.epoch
"""
_OF_WORKERS = """
SELECT sum(g.rows), sum(g.memory) FROM (
    SELECT h.worker, sum(h.rows) AS rows, max(h.memory_mb) AS memory FROM cerebro.hops h
     WHERE h.run_id = %s GROUP BY h.worker) g
"""
_STORED = f"""
SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) FROM pg_catalog.pg_class c
 WHERE c.relnamespace = '{STATES_SCHEMA}'::regnamespace AND c.relkind = 'r'
"""
_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Tables:
    """Names of the tables of a case."""

    case: str

    @property
    def packed(self) -> str:
        """Rows to train on."""
        return f"{self.case}_packed"

    @property
    def held_out(self) -> str:
        """Rows to validate on."""
        return f"{self.case}_val_packed"

    def configurations(self, batch: int) -> str:
        """Models, with a batch size."""
        return f"{self.case}_configurations_{batch}"


@dataclass(frozen=True)
class Figures:
    """Figures of a run.

    Attributes:
        wall, hops: seconds of the call, and from the first hop to the last one.
        cpu: seconds of all processes.
        curves: of each model: epoch, seconds since the run began, accuracy on rows that it is not trained on.
        rows_per_second: trained by all workers together.
        idle: share of the time, from 0 to 1.
        state_bytes, weight_bytes: of one model.
        stored_bytes: of states in tables, at most, for all models.
        memory_mb: of all trainers together.
    """

    wall: float
    hops: float
    cpu: float
    curves: dict[int, list[tuple[int, float, float]]]
    rows_per_second: float
    idle: float
    state_bytes: int
    weight_bytes: int
    stored_bytes: int
    memory_mb: int

    def to_json(self) -> dict[str, Any]:
        """The measurement as plain values."""
        return asdict(self)


def load(server: Server, case: Case) -> Tables:
    """Make the tables of a case; this is not measured."""
    work, tables = case.workload, Tables(case.workload.name)
    count = len(work.features) - case.held_out
    with server.session() as cursor:
        load_apart(cursor, work, slice(0, count), slice(count, None), PARTITIONS)
        for batch in (ROWS, ROWS // 2, ROWS // 4):
            compiled = [
                f"loss='{work.loss}',optimizer='SGD(lr={rate},momentum={MOMENTUM})',metrics=['accuracy']"
                for rate in work.learning_rates
            ]
            cursor.execute(
                "SELECT cerebro_load_configs(%s, %s, ARRAY[1], %s, %s)",
                (f"{work.name}_models", tables.configurations(batch), compiled, [f"batch_size={batch},epochs=1"]),
            )  # fmt: skip
    return tables


def train(
    cursor: Any, server: Server, tables: Tables, strategy: Strategy, epochs: int, workers: int
) -> Figures:
    """Train all models of a case, and forget them.

    Args:
        cursor: of a session whose trainers stay.
        server: it is measured there.
        tables: of the case.
        strategy: how.
        epochs: of each model.
        workers: that are asked for.
    """
    out = f"{tables.case}_out"
    with _stored(server) as sizes, server.meter.measure() as cost:
        run_id = _fit(cursor, tables, out, strategy, epochs, workers)
    hops = read(cursor, run_id)
    cursor.execute(_CURVE, (run_id,))
    curves: dict[int, list[tuple[int, float, float]]] = {}
    for key, epoch, elapsed, accuracy in cursor.fetchall():
        curves.setdefault(key, []).append((epoch, elapsed, accuracy))
    cursor.execute(_OF_WORKERS, (run_id,))
    rows, memory = cursor.fetchone()
    cursor.execute(f"SELECT avg(s) FROM (SELECT sum(octet_length(state)) AS s FROM {out}_states GROUP BY mst_key) t")  # fmt: skip
    state_bytes = int(cursor.fetchone()[0])
    cursor.execute(f"SELECT avg(octet_length(model_weights)) FROM {out}")
    weight_bytes = int(cursor.fetchone()[0])
    forget(cursor, out, run_id)
    return Figures(
        cost.wall, span(hops), cost.cpu, curves, float(rows) / span(hops), idle_share(hops),
        state_bytes, weight_bytes, max(sizes), int(memory),
    )  # fmt: skip


def _fit(
    cursor: Any, tables: Tables, out: str, strategy: Strategy, epochs: int, workers: int
) -> int:
    given = (
        tables.packed, out, tables.configurations(strategy.batch), epochs, tables.held_out,
        strategy.strategy, strategy.params, workers,
    )  # fmt: skip
    cursor.execute(_FIT, given)
    return int(cursor.fetchone()[0])


def same_bits(cursor: Any, tables: Tables, strategy: Strategy, workers: int) -> bool:
    """True if two runs of an epoch leave the same weights."""
    found = []
    for _ in range(2):
        out = f"{tables.case}_twice"
        run_id = _fit(cursor, tables, out, strategy, 1, workers)
        cursor.execute(f"SELECT mst_key, md5(model_weights) FROM {out} ORDER BY 1")
        found.append(cursor.fetchall())
        forget(cursor, out, run_id)
    return bool(found[0] == found[1])


def forget(cursor: Any, out: str, run_id: int) -> None:
    """Remove what a run has left."""
    cursor.execute("SELECT cerebro_drop_outputs(%s)", (out,))
    cursor.execute("SELECT cerebro_drop_run(%s)", (run_id,))


@contextmanager
def _stored(server: Server) -> Iterator[list[int]]:
    """Sizes of all states, sampled at intervals."""
    sizes, ended = [0], threading.Event()
    connection = psycopg2.connect(server.dsn)
    connection.autocommit = True

    def sample() -> None:
        with connection.cursor() as cursor:
            while not ended.wait(_SAMPLE_SECONDS):
                cursor.execute(_STORED)
                sizes.append(int(cursor.fetchone()[0]))

    sampling = threading.Thread(target=sample, daemon=True)
    sampling.start()
    try:
        yield sizes
    finally:
        ended.set()
        sampling.join()
        connection.close()


def moved(
    strategy: Strategy, state: float, weights: float, rows: int, data: float, models: int
) -> float:
    """Bytes that a worker sends and receives in an epoch, were each worker a host of its own; reckoned.

    A state that hops moves once a hop. An all-reduce in a ring has each worker send and receive twice its gradients but
    for one share. Of averaging, and of a parameter server on one of the hosts, it is the mean of all hosts: the one that
    has the average, or the weights, moves half of all.

    Args:
        strategy: what is moved.
        state, weights: bytes of a model's state, and of its weights.
        rows, data: of the table: rows, and bytes.
        models: how many are trained.
    """
    others = (PARTITIONS - 1) / PARTITIONS
    gradient = weights * strategy.bits / 32
    steps = rows / PARTITIONS / strategy.batch
    each = {
        "state": 2 * state,  # as many hops as workers: one sent and one received by each
        "data": 2 * data * others / PARTITIONS,
        "replica": 2 * 2 * state * others * strategy.rounds,
        "gradient": 2 * 2 * gradient * others * steps,
        "server": 2 * 2 * gradient * others * steps,
    }
    return models * each[strategy.exchanges]


def first_at(curves: Sequence[Sequence[tuple[int, float, float]]], target: float) -> tuple[int, float] | None:  # fmt: skip
    """Epoch and seconds at which the first model is as good as a target; None where none is."""
    found = [
        (elapsed, epoch) for curve in curves for epoch, elapsed, value in curve if value >= target
    ]
    if not found:
        return None
    return min(epoch for _, epoch in found), min(found)[0]


def best(curves: Sequence[Sequence[tuple[int, float, float]]]) -> float:
    """The best accuracy of any model after any epoch."""
    return max(value for curve in curves for _, _, value in curve)
