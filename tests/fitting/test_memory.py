"""The memory of workers: reported for every hop, and limited by a setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM, SOFTMAX, layer, model, select

Fit = Callable[..., tuple[str, int]]


def test_a_run_that_may_need_more_than_is_allowed_is_refused(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    wide = model(layer("Dense", units=200_000, activation="relu"), SOFTMAX)
    model_id = bench.value("SELECT cerebro_load_model('models', %s)", (wide,))
    facts = bench.value("SELECT model_facts FROM models WHERE model_id = %s", (model_id,))
    forged = json.dumps(facts | {"parameters": 1})
    bench.run("UPDATE models SET model_facts = %s WHERE model_id = %s", (forged, model_id))
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    bench.run("SELECT cerebro_set('max_worker_mb', '900')")
    try:
        message = r"may need \d+ MB \(TensorFlow 750 MB, data 0 MB, programs 20 MB, states \d+ MB, activations 64 MB\); "
        with pytest.raises(
            psycopg2.errors.InvalidParameterValue, match=message + "allowed: 900 MB"
        ):
            fit(configs=selection([model_id], [ADAM]), epochs=1)
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=message):
            # One program for both, as XLA does not compile it.
            fit(configs=selection([model_id], [ADAM], ["batch_size=8", "batch_size=9"]), epochs=1)
        assert bench.value("SELECT count(*) FROM cerebro.runs") == runs
        fit(configs=selection([1], [ADAM]), epochs=1)
    finally:
        bench.run("SELECT cerebro_set('max_worker_mb', NULL)")


@pytest.fixture(scope="module")
def wide(bench: Any) -> None:
    """A model of few parameters whose rows take 16 MB."""
    repeat = layer("RepeatVector", n=2**20 // 6)
    text = model(repeat, layer("GlobalAveragePooling1D"), SOFTMAX)
    bench.run("SELECT cerebro_load_model('wide_models', %s)", (text,))


def _select(bench: Any, name: str, batch_size: int) -> str:
    bench.run(
        "SELECT cerebro_load_configs('wide_models', %s, ARRAY[1], %s, %s)",
        (name, [ADAM], [f"batch_size={batch_size}"]),
    )
    return name


def test_a_batch_that_no_machine_holds_is_refused_by_default(
    bench: Any, fit: Fit, wide: None
) -> None:
    configs = _select(bench, "wide_batches", 1_000_000)
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=r"activations \d{6,} MB") as no:
        fit(configs=configs, epochs=1)
    assert "max_worker_mb" in no.value.diag.message_hint


def test_forged_facts_are_found_out_by_the_worker(bench: Any, fit: Fit, wide: None) -> None:
    facts = bench.value("SELECT model_facts FROM wide_models")
    assert {"row_bytes", "largest_bytes"} <= facts.keys()
    forged = json.dumps(facts | {"row_bytes": 0, "largest_bytes": 0})
    bench.run("UPDATE wide_models SET model_facts = %s", (forged,))
    configs = _select(bench, "forged_batches", 1_000_000)
    started = bench.value("SELECT pg_postmaster_start_time()")
    out, _ = fit(configs=configs, epochs=1)
    status, error = bench.row(f"SELECT status, error FROM {out}_info")
    assert (status, "activations" in error) == ("failed", True)
    assert bench.value("SELECT pg_postmaster_start_time()") == started


def test_every_hop_tells_its_peak(bench: Any, fit: Fit) -> None:
    _, run_id = fit(epochs=1)
    low, high = bench.row(
        "SELECT min(memory_mb), max(memory_mb) FROM cerebro.hops WHERE run_id = %s", (run_id,)
    )
    assert 200 < low <= high < 5000


# Every row of a batch by every one: no estimate knows what a function allocates.
GREEDY = "loss='custom.greedy',optimizer='SGD(lr=0.01)',metrics=[]"


@pytest.fixture
def greedy(bench: Any) -> Iterator[int]:
    """A loss whose memory is the square of its batch; megabytes that a trainer may have."""
    bench.run(
        "CREATE TABLE many AS SELECT b.x, b.target, b.id + 150 * i AS id"
        " FROM blobs b, generate_series(1, 400) AS i"
    )
    bench.run("SELECT cerebro_pack('many', 'packed_many', 'target', 'x', num_partitions := 2)")
    bench.run("SELECT cerebro_load_model('tops', %s)", (model(layer("Dense", units=1)),))
    bench.run("SELECT cerebro_register_function('greedy', 'keras.ops:outer')")
    bench.run("SELECT cerebro_set('max_worker_mb', '1500')")
    yield 1500
    bench.run("SELECT cerebro_set('max_worker_mb', NULL)")
    bench.run(
        "DELETE FROM cerebro.catalog_functions; DROP TABLE many, packed_many, packed_many_summary"
    )


def test_a_configuration_that_allocates_beyond_its_limit_fails_alone(
    bench: Any, fit: Fit, greedy: int, connect: Callable[[str], Any]
) -> None:
    bystander = connect(bench.dsn)
    bystander.run("PREPARE mine AS SELECT count(*) FROM pg_class; BEGIN; CREATE TABLE kept (a int)")
    before = bystander.row("SELECT pg_backend_pid(), pg_postmaster_start_time()")
    rates = [GREEDY.replace("0.01", f"0.0{n}") for n in range(1, 9)]
    select(bench, "eight", [1], rates, ["batch_size=10"], "tops")
    # The dearest comes first: its worker has to go on with others.
    bench.run("UPDATE eight SET fit_params = 'batch_size=30000,epochs=9000' WHERE mst_key = 3")
    out, _ = fit("packed_many", "eight", 1, num_workers=2)
    told = bench.fetch(f"SELECT mst_key, status, error FROM {out}_info ORDER BY mst_key")
    assert [status for _, status, _ in told] == ["finished", "finished", "failed"] + [
        "finished"
    ] * 5, told

    assert f"allowed: {greedy} MB a worker" in told[2][2]
    bystander.run("INSERT INTO kept VALUES (1)")
    assert bystander.value("EXECUTE mine") > 0
    bystander.run("ROLLBACK")
    assert bystander.row("SELECT pg_backend_pid(), pg_postmaster_start_time()") == before
