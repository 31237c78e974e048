"""Strategies beside hopping, in a database: results, determinism, kills, bad input."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest
from gates import Gate
from pace import until as until_true
from reasons import EMBEDDED_ONLY

from cerebro_db.training.state import from_bytes
from tests.fitting.conftest import ADAM, select
from tests.fitting.sizes import PARTITIONS
from tests.fitting.test_progress import Background, until
from tests.fitting.test_resume import results

Fit = Callable[..., tuple[str, int]]
OPTIONS = {"validation_table": "val", "metrics_compute_frequency": 1}


def states(bench: Any, out: str) -> dict[int, dict[str, np.ndarray]]:
    """The states of each configuration."""
    rows = bench.fetch(
        f"SELECT mst_key, string_agg(state, ''::bytea ORDER BY chunk) FROM {out}_states GROUP BY 1"
    )
    return {mst_key: from_bytes(bytes(data)) for mst_key, data in rows}


@pytest.fixture(scope="module", autouse=True)
def pair(bench: Any) -> None:
    """Two configurations of a net with batch normalisation and dropout."""
    select(bench, "pair", [2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])


def test_task_equals_hopper_to_the_bit(bench: Any, fit: Fit) -> None:
    calm = results(bench, *fit(**OPTIONS))
    out, run_id = fit(strategy="task", num_workers=2, **OPTIONS)
    assert results(bench, out, run_id) == calm
    assert any("a worker trains whole configurations" in line for line in bench.notices)
    shown = bench.row(
        "SELECT schedule, strategy_params, num_workers FROM cerebro.runs WHERE run_id = %s",
        (run_id,),
    )
    assert shown == ("task", "", 2)
    workers = (
        "SELECT mst_key, count(DISTINCT worker) FROM cerebro.hops WHERE run_id = %s GROUP BY 1"
    )
    assert [count for _, count in bench.fetch(workers, (run_id,))] == [1] * 4


def test_averaging_is_the_mean_of_what_numpy_makes_of_its_parts(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    """One epoch over each partition alone, from the same state; their mean, weighted by rows."""
    configs = selection([1], [ADAM], ["batch_size=8"])
    out, run_id = fit(configs=configs, epochs=1, strategy="averaging")
    ours = states(bench, out)[1]
    rows = dict(
        bench.fetch(
            "SELECT partition_key, rows FROM cerebro.hops WHERE run_id = %s ORDER BY 1", (run_id,)
        )
    )
    assert len(rows) == PARTITIONS
    theirs = [replica(bench, configs, key) for key in rows]
    for name, array in ours.items():
        if array.dtype.kind == "f":
            stacked = np.stack([one[name] for one in theirs]).astype(np.float64)
            wanted = np.average(stacked, axis=0, weights=list(rows.values())).astype(np.float32)
            np.testing.assert_allclose(array, wanted, rtol=1e-6, atol=1e-9)
    assert any((theirs[0][name] != theirs[1][name]).any() for name in ours)


def replica(bench: Any, configs: str, key: int) -> dict[str, np.ndarray]:
    """The state after a hop over one partition, from the initial weights of the first configuration."""
    from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
    from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
    from cerebro_db.training.hop import Hop, HopTask
    from cerebro_db.training.partitions import Buffers, PartitionCache, RowOrder
    from cerebro_db.training.programs import Programs
    from cerebro_db.training.recipe import Recipe
    from cerebro_db.training.scores.targets import TargetFacts
    from cerebro_db.training.shuffle import salt

    rows = bench.fetch(
        "SELECT buffer_id, label, x FROM packed WHERE partition_key = %s ORDER BY 1", (key,)
    )
    pieces = {
        buffer_id: (
            np.frombuffer(bytes(x), np.float32).reshape(-1, 6),
            np.frombuffer(bytes(y), np.int32),
        )
        for buffer_id, y, x in rows
    }
    (text,) = bench.row("SELECT model_arch::text FROM models WHERE model_id = 1")
    (seed,) = bench.row(
        "SELECT initial_seed FROM cerebro.catalog_configurations c WHERE mst_key = 1 "
        "ORDER BY run_id DESC LIMIT 1"
    )
    config = check_architecture(text)
    targets = TargetFacts("class", 3, ())
    recipe = Recipe(
        config, fingerprint(config), parse_compile_params(ADAM),
        parse_fit_params("batch_size=8"), targets, False, 100,
    )  # fmt: skip
    buffers = Buffers(tuple(pieces), tuple(len(x) for x, _ in pieces.values()))
    order = RowOrder(0, 1, key, salt(0, 1, key), True)
    task = HopTask(recipe, order, buffers, (1, "training", key), seed, True)
    hop = Hop(task, None, None, Programs(), PartitionCache(2**20), lambda: None)
    for buffer_id in order.buffers(0, buffers.ids):
        hop.feed(0, buffer_id, *pieces[buffer_id])
    return from_bytes(hop.finish()[0])


@pytest.mark.parametrize(
    ("strategy", "params", "workers"),
    [
        ("averaging", "rounds=2, optimizer=reset", (1, 3)),
        ("allreduce", "rounds=2", (None, 8)),
        ("pipe", "rounds=2, bits=8", (8, None)),
    ],
)
def test_results_are_the_same_from_run_to_run_whoever_works(
    bench: Any, fit: Fit, strategy: str, params: str, workers: tuple[int | None, int | None]
) -> None:
    given = {"strategy": strategy, "strategy_params": params, **OPTIONS}
    found = [
        results(bench, *fit(configs="pair", **given, num_workers=count, use_caching=is_first))
        for is_first, count in ((True, workers[0]), (False, workers[1]))
    ]
    assert found[0] == found[1]
    losses = {row[:3]: row[3] for row in found[0][2]}
    assert all(losses[key, 2, "training"] < losses[key, 1, "training"] for key in (1, 2))
    hops = 2 * 2 * PARTITIONS * 2
    assert len(found[0][-1]) == hops
    progress = bench.row(
        "SELECT strategy, hops_done, hops_planned FROM cerebro.progress ORDER BY run_id DESC LIMIT 1"
    )
    assert progress == (strategy, hops, hops)


def test_a_model_goes_on_by_another_strategy(bench: Any, fit: Fit, weights: Any) -> None:
    out, _ = fit(configs="pair", epochs=1)
    for given in ({"strategy": "averaging"}, {"strategy": "pipe", "strategy_params": "warm_up=0"}):
        before = weights(out)
        fit(configs="pair", epochs=1, out=out, warm_start=True, **given)
        assert bench.column(f"SELECT DISTINCT status FROM {out}_info") == ["finished"]
        after = weights(out)
        assert all(after[key] != before[key] for key in (1, 2))


KILLS = {
    "worker": "SELECT pg_terminate_backend(pid) FROM cerebro.hops WHERE run_id = %s "
    "ORDER BY finished DESC LIMIT 1",
    "driver": "SELECT pg_terminate_backend(driver_pid) FROM cerebro._runs WHERE run_id = %s",
    "pause": "SELECT cerebro_pause(%s)",
}


@pytest.fixture(scope="module")
def calm(bench: Any) -> dict[str, list[Any]]:
    """What runs leave that nothing stopped, by strategy."""
    return {}


@contextlib.contextmanager
def under_way(
    bench: Any, gate: Gate, out: str, more: str, configs: str = "pair"
) -> Iterator[tuple[Background, int]]:
    """A run that has made some hops, and waits before it has made many more."""
    gate.shut(hops=20)
    call = (
        f"SELECT cerebro_fit_multiple('packed', '{out}', '{configs}', 8, {more}, name := '{out}')"
    )
    caller = Background(bench.dsn, call, ())
    seen = (
        "SELECT (SELECT h.run_id FROM cerebro.hops h JOIN cerebro.runs r USING (run_id) "
        "WHERE r.name = %s GROUP BY 1 HAVING count(*) >= 13)"
    )
    try:
        yield caller, until(bench, seen, (out,))
    finally:
        gate.open()
        caller.join()


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
@pytest.mark.parametrize(
    ("strategy", "how", "durability"),
    [
        ("averaging", "worker", "hop"),
        ("averaging", "driver", "hop"),
        ("averaging", "pause", "epoch"),
        ("allreduce", "trainer", "hop"),
        ("allreduce", "pause", "epoch"),
    ],
)
def test_a_round_that_was_stopped_ends_as_if_nothing_had_happened(
    bench: Any,
    gate: Gate,
    fit: Fit,
    calm: dict[str, list[Any]],
    strategy: str,
    how: str,
    durability: str,
) -> None:
    more = f"strategy := '{strategy}', durability := '{durability}'"
    if strategy not in calm:
        out, run_id = fit(configs="pair", epochs=8, strategy=strategy)
        calm[strategy] = results(bench, out, run_id)
    if how == "trainer":
        assert_a_lost_trainer_changes_nothing(bench, gate, strategy, more, "pair", calm[strategy])
        return
    out = f"stopped_{strategy}_{how}"
    with under_way(bench, gate, out, more) as (caller, run_id):
        bench.run(KILLS[how], (run_id,))
        if how == "pause":
            caller.join()
            has_stopped(bench, run_id)
    if how != "pause":  # it has gone on by itself
        assert caller.error is None
        assert any("lost its sessions" in line for line in caller.connection.notices)
    resume(bench, run_id)
    assert results(bench, out, run_id) == calm[strategy]


def has_stopped(bench: Any, run_id: int) -> None:
    """A run stands still before its end."""
    status = "SELECT status = 'paused' FROM cerebro.runs WHERE run_id = %s"
    until(bench, status, (run_id,))


def assert_a_lost_trainer_changes_nothing(
    bench: Any, gate: Gate, strategy: str, more: str, configs: str, calm: Any
) -> None:
    """A run one of whose trainers is killed does something again, and ends with the same bits."""
    out = f"killed_{strategy}_{configs}"
    with under_way(bench, gate, out, more, configs) as (caller, run_id):
        kill_a_trainer(bench, gate)
    assert caller.error is None
    assert results(bench, out, run_id) == calm
    assert any("done again" in line for line in caller.connection.notices)


def kill_a_trainer(bench: Any, gate: Gate) -> None:
    """End one of the processes that compute for the workers of a round, all of which wait for it.

    It stands still before its worker gets anything to do: it has given no part of the round away.
    """
    workers = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'cerebro worker' "
        "AND datname = current_database() AND state = %s"
    )

    def idle() -> list[int]:
        """Of workers that have nothing more to do for a round that waits at the gate."""
        resting = set(bench.column(workers, ("idle",)))
        return [pid for pid, worker in trainers().items() if gate.waiting() and worker in resting]

    def stopped() -> int | None:
        """A trainer that stands still, whose worker has nothing to do: that may have changed before it stood still."""
        trainer = until_true(idle)[0]
        os.kill(trainer, signal.SIGSTOP)
        if trainer in idle():
            return trainer
        os.kill(trainer, signal.SIGCONT)
        return None

    trainer = until_true(stopped)
    worker = trainers()[trainer]
    gate.open()
    # In this round, where the driver had not come to it, or in the next one.
    until(bench, f"SELECT count(*) > 0 FROM ({workers} AND pid = %s) AS w", ("active", worker))
    time.sleep(0.5)  # until it has sent what it has to send
    os.kill(trainer, signal.SIGKILL)


def trainers() -> dict[int, int]:
    """Processes that compute, and the worker of each."""
    names = {int(path.parent.name): named(path) for path in Path("/proc").glob("[0-9]*/comm")}
    return {
        pid: int(name.split()[1])
        for pid, name in names.items()
        if name.startswith("trainer ") and name.split()[1].isdigit()
    }


def named(path: Path) -> str:
    """The name of a process, if it is still there."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def resume(bench: Any, run_id: int) -> None:
    """Go on with a run that does not by itself; what does not outlive a crash is gone."""
    status = "SELECT status FROM cerebro.runs WHERE run_id = %s"
    over = status.replace("status FROM", "status NOT IN ('running', 'starting') FROM")
    until(bench, over, (run_id,))
    if bench.value(status, (run_id,)) == "finished":
        return
    name = bench.value("SELECT states FROM cerebro._runs WHERE run_id = %s", (run_id,))
    passing = (
        "SELECT relname FROM pg_class WHERE relname LIKE %s AND relkind = 'r' "
        "AND relpersistence = 'u'"
    )
    for table in bench.column(passing, (f"{name}%",)):
        bench.run(f"TRUNCATE cerebro_states.{table}")
    assert bench.value("SELECT cerebro_resume(%s)", (run_id,)) == run_id


