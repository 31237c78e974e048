"""Models of two inputs and three outputs, from packing to predictions and the registry."""

from __future__ import annotations

import json
import re

import numpy as np
import psycopg2
import pytest
from servers import row_named

from cerebro_db.training.state import from_bytes
from tests.networks import network

INPUTS, TARGETS = "grid, size", '"Kind", amount, pair'
COMPILE = (
    "loss={'kind': 'sparse_categorical_crossentropy', 'amount': 'mse', 'pair': 'mae'},"
    "loss_weights={'amount': 0.2},metrics={'kind': ['accuracy'], 'pair': 'mse'},"
    "optimizer='Adam(lr=0.01)'"
)
ONE_SHAPE, NULL_FIRST = r"'z' has shape \(1,\); allowed: \(2,\)", "row 2 .*column 'n' is NULL"
BY_CHANCE = {
    ONE_SHAPE: r"'z' has shape \((1,\); allowed: \(2|2,\); allowed: \(1),\)",
    NULL_FIRST: "row 2 .*column '(n' is NULL|z' has shape)",
}
NAMES = [
    "kind_accuracy", "pair_mean_squared_error", "kind_loss", "amount_loss", "pair_loss",
]  # fmt: skip


def make_several(bench, partitions):
    """Tables of this file: packed, a validation table, models, configurations."""
    bench.run(
        "CREATE TABLE several AS SELECT id, ARRAY[[sin(id), cos(id)], [sin(3 * id), 0.5]]::real[] "
        "AS grid, (id % 7)::smallint AS size, (ARRAY['a', 'b', NULL])[1 + id % 3] AS \"Kind\", "
        "(id % 7)::numeric / 3 AS amount, ARRAY[sin(id), cos(id)]::float8[] AS pair, "
        "(1 + id % 2)::real AS weight FROM generate_series(1, 90) id"
    )
    bench.run("CREATE VIEW several_test AS SELECT * FROM several WHERE id > 60")
    bench.run(
        "SELECT cerebro_pack('several', 'several_packed', %s, %s, 10, 2.0, ARRAY[4, NULL, NULL], "
        "num_partitions := %s, seed := 3)",
        (TARGETS, INPUTS, partitions),
    )
    bench.run(
        "SELECT cerebro_pack_validation('several_test', 'several_val', %s, %s, 'several_packed')",
        (TARGETS, INPUTS),
    )
    for classes in (4, 3):
        bench.run("SELECT cerebro_load_model('several_models', %s)", (network(classes),))
    other = COMPILE.replace("0.2", "0.9")
    bench.run(
        "SELECT cerebro_load_configs('several_models', 'several_configs', ARRAY[1], %s, %s)",
        ([COMPILE, other], ["batch_size=8"]),
    )


@pytest.fixture(scope="module")
def several(bench):
    """Those tables, with two partitions."""
    make_several(bench, 2)
    return bench


@pytest.fixture(scope="module")
def trained(several):
    several.run(
        "SELECT cerebro_fit_multiple('several_packed', 'several_out', 'several_configs', 2, "
        "validation_table := 'several_val', num_workers := 2, seed := 4)"
    )
    return several


def numbers(bench, column, dtype="<f4", table="several_packed"):
    rows = bench.fetch(f"SELECT {column} FROM {table} ORDER BY partition_key, buffer_id")
    return np.concatenate([np.frombuffer(bytes(row[0]), dtype) for row in rows])


def refused(bench, call):
    with pytest.raises(psycopg2.Error) as caught:
        bench.run(f"SELECT {call}")
    return caught.value


