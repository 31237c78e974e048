"""Searches on a server: the same trials, decisions and weights with any workers, killed or not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gates import Gate
from msgspec import structs
from pace import stretched

from cerebro_db.core.spec import Space
from cerebro_db.decide.search.methods.asha import Asha
from cerebro_db.errors import InvalidArgument, WrongRunStatus
from cerebro_db.postgres.calls.host import Client
from cerebro_db.requests.searching import (
    AddConfigsRequest,
    CloneRequest,
    ExtendRequest,
    NarrowRequest,
    ReplayRequest,
    StopConfigRequest,
)
from cerebro_db.runs.searches import extending, notices, replay, requests
from cerebro_db.runs.searches.search import search
from tests.fitting import searching
from tests.fitting.searching import METHODS, SPACE
from tests.fitting.test_progress import until
from tests.fitting.test_resume import results

DECISIONS = (
    "SELECT number, mst_key, action, epochs, source, source_epoch, reason, who, heard::text, "
    "detail::text FROM cerebro._decisions WHERE run_id = %s ORDER BY 1, 2"
)
TABLES = "SELECT relname FROM pg_class WHERE relname LIKE 'run\\_%' ORDER BY 1"


def drive(bench: Any, name: str, *arguments: object) -> int:
    """Begin or resume a search in a process of its own; returns its exit status."""
    command = [sys.executable, "-m", "fitting.searching", bench.dsn, name, *map(str, arguments)]
    return subprocess.run(command, cwd=Path(__file__).parents[1], timeout=stretched(300)).returncode


def run_of(bench: Any, name: str) -> int:
    return int(bench.value("SELECT run_id FROM cerebro.runs WHERE name = %s", (name,)))


def left_by(bench: Any, name: str) -> list[Any]:
    """All that a search leaves."""
    run_id = run_of(bench, name)
    plan = (
        "SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_plan "
        "WHERE run_id = %s ORDER BY 1, 2, 3"
    )
    return results(bench, name, run_id) + [
        bench.fetch(query, (run_id,)) for query in (DECISIONS, plan)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_number_of_workers_does_not_show(bench: Any, method: str) -> None:
    name = method.replace("-", "_")
    assert drive(bench, f"{name}_1", 1, method) == 0
    first = left_by(bench, f"{name}_1")
    assert bench.value(f"SELECT count(*) FROM {name}_1") > 3
    for workers in (2, 4) if method in ("asha", "hyperband") else (4,):
        assert drive(bench, f"{name}_{workers}", workers, method) == 0
        assert left_by(bench, f"{name}_{workers}") == first


@pytest.mark.parametrize(("method", "last"), [("asha+", 7), ("hyperband", 8)])
def test_a_search_that_is_killed_around_its_decisions_ends_the_same(
    bench: Any, method: str, last: int
) -> None:
    calm_name, stormy = f"calm_{method.strip('+')}", f"stormy_{method.strip('+')}"
    assert drive(bench, calm_name, 2, method) == 0
    calm, before = left_by(bench, calm_name), bench.fetch(TABLES)
    assert len({row[0] for row in calm[-2]}) > last
    assert drive(bench, stormy, 1, method, "", "before", 1) == -signal.SIGKILL
    run_id = run_of(bench, stormy)
    assert bench.fetch(DECISIONS, (run_id,)) == []
    for kill in (("after", 2), ("before", 5), ("after", last)):
        assert drive(bench, stormy, 2, method, run_id, *kill) == -signal.SIGKILL
    assert drive(bench, stormy, 3, method, run_id) == 0
    assert left_by(bench, stormy) == calm
    assert bench.fetch(TABLES) == before


ADAM = "loss='sparse_categorical_crossentropy',optimizer='Adam(lr=0.02)',metrics=['accuracy']"


def going_on(bench: Any, name: str, *arguments: object) -> tuple[subprocess.Popen[bytes], int]:
    """A search that trains; the process that drives it, and its run_id."""
    command = [sys.executable, "-m", "fitting.searching", bench.dsn, name, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
    hops = (
        "SELECT count(*) FROM cerebro.hops JOIN cerebro.runs r USING (run_id) WHERE r.name = %s "
        "AND epoch > 2"
    )
    end = time.monotonic() + stretched(120)
    while not bench.value(hops, (name,)):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    return process, run_of(bench, name)


def models(bench: Any, name: str) -> dict[int, str]:
    return dict(bench.fetch(f"SELECT mst_key, md5(model_weights) FROM {name} ORDER BY 1"))


def test_others_change_a_search_which_can_be_repeated(bench: Any, gate: Gate) -> None:
    gate.shut(epoch=40)  # none of the first ones ends before it is stopped
    process, run_id = going_on(bench, "steered", 2, "long")
    # On a busy machine one worker begins long before the other, and has one trial first.
    until(
        bench,
        "SELECT count(DISTINCT mst_key) = 2 FROM cerebro.hops WHERE run_id = %s AND mst_key IN (1, 2) AND epoch > 3",
        (run_id,),
    )
    client = Client.of(bench.dsn)
    added = requests.add(client.pool, AddConfigsRequest(run_id, [2], [ADAM], ["batch_size=8"], 3))
    assert added == [5]
    copied = requests.clone(client.pool, CloneRequest(run_id, 1, "batch_size=4", 2))
    assert copied == 6
    assert requests.stop(client.pool, StopConfigRequest(run_id, 2)) == "stopped"
    requests.narrow(
        client.pool,
        NarrowRequest(run_id, SPACE.model_ids, SPACE.compile_params_grid, SPACE.fit_params_grid),
    )
    for wrong, told in (
        (lambda: requests.stop(client.pool, StopConfigRequest(run_id, 2)), "has not ended"),
        (
            lambda: requests.add(client.pool, AddConfigsRequest(run_id, [7], [ADAM], [""])),
            "the models of the run",
        ),
        (lambda: requests.clone(client.pool, CloneRequest(run_id, 99)), "got 99"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            wrong()
    for key in (1, 3, 4):
        requests.stop(client.pool, StopConfigRequest(run_id, key))
    assert process.wait(stretched(120)) == 0
    gate.open()
    decided = bench.fetch(DECISIONS, (run_id,))
    assert [row[2] for row in decided if row[7]] == [
        "add", "clone", "stop", "narrow", "stop", "stop", "stop",
    ]  # fmt: skip
    status = dict(bench.fetch("SELECT mst_key, model_epoch FROM steered_info"))
    assert status[5] == 3
    assert status[6] == 2
    assert 2 < status[1] < 150
    assert bench.value("SELECT count(*) FROM cerebro._requests") == 0

    request = ReplayRequest(run_id, "steered_again", "steered_again", num_workers=3,
                                  search_path=client.search_path, cores=client.cores)  # fmt: skip
    repeated = replay.replay(client.pool, client.dialect, request)
    assert models(bench, "steered_again") == models(bench, "steered")
    assert bench.fetch(DECISIONS, (repeated,)) == decided
    client.pool.close()
    with pytest.raises(WrongRunStatus, match="which is finished"):
        requests.stop(client.pool, StopConfigRequest(run_id, 1))


def test_a_search_that_decides_as_soon_as_it_can_is_repeated(bench: Any) -> None:
    client = Client.of(bench.dsn)
    request = searching.request(
        "asha", "hasty", 4, client, deterministic=False, early_stopping="patience=1"
    )
    run_id = search(client.pool, client.dialect, request)
    asked = ReplayRequest(run_id, "hasty_again", num_workers=1,
                                search_path=client.search_path, cores=client.cores)  # fmt: skip
    repeated = replay.replay(client.pool, client.dialect, asked)
    assert models(bench, "hasty_again") == models(bench, "hasty")
    assert bench.fetch(DECISIONS, (repeated,)) == bench.fetch(DECISIONS, (run_id,))
    client.pool.close()


def test_a_finished_search_goes_on_with_a_larger_budget(bench: Any) -> None:
    client = Client.of(bench.dsn)
    run_id = search(client.pool, client.dialect, searching.request("random", "little", 2, client))
    more = "num_configs=2, num_iterations=4"
    assert extending.extend(client.pool, client.dialect, ExtendRequest(run_id, more)) == run_id
    assert dict(bench.fetch("SELECT mst_key, model_epoch FROM little_info")) == dict.fromkeys(
        range(1, 8), 4
    )
    # They were planned together: as if they had had that budget from the beginning.
    params = {"num_configs": 5, "num_iterations": 4}
    whole = searching.request("random", "much", 2, client, params=params)
    search(client.pool, client.dialect, whole)
    found = models(bench, "little")
    assert {key: found[key] for key in range(1, 6)} == models(bench, "much")
    client.pool.close()


def test_what_was_measured_after_a_target_was_reached_does_not_count(bench: Any) -> None:
    client = Client.of(bench.dsn)
    params, found = {"num_configs": 6, "num_iterations": 6}, []
    for workers in (1, 2, 4):
        name = f"aimed_{workers}"
        rule = "target=0.6"
        asked = searching.request(
            "random", name, workers, client, early_stopping=rule, params=params
        )
        run_id = search(client.pool, client.dialect, asked)
        rows = bench.fetch(
            "SELECT mst_key, rank, status, epoch, objectives, reason FROM cerebro.trials "
            "WHERE run_id = %s ORDER BY mst_key",
            (run_id,),
        )
        found.append((rows, results(bench, name, run_id)[:4], bench.fetch(DECISIONS, (run_id,))))
        later = (
            "SELECT count(*) FROM cerebro.metrics m JOIN cerebro._configurations c "
            "USING (run_id, mst_key) WHERE run_id = %s AND m.epoch > COALESCE(c.model_epoch, 0)"
        )
        assert bench.value(later, (run_id,)) == 0
    assert "finish" in [row[2] for row in found[0][2]]
    assert found[1] == found[0]
    assert found[2] == found[0]
    client.pool.close()


def test_max_seconds_end_a_search(bench: Any) -> None:
    client = Client.of(bench.dsn)
    for seconds in (6, 24, 96):  # until one has done an epoch, on a machine that is busy
        name = f"brief_{seconds}"
        endless = {**searching.LONG, "num_iterations": 100_000}
        request = searching.request("long", name, 2, client, max_seconds=seconds, params=endless)
        run_id = search(client.pool, client.dialect, request)
        decided = bench.fetch(DECISIONS, (run_id,))
        assert ("finish", "max_seconds") in [(row[2], row[7]) for row in decided]
        status = bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,))
        if status == "finished":
            break
    assert status == "finished"
    epochs = dict(bench.fetch(f"SELECT mst_key, model_epoch FROM {name}_info"))
    # Some of them may not have come to the end of one.
    assert all(epoch is None or 0 < epoch < 100_000 for epoch in epochs.values())
    client.pool.close()


def test_a_search_learns_from_an_earlier_run(bench: Any) -> None:
    client = Client.of(bench.dsn)
    first = search(client.pool, client.dialect, searching.request("tpe", "taught", 4, client))
    params = {**searching.METHODS["tpe"], "num_configs": 3}
    warm = searching.request("tpe", "learnt", 4, client, warm_start_run=first, params=params)
    run_id = search(client.pool, client.dialect, warm)
    earlier = bench.value(
        "SELECT jsonb_array_length(spec -> 'search' -> 'earlier') FROM cerebro._runs WHERE run_id = %s",
        (run_id,),
    )
    assert earlier == 10
    texts = "SELECT compile_params FROM {}_info ORDER BY mst_key LIMIT 3"
    assert bench.column(texts.format("learnt")) != bench.column(texts.format("taught"))
    fit = bench.value("SELECT cerebro_fit_multiple('packed', 'unlike', 'configs', 1)")
    with pytest.raises(InvalidArgument, match="warm_start_run"):
        search(
            client.pool,
            client.dialect,
            structs.replace(warm, warm_start_run=fit, model_output_table="none"),
        )
    client.pool.close()


def test_what_was_requested_outlives_the_driver(bench: Any) -> None:
    """Killed when the states were made anew, before the decision was stored: whoever resumes goes on with it."""
    for name in ("calm_more", "stormy_more"):
        assert drive(bench, name, 2, "random") == 0
    calm, stormy = run_of(bench, "calm_more"), run_of(bench, "stormy_more")
    assert drive(bench, "calm_more", 2, "extend", calm) == 0
    number = "SELECT max(number) + 1 FROM cerebro._decisions WHERE run_id = %s"
    at = bench.value(number, (stormy,))
    assert drive(bench, "stormy_more", 2, "extend", stormy, "before", at) == -signal.SIGKILL
    assert bench.value(number, (stormy,)) == at
    assert bench.value("SELECT count(*) FROM cerebro._requests WHERE action = 'extend'") == 1
    # Another extension comes in the place of the first; the first is asked for again here.
    assert drive(bench, "stormy_more", 2, "extend", stormy, "before", at) == -signal.SIGKILL
    assert drive(bench, "stormy_more", 3, "random", stormy) == 0
    assert left_by(bench, "stormy_more") == left_by(bench, "calm_more")
    assert bench.value("SELECT count(*) FROM stormy_more") == 7
    assert bench.value("SELECT count(*) FROM cerebro._requests") == 0


def test_trials_that_the_clock_has_stopped_go_on(bench: Any, gate: Gate) -> None:
    """Their models are those that they would have come to at once."""
    client, params = Client.of(bench.dsn), {"num_configs": 3, "num_iterations": 50}
    epochs: dict[int, int] = {}
    gate.shut(epoch=40)  # on a fast machine
    for seconds in (4, 16, 64):  # until one has done an epoch, on a machine that is busy
        name = f"stopped_{seconds}"
        brief = searching.request("long", name, 2, client, max_seconds=seconds, params=params)
        run_id = search(client.pool, client.dialect, brief)
        done = f"SELECT mst_key, model_epoch FROM {name}_info WHERE model_epoch IS NOT NULL"
        epochs = dict(bench.fetch(done))
        if epochs:
            break
    gate.open()
    assert all(epoch < 50 for epoch in epochs.values())
    with pytest.raises(InvalidArgument, match="got nothing more to do"):
        extending.extend(client.pool, client.dialect, ExtendRequest(run_id))
    assert (
        extending.extend(client.pool, client.dialect, ExtendRequest(run_id, max_seconds=300))
        == run_id
    )
    assert dict(bench.fetch(done)) == dict.fromkeys(epochs, 50)
    whole = searching.request("random", "unstopped", 2, client, params=params)
    search(client.pool, client.dialect, whole)
    expected = models(bench, "unstopped")
    assert models(bench, name) == {key: expected[key] for key in epochs}
    status = "SELECT DISTINCT status FROM cerebro.trials WHERE run_id = %s AND mst_key = ANY (%s)"
    assert bench.column(status, (run_id, list(epochs))) == ["finished"]
    client.pool.close()


def test_who_fails_ahead_of_the_target_is_given_up_all_the_same(bench: Any) -> None:
    """The second one diverges in its first hops; the first has reached the target by then, in virtual time."""
    client, found = Client.of(bench.dsn), []
    space = Space(
        (1,),
        "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
        "'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.01, 1e30]}]}",
        "{'batch_size': [8]}",
    )
    for workers in (1, 4):
        name = f"ahead_{workers}"
        rule = "target=0.0"
        asked = searching.request("grid", name, workers, client, early_stopping=rule, space=space)
        run_id = search(client.pool, client.dialect, asked)
        rows = "SELECT mst_key, status, epoch, action, error FROM cerebro.trials WHERE run_id = %s ORDER BY 1"
        found.append(bench.fetch(rows, (run_id,)))
    told = "the target is reached by 1"
    assert found[0] == [(1, "stopped", 1, "stop", None), (2, "cancelled", None, "stop", told)]
    assert found[1] == found[0]
    client.pool.close()


def test_a_method_that_raises_ends_its_search_with_its_tables(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is said why; nobody has to drop a run that stops at the same place each time."""
    observed, heard = Asha.observed, []

    def raising(self: Asha, trial: Any, trials: Any) -> Any:
        heard.append(trial.mst_key)
        if len(heard) >= 4:
            raise KeyError("SGD")
        return observed(self, trial, trials)

    monkeypatch.setattr(Asha, "observed", raising)
    client, told = Client.of(bench.dsn), []
    request = searching.request("asha", "ended_by_fault", 2, client)
    run_id = search(client.pool, client.dialect, request, notify=told.append)
    reason = "its method has failed: KeyError: 'SGD'"
    assert any(line.startswith(f"the search ends, as {reason}; the models") for line in told)
    assert told[-1].endswith(f"; no trial was trained for 4 epochs: {reason}")
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "finished"
    assert bench.value("SELECT count(*) FROM ended_by_fault") >= 4
    (finish,) = bench.fetch(
        "SELECT number, reason FROM cerebro.decisions WHERE run_id = %s AND action = 'finish'",
        (run_id,),
    )
    assert finish[1] == reason
    with pytest.raises(InvalidArgument, match=f"a search that has ended, as {reason}"):
        extending.extend(client.pool, client.dialect, ExtendRequest(run_id, "num_configs=2"))
    client.pool.close()


