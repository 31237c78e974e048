"""Runs whose states hold averages of weights, copies of them, or the scale of a loss: stopped and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fitting.conftest import ADAM

CONFIGURATIONS = [
    ADAM.replace("lr=0.01", "lr=0.01,use_ema=True,ema_momentum=0.9"),
    ADAM.replace("Adam(", "ScheduleFreeAdamW(") + ",dtype_policy='mixed_float16'",
]


def test_stopped_and_resumed_they_end_with_the_same_bits(
    bench: Any, fit: Any, weights: Any, selection: Callable[..., str]
) -> None:
    from cerebro_db.training.state import from_bytes

    configs = selection([1], CONFIGURATIONS)
    whole, _ = fit(configs=configs)
    stopped, run_id = fit(configs=configs, max_seconds=0.001)
    status = "SELECT status FROM cerebro.runs WHERE run_id = %s"
    for seconds in (0.1, 0.2, 0.5, 60):  # what is not paused any more cannot be resumed
        if bench.value(status, (run_id,)) == "paused":
            bench.run("SELECT cerebro_resume(%s, max_seconds := %s)", (run_id, seconds))
    assert bench.fetch(f"SELECT status FROM {stopped}_info") == [("finished",)] * 2
    assert weights(stopped) == weights(whole)
    states = "SELECT mst_key, state FROM {}_states ORDER BY 1"
    assert bench.fetch(states.format(stopped)) == bench.fetch(states.format(whole))
    # What is handed out are the averages, and what they are scored with.
    averaged, scaled = (from_bytes(bytes(row[1])) for row in bench.fetch(states.format(whole)))
    kernel = np.frombuffer(weights(whole)[1], np.float32)[: 6 * 8].reshape(6, 8)
    assert (kernel == averaged["averages/0/kernel"]).all()
    assert (kernel != averaged["weights/0/kernel"]).any()
    assert any(name.endswith("/scale") for name in scaled)
    bench.run(f"SELECT cerebro_evaluate('{whole}', 'packed', '{whole}_scores')")
    scores = bench.fetch(f"SELECT mst_key, loss FROM {whole}_scores ORDER BY 1")
    assert scores == bench.fetch(
        f"SELECT mst_key, training_loss_final FROM {whole}_info ORDER BY 1"
    )