def test_each_input_and_output_has_its_columns(several):
    grid = numbers(several, "grid").reshape(-1, 2, 2)
    size, kind = numbers(several, "size"), numbers(several, '"Kind"', "<i4")
    amount, pair = numbers(several, "amount"), numbers(several, "pair").reshape(-1, 2)
    order = np.round(np.arctan2(pair[:, 0], pair[:, 1]), 3)
    rows = several.fetch('SELECT grid, size, "Kind", amount::float8, pair FROM several')
    wanted = {
        round(float(np.arctan2(*row[4])), 3): (np.array(row[0]) / 2, row[1] / 2, row[2], row[3])
        for row in rows
    }
    assert len(order) == 90
    for place, key in enumerate(order.tolist()):
        match = min(wanted, key=lambda other: abs(other - key))
        its_grid, its_size, its_kind, its_amount = wanted[match]
        np.testing.assert_allclose(grid[place], its_grid, rtol=1e-5, atol=1e-6)
        assert size[place] == pytest.approx(its_size)
        assert ["a", "b", None][kind[place]] == its_kind
        assert amount[place] == pytest.approx(its_amount, rel=1e-6)
    shapes = several.fetch("SELECT grid_shape, size_shape, pair_shape FROM several_packed LIMIT 1")
    assert shapes == [([9, 2, 2], [9, 1], [9, 2])]


def test_the_summary_tells_of_each(several):
    found = several.fetch(
        "SELECT dependent_varname, independent_varname, num_classes, target_kinds, input_shapes, "
        'target_shapes, "Kind_class_values", amount_class_values, classes_found, '
        "independent_vartype FROM several_packed_summary"
    )[0]
    assert found == (
        ["Kind", "amount", "pair"], ["grid", "size"], [4, None, None], ["class", "float", "float"],
        [[2, 2], [1]], [[], [], [2]], ["a", "b", None, None], None, [3, None, None],
        ["real[]", "smallint"],
    )  # fmt: skip


@pytest.mark.parametrize("given", ["NULL", "'{4,NULL,null}'"])
def test_class_numbers_of_any_type(several, given):
    several.run("DROP TABLE IF EXISTS numbered, numbered_summary")
    several.run(
        f"SELECT cerebro_pack('several', 'numbered', '{TARGETS}', 'size, grid', 90, 1, {given})"
    )
    found = several.value("SELECT num_classes[1] FROM numbered_summary")
    assert found == (3 if given == "NULL" else 4)


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("'{s}', 'bad', 'amount, pair', 'grid, nothing'", "42703", "nothing"),
        ("'{s}', 'bad', 'amount, pair', 'grid, size, grid'", "22023", "two columns named 'grid'"),
        ("'{s}', 'bad', 'amount, pair', 'grid,'", "22023", "missing after the last comma"),
        ("'{s}', 'bad', 'amount, pair', 'grid, \"Kind\"'", "42809", "'Kind' is of type text"),
        ("'{s}', 'bad', 'amount, pair', 'grid, amount'", "22023", "two columns named 'amount'"),
        ("'{s}', 'bad', 'amount, pair', 'grid', num_classes := 3", "22023", "an array of 2"),
        ("'{s}', 'bad', '\"Kind\", pair', 'grid', 9, 1, ARRAY[3, 2]", "22023", "'pair' of type"),
        ("'{s}', 'bad', '\"Kind\", pair', 'grid', 9, 1, ARRAY[1, NULL]", "22023", "at least 3"),
        ("'{s}', 'bad', '\"Kind\", pair', 'grid', 9, 1, '{{3,x}}'", "22023", "num_classes: got"),
        ("'ragged', 'bad', 'y', 'x, z'", "22000", ONE_SHAPE),
        ("'ragged', 'bad', 'y, n', 'x, x2'", "22000", "row 2 .*column 'n' is NULL"),
        ("'ragged', 'bad', 'y, n', 'x, z'", "22000", NULL_FIRST),
    ],
)
def test_packing_is_refused(several, call, code, message, has_segments):
    if has_segments:  # which row is the first is chance there
        message = row_named(BY_CHANCE.get(message, message), has_segments)
    several.run("DROP TABLE IF EXISTS ragged")
    several.run(
        "CREATE TABLE ragged AS SELECT i AS y, ARRAY[i] AS x, ARRAY[i] AS x2, CASE WHEN i = 3 THEN "
        "ARRAY[1] ELSE ARRAY[i, 2] END AS z, CASE WHEN i <> 2 THEN i::real END AS n "
        "FROM generate_series(1, 4) i"
    )
    error = refused(several, f"cerebro_pack({call.format(s='several')})")
    assert error.pgcode == code, error
    assert re.search(message, str(error)), error
    assert several.value("SELECT to_regclass('bad')") is None