def test_a_small_budget_of_trials_has_a_model_of_all_epochs(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However fast the trials are: each look at them counts.
    monkeypatch.setattr(notices, "_SOONEST", 0.0)
    client = Client.of(bench.dsn)
    params = {"num_configs": 20, "R": 9, "r": 1, "eta": 3}
    request = searching.request(
        "asha", "few_trials", 2, client, max_configs=6, concurrency=2, params=params
    )
    told: list[str] = []
    run_id = search(client.pool, client.dialect, request, notify=told.append)
    epochs = bench.column("SELECT model_epoch FROM few_trials_info ORDER BY 1 DESC")
    assert (len(epochs), epochs[0]) == (6, 9)
    decided = "SELECT reason FROM cerebro.decisions WHERE run_id = %s AND action = 'promote'"
    reason = "the best so far goes on to epoch 9, which no trial has reached"
    assert reason in bench.column(decided, (run_id,))
    counts = "SELECT finished_trials, stopped FROM cerebro.searches WHERE run_id = %s"
    full = "SELECT count(nullif(model_epoch = 9, false)), count(nullif(model_epoch < 9, false)) FROM few_trials_info"
    assert bench.row(counts, (run_id,)) == bench.row(full)
    board = "SELECT mst_key, status FROM cerebro.leaderboard WHERE run_id = %s ORDER BY 1"
    assert bench.fetch(board, (run_id,)) == bench.fetch(
        "SELECT mst_key, status FROM few_trials_info ORDER BY 1"
    )
    row = "SELECT best_mst_key, best_objective FROM cerebro.searches WHERE run_id = %s"
    key, value = bench.row(row, (run_id,))
    compiling = bench.value("SELECT compile_params FROM few_trials_info WHERE mst_key = %s", (key,))
    begins = (
        f"search of 6 trials has ended: best is trial {key} with val_accuracy {value:.4g} after"
    )
    assert told[-1].startswith(begins)
    assert compiling in told[-1]
    assert told[:-1]
    assert all(" of 6 trials done, " in line for line in told[:-1]), told
    statement = told[-1][told[-1].index("SELECT ") : -len(" uses it")]
    bench.run(statement)
    assert bench.value("SELECT count(*) > 0 FROM few_trials_predicted")
    # The limit is larger now: the trials that it has kept back are tried.
    extending.extend(client.pool, client.dialect, ExtendRequest(run_id, max_configs=3))
    assert bench.value("SELECT count(*) FROM few_trials") == 9
    client.pool.close()
