"""Strategies with PyTorch models in a database, beside a Keras model where they train several: values, bits, kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg2
import pytest
from gates import Gate
from pace import until as until_true
from reasons import EMBEDDED_ONLY

from cerebro_db.training.partitions import RowOrder
from cerebro_db.training.shuffle import salt
from tests.fitting.conftest import CLASSES, FEATURES, FULL, select
from tests.fitting.test_parameter_server import SGD
from tests.fitting.test_pytorch import OF_TORCH, module, saved
from tests.fitting.test_resume import results
from tests.fitting.test_strategies import (
    assert_a_lost_trainer_changes_nothing,
    states,
    trainers,
    under_way,
)

torch = pytest.importorskip("torch")

Fit = Callable[..., tuple[str, int]]
NETS, BATCH, EPOCHS = "strategic_nets", 8, 2


def plain() -> Any:
    """A net whose gradient over rows is the sum of those of parts of them."""
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES)
    )


@pytest.fixture(scope="module", autouse=True)
def nets(bench: Any) -> None:
    """A Keras model and two PyTorch models; ``both`` has a configuration of each framework."""
    bench.run(f"SELECT cerebro_load_model('{NETS}', %s)", (FULL,))
    for net in (module(), plain()):
        file = psycopg2.Binary(saved(net.train()))
        bench.run(f"SELECT cerebro_load_model_file('{NETS}', %s)", (file,))
    select(bench, "of_keras", [1], [SGD], [f"batch_size={BATCH}"], NETS)
    select(bench, "of_torch", [2], [OF_TORCH], [f"batch_size={BATCH}"], NETS)
    select(bench, "of_plain", [3], [OF_TORCH], [f"batch_size={BATCH}"], NETS)
    bench.run("CREATE TABLE both_of AS SELECT * FROM of_keras")
    bench.run("INSERT INTO both_of SELECT 2, model_id, compile_params, fit_params FROM of_torch")
    bench.run("CREATE TABLE both_of_summary AS SELECT * FROM of_keras_summary")


def partition(bench: Any, key: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a partition in the order of a hop."""
    rows = bench.fetch(
        "SELECT buffer_id, x, label FROM packed WHERE partition_key = %s ORDER BY 1", (key,)
    )
    found = {
        number: (
            np.frombuffer(bytes(x), np.float32).reshape(-1, FEATURES),
            np.frombuffer(bytes(y), np.int32),
        )
        for number, x, y in rows
    }
    order = RowOrder(0, epoch, key, salt(0, epoch, key), True)
    pieces = [
        (x[index], y[index])
        for number in order.buffers(0, tuple(found))
        for x, y in [found[number]]
        for index in [order.rows(0, number, len(x))]
    ]
    x, y = (np.concatenate(part) for part in zip(*pieces, strict=True))
    return x, y


def test_allreduce_equals_eager_pytorch_with_the_batches_of_all_partitions(
    bench: Any, fit: Fit
) -> None:
    out, _ = fit(configs="of_plain", epochs=EPOCHS, strategy="allreduce")
    net = plain()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    keys = bench.column("SELECT DISTINCT partition_key FROM packed ORDER BY 1")
    for epoch in range(1, EPOCHS + 1):
        parts = [partition(bench, key, epoch) for key in keys]
        for start in range(0, max(len(x) for x, _ in parts), BATCH):
            x, y = (
                torch.from_numpy(
                    np.concatenate([one[which][start : start + BATCH] for one in parts])
                )
                for which in (0, 1)
            )
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y.long()).backward()
            optimizer.step()
    found = states(bench, out)[1]
    for name, wanted in net.state_dict().items():
        np.testing.assert_allclose(found[f"weights/{name}"], wanted.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("strategy", "params"),
    [
        ("averaging", "rounds=2, optimizer=reset"),
        ("pipe", "bits=8"),
        ("parameter_server", "mode=asynchronous"),
        ("groups", "groups=2"),
        ("auto", "processors=4, group=2"),
    ],
)
def test_strategies_train_models_of_both(bench: Any, fit: Fit, strategy: str, params: str) -> None:
    given = {"strategy": strategy, "strategy_params": params, "metrics_compute_frequency": 1}
    out, run_id = fit(configs="both_of", epochs=EPOCHS, **given)
    losses = {
        (key, epoch): loss
        for key, epoch, loss in bench.fetch(
            "SELECT mst_key, epoch, loss FROM cerebro.metrics WHERE run_id = %s", (run_id,)
        )
    }
    # Of updates that come as they come an epoch may be for the worse, a little.
    slack = 0.0 if strategy in ("averaging", "pipe") else 0.5
    for key in (1, 2):
        assert losses[key, EPOCHS] != losses[key, 1]
        assert losses[key, EPOCHS] < losses[key, 1] + slack
    assert bench.column(f"SELECT status FROM {out}_info") == ["finished"] * 2


def test_task_equals_hopper_to_the_bit(bench: Any, fit: Fit) -> None:
    hopper, task = (
        results(bench, *fit(configs="both_of", epochs=EPOCHS, num_workers=2, strategy=strategy))
        for strategy in ("hopper", "task")
    )
    assert hopper == task


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
@pytest.mark.parametrize(
    ("strategy", "configs"), [("hopper", "both_of"), ("allreduce", "of_torch")]
)
def test_a_trainer_that_is_killed_changes_no_bit(
    bench: Any, gate: Gate, fit: Fit, strategy: str, configs: str
) -> None:
    """A replica of a round has its own generator and counts of batches: what is kept is that of the first."""
    calm = results(bench, *fit(configs=configs, epochs=8, strategy=strategy))
    more = f"strategy := '{strategy}'"
    if strategy == "allreduce":
        assert_a_lost_trainer_changes_nothing(bench, gate, strategy, more, configs, calm)
        return
    out = f"killed_{strategy}_{configs}"
    with under_way(bench, gate, out, more, configs) as (caller, run_id):
        os.kill(until_true(lambda: waiting(gate))[0], signal.SIGKILL)
    assert caller.error is None
    assert results(bench, out, run_id) == calm


def waiting(gate: Gate) -> list[int]:
    """Trainers whose workers wait at the gate."""
    return [trainer for trainer, worker in trainers().items() if worker in gate.waiting()]