def test_validation_has_as_many(several):
    error = refused(
        several,
        "cerebro_pack_validation('several', 'bad', 'amount, pair', 'grid, size', 'several_packed')",
    )
    assert "dependent_varname: got 2 columns; allowed: 3" in str(error)
    error = refused(
        several,
        f"cerebro_pack_validation('several', 'bad', '{TARGETS}', 'size, grid', 'several_packed')",
    )
    assert "column 'size': got rows of shape (1,)" in str(error)


@pytest.mark.parametrize(
    ("model", "compile_params", "fit", "message"),
    [
        (2, COMPILE, "", "3 outputs for 4 classes"),
        (1, "loss='mae',optimizer='SGD()',metrics=['mae', 'mse']", "", "got 2 for the 3 outputs"),
        (1, "loss=['mae', 'mse'],optimizer='SGD()'", "", "got 2 for the 3 outputs"),
        (1, COMPILE.replace("'pair': 'mae'", "'pear': 'mae'"), "", "Did you mean 'pair'"),
        (1, COMPILE.replace("0.2}", "0.2, 'x': 1}"), "", "loss_weights: got 'x'"),
        (1, COMPILE, ",class_weight={0: 2.0}", "class_weight: got one for a model of 3 outputs"),
    ],
)
def test_training_is_refused(several, model, compile_params, fit, message):
    several.run("DROP TABLE IF EXISTS bad_configs, bad_configs_summary")
    several.run(
        "SELECT cerebro_load_configs('several_models', 'bad_configs', ARRAY[%s], %s, %s)",
        (model, [compile_params], [f"batch_size=8{fit}"]),
    )
    error = refused(several, "cerebro_fit_multiple('several_packed', 'bad', 'bad_configs', 1)")
    assert error.pgcode == "22023", error
    assert message in str(error), error


def test_models_of_one_input_are_distinguished(several):
    error = refused(several, "cerebro_fit_multiple('several_packed', 'bad', 'configs', 1)")
    assert "1 inputs and 1 outputs; allowed: 2 and 3" in str(error)
    error = refused(several, "cerebro_fit_multiple('packed', 'bad', 'several_configs', 1)")
    assert "2 inputs and 3 outputs; allowed: one of each" in str(error)


def test_the_number_of_workers_does_not_show(trained):
    trained.run(
        "SELECT cerebro_fit_multiple('several_packed', 'several_one', 'several_configs', 2, "
        "validation_table := 'several_val', num_workers := 1, seed := 4)"
    )
    for table, columns in {
        "": "model_weights",
        "_states": "chunk, state",
        "_info": "training_loss, validation_loss, training_metrics, metrics_type",
    }.items():
        pair = [
            trained.fetch(f"SELECT mst_key, {columns} FROM {out}{table} ORDER BY 1")
            for out in ("several_out", "several_one")
        ]
        assert str(
            [[bytes(v) if isinstance(v, memoryview) else v for v in r] for r in pair[0]]
        ) == (str([[bytes(v) if isinstance(v, memoryview) else v for v in r] for r in pair[1]]))


def test_a_run_that_was_stopped_ends_the_same(trained):
    run_id = trained.value(
        "SELECT cerebro_fit_multiple('several_packed', 'several_cut', 'several_configs', 2, "
        "validation_table := 'several_val', num_workers := 1, seed := 4, max_seconds := 0.02)"
    )
    status = f"SELECT status FROM cerebro.runs WHERE run_id = {run_id}"
    assert trained.value(status) == "paused"
    trained.run(f"SELECT cerebro_resume({run_id})")
    assert trained.value(status) == "finished"
    read = "SELECT model_weights FROM {} ORDER BY mst_key"
    ours, theirs = (
        [bytes(data) for data in trained.column(read.format(out))]
        for out in ("several_cut", "several_out")
    )
    assert ours == theirs


