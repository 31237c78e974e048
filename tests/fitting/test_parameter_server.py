"""Parameter server and groups, in a database: results, recorded orders, runs made again, kills, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from gates import Gate
from reasons import NO_GATE

from tests.fitting.conftest import select
from tests.fitting.sizes import PARTITIONS
from tests.fitting.test_resume import results
from tests.fitting.test_strategies import KILLS, kill_a_trainer, resume, under_way

Fit = Callable[..., tuple[str, int]]
OPTIONS = {"validation_table": "val", "metrics_compute_frequency": 1}
SGD = "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=0.02,momentum=0.9)',metrics=['accuracy']"
ASYNCHRONOUS = {"strategy": "parameter_server", "strategy_params": "mode=asynchronous"}


@pytest.fixture(scope="module", autouse=True)
def pair(bench: Any) -> Iterator[None]:
    """Two configurations of a net with batch normalisation and dropout, under a name that others use, too."""
    bench.run("DROP TABLE IF EXISTS pair, pair_summary")
    select(bench, "pair", [2], [SGD, SGD.replace("0.02", "0.01")], ["batch_size=8"])
    yield
    bench.run("DROP TABLE pair, pair_summary")


def updates(bench: Any, run_id: int) -> list[tuple[Any, ...]]:
    """What is recorded of the hops of a run."""
    return bench.fetch(  # type: ignore[no-any-return]
        "SELECT mst_key, epoch, position, groups, group_number, updates, staleness, stalest, momentum, "
        "learning_rate, probes FROM cerebro.updates WHERE run_id = %s ORDER BY 1, 2, 3",
        (run_id,),
    )


def test_a_synchronous_server_equals_allreduce_to_the_bit(bench: Any, fit: Fit) -> None:
    given = {"configs": "pair", "strategy_params": "rounds=2", **OPTIONS}
    wanted = results(bench, *fit(strategy="allreduce", **given))
    out, run_id = fit(strategy="parameter_server", deterministic=True, **given)
    assert results(bench, out, run_id) == wanted
    rows = updates(bench, run_id)
    assert len(rows) == 2 * 2 * 2 * PARTITIONS
    assert {row[3:5] + row[6:8] for row in rows} == {(1, 0, 0.0, 0)}


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        (ASYNCHRONOUS, PARTITIONS),
        ({"strategy": "groups", "strategy_params": "groups=2, rounds=2"}, 2),
    ],
)
def test_a_run_is_made_again_in_its_order(
    bench: Any, fit: Fit, given: dict[str, Any], groups: int
) -> None:
    out, run_id = fit(configs="pair", deterministic=False, **given, **OPTIONS)
    told = "each for itself" if groups == PARTITIONS else "in 2 groups"
    assert any(
        f"{PARTITIONS} workers train a configuration, {told}" in line for line in bench.notices
    )
    rows = updates(bench, run_id)
    assert {row[3] for row in rows} == {groups}
    assert {row[4] for row in rows} == set(range(groups))
    assert max(row[7] for row in rows) > 0
    wanted = None if groups == PARTITIONS else pytest.approx(0.4)
    assert all(row[8] == wanted for row in rows)
    again = bench.value("SELECT cerebro_replay(%s, %s)", (run_id, f"{out}_again"))
    assert results(bench, f"{out}_again", again) == results(bench, out, run_id)
    assert updates(bench, again) == rows


def test_probes_choose_groups_once_and_the_choice_is_recorded(bench: Any, fit: Fit) -> None:
    given = {"strategy": "groups", "strategy_params": "probe_steps=3"}
    out, run_id = fit(configs="pair", **given, **OPTIONS)
    rows = updates(bench, run_id)
    for key in (1, 2):
        own = [row for row in rows if row[0] == key]
        assert len({(row[3], row[8]) for row in own}) == 1
        first, later = [row for row in own if row[1] == 1], [row for row in own if row[1] == 2]
        probes = json.loads(first[0][10])
        assert {one["momentum"] for one in probes} == {0.0, 0.3, 0.6, 0.9}
        assert any((one["groups"], one["momentum"]) == (first[0][3], first[0][8]) for one in probes)
        assert {row[9:] for row in later} == {(None, None)}
    again = bench.value("SELECT cerebro_replay(%s, %s)", (run_id, f"{out}_again"))
    assert results(bench, f"{out}_again", again) == results(bench, out, run_id)


@pytest.mark.not_on_segments(NO_GATE)
@pytest.mark.parametrize("how", ["trainer", "driver"])
def test_a_round_that_was_lost_leaves_no_trace(bench: Any, gate: Gate, fit: Fit, how: str) -> None:
    more = "strategy := 'parameter_server', strategy_params := 'mode=asynchronous'"
    out = f"lost_{how}"
    with under_way(bench, gate, out, more) as (caller, run_id):
        if how == "trainer":
            kill_a_trainer(bench, gate)
        else:
            bench.run(KILLS[how], (run_id,))
    assert caller.error is None
    told = "its round is done again" if how == "trainer" else "lost its sessions"
    assert any(told in line for line in caller.connection.notices)
    resume(bench, run_id)
    found = results(bench, out, run_id)
    assert len(updates(bench, run_id)) == len(found[-1]) == 2 * 8 * PARTITIONS
    again = bench.value("SELECT cerebro_replay(%s, %s)", (run_id, f"{out}_again"))
    assert results(bench, f"{out}_again", again) == found


@pytest.mark.not_on_segments(NO_GATE)
def test_a_synchronous_round_that_was_lost_is_made_again_with_the_same_bits(
    bench: Any, gate: Gate, fit: Fit
) -> None:
    wanted = results(bench, *fit(configs="pair", epochs=8, strategy="parameter_server"))
    out = "lost_synchronous"
    with under_way(bench, gate, out, "strategy := 'parameter_server'") as (caller, run_id):
        kill_a_trainer(bench, gate)
    assert caller.error is None
    assert any("its round is done again" in line for line in caller.connection.notices)
    assert results(bench, out, run_id) == wanted


def test_the_record_goes_with_its_run(bench: Any, fit: Fit) -> None:
    _, run_id = fit(configs="pair", epochs=1, **ASYNCHRONOUS)
    assert updates(bench, run_id)
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    assert (
        bench.value("SELECT count(*) FROM cerebro.catalog_updates WHERE run_id = %s", (run_id,))
        == 0
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**ASYNCHRONOUS, "deterministic": True}, "deterministic: got true beside strategy := 'parameter_server'"),
        ({"strategy": "groups", "deterministic": True}, "deterministic: got true beside strategy := 'groups'"),
        ({"strategy": "groups", "strategy_params": f"groups={PARTITIONS + 1}"}, f"got groups={PARTITIONS + 1}; allowed: 1 to {PARTITIONS}"),
        ({"strategy": "groups", "strategy_params": "mode=asynchronous"}, "got 'mode'; .*It belongs to 'parameter_server'"),
        ({"strategy": "parameter_server", "strategy_params": "groups=2"}, "got 'groups'; .*It belongs to 'groups'"),
        ({"strategy": "groups", "strategy_params": "momentum=kept"}, "got momentum=kept without groups"),
        ({"strategy": "groups", "strategy_params": "groups=2, probe_steps=5"}, "got probe_steps beside groups=2"),
        ({"strategy": "groups", "strategy_params": "groups=2", "configs": "configs"}, "configuration 1: got Adam; allowed"),
        ({"strategy": "groups", "strategy_params": "groups=2", "configs": "still"}, "got SGD with momentum=0; allowed: above -0.5 and not 0, as 2 groups bring 0.5"),
        ({"strategy": "groups", "configs": "nesterov"}, "got SGD with nesterov=True; allowed"),
        ({"strategy": "groups", "configs": "scheduled"}, "got SGD with a schedule of its learning rate"),
        ({"strategy": "groups", "configs": "plateau"}, "got the callback ReduceLROnPlateau"),
        ({**ASYNCHRONOUS, "configs": "scaled"}, "configuration 1: got an optimizer that scales its loss"),
        ({**ASYNCHRONOUS, "num_workers": PARTITIONS - 1}, f"num_workers: got {PARTITIONS - 1}"),
    ],
)  # fmt: skip
def test_bad_input(bench: Any, fit: Fit, given: dict[str, Any], message: str) -> None:
    optimizers = {
        "still": "SGD(lr=0.1)",
        "nesterov": "SGD(lr=0.1,momentum=0.9,nesterov=True)",
        "scheduled": "SGD(lr=ExponentialDecay(0.1,10,0.9),momentum=0.9)",
    }
    name = given.get("configs", "")
    if name in optimizers:
        select(bench, name, [1], [f"loss='sparse_categorical_crossentropy',optimizer='{optimizers[name]}'"], ["batch_size=8"])  # fmt: skip
    elif name == "plateau":
        select(
            bench, name, [1], [SGD], ["batch_size=8,callbacks=[ReduceLROnPlateau(monitor='loss')]"]
        )
    elif name == "scaled":
        select(bench, name, [1], [f"{SGD},dtype_policy='mixed_float16'"], ["batch_size=8"])
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=message) as caught:
        fit(**{"configs": "pair", **given})
    assert caught.value.pgcode == "22023"
    assert caught.value.diag.message_hint
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs
    if name in (*optimizers, "plateau", "scaled"):
        bench.run(f"DROP TABLE {name}, {name}_summary")


def test_what_cannot_be_made_again(bench: Any, fit: Fit) -> None:
    _, run_id = fit(configs="pair", epochs=1, strategy="parameter_server")
    with pytest.raises(psycopg2.Error, match="of which no order is recorded; allowed: a search"):
        bench.run("SELECT cerebro_replay(%s, 'again')", (run_id,))
    out, first = fit(configs="pair", epochs=1, **ASYNCHRONOUS)
    _, second = fit(configs="pair", epochs=1, out=out, warm_start=True, **ASYNCHRONOUS)
    with pytest.raises(psycopg2.Error, match="which went on from the models of an earlier run"):
        bench.run("SELECT cerebro_replay(%s, 'again')", (second,))
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (first,)) == "finished"