@pytest.mark.parametrize(
    ("given", "sqlstate", "message"),
    [
        ({"strategy": "averagin"}, "22023", "unknown strategy 'averagin'. Did you mean 'averaging'"),
        pytest.param(
            {"strategy": "rotation"}, "0A000", "strategy: got 'rotation'; allowed on this server: 'hopper', 'task'",
            marks=pytest.mark.not_on_segments(EMBEDDED_ONLY),
        ),
        ({"strategy": "task", "strategy_params": "rounds=2"}, "22023", "It belongs to 'averaging'"),
        ({"strategy": "averaging", "schedule": "rotation"}, "22023", "schedule: got 'rotation' beside strategy"),
        (
            {"strategy": "allreduce", "num_workers": PARTITIONS - 1},
            "22023",
            f"num_workers: got {PARTITIONS - 1}; allowed with strategy := 'allreduce': from {PARTITIONS}",
        ),
        ({"strategy": "allreduce", "strategy_params": "optimizer=reset"}, "22023", "got 'optimizer'; allowed: rounds. It belongs to 'averaging'"),
        ({"strategy_params": "rounds=2"}, "22023", "strategy_params of hopper: got 'rounds'"),
        ({"strategy": "averaging", "strategy_params": "rounds=9000"}, "22023", r"got rounds=9000; allowed: 1 to \d+, as the largest partition of \S+packed has \d+ rows, so \d+ batches of \d+"),
    ],
)  # fmt: skip
def test_bad_strategies(
    bench: Any, fit: Fit, given: dict[str, Any], sqlstate: str, message: str
) -> None:
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=message) as caught:
        fit(**given)
    assert caught.value.pgcode == sqlstate
    assert caught.value.diag.message_hint
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs


def test_the_scale_of_a_loss_has_no_mean(fit: Fit, selection: Callable[..., str]) -> None:
    configs = selection([1], [f"{ADAM},dtype_policy='mixed_float16'"])
    with pytest.raises(
        psycopg2.Error, match="configuration 1: got an optimizer that scales"
    ) as caught:
        fit(configs=configs, strategy="averaging")
    assert "optimizer=reset" in caught.value.diag.message_hint