def test_a_warm_start_goes_on(trained):
    trained.run(
        "SELECT cerebro_fit_multiple('several_packed', 'several_warm', 'several_configs', 1)"
    )
    before = trained.fetch("SELECT mst_key, training_loss_final FROM several_warm_info ORDER BY 1")
    trained.run(
        "SELECT cerebro_fit_multiple('several_packed', 'several_warm', 'several_configs', 2, "
        "warm_start := true)"
    )
    after = trained.fetch("SELECT mst_key, training_loss_final FROM several_warm_info ORDER BY 1")
    assert all(now < then for (_, now), (_, then) in zip(after, before, strict=True))
    error = refused(
        trained,
        "cerebro_fit_multiple('packed', 'several_out', 'configs', 1, warm_start := true)",
    )
    assert "3 classes" in str(error) or "of the kind class" in str(error), error


def test_results_are_named_as_in_keras(trained):
    rows = trained.fetch("SELECT metrics_type, loss_type FROM several_out_info")
    losses = "SparseCategoricalCrossentropy, MeanSquaredError, MeanAbsoluteError"
    assert rows == [(NAMES, losses)] * 2
    names, values, loss = trained.fetch(
        "SELECT metric_names, metrics, loss FROM cerebro.metrics JOIN cerebro.runs USING (run_id) "
        "WHERE model_output_table ~ 'several_out' AND mst_key = 1 AND dataset = 'validation'"
    )[0]
    assert names == NAMES
    assert loss == pytest.approx(values[2] + 0.2 * values[3] + values[4], rel=1e-5)
    best = trained.fetch(
        "SELECT validation_metrics[1], metric_names[1] FROM cerebro.leaderboard WHERE run_id = "
        "(SELECT run_id FROM several_out_summary) ORDER BY rank LIMIT 1"
    )
    assert best[0][1] == "kind_accuracy"
    assert best[0][0] == max(
        trained.column("SELECT validation_metrics_final FROM several_out_info")
    )


def test_evaluation_gives_what_the_run_has_reported(trained):
    trained.run("SELECT cerebro_evaluate('several_out', 'several_val', 'several_scores')")
    told = trained.fetch(
        "SELECT i.validation_loss_final, i.validation_metrics_final, s.loss, s.metric, "
        "s.metrics_type, s.loss_type FROM several_out_info i JOIN several_scores s USING (mst_key)"
    )
    for loss, metric, its_loss, its_metric, names, kinds in told:
        assert (its_loss, its_metric) == pytest.approx((loss, metric))
        assert names == NAMES
        assert kinds.startswith("SparseCategoricalCrossentropy, ")
    trained.run("SELECT cerebro_confusion_matrix('several_out', 'several_val', 'several_matrix')")
    assert trained.fetch(
        "SELECT mst_key, class_name, sum(num_rows)::int FROM several_matrix GROUP BY 1, 2 ORDER BY 1"
    ) == [(1, "Kind", 30), (2, "Kind", 30)]


def outputs_of(bench, mst_key):
    """What the model itself says of the rows of the view, in the order of their ids."""
    state = b"".join(
        bytes(row[0])
        for row in bench.fetch(
            f"SELECT state FROM several_out_states WHERE mst_key = {mst_key} ORDER BY chunk"
        )
    )
    kernel, bias, *heads = [a for n, a in from_bytes(state).items() if n.startswith("weights/")]
    rows = bench.fetch("SELECT grid, size FROM several_test ORDER BY id")
    given = np.array([[*np.ravel(grid), size] for grid, size in rows]) / 2
    hidden = np.tanh(given @ kernel + bias)
    logits, amount, pair = (hidden @ heads[i] + heads[i + 1] for i in (0, 2, 4))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True), amount[:, 0], pair


