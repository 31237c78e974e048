"""Runs with mixed rows: the same bits for any number of workers; nets and strategies that cannot mix are refused."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM, SOFTMAX, layer, model, select

MIXUP = ["batch_size=8,mixup=0.3"]


def test_the_number_of_workers_changes_no_bit(bench: Any, weights: Any) -> None:
    select(bench, "mixing", [1, 2], [ADAM], MIXUP)
    for workers in (1, 2):
        bench.run(
            f"SELECT cerebro_fit_multiple('packed', 'mixed_{workers}', 'mixing', 1, num_workers := {workers})"
        )
    assert weights("mixed_1") == weights("mixed_2")


def test_what_cannot_be_mixed_is_refused_before_any_work(bench: Any) -> None:
    select(bench, "mixing_rounds", [1, 2], [ADAM], MIXUP)
    with pytest.raises(
        psycopg2.Error,
        match=r"strategy: got 'averaging' with mixup in the configuration 1; allowed: ",
    ):
        bench.run(
            "SELECT cerebro_fit_multiple('packed', 'refused', 'mixing_rounds', 1, strategy := 'averaging')"
        )
    net = model(layer("Embedding", input_dim=9, output_dim=2), layer("Flatten"), SOFTMAX)
    bench.run("SELECT cerebro_load_model('embedding_nets', %s)", (net,))
    select(bench, "mixing_ids", [1], [ADAM], MIXUP, "embedding_nets")
    with pytest.raises(psycopg2.Error, match=r"got mixup=0.3 for a net with an Embedding"):
        bench.run("SELECT cerebro_fit_multiple('packed', 'refused', 'mixing_ids', 1)")
