"""Runs against a real server: what they leave, that they are reproducible, and that they equal Keras."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg2
import pytest

from tests.fitting.conftest import (
    ADAM,
    DENSE,
    FEATURES,
    SOFTMAX,
    layer,
    model,
)
from tests.fitting.sizes import PARTITIONS, ROWS_EACH

Fit = Callable[..., tuple[str, int]]
Weights = Callable[[str], dict[int, bytes]]


def test_a_run_leaves_the_tables_that_madlib_users_know(bench: Any, fit: Fit) -> None:
    out, run_id = fit(
        epochs=5, validation_table="val", metrics_compute_frequency=2, name="n", description="d"
    )
    models = bench.fetch(f"SELECT mst_key, length(model_weights), model_arch FROM {out} ORDER BY 1")
    assert [row[0] for row in models] == [1, 2, 3, 4]
    assert models[0][1] == 4 * (FEATURES * 8 + 8 + 8 * 3 + 3)
    assert models[0][2]["class_name"] == "Sequential"
    info = bench.row(
        "SELECT model_id, compile_params, fit_params, metrics_type, loss_type, "
        "array_length(metrics_elapsed_time, 1), training_metrics, training_loss, validation_metrics, "
        "validation_loss, training_metrics_final, training_loss_final, validation_metrics_final, "
        f"validation_loss_final, model_size, status, error FROM {out}_info WHERE mst_key = 1"
    )
    assert info[:6] == (1, ADAM, "batch_size=8", ["accuracy"], "SparseCategoricalCrossentropy", 3)
    for series, final in (
        (info[6], info[10]),
        (info[7], info[11]),
        (info[8], info[12]),
        (info[9], info[13]),
    ):
        assert len(series) == 3
        assert series[-1] == final
    assert info[10] > 0.8
    assert info[12] > 0.7
    assert info[7][0] > info[7][-1]
    assert info[14] == pytest.approx(83 * 4 / 1024)
    assert info[15:] == ("finished", None)
    summary = bench.row(
        "SELECT run_id, source_table, validation_table, model, model_info, dependent_varname, "
        "independent_varname, model_arch_table, num_iterations, metrics_compute_frequency, "
        "warm_start, name, description, num_classes, label_class_values, dependent_vartype, "
        "normalizing_const, metrics_iters, end_training_time > start_training_time "
        f"FROM {out}_summary"
    )
    assert summary == (
        run_id, "public.packed", "public.val", f"public.{out}", f"public.{out}_info", ["label"],
        ["x"], "public.models", 5, 2, False, "n", "d", [3], ["a", "b", "c"], ["text"], 1.0,
        [2, 4, 5], True,
    )  # fmt: skip


def test_the_weights_do_not_depend_on_the_number_of_workers(fit: Fit, weights: Weights) -> None:
    first = weights(fit(num_workers=2, seed=4)[0])
    assert len(set(first.values())) == 4
    assert weights(fit(num_workers=2, seed=4)[0]) == first
    assert weights(fit(num_workers=1, seed=4)[0]) == first
    assert weights(fit(num_workers=4, seed=4)[0]) == first
    assert weights(fit(num_workers=2, seed=5)[0]) != first


def test_streaming_from_the_table_gives_the_same_bits_as_memory(
    fit: Fit, weights: Weights, selection: Callable[..., str], bench: Any
) -> None:
    configs = selection([2], [ADAM], ["batch_size=8,epochs=2"])
    in_memory, _ = fit(configs=configs, validation_table="val", metrics_compute_frequency=1)
    streamed, run_id = fit(
        configs=configs, validation_table="val", metrics_compute_frequency=1, use_caching=False
    )
    assert weights(streamed) == weights(in_memory)
    columns = "training_metrics, training_loss, validation_metrics, validation_loss"
    numbers = [bench.row(f"SELECT {columns} FROM {out}_info") for out in (streamed, in_memory)]
    assert numbers[0] == numbers[1]
    assert bench.column(
        "SELECT DISTINCT cached FROM cerebro.hops WHERE run_id = %s", (run_id,)
    ) == [False]


def test_a_run_equals_plain_keras_in_the_order_of_its_plan(
    bench: Any,
    fit: Fit,
    weights: Weights,
    selection: Callable[..., str],
    tensorflow: None,
) -> None:
    """Adam, dropout and batch normalisation over all partitions, to the bit."""
    from cerebro_db.training.partitions import Buffers, Partition, RowOrder
    from cerebro_db.training.shuffle import salt

    configs = selection([2], [ADAM])
    out, run_id = fit(configs=configs, epochs=2, seed=9)
    plan = bench.fetch(
        "SELECT epoch, partition_key FROM cerebro.catalog_plan WHERE run_id = %s "
        "ORDER BY epoch, position",
        (run_id,),
    )
    assert len(plan) == 2 * PARTITIONS
    assert sorted(plan[:PARTITIONS]) == [(1, key) for key in range(PARTITIONS)]
    keras_model = _fresh_model(bench, run_id)
    for epoch, key in plan:
        buffers = _buffers(bench, "packed", key)
        facts = Buffers(tuple(range(len(buffers))), tuple(len(x) for x, _ in buffers))
        features, labels = (np.concatenate(arrays) for arrays in zip(*buffers, strict=True))
        order = RowOrder(9, epoch, key, salt(9, epoch, key), shuffle=True)
        rows = order.whole(0, Partition(facts, features, labels))
        keras_model.fit(features[rows], labels[rows], batch_size=8, shuffle=False, verbose=0)
    flat = b"".join(np.asarray(w).astype(np.float32).tobytes() for w in keras_model.get_weights())
    assert flat == weights(out)[1]


def _fresh_model(bench: Any, run_id: int) -> Any:
    import keras

    seed, model_id = bench.row(
        "SELECT initial_seed, model_id FROM cerebro.catalog_configurations WHERE run_id = %s",
        (run_id,),
    )
    text = bench.value("SELECT model_arch::text FROM models WHERE model_id = %s", (model_id,))
    keras.utils.set_random_seed(seed)
    keras_model = keras.models.model_from_json(text)
    keras_model.compile(
        optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy"
    )
    return keras_model


def _buffers(bench: Any, packed: str, key: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rows = bench.fetch(
        f"SELECT x, x_shape, label FROM {packed} WHERE partition_key = %s ORDER BY buffer_id",
        (key,),
    )
    return [
        (np.frombuffer(x, np.float32).reshape(shape), np.frombuffer(y, np.int32))
        for x, shape, y in rows
    ]


def test_a_configuration_that_fails_leaves_the_others_alone(
    bench: Any, fit: Fit, weights: Weights, selection: Callable[..., str]
) -> None:
    bad = ADAM.replace("Adam(lr=0.01)", "SGD(lr=1e38)")
    out, run_id = fit(configs=selection([1], [ADAM, bad, ADAM.replace("0.01", "0.02")]))
    rows = bench.fetch(f"SELECT mst_key, status, error, training_loss FROM {out}_info ORDER BY 1")
    assert [row[1] for row in rows] == ["finished", "failed", "finished"]
    assert "the loss became" in rows[1][2]
    assert rows[1][3] is None
    assert sorted(weights(out)) == [1, 3]
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "finished"
    last = bench.row(
        "SELECT mst_key, rank, status FROM cerebro.leaderboard WHERE run_id = %s "
        "ORDER BY rank DESC LIMIT 1",
        (run_id,),
    )
    assert last == (2, 3, "failed")
    hops = bench.value(
        "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND mst_key = 2", (run_id,)
    )
    assert hops <= 1
    alone, _ = fit(configs=selection([1], [ADAM]))
    assert len(weights(alone)) == 1


def test_one_that_fails_late_leaves_those_alone_that_were_trained_with_it(
    bench: Any, fit: Fit, weights: Weights, selection: Callable[..., str]
) -> None:
    """Where short hops share a statement, its failure is nobody's but that configuration's."""
    rates = [0.001 * number for number in range(1, 12)]
    good = [ADAM.replace("0.01", f"{rate:.3f}") for rate in rates]
    # Batches of 8: it is the second hop of the second epoch that goes wrong.
    steps = (PARTITIONS + 1) * -(-ROWS_EACH // 8) + 1
    late = ADAM.replace("Adam(lr=0.01)", f"SGD(PiecewiseConstantDecay([{steps}],[0.01,1e38]))")
    out, run_id = fit(configs=selection([1], [*good, late]), epochs=4)
    status = bench.fetch(f"SELECT mst_key, status FROM {out}_info ORDER BY 1")
    assert status == [*((key, "finished") for key in range(1, 12)), (12, "failed")]
    error = bench.value(f"SELECT error FROM {out}_info WHERE mst_key = 12")
    assert error.startswith("the loss became")
    assert "(epoch 2, hop 2); a lower learning rate" in error
    hops = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND mst_key = %s"
    assert bench.value(hops, (run_id, 12)) == PARTITIONS + 1
    assert bench.value(hops, (run_id, 7)) == 4 * PARTITIONS
    harmless = late.replace("1e38", "0.01")  # what is planned is the same
    without, _ = fit(configs=selection([1], [*good, harmless]), epochs=4)
    expected = weights(without)
    assert weights(out) == {key: expected[key] for key in range(1, 12)}
    where = "run_id = %s AND a.mst_key < b.mst_key AND a.worker = b.worker"
    overlaps = (
        "SELECT count(*) FROM cerebro.hops a JOIN cerebro.hops b USING (run_id) "
        f"WHERE {where} AND a.finished > b.started AND b.finished > a.started"
    )
    assert bench.value(overlaps, (run_id,)) == 0


def test_an_error_of_tensorflow_is_reported_by_its_cause(bench: Any, fit: Fit) -> None:
    layers = (layer("Embedding", input_dim=2, output_dim=2), layer("Flatten"), SOFTMAX)
    bench.run("SELECT cerebro_load_model('embedded', %s)", (model(*layers),))
    bench.run(
        "SELECT cerebro_load_configs('embedded', 'embedded_configs', ARRAY[1], %s, ARRAY[''])",
        ([ADAM],),
    )
    out, run_id = fit(configs="embedded_configs", epochs=1)
    error = bench.value(f"SELECT error FROM {out}_info")
    assert re.fullmatch(
        r"row \d+ of buffer 0 of partition \d: input 1, place \d of its features: got -?[\d.e-]+, the id -?\d+ of the "
        r"embedding '\w+'; allowed: .+ \(epoch 1, hop 1\); the embedding has as many rows as its input_dim says: "
        r"correct such rows, or train a model with more",
        error,
    )
    shown = "SELECT error FROM cerebro.leaderboard WHERE run_id = %s"
    assert bench.value(shown, (run_id,)) == error


def test_when_every_configuration_fails_the_run_has_failed(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    out, run_id = fit(configs=selection([1], [ADAM.replace("Adam(lr=0.01)", "SGD(lr=1e38)")]))
    status, error = bench.row("SELECT status, error FROM cerebro.runs WHERE run_id = %s", (run_id,))
    assert (status, error) == ("failed", "no configuration was trained to the end")
    assert bench.value(f"SELECT count(*) FROM {out}") == 0


def test_warm_start_goes_on_with_the_whole_state(bench: Any, fit: Fit) -> None:
    from cerebro_db.training.state import from_bytes

    out, _ = fit(epochs=1)
    before = bench.value(f"SELECT state FROM {out}_states WHERE mst_key = 1")
    fit(epochs=2, out=out, warm_start=True)
    after = bench.value(f"SELECT state FROM {out}_states WHERE mst_key = 1")
    counts = [int(from_bytes(bytes(state))["optimizer/0/iteration"]) for state in (before, after)]
    steps = PARTITIONS * -(-ROWS_EACH // 8)
    assert counts == [steps, 3 * steps]


def test_warm_start_is_refused_at_once_where_it_could_not_replace_the_tables(
    bench: Any, fit: Fit
) -> None:
    out, run_id = fit(epochs=1)
    bench.run(f"CREATE VIEW seen AS SELECT * FROM {out}_info")
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist, match="warm_start"):
        fit(epochs=1, out=out, warm_start=True)
    bench.run("DROP VIEW seen")
    bench.run("BEGIN")
    try:
        bench.fetch(f"SELECT * FROM {out}_summary")
        # Whichever is noticed first: the wait of the run's session, or whose lock it waits for.
        refused = (psycopg2.errors.ObjectInUse, psycopg2.errors.ActiveSqlTransaction)
        with pytest.raises(refused, match=r"a transaction that goes on|holds a lock of"):
            fit(epochs=1, out=out, warm_start=True)
    finally:
        bench.run("ROLLBACK")
    assert bench.value("SELECT max(run_id) FROM cerebro.runs") == run_id
    fit(epochs=1, out=out, warm_start=True)


def test_warm_start_takes_the_learning_rate_that_is_requested_now(
    bench: Any, fit: Fit, weights: Weights, selection: Callable[..., str]
) -> None:
    configs = selection([1], [ADAM])
    out, _ = fit(configs=configs, epochs=1)
    before = weights(out)
    bench.run(f"UPDATE {configs} SET compile_params = replace(compile_params, '0.01', '0.0')")
    fit(configs=configs, epochs=1, out=out, warm_start=True)
    assert weights(out) == before


NO_WEIGHT = "optimizer=MultiOptimizer(OptimizerMap(SGD(), {'conv.*': Adam()}))"


@pytest.mark.parametrize(
    ("given", "instead", "told"),
    [
        ("'accuracy'", "'CosineSimilarity(axis=7)'", "cannot be computed"),
        ("optimizer='Adam(lr=0.01)'", NO_WEIGHT, "got 'conv.*', which fits no weight that trains"),
    ],
)
def test_what_cannot_be_computed_fails_before_it_trains(
    bench: Any, fit: Fit, selection: Callable[..., str], given: str, instead: str, told: str
) -> None:
    bad = ADAM.replace(given, instead)
    assert bad != ADAM
    out, run_id = fit(configs=selection([1], [bad, ADAM]), epochs=30, num_workers=1)
    status, error = bench.row(f"SELECT status, error FROM {out}_info WHERE mst_key = 1")
    assert status == "failed"
    assert told in error
    assert (
        bench.value(
            "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND mst_key = 1", (run_id,)
        )
        == 0
    )


@pytest.mark.parametrize("strategy", ["hopper", "allreduce"])
def test_a_model_of_which_nothing_trains_is_scored(
    bench: Any, fit: Fit, weights: Weights, strategy: str
) -> None:
    bench.run("DROP TABLE IF EXISTS frozen_models, frozen_configs, frozen_configs_summary")
    named = model(layer("Dense", units=3, activation="softmax", name="only"))
    bench.run("SELECT cerebro_load_model('frozen_models', %s)", (named,))
    bench.run(
        "SELECT cerebro_load_configs('frozen_models', 'frozen_configs', ARRAY[1], %s, ARRAY[''])",
        ([f"{ADAM},freeze='*'", ADAM],),
    )
    bench.connection.notices.clear()
    out, run_id = fit(configs="frozen_configs", epochs=2, strategy=strategy)
    told = "configuration 1: no layer trains, so that training changes nothing"
    assert any(told in notice for notice in bench.connection.notices)
    losses = bench.fetch(
        "SELECT loss FROM cerebro.metrics WHERE run_id = %s AND mst_key = 1 AND dataset = 'training' "
        "ORDER BY epoch",
        (run_id,),
    )
    assert losses[0] == losses[-1]
    bench.run(f"SELECT cerebro_evaluate('{out}', 'packed', '{out}_scores')")
    scored = bench.value(f"SELECT loss FROM {out}_scores WHERE mst_key = 1")
    assert scored == pytest.approx(losses[0][0])
    assert len(weights(out)[1]) == 84


def test_balanced_classes(bench: Any, fit: Fit, weights: Weights) -> None:
    bench.run("CREATE VIEW uneven AS SELECT * FROM blobs WHERE label <> 'c' OR id % 4 = 0")
    bench.run("SELECT cerebro_pack('uneven', 'uneven_packed', 'label', 'x', num_partitions := 2)")
    counts = dict(bench.fetch("SELECT label, count(*) FROM uneven GROUP BY 1"))
    total = sum(counts.values())
    classes = {place: total / (3 * counts[label]) for place, label in enumerate("abc")}
    assert classes[2] > 2 * classes[0]
    found = []
    for place, given in enumerate(("'balanced'", str(classes))):
        name = f"balanced_{place}"
        fit_params = [f"batch_size=8,class_weight={given}"]
        bench.run(
            "SELECT cerebro_load_configs('models', %s, ARRAY[1], ARRAY[%s], %s)",
            (name, ADAM, fit_params),
        )
        out, _ = fit("uneven_packed", configs=name, epochs=1)
        found.append(weights(out))
    assert found[0] == found[1]


def test_model_weights_of_the_architecture_are_the_start(
    bench: Any, fit: Fit, weights: Weights
) -> None:
    out, _ = fit(epochs=1)
    start = weights(out)[1]
    text = bench.value("SELECT model_arch::text FROM models WHERE model_id = 1")
    bench.run("SELECT cerebro_load_model('started_models', %s, %s)", (text, start))
    frozen = ADAM.replace("0.01", "0.0")
    bench.run(
        "SELECT cerebro_load_configs('started_models', 'started', ARRAY[1], %s, %s)",
        ([frozen], ["batch_size=8"]),
    )
    assert weights(fit(configs="started", epochs=1)[0])[1] == start


def test_regression(bench: Any, fit: Fit) -> None:
    line = model(DENSE, layer("Dense", units=1))
    bench.run("SELECT cerebro_load_model('lines', %s)", (line,))
    params = "loss='mse',optimizer='Adam(lr=0.01)',metrics=['mae']"
    bench.run(
        "SELECT cerebro_load_configs('lines', 'line_configs', ARRAY[1], %s, %s)",
        ([params], ["batch_size=8"]),
    )
    out, _ = fit("floats", "line_configs", 20, metrics_compute_frequency=10)
    losses, errors = bench.row(f"SELECT training_loss, training_metrics FROM {out}_info")
    assert losses[1] < losses[0]
    assert errors[1] < errors[0]
    variance = bench.value("SELECT var_pop(target) FROM blobs_train")
    assert losses[1] < 0.2 * variance


def test_nothing_is_left_of_the_states(bench: Any, fit: Fit) -> None:
    fit()
    left = bench.column(
        "SELECT relname FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro_states') "
        "AND relkind <> 'v'"  # the one by which the owner is known
    )
    assert left == []


def test_the_manifest_tells_versions_and_threads(bench: Any, fit: Fit) -> None:
    import tensorflow as tf

    _, run_id = fit()
    manifest, threads = bench.row(
        "SELECT manifest, threads FROM cerebro.runs WHERE run_id = %s", (run_id,)
    )
    manifest = manifest if isinstance(manifest, dict) else json.loads(manifest)
    assert manifest["tensorflow"] == tf.__version__
    assert manifest["threads"] == threads == 1
    assert manifest["onednn"] is True


def test_a_failure_does_not_confuse_what_a_worker_has_in_memory(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    """The hop that failed drove another partition out of a memory that has room for one."""
    bench.run(
        "CREATE TABLE broad AS SELECT i AS id, i % 3 AS label, "
        "(SELECT array_agg((i * j % 7)::real) FROM generate_series(1, 64) j) AS x "
        "FROM generate_series(1, 9600) i"
    )
    bench.run(
        f"SELECT cerebro_pack('broad', 'broad_packed', 'label', 'x', num_partitions := {PARTITIONS})"
    )
    model_id = bench.value("SELECT cerebro_load_model('models', %s)", (model(SOFTMAX, shape=[64]),))
    sgd = ADAM.replace("Adam(lr=0.01)", "SGD(lr={})")
    rates = ("1e-3", "2e-3", "1e38", "2e38")
    configs = selection([model_id], [sgd.format(rate) for rate in rates], ["batch_size=64"])
    bench.run("SELECT cerebro_set('cache_mb', '1')")
    try:
        out, _ = fit("broad_packed", configs, num_workers=1, seed=1)
    finally:
        bench.run("SELECT cerebro_set('cache_mb', NULL)")
    found = bench.column(f"SELECT status FROM {out}_info ORDER BY mst_key")
    assert found == ["finished", "finished", "failed", "failed"]


def test_a_metric_that_cannot_be_computed_fails_its_configuration_only(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    bad = ADAM.replace("'accuracy'", "'Precision(class_id=50)'").replace("sparse_", "")
    out, _ = fit(configs=selection([1], [bad, ADAM]), validation_table="val")
    rows = bench.fetch(f"SELECT status, error FROM {out}_info ORDER BY mst_key")
    assert [status for status, _ in rows] == ["failed", "finished"]
    assert "index 50" in rows[0][1]