def test_predictions_of_each_output(trained):
    trained.run(
        "SELECT cerebro_predict('several_out', 'several_test', 'id', 'grid, size', "
        "'several_said', mst_key := 2)"
    )
    kinds, amounts, pairs = outputs_of(trained, 2)
    rows = trained.fetch(
        "SELECT class_value, prob, rank FROM several_said WHERE class_name = 'Kind' "
        "ORDER BY id, rank"
    )
    assert len(rows) == 30 * 4
    np.testing.assert_allclose(
        np.reshape([row[1] for row in rows], (30, 4)), -np.sort(-kinds, axis=1), rtol=1e-4
    )
    best = ["a", "b", None, None]
    assert [row[0] for row in rows[::4]] == [best[i] for i in kinds.argmax(axis=1)]
    for name, wanted in (("amount", amounts[:, np.newaxis]), ("pair", pairs)):
        found = trained.column(
            f"SELECT estimated FROM several_said WHERE class_name = '{name}' ORDER BY id"
        )
        np.testing.assert_allclose(np.array(found), wanted, rtol=1e-4, atol=1e-6)
    trained.run(
        "SELECT cerebro_predict('several_out', 'several_val', NULL, NULL, 'several_packed_said', "
        "'response', mst_key := 2, num_workers := 2)"
    )
    packed = trained.fetch(
        "SELECT class_name, class_value, prob, rank, estimated FROM several_packed_said "
        "WHERE class_name <> 'Kind' OR rank = 1"
    )
    assert len(packed) == 90
    raw = trained.fetch(
        "SELECT class_name, class_value, prob, rank, estimated FROM several_said "
        "WHERE class_name <> 'Kind' OR rank = 1"
    )
    assert sorted(_rounded(packed)) == sorted(_rounded(raw))


def _rounded(rows):
    return [
        str((name, value, prob and round(prob, 4), rank, estimated and np.round(estimated, 4)))
        for name, value, prob, rank, estimated in rows
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'several_test', 'id', 'grid', 'bad'", "2 columns separated by commas"),
        ("'several_test', 'id', NULL, 'bad'", "got NULL; allowed: 2 columns"),
        (
            "'several_test', 'id', 'size, grid', 'bad'",
            "column 'size' has shape (1,); allowed: (2, 2)",
        ),
        ("'several_val', NULL, 'size, grid', 'bad'", "allowed: 'grid', 'size', the features"),
        ("'val', NULL, NULL, 'bad'", "rows of shape (6,)"),
    ],
)
def test_predicting_is_refused(trained, arguments, message):
    error = refused(trained, f"cerebro_predict('several_out', {arguments}, mst_key := 1)")
    assert message in str(error), error


def test_one_row(trained):
    kinds, amounts, pairs = outputs_of(trained, 1)
    rows = trained.fetch(
        "SELECT p.* FROM several_test t, cerebro_predict_outputs('several_out', "
        "json_build_array(t.grid, ARRAY[t.size]), 1) WITH ORDINALITY p "
        "ORDER BY t.id, p.ordinality LIMIT 3"
    )
    assert [row[0] for row in rows] == ["Kind", "amount", "pair"]
    assert rows[0][2] == pytest.approx(kinds[0].max(), rel=1e-4)
    assert rows[0][3] == pytest.approx(kinds[0].tolist(), rel=1e-4)
    assert rows[1][1:4] == (None, None, pytest.approx([amounts[0]], rel=1e-4))
    assert rows[2][3] == pytest.approx(pairs[0].tolist(), rel=1e-4)
    ask = "cerebro_predict_outputs('several_out', '{}', 1)"
    for features, message in {
        "[[1]]": "got 1 inputs; allowed: 2",
        "[[1], [2]]": "got the shape (1,); allowed: (2, 2)",
        '[[[1, 2], [3, 4]], ["x"]]': "something else than an array of numbers",
        "[[[1, 2], [3, null]], [1]]": "features: got",
        "7": "allowed: a JSON array",
    }.items():
        assert message in str(refused(trained, ask.format(features))), features
    assert "cerebro_predict_outputs takes several" in str(
        refused(trained, "cerebro_predict_row('several_out', ARRAY[[1, 2], [3, 4]], 1)")
    )
    assert trained.fetch("SELECT * FROM cerebro_predict_outputs('several_out', NULL, 1)") == []


