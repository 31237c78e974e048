"""The memory of workers: reported for every hop, and limited by a setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM, SOFTMAX, layer, model

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
    bench.run(
        """UPDATE wide_models SET model_facts = jsonb_set(jsonb_set(model_facts::jsonb,
           '{row_bytes}', '0'), '{largest_bytes}', '0')"""
    )
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
