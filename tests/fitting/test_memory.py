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
    bench.run("SELECT cerebro_set('max_worker_mb', '800')")
    try:
        message = (
            r"may need \d+ MB \(TensorFlow 750 MB, data 0 MB, programs 20 MB, states \d+ MB\); "
        )
        with pytest.raises(
            psycopg2.errors.InvalidParameterValue, match=message + "allowed: 800 MB"
        ):
            fit(configs=selection([model_id], [ADAM]), epochs=1)
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=message):
            # One program for both, as XLA does not compile it.
            fit(configs=selection([model_id], [ADAM], ["batch_size=8", "batch_size=9"]), epochs=1)
        assert bench.value("SELECT count(*) FROM cerebro.runs") == runs
        fit(configs=selection([1], [ADAM]), epochs=1)
    finally:
        bench.run("SELECT cerebro_set('max_worker_mb', NULL)")


def test_every_hop_tells_its_peak(bench: Any, fit: Fit) -> None:
    _, run_id = fit(epochs=1)
    low, high = bench.row(
        "SELECT min(memory_mb), max(memory_mb) FROM cerebro.hops WHERE run_id = %s", (run_id,)
    )
    assert 200 < low <= high < 5000