def test_the_registry_and_files_keep_all_of_it(trained, has_segments):
    run_id = trained.value("SELECT run_id FROM several_out_summary")
    trained.run(f"SELECT cerebro_register_model({run_id}, 2, 'several')")
    trained.run(
        "SELECT cerebro_predict('model:several', 'several_test', 'id', 'grid, size', "
        "'several_registered')"
    )
    ordered = (
        "SELECT id, class_name, class_value, rank, CASE WHEN rank IS NULL THEN estimated "
        "ELSE ARRAY[prob] END FROM {} ORDER BY id, class_name, rank"
    )
    ours, theirs = (
        trained.fetch(ordered.format(table)) for table in ("several_registered", "several_said")
    )
    assert [row[:4] for row in ours] == [row[:4] for row in theirs]
    both = (np.concatenate([row[4] for row in rows]) for rows in (ours, theirs))
    # Rows of a view come to segments at random, and so in other batches.
    np.testing.assert_allclose(*both, rtol=0, atol=1e-6 if has_segments else 0)
    file = bytes(trained.value("SELECT cerebro_export('model:several')"))
    trained.run("SELECT cerebro_load_model_file('several_files', %s)", (file,))
    trained.run(
        "SELECT cerebro_predict_byom('several_files', 1, 'several_test', 'id', 'grid, size', "
        "'several_byom', class_values := ARRAY[['a', 'b', 'c', 'd'], [NULL, NULL, NULL, NULL], "
        "['x', 'y', NULL, NULL]], pred_type := 'response', normalizing_const := 2, dependent_count := 3)"
    )
    names = trained.column("SELECT DISTINCT class_name FROM several_byom ORDER BY 1")
    assert names == ["dependent_var_0", "dependent_var_1", "dependent_var_2"]
    pair = [
        trained.column(f"SELECT estimated FROM {table} WHERE class_name = '{name}' ORDER BY id")
        for table, name in (("several_byom", "dependent_var_1"), ("several_said", "amount"))
    ]
    np.testing.assert_allclose(pair[0], np.ravel(pair[1]), rtol=1e-4)
    error = refused(
        trained,
        "cerebro_predict_byom('several_files', 1, 'several_test', 'id', 'grid, size', 'bad')",
    )
    assert "dependent_count: got 1; allowed: 3" in str(error)


def test_the_best_of_several_together(trained):
    trained.run(
        "SELECT cerebro_predict('several_out', 'several_test', 'id', 'grid, size', "
        "'several_mean', 'response', ensemble := 2)"
    )
    means = np.mean([outputs_of(trained, key)[2] for key in (1, 2)], axis=0)
    found = trained.column(
        "SELECT estimated FROM several_mean WHERE class_name = 'pair' ORDER BY id"
    )
    np.testing.assert_allclose(found, means, rtol=1e-4, atol=1e-6)


def test_one_model_with_weights_of_rows(several):
    several.run(
        "SELECT cerebro_pack('several', 'several_weighted', %s, %s, num_partitions := 1, "
        "sample_weight := 'weight')",
        ("amount, pair", INPUTS),
    )
    text = json.loads(network(3))
    text["config"]["output_layers"] = text["config"]["output_layers"][1:]
    text["config"]["layers"] = [one for one in text["config"]["layers"] if one["name"] != "kind"]
    several.run("SELECT cerebro_load_model('several_pairs', %s)", (json.dumps(text),))
    several.run(
        "SELECT cerebro_fit('several_weighted', 'several_fit', 'several_pairs', 1, "
        "'loss=''mse'',optimizer=''SGD(lr=0.05)'',metrics=''mae''', 'batch_size=16', 8)"
    )
    losses = several.value("SELECT ARRAY[training_loss_final] FROM several_fit_info")
    first = several.value(
        "SELECT loss FROM cerebro.hops WHERE run_id = (SELECT run_id FROM several_fit_summary) "
        "AND epoch = 1"
    )
    assert losses[0] < first


