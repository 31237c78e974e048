"""Warm starts: which models go on, which start fresh, which are gone; and what is remembered of earlier runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM, PLAIN, SOFTMAX, layer, model
from tests.fitting.sizes import PARTITIONS, ROWS_EACH

HISTORY = "SELECT mst_key, iteration, epoch, dataset FROM {}_history ORDER BY 1, 2, 4"
DIVERGING = ADAM.replace("Adam(lr=0.01)", "SGD(lr=1e38)")


def curve(bench: Any, out: str, mst_key: int) -> list[float]:
    """The losses of a model on the training table, of all runs."""
    sql = f"SELECT loss FROM {out}_history WHERE mst_key = %s AND dataset = 'training' ORDER BY iteration"
    return [row[0] for row in bench.fetch(sql, (mst_key,))]


def test_kept_ones_go_on_new_ones_start_fresh_and_absent_ones_are_gone(
    bench: Any, fit: Any, weights: Any, selection: Callable[..., str]
) -> None:
    lr = [ADAM.replace("0.01", rate) for rate in ("0.01", "0.02", "0.03")]
    configs = selection([1], lr)
    bench.run(f"DELETE FROM {configs} WHERE mst_key = 3")
    out, first = fit(configs=configs, validation_table="val", metrics_compute_frequency=1)
    long, _ = fit(configs=configs, epochs=3, seed=7)
    earlier = curve(bench, out, 2)
    assert bench.fetch(HISTORY.format(out)) == [
        (key, epoch, epoch, dataset)
        for key in (1, 2)
        for epoch in (1, 2)
        for dataset in ("training", "validation")
    ]
    third = selection([1], lr)
    bench.run(f"DELETE FROM {third} WHERE mst_key = 1")
    assert bench.fetch(f"SELECT mst_key FROM {third} ORDER BY 1") == [(2,), (3,)]
    fresh, _ = fit(configs=third, epochs=1, seed=7)
    _, second = fit(configs=third, epochs=1, seed=7, out=out, warm_start=True)
    assert sorted(weights(out)) == [2, 3]
    assert weights(out)[3] == weights(fresh)[3]
    assert weights(out)[2] not in (weights(fresh)[2], weights(long)[2])
    info = bench.fetch(f"SELECT mst_key, array_length(training_loss, 1) FROM {out}_info ORDER BY 1")
    assert info == [(2, 1), (3, 1)]  # of this run, as metrics_iters of the summary tells
    assert bench.fetch(HISTORY.format(out)) == [
        (2, 1, 1, "training"),
        (2, 1, 1, "validation"),
        (2, 2, 2, "training"),
        (2, 2, 2, "validation"),
        (2, 3, 1, "training"),
        (3, 1, 1, "training"),
    ]
    (last,) = bench.value(f"SELECT training_loss FROM {out}_info WHERE mst_key = 2")
    assert curve(bench, out, 2) == [*earlier, last]
    runs = f"SELECT run_id FROM {out}_history WHERE mst_key = 2 AND dataset = 'training' ORDER BY iteration"
    assert bench.fetch(runs) == [(first,), (first,), (second,)]
    fit(configs=third, epochs=2, out=out, warm_start=True)
    counts = (
        f"SELECT iteration FROM {out}_history WHERE mst_key = 2 AND dataset = 'training' ORDER BY 1"
    )
    assert bench.fetch(counts) == [(1,), (2,), (3,), (5,)]


def test_a_model_that_fails_keeps_its_history(
    bench: Any, fit: Any, weights: Any, selection: Callable[..., str]
) -> None:
    configs = selection([1], [ADAM])
    out, _ = fit(configs=configs)
    before, told = weights(out), curve(bench, out, 1)
    bench.run(f"UPDATE {configs} SET compile_params = %s", (DIVERGING,))
    fit(configs=configs, out=out, warm_start=True)
    assert bench.value(f"SELECT status FROM {out}_info") == "failed"
    assert (weights(out), curve(bench, out, 1)) == (before, told)
    bench.run(f"UPDATE {configs} SET compile_params = %s", (ADAM,))
    bench.run(f"DROP TABLE {out}_history")  # as of a version that wrote none
    fit(configs=configs, out=out, warm_start=True)
    assert bench.fetch(HISTORY.format(out)) == [(1, 2, 2, "training")]


def test_another_optimizer_begins_anew_with_the_weights_that_are_there(
    bench: Any, fit: Any, weights: Any, selection: Callable[..., str]
) -> None:
    from cerebro_db.training.state import from_bytes

    configs = selection([2], [ADAM])
    out, _ = fit(configs=configs, epochs=1)
    before = weights(out)
    change = f"UPDATE {configs} SET compile_params = replace(compile_params, %s, %s)"
    bench.run(change, ("Adam(lr=0.01)", "SGD(lr=0.0,momentum=0.9)"))
    fit(configs=configs, epochs=1, out=out, warm_start=True)
    state = from_bytes(bytes(bench.value(f"SELECT state FROM {out}_states")))
    steps = PARTITIONS * -(-ROWS_EACH // 8)
    assert int(state["optimizer/0/iteration"]) == steps
    assert not any(name.endswith("/v") for name in state)
    trained = [len(weights(out)[1]), len(before[1])]
    assert trained[0] == trained[1]
    first = 4 * (6 * 8 + 8)  # kernel and bias of the first layer; normalisation counts on
    assert weights(out)[1][:first] == before[1][:first]
    assert weights(out)[1] != before[1]


def test_states_that_are_gone_are_reported(bench: Any, fit: Any, weights: Any) -> None:
    out, run_id = fit(epochs=1)
    bench.run(f"DELETE FROM {out}_states WHERE mst_key = 2")
    told = rf"{out}_states has no state of the models \[2\]"
    with pytest.raises(psycopg2.errors.WrongObjectType, match=told) as caught:
        fit(epochs=1, out=out, warm_start=True)
    assert "train them anew under another mst_key" in (caught.value.diag.message_hint or "")
    bench.run(f"DELETE FROM {out} WHERE mst_key = 2")  # _info still tells of it
    with pytest.raises(psycopg2.errors.WrongObjectType, match=told):
        fit(epochs=1, out=out, warm_start=True)
    bench.run(f"DELETE FROM {out}_states")
    with pytest.raises(psycopg2.errors.WrongObjectType, match=r"models \[1, 2, 3, 4\]"):
        fit(epochs=1, out=out, warm_start=True)
    bench.run(f"DROP TABLE {out}_states")
    with pytest.raises(psycopg2.errors.WrongObjectType, match=f"no table .*{out}_states"):
        fit(epochs=1, out=out, warm_start=True)
    assert bench.value("SELECT max(run_id) FROM cerebro.runs") == run_id


def test_what_cannot_be_gone_on_from_is_refused(bench: Any, fit: Any) -> None:
    out, _ = fit(epochs=1)
    bench.run("CREATE TABLE others AS SELECT id, x, upper(label) AS label FROM blobs")
    bench.run(
        f"SELECT cerebro_pack('others', 'others_packed', 'label', 'x', num_partitions := {PARTITIONS})"
    )
    one = bench.value(
        "SELECT replace(model_arch::text, '\"units\": 3', '\"units\": 1') FROM models LIMIT 1"
    )
    bench.run("SELECT cerebro_load_model('number_models', %s)", (one,))
    bench.run(
        "SELECT cerebro_load_configs('number_models', 'number_configs', ARRAY[1], "
        "ARRAY[$$loss='mse',optimizer='SGD(lr=0.001)'$$], ARRAY['batch_size=8'])"
    )
    classes = r"class values \['A', 'B', 'C'\]; the models of .* have \['a', 'b', 'c'\]"
    for packed, configs, message in (
        ("others_packed", "configs", classes),
        ("floats", "number_configs", "a target of the kind float; .* have class"),
    ):
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=message) as caught:
            fit(packed, configs, 1, out=out, warm_start=True)
        assert f"encoding_of := 'public.{out}'" in (caught.value.diag.message_hint or "")
    bench.run(f"DROP TABLE {out}_history; CREATE TABLE {out}_history (mine int)")
    with pytest.raises(psycopg2.errors.WrongObjectType, match="was not made by") as caught:
        fit(epochs=1, out=out, warm_start=True)
    assert bench.value(f"SELECT count(*) FROM {out}_history") == 0


def test_a_model_that_cannot_go_on_is_refused_before_any_work(
    bench: Any, fit: Any, weights: Any, selection: Callable[..., str]
) -> None:
    dropout = model(layer("Dense", units=8, activation="relu"), layer("Dropout", rate=0.1), SOFTMAX)
    ids = [bench.value("SELECT cerebro_load_model('models', %s)", (dropout,)), 2]
    configs = selection([1], [ADAM, ADAM.replace("0.01", "0.02")])
    out, run_id = fit(configs=configs, epochs=1)
    before = weights(out)
    for model_id, differs in zip(ids, ("others/0", "others/0.*weights/2/gamma"), strict=True):
        bench.run(f"UPDATE {configs} SET model_id = %s WHERE mst_key = 2", (model_id,))
        told = (
            f"configuration 2: got model_id {model_id} of public.models, which cannot go on from the "
            f"model of mst_key 2 in public.{out}, which was model_id 1: got a state of another model: "
            rf"it differs in \['{differs}"
        )
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=told) as caught:
            fit(configs=configs, epochs=1, out=out, warm_start=True)
        assert "another mst_key in public." in caught.value.diag.message_hint
    assert bench.value("SELECT max(run_id) FROM cerebro.runs") == run_id
    assert weights(out) == before
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match="which was model_id 1"
    ) as caught:
        bench.run(
            "SELECT cerebro_fit('packed', %s, 'models', 2, %s, 'batch_size=8', 1, warm_start := true)",
            (out, ADAM),
        )
    assert "another model_output_table" in caught.value.diag.message_hint


def test_another_architecture_of_the_same_weights_goes_on(
    bench: Any, fit: Any, weights: Any, selection: Callable[..., str]
) -> None:
    tanh = PLAIN.replace("relu", "tanh")
    ids = [bench.value("SELECT cerebro_load_model('models', %s)", (one,)) for one in (PLAIN, tanh)]
    frozen = ADAM.replace("Adam(lr=0.01)", "SGD(lr=0.0)")
    configs = selection([1], [ADAM])
    out, _ = fit(configs=configs, epochs=1)
    before = weights(out)
    for model_id in ids:
        bench.run(f"UPDATE {configs} SET model_id = %s, compile_params = %s", (model_id, frozen))
        fit(configs=configs, epochs=1, out=out, warm_start=True)
        assert bench.fetch(f"SELECT model_id, status FROM {out}_info") == [(model_id, "finished")]
        assert weights(out) == before
    assert "tanh" in bench.value(f"SELECT model_arch::text FROM {out}")


def test_what_it_replaces_gives_way_as_with_replace(bench: Any, fit: Any) -> None:
    out, _ = fit(epochs=1)
    bench.run(f"GRANT SELECT ON {out} TO cerebro_user; CREATE VIEW warm_reader AS TABLE {out}_info")
    told = "which warm_start := true replaces; view public.warm_reader depends on"
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist, match=told):
        fit(epochs=1, out=out, warm_start=True)
    bench.run("DROP VIEW warm_reader")
    fit(epochs=1, out=out, warm_start=True)
    assert bench.value("SELECT has_table_privilege('cerebro_user', %s, 'SELECT')", (out,))
