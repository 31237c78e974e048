"""Strategy auto in a database: what it chooses, that the choice is all that counts, kills, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from gates import Gate
from reasons import EMBEDDED_ONLY

from cerebro_db.decide.strategies import parse_strategy
from cerebro_db.decide.strategies.auto import Auto
from tests.fitting.conftest import ADAM, DENSE, PLAIN, SOFTMAX, layer, model, select
from tests.fitting.sizes import PARTITIONS
from tests.fitting.test_resume import results
from tests.fitting.test_strategies import (
    assert_a_lost_trainer_changes_nothing,
    has_stopped,
    resume,
    under_way,
)

Fit = Callable[..., tuple[str, int]]
pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)
OPTIONS = {"validation_table": "val", "metrics_compute_frequency": 1, "strategy": "auto"}
STOPS = "batch_size=8,callbacks=[EarlyStopping('loss', mode='max', patience={})]"
GROUPS = (
    "SELECT DISTINCT mst_key, epoch, group_size FROM cerebro._plan WHERE run_id = %s ORDER BY 1, 2"
)


@pytest.fixture(scope="module", autouse=True)
def large(bench: Any) -> None:
    """Small nets of which the catalog of models says that a step takes long: they are worth a group."""
    for text in (PLAIN, model(DENSE, layer("Dropout", rate=0.2), SOFTMAX)):
        bench.run("SELECT cerebro_load_model('large_models', %s)", (text,))
    for model_id, found in bench.fetch("SELECT model_id, model_facts FROM large_models"):
        facts = found | {"multiply_adds": 10**9}
        bench.run(
            "UPDATE large_models SET model_facts = %s WHERE model_id = %s",
            (json.dumps(facts), model_id),
        )
    select(bench, "large", [1], [ADAM], ["batch_size=8"], "large_models")
    select(bench, "some", [1, 2], [ADAM], ["batch_size=8"], "large_models")
    select(bench, "auto_pair", [2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])


def test_small_models_are_trained_as_by_a_hopper(bench: Any, fit: Fit) -> None:
    calm = results(bench, *fit(**{**OPTIONS, "strategy": "hopper"}))
    out, run_id = fit(**OPTIONS)
    assert results(bench, out, run_id) == calm
    shown = bench.row("SELECT schedule, num_workers FROM cerebro.runs WHERE run_id = %s", (run_id,))
    assert shown == ("auto", bench.value("SELECT least(cerebro._cores(), 4)"))
    told = "SELECT strategy, strategy_reason FROM cerebro.progress WHERE run_id = %s"
    strategy, reason = bench.row(told, (run_id,))
    assert strategy == "auto"
    assert reason.startswith("from epoch 1: one worker at a time for configurations 1, 2, 3, 4 (")


def test_groups_give_the_same_bits_whoever_works(bench: Any, fit: Fit) -> None:
    given = {**OPTIONS, "strategy_params": "processors=4, group=2"}
    found = []
    for workers, caches in ((None, True), (2, False)):
        out, run_id = fit(configs="some", num_workers=workers, use_caching=caches, **given)
        found.append(results(bench, out, run_id))
        assert bench.fetch(GROUPS, (run_id,)) == [
            (key, epoch, 2) for key in (1, 2) for epoch in (1, 2)
        ]
    assert found[0] == found[1]
    losses = {row[:3]: row[3] for row in found[0][2]}
    assert all(losses[key, 2, "training"] < losses[key, 1, "training"] for key in (1, 2))
    assert len(found[0][-1]) == 2 * 2 * PARTITIONS
    params = "SELECT strategy_params, num_workers FROM cerebro.runs WHERE run_id = %s"
    assert bench.row(params, (run_id,)) == ("processors=4, group=2", 2)
    assert any("strategy auto, from epoch 1: 2 workers together" in one for one in bench.notices)


def test_a_batch_of_a_group_has_as_many_rows_as_one_of_a_worker(bench: Any, fit: Fit) -> None:
    """As many steps, and for a model without batch statistics nearly the same loss."""
    alone, first = fit(configs="large", strategy="hopper", epochs=1)
    together, second = fit(
        configs="large", strategy="auto", strategy_params="processors=4", epochs=1
    )
    steps = []
    for out in (alone, together):
        ((data,),) = bench.fetch(
            f"SELECT string_agg(state, ''::bytea ORDER BY chunk) FROM {out}_states"
        )
        from cerebro_db.training.state import from_bytes

        state = from_bytes(bytes(data))
        steps.append(next(int(one) for name, one in state.items() if name.endswith("/iteration")))
    # 30 rows of a partition are 4 batches of 8; of 2 they are 15, as 120 rows of 8 would be.
    assert steps == [16, 15]
    shown = "SELECT training_loss FROM {}_info"
    before, after = (bench.value(shown.format(out)) for out in (alone, together))
    assert after == pytest.approx(before, rel=0.25)
    assert first != second


def test_one_model_is_trained_by_auto_unless_something_else_is_requested(bench: Any) -> None:
    call = "SELECT cerebro_fit('packed', %s, %s, 1, %s, 'batch_size=8', 1, strategy_params := %s)"
    run_id = bench.value(call, ("one_alone", "models", ADAM, None))
    assert bench.row(
        "SELECT schedule, strategy_params, num_workers FROM cerebro.runs WHERE run_id = %s",
        (run_id,),
    ) == ("auto", f"processors={min(4, bench.value('SELECT cerebro._cores()'))}, group=1", 1)
    run_id = bench.value(call, ("one_group", "large_models", ADAM, "processors=4, group=2"))
    assert bench.fetch(GROUPS, (run_id,)) == [(1, 1, 2)]


def test_workers_of_a_model_that_has_stopped_go_to_the_others(
    bench: Any, fit: Fit, calm: dict[str, Any]
) -> None:
    out, run_id = stopping(bench, fit)
    calm["stopping"] = results(bench, out, run_id)
    found = {(key, epoch): size for key, epoch, size in bench.fetch(GROUPS, (run_id,))}
    stopped = dict(bench.fetch(f"SELECT mst_key, stopped_epoch FROM {out}_info ORDER BY 1"))
    assert stopped == {1: 2, 2: None}
    # Epochs that were planned when it stopped, and the one that follows from two epochs before.
    assert [found[2, epoch] for epoch in range(1, 9)] == [2, 2, 2, 4, 4, 4, 4, 4]
    reasons = bench.column(
        "SELECT reason FROM cerebro._plan WHERE run_id = %s AND reason IS NOT NULL ORDER BY epoch",
        (run_id,),
    )
    assert [one[:35] for one in reasons] == [
        "from epoch 1: 2 workers together fo", "from epoch 4: 4 workers together fo",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def calm() -> dict[str, Any]:
    """What runs leave that nothing stopped."""
    return {}


def stopping(bench: Any, fit: Fit) -> tuple[str, int]:
    """A run of two models, the first of which stops after two epochs."""
    if bench.value("SELECT to_regclass('stopping')") is None:
        fits = [STOPS.format(patience) for patience in (1, 99)]
        select(bench, "stopping", [1], [ADAM], fits, "large_models")
    return fit(configs="stopping", epochs=8, strategy="auto", strategy_params="processors=4")


@pytest.mark.parametrize(
    ("strategy", "more"),
    [("auto", ", strategy_params := 'processors=4'"), ("pipe", ", strategy_params := 'rounds=2'")],
)
@pytest.mark.parametrize("how", ["trainer", "pause"])
def test_a_group_that_was_stopped_ends_as_if_nothing_had_happened(
    bench: Any, gate: Gate, fit: Fit, calm: dict[str, Any], strategy: str, more: str, how: str
) -> None:
    configs = "some" if strategy == "auto" else "auto_pair"
    given = {"strategy": strategy, "strategy_params": more.split("'")[1]}
    if strategy not in calm:
        calm[strategy] = results(bench, *fit(configs=configs, epochs=8, **given))
    options = f"strategy := '{strategy}'{more}"
    if how == "trainer":
        assert_a_lost_trainer_changes_nothing(
            bench, gate, strategy, options, configs, calm[strategy]
        )
        return
    out = f"stopped_{strategy}_{how}"
    with under_way(bench, gate, out, options, configs) as (caller, run_id):
        bench.run("SELECT cerebro_pause(%s)", (run_id,))
        caller.join()
    has_stopped(bench, run_id)
    resume(bench, run_id)
    assert results(bench, out, run_id) == calm[strategy]


def test_fewer_workers_get_smaller_groups_when_a_run_begins_and_none_later(
    bench: Any, gate: Gate, fit: Fit
) -> None:
    _, run_id = fit(configs="large", num_workers=1, epochs=1, strategy="auto")
    params = "SELECT strategy_params, num_workers FROM cerebro.runs WHERE run_id = %s"
    assert bench.row(params, (run_id,))[0].endswith(", group=1")
    more = ", strategy := 'auto', strategy_params := 'processors=4'"
    with under_way(bench, gate, "fewer", more[2:], "some") as (caller, run_id):
        bench.run("SELECT cerebro_pause(%s)", (run_id,))
        caller.join()
    with pytest.raises(psycopg2.Error, match="num_workers: got 2; allowed: from 4") as caught:
        bench.run("SELECT cerebro_resume(%s, num_workers := 2)", (run_id,))
    assert caught.value.pgcode == "22023"
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "atuo"}, "unknown strategy 'atuo'. Did you mean 'auto'"),
        ({"strategy": "auto", "strategy_params": "gruop=2"}, "Did you mean 'group'"),
        ({"strategy": "hopper", "strategy_params": "group=2"}, "It belongs to 'auto'"),
        ({"strategy": "auto", "strategy_params": "speed=0"}, "a number from 0.01 to 100"),
    ],
)
def test_bad_input(bench: Any, fit: Fit, given: dict[str, Any], message: str) -> None:
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=message):
        fit(**given)
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs


RECORDED = "SELECT strategy_params FROM cerebro.runs WHERE run_id = %s"
REASON = "SELECT strategy_reason FROM cerebro.progress WHERE run_id = %s"
MEASURED = """
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY c.hop_seconds / h.trained)
  FROM cerebro.hops h JOIN cerebro._configurations c USING (run_id, mst_key)
  JOIN cerebro._plan p USING (run_id, mst_key, epoch, position)
  JOIN cerebro.runs r USING (run_id)
 WHERE c.hop_seconds >= 0.5 AND p.group_size = 1 AND NOT h.compiled
   AND r.schedule IN ('hopper', 'auto')