def test_grids_name_outputs(several):
    several.run(
        "SELECT cerebro_generate_configs('several_models', 'several_grid', ARRAY[1], "
        "$${'loss': [['sparse_categorical_crossentropy', 'mse', 'mae']], 'loss_weights': [[1, 1, 1], "
        "[1, 2, 3]], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}$$, "
        "$${'batch_size': [8]}$$, 'grid')"
    )
    assert several.value("SELECT count(*) FROM several_grid") == 2


@pytest.mark.parametrize(
    ("target", "units", "activation", "compile_params"),
    [
        ("onehot", 3, "softmax", "loss='categorical_crossentropy',metrics=['accuracy']"),
        (
            "labels",
            2,
            "sigmoid",
            "loss='bce',metrics=['binary_accuracy',AUC(multi_label=True,num_labels=2)]",
        ),
        ("flag", 1, "sigmoid", "loss='bce',metrics=['accuracy']"),
        ("day", 2, "softmax", "loss='categorical_crossentropy',metrics=['auc']"),
    ],
)
def test_targets_of_one_output(bench, target, units, activation, compile_params):
    bench.run(
        "DROP TABLE IF EXISTS targets; CREATE TABLE targets AS SELECT ARRAY[sin(id), cos(id)]::real[] AS x, "
        "ARRAY[(id % 3 = 0)::int, (id % 3 = 1)::int, (id % 3 = 2)::int] AS onehot, "
        "ARRAY[id % 2, (id % 3 > 0)::int]::smallint[] AS labels, id % 2 = 0 AS flag, "
        "date '2026-01-01' + id % 2 AS day FROM generate_series(1, 30) id"
    )
    bench.run(
        f"SELECT cerebro_pack('targets', '{target}_p', %s, 'x', num_partitions := 1)", (target,)
    )
    dense = {"module": "keras.layers", "class_name": "Dense"}
    layers = [
        {
            "module": "keras.layers",
            "class_name": "InputLayer",
            "config": {"batch_shape": [None, 2]},
        },
        {**dense, "config": {"units": units, "activation": activation}},
    ]
    text = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"layers": layers, "name": "n"},
    }
    bench.run(f"SELECT cerebro_load_model('{target}_models', %s)", (json.dumps(text),))
    bench.run(
        f"SELECT cerebro_fit('{target}_p', '{target}_out', '{target}_models', 1, %s, "
        "'batch_size=10', 1)",
        (f"{compile_params},optimizer='SGD()'",),
    )
    bench.run(f"SELECT cerebro_evaluate('{target}_out', '{target}_p', '{target}_scores')")
    final, metric, count = bench.fetch(
        f"SELECT training_metrics_final, metric, array_length(metrics, 1) "
        f"FROM {target}_out_info, {target}_scores"
    )[0]
    assert final == pytest.approx(metric, abs=0.02)  # an exact AUC is near
    assert count == compile_params.count("'accuracy'") + compile_params.count("AUC") + (
        compile_params.count("binary_acc") + compile_params.count("'auc'")
    )


def test_raw_rows_are_scored_like_packed_ones(trained):
    """NULL is a class here, and one class more is allowed for than there are."""
    trained.run(
        "SELECT cerebro_register_model((SELECT run_id FROM several_out_summary), 1, 'several_raw')"
    )
    found = []
    calls = ("'several_out', 'several_val'", "'several_out', 'several_test'")
    for place, call in enumerate((*calls, "'model:several_raw', 'several_test'")):
        trained.run(
            f"SELECT cerebro_evaluate({call}, 'raw_{place}', mst_key := {1 if place < 2 else 'NULL'})"
        )
        found.append(trained.row(f"SELECT loss, metrics FROM raw_{place}"))
    for loss, metrics in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        assert metrics == pytest.approx(found[0][1], rel=1e-5)
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="got 1 columns; allowed: 2"):
        trained.run(
            "SELECT cerebro_evaluate('several_out', 'several_test', 'o', independent_varname := 'grid')"
        )
