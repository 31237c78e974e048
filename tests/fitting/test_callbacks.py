"""Callbacks between epochs: what stops, what is restored, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg2
import pytest

from tests.fitting.conftest import ADAM
from tests.fitting.sizes import PARTITIONS
from tests.fitting.test_resume import results
from tests.fitting.test_runs import _buffers, _fresh_model

Fit = Callable[..., tuple[str, int]]
EPOCHS = 6
# The loss falls, so that with mode='max' the first epoch is the best one, for certain.
FITS = (
    "batch_size=8",
    "batch_size=8,callbacks=[EarlyStopping('loss', mode='max', patience=2, restore_best_weights=True)]",
    "batch_size=8,callbacks=[EarlyStopping('val_loss', mode='max', patience=4)]",
    "batch_size=8,callbacks=[ReduceLROnPlateau('val_loss', 0.5, mode='max', patience=1)]",
    "batch_size=8,callbacks=[LearningRateScheduler(ExponentialDecay(0.02, 1, 0.5))]",
    "batch_size=8,callbacks=[EarlyStopping('val_loss', mode='max', patience=9, restore_best_weights=True)]",
)
ENDS = {1: (None, None, 6), 2: (3, 1, 1), 3: (5, 1, 5), 4: (None, None, 6), 5: (None, None, 6), 6: (None, 1, 1)}  # fmt: skip
ENDED = "SELECT mst_key, stopped_epoch, best_epoch, model_epoch, status FROM {} ORDER BY mst_key"


@pytest.fixture(scope="module")
def configs(bench: Any) -> str:
    bench.run(
        "SELECT cerebro_load_configs('models', 'called', ARRAY[1], %s, %s)", ([ADAM], list(FITS))
    )
    return "called"


@pytest.fixture(scope="module")
def stopped(bench: Any, configs: str) -> tuple[str, int]:
    """A run of all of them that nothing disturbed."""
    del bench.connection.notices[:]
    call = f"SELECT cerebro_fit_multiple('packed', 'stopped', '{configs}', {EPOCHS}"
    return "stopped", bench.value(f"{call}, validation_table := 'val', num_workers := 2)")


@pytest.fixture(scope="module")
def free(bench: Any, configs: str) -> tuple[str, int]:
    """The same configurations without callbacks."""
    for suffix in ("", "_summary"):
        bench.run(f"CREATE TABLE uncalled{suffix} AS SELECT * FROM {configs}{suffix}")
    bench.run("UPDATE uncalled SET fit_params = 'batch_size=8'")
    options = "validation_table := 'val', metrics_compute_frequency := 1, num_workers := 2"
    bench.run(f"SELECT cerebro_fit_multiple('packed', 'freed_1', 'uncalled', 1, {options})")
    call = f"SELECT cerebro_fit_multiple('packed', 'freed', 'uncalled', {EPOCHS}, {options})"
    return "freed", bench.value(call)


def test_a_configuration_stops_and_the_best_state_is_its_model(
    bench: Any, stopped: tuple[str, int], weights: Any, free: tuple[str, int]
) -> None:
    lines = "".join(bench.connection.notices)
    out, run_id = stopped
    assert {row[0]: row[1:4] for row in bench.fetch(ENDED.format(f"{out}_info"))} == ENDS
    ended = ENDED.format("cerebro.catalog_configurations WHERE run_id = %s")
    assert {row[0]: row[1:] for row in bench.fetch(ended, (run_id,))} == {
        key: (*end, "finished") for key, end in ENDS.items()
    }
    models = weights(out)
    assert models[2] == weights("freed_1")[2]
    assert models[6] == weights("freed_1")[6]
    assert models[1] == weights("freed")[1]  # the others are as they would be without them
    assert models[4] != weights("freed")[4]
    assert "configuration 2 stopped early after epoch 3, best epoch 1" in lines
    assert "configuration 4: learning rate 0.005" in lines


def test_what_is_measured_is_that_of_the_epochs_that_were_trained(
    bench: Any, stopped: tuple[str, int], free: tuple[str, int]
) -> None:
    columns = "mst_key, training_loss, validation_loss, validation_metrics"
    query = f"SELECT {columns} FROM {{}}_info ORDER BY mst_key"
    ours, theirs = (bench.fetch(query.format(out)) for out in ("stopped", "freed"))
    for key, length in ((1, 6), (2, 3), (3, 5), (6, 6)):
        assert ours[key - 1][1:] == tuple(series[:length] for series in theirs[key - 1][1:])
    final = "SELECT validation_loss_final, validation_loss[{}] FROM stopped_info WHERE mst_key = {}"
    for key, epoch in ((1, 6), (2, 1), (3, 5), (6, 1)):
        found, expected = bench.row(final.format(epoch, key))
        assert found == expected


def test_views_know_where_configurations_end(bench: Any, stopped: tuple[str, int]) -> None:
    of_run = (stopped[1],)
    hops = PARTITIONS * (4 * EPOCHS + 3 + 5)
    progress = "SELECT epoch, hops_done, hops_planned, configurations FROM cerebro.progress"
    assert bench.row(f"{progress} WHERE run_id = %s", of_run) == (EPOCHS, hops, hops, 6)
    rows = bench.fetch(
        "SELECT mst_key, epoch, stopped_epoch, best_epoch, status FROM cerebro.leaderboard "
        "WHERE run_id = %s ORDER BY 1",
        of_run,
    )
    assert [row[1] for row in rows] == [ENDS[key][2] for key in range(1, 7)]
    assert [row[2:4] for row in rows] == [ENDS[key][:2] for key in range(1, 7)]
    assert {row[4] for row in rows} == {"finished"}
    last = "SELECT mst_key, max(epoch) FROM cerebro.hops WHERE run_id = %s GROUP BY 1 ORDER BY 1"
    assert bench.fetch(last, of_run) == [(1, 6), (2, 3), (3, 5), (4, 6), (5, 6), (6, 6)]


# Where the run breaks off, one after the other: a table of the catalog, what is done there, and to what.
BREAKS = {
    "within an epoch": ("hops", "INSERT", "NEW.mst_key = 6 AND NEW.epoch = 3 AND NEW.position = 1"),
    "between two data sets": (
        "metrics",
        "INSERT",
        "NEW.mst_key = 2 AND NEW.epoch = 3 AND NEW.dataset = 'validation'",
    ),
    "before it is told that one stops": (
        "configurations",
        "UPDATE",
        "NEW.mst_key = 2 AND NEW.stopped_epoch = 3",
    ),
    "at the end": ("runs", "UPDATE", "NEW.status = 'finished'"),
}


@contextmanager
def broken(bench: Any, table: str, action: str, condition: str) -> Iterator[None]:
    """Lets the server refuse something as if its disk were full."""
    bench.run(
        "CREATE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'no space'; END $$"
    )
    bench.run(
        f"CREATE TRIGGER break_off BEFORE {action} ON cerebro.catalog_{table} "
        f"FOR EACH ROW WHEN ({condition}) EXECUTE PROCEDURE break_off()"
    )
    with pytest.raises(psycopg2.errors.DiskFull):
        yield
    bench.run("DROP FUNCTION break_off() CASCADE")


def test_a_run_that_breaks_off_anywhere_decides_the_same(
    bench: Any, configs: str, stopped: tuple[str, int]
) -> None:
    call = (
        f"SELECT cerebro_fit_multiple('packed', 'broken', '{configs}', {EPOCHS}, "
        "validation_table := 'val', num_workers := 2, durability := 'epoch')"
    )
    run_id = None
    for break_off in BREAKS.values():
        if run_id is not None and _is_past(bench, run_id, *break_off):
            continue
        with broken(bench, *break_off):
            bench.run(call)
        run_id = bench.value("SELECT max(run_id) FROM cerebro.runs")
        call = f"SELECT cerebro_resume({run_id})"
        if break_off == BREAKS["within an epoch"]:
            _miss_the_best_state(bench, run_id, call)
    bench.run(call)
    assert results(bench, "broken", run_id) == results(bench, *stopped)
    assert bench.fetch(ENDED.format("broken_info")) == bench.fetch(ENDED.format("stopped_info"))


def _is_past(bench: Any, run_id: int, table: str, action: str, condition: str) -> bool:
    """Whether the run was there already when it broke off.

    Rows of hops are written up to a second later where tables lie on segments, and it goes on meanwhile.
    """
    where = condition.replace("NEW.", "")
    rows = f"SELECT count(*) FROM cerebro.catalog_{table} WHERE run_id = %s AND {where}"
    return bool(bench.value(rows, (run_id,)))


def _miss_the_best_state(bench: Any, run_id: int, resume: str) -> None:
    """Configuration 6 is in epoch 3 and would go back to epoch 1."""
    name = bench.value("SELECT states FROM cerebro._runs WHERE run_id = %s", (run_id,))
    tables = bench.column(
        "SELECT 'cerebro_states.' || relname FROM pg_class "
        "WHERE relname LIKE %s AND relkind = 'r' AND relpersistence = 'p'",
        (f"{name}%",),
    )
    wanted = f"mst_key = 6 AND version = {PARTITIONS}"
    found = [t for t in tables if bench.value(f"SELECT count(*) FROM {t} WHERE {wanted}")]
    assert len(found) == 1
    bench.run(f"CREATE TABLE best_state AS SELECT * FROM {found[0]} WHERE {wanted}")
    bench.run(f"DELETE FROM {found[0]} WHERE {wanted}")
    with pytest.raises(
        psycopg2.errors.DataException, match=f"no state of mst_key 6 after {PARTITIONS}"
    ):
        bench.run(resume)
    bench.run(f"INSERT INTO {found[0]} TABLE best_state")
    bench.run("DROP TABLE best_state")


KERAS = (
    "ReduceLROnPlateau('loss', 0.3, mode='max', patience=1)",
    "LearningRateScheduler(PolynomialDecay(0.05, 5, power=2.0))",
    "EarlyStopping('loss', mode='max', patience=3, restore_best_weights=True)",
)


@pytest.mark.parametrize("callback", KERAS)
def test_a_configuration_equals_plain_keras_with_its_callback(
    bench: Any,
    fit: Fit,
    weights: Any,
    selection: Callable[..., str],
    tensorflow: None,
    callback: str,
) -> None:
    """``model.fit`` over all epochs, in the order of the plan, to the bit."""
    configs = selection([2], [ADAM], [f"batch_size=8,callbacks=[{callback}]"])
    out, run_id = fit(configs=configs, epochs=5, seed=9)
    keras_model = _fresh_model(bench, run_id)
    batches = list(_batches(bench, run_id))
    history = keras_model.fit(
        (pair for pair in batches),
        steps_per_epoch=len(batches) // 5,
        epochs=5,
        verbose=0,
        callbacks=[_of_keras(callback)],
    )
    flat = b"".join(np.asarray(w).astype(np.float32).tobytes() for w in keras_model.get_weights())
    assert flat == weights(out)[1]
    assert len(history.epoch) == bench.value(
        "SELECT max(epoch) FROM cerebro.hops WHERE run_id = %s", (run_id,)
    )


def _batches(bench: Any, run_id: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from cerebro_db.training.partitions import Buffers, Partition, RowOrder
    from cerebro_db.training.shuffle import salt

    plan = bench.fetch(
        "SELECT epoch, partition_key FROM cerebro.catalog_plan WHERE run_id = %s "
        "ORDER BY epoch, position",
        (run_id,),
    )
    for epoch, key in plan:
        buffers = _buffers(bench, "packed", key)
        facts = Buffers(tuple(range(len(buffers))), tuple(len(x) for x, _ in buffers))
        features, labels = (np.concatenate(arrays) for arrays in zip(*buffers, strict=True))
        order = RowOrder(9, epoch, key, salt(9, epoch, key), shuffle=True)
        rows = order.whole(0, Partition(facts, features, labels))
        for start in range(0, len(rows), 8):
            batch = rows[start : start + 8]
            yield features[batch], labels[batch]


def _of_keras(text: str) -> Any:
    import keras

    from cerebro_db.configs.grids.parameters import parse_fit_params
    from cerebro_db.training.backends.tensorflow.models import make_schedule

    (spec,) = parse_fit_params(f"callbacks=[{text}]").callbacks
    if spec.schedule is not None:
        schedule = make_schedule(spec.schedule)
        return keras.callbacks.LearningRateScheduler(lambda epoch: float(schedule(epoch)))
    return getattr(keras.callbacks, spec.name)(**spec.all_arguments())


def test_measures_by_frequency_are_what_callbacks_see(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    callback = "callbacks=[EarlyStopping('loss', mode='max', patience=1)]"
    configs = selection([1], [ADAM], [callback])
    out, _ = fit(configs=configs, epochs=9, metrics_compute_frequency=3)
    assert bench.fetch(ENDED.format(f"{out}_info")) == [(1, 6, 3, 6, "finished")]
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue,
        match=r"metrics_compute_frequency: got 9.*allowed: 1 to 8",
    ):
        fit(configs=configs, epochs=9, metrics_compute_frequency=9)
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match="monitor='val_loss'; allowed: loss, acc"
    ):
        fit(configs=selection([1], [ADAM], ["callbacks=[EarlyStopping()]"]))


def test_beyond_memory_and_with_all_stopped_before_the_end(
    bench: Any, fit: Fit, selection: Callable[..., str], weights: Any
) -> None:
    stopping = "callbacks=[EarlyStopping('loss', mode='max', patience={})]"
    configs = selection([1], [ADAM], [stopping.format(1), stopping.format(3)])
    del bench.connection.notices[:]
    out, run_id = fit(configs=configs, epochs=300)
    streamed, _ = fit(configs=configs, epochs=300, use_caching=False)
    assert [row[1] for row in bench.fetch(ENDED.format(f"{out}_info"))] == [2, 4]
    assert weights(streamed) == weights(out)
    lines = [line for line in bench.connection.notices if "epoch" in line and "of 300" in line]
    assert len(lines) == 2 * 4
    status = "SELECT status, epoch, hops_planned FROM cerebro.progress WHERE run_id = %s"
    assert bench.row(status, (run_id,)) == ("finished", 300, 6 * PARTITIONS)