"""


@pytest.fixture
def measured(bench: Any, fit: Fit) -> Iterator[tuple[str, int]]:
    """A finished run of a net whose steps are estimated far too long, and the table of its configuration."""
    if bench.value("SELECT to_regclass('measured')") is None:
        bench.run("SELECT cerebro_load_model('measured_models', %s)", (PLAIN,))
        facts = bench.value("SELECT model_facts FROM measured_models") | {
            "multiply_adds": 160_000_000
        }
        bench.run("UPDATE measured_models SET model_facts = %s", (json.dumps(facts),))
        select(bench, "measured", [1], [ADAM], ["batch_size=8"], "measured_models")
    _, run_id = fit(configs="measured", strategy="hopper", epochs=8)
    yield "measured", run_id
    if bench.value("SELECT count(*) FROM cerebro.runs WHERE run_id = %s", (run_id,)):
        bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_hops_of_earlier_runs_tell_how_fast_steps_are(
    bench: Any, fit: Fit, measured: tuple[str, int]
) -> None:
    configs, earlier = measured
    hops, ratio = bench.row(MEASURED)  # other tests of this file have made a few
    assert hops >= 16
    given = {"strategy": "auto", "epochs": 4}
    _, run_id = fit(configs=configs, strategy_params="processors=4", **given)
    params = parse_strategy("auto", bench.value(RECORDED, (run_id,)))
    assert isinstance(params, Auto)
    assert (params.group, params.speeds.convolution) == (1, None)
    assert params.speeds.measured_hops == hops
    assert params.speeds.other == pytest.approx(min(ratio, 100), rel=0.1)
    assert bench.value(REASON, (run_id,)).endswith(
        f"nets without convolutions {params.speeds.other:g} times as fast as by the built-in figures, "
        f"as measured by {hops} hops of earlier runs"
    )
    # By the built-in figures the same run has groups, as it has where nothing was measured.
    _, slow = fit(configs=configs, strategy_params="processors=4, speed=1", **given)
    assert bench.value(RECORDED, (slow,)) == "processors=4, group=4, speed=1.0"
    assert bench.value(REASON, (slow,)).endswith("built-in figures, as strategy_params say")
    _, same = fit(configs=configs, strategy_params="processors=4", deterministic=True, **given)
    assert bench.value(RECORDED, (same,)) == "processors=4, group=4"
    bench.run("SELECT cerebro_drop_run(%s)", (earlier,))
    for one in (run_id, slow, same):  # and their hops
        bench.run("SELECT cerebro_drop_run(%s)", (one,))
    _, alone = fit(configs=configs, strategy_params="processors=4", **given)
    assert bench.value(RECORDED, (alone,)) == "processors=4, group=4"
    assert bench.value(REASON, (alone,)).endswith("; estimated by the built-in figures")


def test_a_run_goes_on_with_the_speeds_that_it_was_begun_with(
    bench: Any, gate: Gate, fit: Fit, measured: tuple[str, int]
) -> None:
    configs, earlier = measured
    more = "strategy := 'auto', strategy_params := 'processors=4'"
    with under_way(bench, gate, "speed_kept", more, configs) as (caller, run_id):
        bench.run("SELECT cerebro_pause(%s)", (run_id,))
        caller.join()
    recorded = bench.value(RECORDED, (run_id,))
    assert "speed=" in recorded
    bench.run("SELECT cerebro_drop_run(%s)", (earlier,))  # nothing is left to measure by
    resume(bench, run_id)
    assert bench.value(RECORDED, (run_id,)) == recorded
    assert "hops of earlier runs" in bench.value(REASON, (run_id,))
    calm, same = fit(configs=configs, epochs=8, strategy="auto", strategy_params=recorded)
    assert bench.value(RECORDED, (same,)) == recorded
    assert results(bench, "speed_kept", run_id) == results(bench, calm, same)
    for one in (run_id, same):
        bench.run("SELECT cerebro_drop_run(%s)", (one,))


def test_only_hops_of_the_callers_own_runs_are_measured(
    bench: Any, measured: tuple[str, int]
) -> None:
    bench.run(
        "CREATE ROLE speed_admin LOGIN IN ROLE cerebro_admin; CREATE SCHEMA speeds AUTHORIZATION speed_admin; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO speed_admin"
    )
    bench.run("SET ROLE speed_admin")
    try:
        assert bench.value("SELECT count(*) FROM cerebro.hops WHERE run_id = %s", (measured[1],))
        run_id = bench.value(
            "SELECT cerebro_fit_multiple('packed', 'speeds.out', 'measured', 4, strategy := 'auto', "
            "strategy_params := 'processors=4')"
        )
        assert bench.value(RECORDED, (run_id,)) == "processors=4, group=4"
        bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    finally:
        bench.run("RESET ROLE")
        bench.run("DROP SCHEMA speeds CASCADE; DROP OWNED BY speed_admin; DROP ROLE speed_admin")
