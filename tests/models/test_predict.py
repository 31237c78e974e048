"""cerebro_predict: kinds of answers, equal to the model computed by hand; bad input; names."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import psycopg2
import pytest
from pace import stretched
from psycopg2 import errors
from servers import row_named

FLOWERS = ["iris", "ro'se", None]


def features(trained):
    rows = trained.fetch("SELECT x FROM rows ORDER BY id")
    return np.array([row[0] for row in rows], np.float32) / 2


def weights(trained, table, mst_key, *shapes):
    data = trained.value(f"SELECT model_weights FROM {table} WHERE mst_key = %s", (mst_key,))
    flat = np.frombuffer(bytes(data), np.float32)
    parts = []
    for shape in shapes:
        count = int(np.prod(shape))
        parts.append(flat[:count].reshape(shape))
        flat = flat[count:]
    assert not len(flat)
    return parts


def softmax(values):
    values = np.exp(values - values.max(axis=1, keepdims=True))
    return values / values.sum(axis=1, keepdims=True)


def flower_probabilities(trained, mst_key):
    a, b, c, d = weights(trained, "flowers", mst_key, (4, 5), (5,), (5, 3), (3,))
    return softmax(np.maximum(features(trained) @ a + b, 0) @ c + d)


def predict(trained, table, output, more="", id_col="id"):
    trained.fetch(f"DROP TABLE IF EXISTS {output}")
    trained.fetch(f"SELECT cerebro_predict('{table}', 'rows', '{id_col}', 'x', '{output}'{more})")
    order = ", rank" if "class_value" in columns(trained, output) else ""
    return trained.fetch(f"SELECT * FROM {output} ORDER BY {id_col}{order}")


def columns(trained, table):
    rows = trained.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
        "ORDER BY attnum",
        (table,),
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize("mst_key", [1, 2])
def test_all_classes(trained, mst_key):
    rows = predict(trained, "flowers", "p_all", f", 'prob', false, {mst_key}")
    assert columns(trained, "p_all") == ["id", "class_name", "class_value", "prob", "rank"]
    wanted = flower_probabilities(trained, mst_key)
    assert len(rows) == 360
    assert [row[0] for row in rows[::3]] == list(range(1, 121))
    assert {row[1] for row in rows} == {"flower"}
    assert [row[4] for row in rows] == [1, 2, 3] * 120
    for row in rows:
        assert row[3] == pytest.approx(wanted[row[0] - 1][FLOWERS.index(row[2])], abs=1e-6)
    assert all(a[3] >= b[3] for a, b in itertools.pairwise(rows) if a[0] == b[0])


def test_the_best_class(trained):
    rows = predict(trained, "flowers", "p_best", ", pred_type := 'response', mst_key := 1")
    best = flower_probabilities(trained, 1).argmax(axis=1)
    assert [row[2] for row in rows] == [FLOWERS[i] for i in best]


@pytest.mark.parametrize("given", ["2", "'2'", "2.0", "2::bigint"])
def test_some_classes(trained, given):
    rows = predict(trained, "flowers", "p_two", f", {given}, mst_key := 1")
    assert [row[4] for row in rows] == [1, 2] * 120


@pytest.mark.parametrize("given", ["0.35", "'0.35'"])
def test_classes_above_a_probability(trained, given):
    rows = predict(trained, "flowers", "p_above", f", {given}, mst_key := 1")
    wanted = (flower_probabilities(trained, 1) > 0.35).sum()
    assert len(rows) == wanted
    assert min(row[3] for row in rows) > 0.35


def test_one_output_is_the_second_of_two_classes(trained):
    kernel, bias = weights(trained, "halves", 1, (4, 1), (1,))
    second = 1 / (1 + np.exp(-(features(trained) @ kernel + bias)[:, 0]))
    rows = predict(trained, "halves", "p_half")
    assert len(rows) == 240
    for row in rows:
        p = second[row[0] - 1]
        assert row[3] == pytest.approx({"true": p, "false": 1 - p}[row[2]], abs=1e-6)


def test_logits_become_probabilities(trained):
    kernel, bias = weights(trained, "logits", 1, (4, 3), (3,))
    wanted = softmax(features(trained) @ kernel + bias)
    for row in predict(trained, "logits", "p_logits"):
        assert row[3] == pytest.approx(wanted[row[0] - 1][FLOWERS.index(row[2])], abs=1e-6)


def test_a_number(trained):
    a, b, c, d = weights(trained, "sums", 1, (4, 4), (4,), (4, 1), (1,))
    wanted = (np.tanh(features(trained) @ a + b) @ c + d)[:, 0]
    rows = predict(trained, "sums", "p_sum", ", 'response'")
    assert columns(trained, "p_sum") == ["id", "class_name", "estimated"]
    assert [row[:2] for row in rows] == [(i, "sum") for i in range(1, 121)]
    np.testing.assert_allclose([row[2] for row in rows], wanted, atol=1e-5)


def test_a_vector(trained):
    kernel, bias = weights(trained, "pairs", 1, (4, 2), (2,))
    rows = predict(trained, "pairs", "p_pair", ", 'response'")
    found = np.array([row[2] for row in rows])
    np.testing.assert_allclose(found, features(trained) @ kernel + bias, atol=1e-6)


def test_a_matrix(trained):
    kernel, bias = weights(trained, "grids", 1, (4, 6), (6,))
    rows = predict(trained, "grids", "p_grid", ", 'response'")
    found = np.array([row[2] for row in rows])
    np.testing.assert_allclose(
        found, (features(trained) @ kernel + bias).reshape(-1, 2, 3), atol=1e-6
    )


def test_no_type_means_all_classes(trained):
    assert len(predict(trained, "logits", "p_null", ", NULL, NULL, NULL")) == 360


def test_ids_of_any_type(trained):
    rows = predict(trained, "halves", "p_names", ", 'response'", id_col="name")
    assert {row[0] for row in rows} == {f"row {i}" for i in range(1, 121)}
    assert columns(trained, "p_names")[0] == "name"


def test_several_batches_and_a_view_with_other_types(trained):
    trained.fetch(
        'CREATE VIEW "Many %% \'""Rows" AS SELECT 1000 * k + id AS "Odd %% ""Id", '
        'x::numeric[] AS "The %% ""x" FROM rows, generate_series(0, 99) k',
        (),
    )
    trained.fetch(
        "SELECT cerebro_predict(model_table := 'halves', test_table := %s, id_col := %s, "
        "independent_varname := %s, output_table := %s, pred_type := 'response')",
        ('"Many % \'""Rows"', '"Odd % ""Id"', '"The % ""x"', '"Answers % \'""!"'),
    )
    rows = trained.fetch('SELECT * FROM "Answers %% \'""!"', ())
    assert len(rows) == 12000
    by_row = {}
    for row in rows:
        by_row.setdefault(row[0] % 1000, set()).add(row[2])
    assert len(by_row) == 120
    assert all(len(answers) == 1 for answers in by_row.values())


BAD = {
    "'flowers','rows','id','x','o'": ("InvalidParameterValue", "mst_key: got NULL.*2 models: 1, 2"),
    "'flowers','rows','id','x','o','prob',false,9": ("InvalidParameterValue", "got 9.*1, 2"),
    "'halves','rows','id','x','o','best'": ("InvalidParameterValue", "pred_type: got 'best'"),
    "'halves','rows','id','x','o',0": ("InvalidParameterValue", "pred_type: got 0"),
    "'halves','rows','id','x','o',-1": ("InvalidParameterValue", "pred_type: got -1"),
    "'halves','rows','id','x','o',1.5": ("InvalidParameterValue", "pred_type: got 1.5"),
    "'halves','rows','id','x','o','NaN'": ("InvalidParameterValue", "pred_type: got 'NaN'"),
    "'sums','rows','id','x','o'": ("InvalidParameterValue", "pred_type: got 'prob'.*'response'"),
    "'sums','rows','id','x','o',3": (
        "InvalidParameterValue",
        "pred_type: got 3; allowed: 'response'",
    ),
    "NULL,'rows','id','x','o'": ("InvalidParameterValue", "model_table: got NULL"),
    "'nope','rows','id','x','o'": ("UndefinedTable", "model_table: got 'nope'"),
    "'rows','rows','id','x','o'": ("WrongObjectType", "no column mst_key"),
    "'orphan','rows','id','x','o'": ("WrongObjectType", "no table public.orphan_info"),
    "'barren','rows','id','x','o'": ("WrongObjectType", "no trained model"),
    "'halves','nope','id','x','o'": ("UndefinedTable", "test_table: got 'nope'"),
    "'halves','halves_packed','id','x','o'": ("InvalidParameterValue", "id_col: got 'id'.*packed"),
    "'halves','halves_packed',NULL,'y','o'": ("UndefinedColumn", "independent_varname: got 'y'"),
    "'halves','halves_packed',NULL,'half','o'": ("InvalidParameterValue", "got 'half'.*'x'"),
    "'halves','undivided_packed',NULL,NULL,'o'": (
        "InvalidParameterValue",
        "constant 1.0; allowed: 2.0",
    ),
    "'halves','pair_packed',NULL,NULL,'o'": ("InvalidParameterValue", r"shape \(2,\).*\(4,\)"),
    "'halves','rows','id','x','o',num_workers:=0": ("InvalidParameterValue", "num_workers: got 0"),
    "'flowers','rows','id','x','o',ensemble:=3": (
        "InvalidParameterValue",
        "got 3; allowed: 1 to 2",
    ),
    "'flowers','rows','id','x','o',ensemble:=0": ("InvalidParameterValue", "ensemble: got 0"),
    "'flowers','rows','id','x','o',mst_key:=1,ensemble:=2": (
        "InvalidParameterValue",
        "mst_key: got 1",
    ),
    "'halves','rows','no','x','o'": ("UndefinedColumn", "id_col: got 'no'.*id, name, x"),
    "'halves','rows',NULL,'x','o'": ("InvalidParameterValue", "id_col: got NULL"),
    "'halves','rows','x','x','o'": ("WrongObjectType", "any type but arrays"),
    "'halves','ranked','rank','x','o'": ("InvalidParameterValue", "id_col: got 'rank'"),
    "'halves','rows','id','y','o'": ("UndefinedColumn", "independent_varname: got 'y'"),
    "'halves','rows','id','name','o'": ("WrongObjectType", "of type text; allowed: arrays"),
    "'halves','rows','id','x','rows'": ("DuplicateTable", "public.rows exists"),
    "'halves','rows','id','x',''": ("InvalidParameterValue", "output_table: got ''"),
    "'halves','rows','id','pair','o'": ("DataError", r"row 1 .*id = 1: .*\(2,\); allowed: \(4,\)"),
    "'halves','missing','id','x','o'": ("DataError", "row 3 .*id = 3: column 'x' is NULL"),
    "'halves','no_id','id','x','o'": ("DataError", "row 3 .*column 'id' is NULL"),
    "'halves','ragged','id','x','o'": ("DataError", r"row 3 .*id = 3: .*shape \(5,\).*\(4,\)"),
    "'halves','holey','id','x','o'": ("DataError", "row 3 .*id = 3: .*holds a NULL"),
    "'halves','infinite','id','x','o'": ("DataError", "row 3 .*id = 3: .*NaN, infinite"),
    "'halves','rows','id','x','o','prob',true": ("Error", "TensorFlow sees no GPU"),
}


@pytest.fixture(scope="module")
def strange(trained):
    trained.fetch(
        "CREATE TABLE orphan AS TABLE halves; "
        "CREATE TABLE barren AS SELECT * FROM halves LIMIT 0; "
        "CREATE TABLE barren_info AS TABLE halves_info; "
        "CREATE TABLE barren_summary AS TABLE halves_summary; "
        "CREATE TABLE barren_states AS TABLE halves_states; "
        "CREATE TABLE none AS SELECT * FROM rows LIMIT 0; "
        "CREATE VIEW ranked AS SELECT id AS rank, x FROM rows"
    )
    trained.fetch(
        "SELECT cerebro_pack('rows', 'undivided_packed', 'half', 'x', num_partitions := 1); "
        "SELECT cerebro_pack('rows', 'pair_packed', 'half', 'pair', num_partitions := 1, "
        "normalizing_const := 2.0)"
    )
    values = {
        "missing": "NULL",
        "ragged": "x || 1::real",
        "holey": "ARRAY[1, NULL, 2, 3]::real[]",
        "infinite": "ARRAY[1, 'Infinity', 2, 3]::real[]",
    }
    for name, value in values.items():
        trained.fetch(
            f"CREATE TABLE {name} AS SELECT id, CASE id WHEN 3 THEN {value} ELSE x END AS x "
            "FROM rows ORDER BY id"
        )
    trained.fetch("CREATE TABLE no_id AS SELECT nullif(id, 3) AS id, x FROM rows ORDER BY rows.id")
    return trained


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls(strange, arguments, has_segments):
    kind, message = BAD[arguments]
    before = strange.tables()
    with pytest.raises(getattr(errors, kind, None) or getattr(psycopg2, kind)) as caught:
        strange.fetch(f"SELECT cerebro_predict({arguments})")
    assert caught.match(f"(?s){row_named(message, has_segments)}")
    assert strange.tables() == before


def test_a_cancel_leaves_nothing(strange):
    strange.fetch(
        "CREATE VIEW slow AS SELECT id, x FROM rows WHERE length(pg_sleep(0.05)::text) < 5"
    )
    before = strange.tables()
    threading.Timer(1.5, strange.connection.cancel).start()
    began = time.monotonic()
    with pytest.raises(errors.QueryCanceled):
        strange.fetch("SELECT cerebro_predict('halves', 'slow', 'id', 'x', 'cancelled')")
    assert time.monotonic() - began < stretched(5)
    assert strange.tables() == before
    strange.fetch("SELECT cerebro_predict('halves', 'rows', 'id', 'x', 'cancelled')")


def test_columns_of_mixed_types(trained, network):
    """What training recorded is applied to raw rows, also those that it has not seen the like of."""
    trained.fetch(
        "CREATE VIEW mixed AS SELECT id, nullif(id, 7) AS size, (ARRAY['a', 'b', 'c'])[1 + id % 3] AS "
        "sort, sum FROM rows; CREATE TABLE later AS SELECT * FROM mixed WHERE id < 9; "
        "UPDATE later SET sort = 'new' WHERE id = 3"
    )
    trained.fetch(
        "SELECT cerebro_pack_columns('mixed', 'mixed_packed', 'sum', 'size, sort', num_partitions := 2)"
    )
    trained.fetch(
        "SELECT cerebro_load_model('mixed_library', %s); "
        "SELECT cerebro_load_configs('mixed_library', 'mixed_configs', ARRAY[1], "
        "ARRAY['loss=''mse'',optimizer=''SGD(lr=0.001)'''], ARRAY['batch_size=8'])",
        (network((5,), (1, "linear")),),
    )
    trained.fetch(
        "SELECT cerebro_fit_multiple('mixed_packed', 'm', 'mixed_configs', 1, num_workers := 1)"
    )
    kernel, bias = weights(trained, "m", 1, (5, 1), (1,))
    sizes = np.array([i for i in range(1, 121) if i != 7])
    wanted = []
    for i in range(1, 9):
        size = 0.0 if i == 7 else (i - sizes.mean()) / sizes.std()
        sort = None if i == 3 else i % 3
        features = np.array([size, i == 7, *(sort == n for n in range(3))], float)
        wanted.append((features @ kernel + bias)[0])
    for given in (None, "*", "sort, size"):
        trained.fetch("DROP TABLE IF EXISTS p_mixed")
        trained.fetch(
            "SELECT cerebro_predict('m', 'later', 'id', %s, 'p_mixed', 'response')", (given,)
        )
        found = [row[0] for row in trained.fetch("SELECT estimated FROM p_mixed ORDER BY id")]
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    with pytest.raises(errors.InvalidParameterValue, match="allowed: NULL, '\\*'"):
        trained.fetch("SELECT cerebro_predict('m', 'later', 'id', 'size', 'p_m', 'response')")
    with pytest.raises(errors.UndefinedColumn, match="size"):
        trained.fetch("SELECT cerebro_predict('m', 'rows', 'id', NULL, 'p_m', 'response')")
    trained.fetch("SELECT cerebro_encode('later', 'm', 'later_encoded', 'id')")
    rows = trained.fetch("SELECT features FROM later_encoded ORDER BY id")
    np.testing.assert_allclose(
        np.array([row[0] for row in rows]) @ kernel[:, 0] + bias, wanted, atol=1e-6
    )
    _check_encoders(trained, wanted)
    trained.fetch("CREATE VIEW arrays AS SELECT ARRAY[id, 0, 0, 0, 0] AS features, sum FROM rows")
    trained.fetch("SELECT cerebro_pack('arrays', 'arrays_packed', 'sum', 'features')")
    with pytest.raises(errors.InvalidParameterValue, match="another encoding"):
        trained.fetch("SELECT cerebro_evaluate('m', 'arrays_packed', 'e_mixed')")
    with pytest.raises(errors.WrongObjectType, match="halves has no encoding"):
        trained.fetch("SELECT cerebro_encode('later', 'halves', 'o', 'id')")


def _check_encoders(trained, wanted):
    """A function of a row gives what a table of encoded rows has, and predicts the same."""
    run_id = trained.fetch("SELECT max(run_id) FROM cerebro.runs")[0]
    trained.fetch("SELECT cerebro_register_model(%s, 1, 'mixed')", run_id)
    for number, training in enumerate(["mixed_packed", "m", "model:mixed"]):
        function = f'"features ${number}"'
        create = f"SELECT cerebro_create_encoder('later', '{training}', '{function}')"
        trained.fetch(create)
        assert (
            trained.fetch(
                f"SELECT e.id FROM later_encoded e JOIN later l USING (id) WHERE e.features <> {function}(l)"
            )
            == []
        )
        rows = trained.fetch(f"SELECT {function}(l)::text FROM later l ORDER BY id")
        found = [
            trained.fetch("SELECT (cerebro_predict_row('m', %s::float8[])).estimated[1]", row)[0][0]
            for row in rows
        ]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        with pytest.raises(errors.DuplicateFunction, match=r"of rows of .*later exists already"):
            trained.fetch(create)
    bad = {
        "'later', 'halves', 'f'": (errors.WrongObjectType, "halves has no encoding"),
        "'rows', 'm', 'f'": (errors.UndefinedColumn, "size"),
        "'later', 'm', NULL": (errors.InvalidParameterValue, "function_name: got NULL"),
        "'later', 'm', 'nowhere.f'": (errors.UndefinedTable, "nowhere"),
        "'later', 'model:nobody', 'f'": (errors.UndefinedObject, "nobody"),
        "'nothing', 'm', 'f'": (errors.UndefinedTable, "nothing"),
    }
    for arguments, (kind, told) in bad.items():
        with pytest.raises(kind, match=told):
            trained.fetch(f"SELECT cerebro_create_encoder({arguments})")


def test_an_encoder_reads_values_as_packing_did(trained, has_segments):
    """Whatever a session has set; quotes and dollars in categories are texts."""
    trained.fetch(
        "CREATE TABLE stamped AS SELECT id, timestamptz '2026-01-01 00:00+00' + id * interval '1 hour' AS "
        "t, (ARRAY['it''s', '50% $features$', 'a\\b'])[1 + id % 3] AS kind, id * 1.1::float8 AS size, "
        "id * interval '1 day 1 hour' AS span FROM generate_series(1, 12) id"
    )
    for call in (
        "SELECT cerebro_pack_columns('stamped', 'stamped_packed', 'size', 't, kind, span', "
        'encodings := \'{"t": "onehot", "span": "integer"}\', num_partitions := 2)',
        "SELECT cerebro_encode('stamped', 'stamped_packed', 'stamped_encoded', 'id')",
        "SELECT cerebro_create_encoder('stamped', 'stamped_packed', 'stamped_features')",
    ):
        trained.fetch(call)
    like_a_column = "SELECT cerebro_create_encoder('stamped', 'stamped_packed', 'kind')"
    name = "kind"
    if has_segments:  # PostgreSQL 9.4 takes no such name
        name = "stamped_features"
        with pytest.raises(errors.DuplicateFunction, match="the name of one of their columns"):
            trained.fetch(like_a_column)
    else:
        trained.fetch(like_a_column)
    differing = (
        "SELECT count(*) FROM stamped s JOIN stamped_encoded e USING (id) "
        f"WHERE stamped_features(s) <> e.features OR {name}(s) <> e.features"
    )
    assert trained.fetch(differing) == [(0,)]
    for (row,) in trained.fetch("SELECT features FROM stamped_encoded"):  # each category is known
        assert (sum(row[:12]), sum(row[12:15])) == (1, 1)
        assert row[15] > 0
    trained.fetch(
        "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601'"
    )
    try:
        assert trained.fetch(differing) == [(0,)]
    finally:
        trained.fetch("RESET TimeZone; RESET DateStyle; RESET IntervalStyle")


def test_tokens(trained, network):
    """Whole numbers reach an Embedding layer as they are."""
    trained.fetch(
        "CREATE TABLE tokens AS SELECT id, ARRAY[id % 10, id % 7, 9]::smallint[] AS words, sum FROM rows"
    )
    embedding = {
        "module": "keras.layers",
        "class_name": "Embedding",
        "config": {"input_dim": 10, "output_dim": 2, "name": "words"},
        "registered_name": None,
    }
    flatten = {"module": "keras.layers", "class_name": "Flatten", "config": {"name": "flat"}}
    text = network((3,), embedding, flatten, (1, "linear"))
    trained.fetch(
        "SELECT cerebro_pack('tokens', 'tokens_packed', 'sum', 'words', num_partitions := 2); "
        "SELECT cerebro_load_model('tokens_library', %s); "
        "SELECT cerebro_load_configs('tokens_library', 'tokens_configs', ARRAY[1], "
        "ARRAY['loss=''mse'',optimizer=''Adam()'''], ARRAY['batch_size=8'])",
        (text,),
    )
    trained.fetch(
        "SELECT cerebro_fit_multiple('tokens_packed', 't', 'tokens_configs', 1, num_workers := 1)"
    )
    table, kernel, bias = weights(trained, "t", 1, (10, 2), (6, 1), (1,))
    trained.fetch("SELECT cerebro_predict('t', 'tokens', 'id', 'words', 'p_tokens', 'response')")
    rows = trained.fetch("SELECT words, estimated FROM tokens JOIN p_tokens USING (id)")
    words = np.array([row[0] for row in rows])
    wanted = table[words].reshape(-1, 6) @ kernel + bias
    np.testing.assert_allclose([row[1] for row in rows], wanted[:, 0], atol=1e-6)


def test_images(trained, network, has_segments):
    """Raw images are read as those of the training, also from a column of another name."""
    trained.fetch(
        "CREATE TABLE images AS SELECT id, decode(lpad(to_hex(id), 2, '0') || 'ff0080', 'hex') AS image, "
        "sum FROM rows; CREATE VIEW more_images AS SELECT id, image AS other, sum FROM images; "
        "CREATE VIEW bad_images AS SELECT id, CASE id WHEN 5 THEN 'abc' ELSE image END AS image FROM images"
    )
    flatten = {"module": "keras.layers", "class_name": "Flatten", "config": {"name": "flat"}}
    trained.fetch(
        "SELECT cerebro_pack_images('images', 'images_packed', 'sum', 'image', ARRAY[2, 2], 'raw'); "
        "SELECT cerebro_pack_validation('more_images', 'images_val', 'sum', 'other', 'images_packed'); "
        "SELECT cerebro_load_model('images_library', %s); "
        "SELECT cerebro_load_configs('images_library', 'images_configs', ARRAY[1], "
        "ARRAY['loss=''mse'',optimizer=''SGD(lr=0.01)'''], ARRAY['batch_size=8'])",
        (network((2, 2), flatten, (1, "linear")),),
    )
    trained.fetch(
        "SELECT cerebro_fit_multiple('images_packed', 'im', 'images_configs', 1, num_workers := 1)"
    )
    kernel, bias = weights(trained, "im", 1, (4, 1), (1,))
    pixels = np.array([[i, 255, 0, 128] for i in range(1, 121)]) / 255
    wanted = (pixels @ kernel + bias)[:, 0]
    for table, column in (("images", "NULL"), ("more_images", "'other'")):
        trained.fetch("DROP TABLE IF EXISTS p_images")
        trained.fetch(
            f"SELECT cerebro_predict('im', '{table}', 'id', {column}, 'p_images', 'response')"
        )
        found = [row[0] for row in trained.fetch("SELECT estimated FROM p_images ORDER BY id")]
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    trained.fetch("SELECT cerebro_predict('im', 'images_val', NULL, NULL, 'p_packed', 'response')")
    found = trained.fetch("SELECT estimated FROM p_packed ORDER BY estimated")
    np.testing.assert_allclose([row[0] for row in found], sorted(wanted), atol=1e-6)
    trained.fetch("SELECT cerebro_evaluate('im', 'images_val', 'e_images')")
    with pytest.raises(
        errors.DataException, match=r"id = 5: column 'image' holds 3 bytes; allowed: 4"
    ):
        trained.fetch("SELECT cerebro_predict('im', 'bad_images', 'id', NULL, 'o', 'response')")
    with pytest.raises(
        errors.WrongObjectType, match="'sum' is of type double precision; allowed: bytea"
    ):
        trained.fetch("SELECT cerebro_predict('im', 'images', 'id', 'sum', 'o', 'response')")

    trained.fetch(
        "CREATE TABLE damaged AS SELECT id, CASE id WHEN 5 THEN 'abc' WHEN 9 THEN NULL ELSE image END "
        "AS image FROM images; CREATE VIEW all_damaged AS SELECT id, ''::bytea AS image FROM images; "
        "CREATE VIEW damaged_view AS TABLE damaged; "
        "CREATE VIEW without_id AS SELECT nullif(nullif(id, 5), 8) AS id, image FROM damaged"
    )
    trained.notices()
    wanted = np.delete(wanted, [4, 8])
    call = "SELECT cerebro_predict('im', '{}', 'id', NULL, 'p_images', 'response', replace := true, {})"
    for source in ("damaged", "damaged_view"):
        trained.fetch(call.format(source, "on_error := 'ignore'"))
        found = trained.fetch("SELECT id, estimated FROM p_images ORDER BY id")
        assert [row[0] for row in found] == [i for i in range(1, 121) if i not in (5, 9)]
        np.testing.assert_allclose([row[1] for row in found], wanted, atol=1e-6)
        told = trained.notices()
        assert f"on_error: 2 rows are left out of public.{source}" in told
        assert "id = 5: holds 3 bytes; allowed: 4" in told
        assert "id = 9: is NULL" in told
    trained.fetch(call.format("images", "on_error := 'ignore'"))
    assert "on_error" not in trained.notices()
    trained.fetch(call.format("all_damaged", "on_error := 'ignore'"))
    assert trained.value("SELECT count(*) FROM p_images") == 0
    with pytest.raises(errors.DataException, match="'id' is NULL; allowed: no NULL") as caught:
        trained.fetch(call.format("without_id", "on_error := 'ignore'"))
    assert has_segments or "row 8 " in str(caught.value)
    for model, values in (("im", "'images_val', NULL, NULL"), ("sums", "'rows', 'id', 'x'")):
        with pytest.raises(
            errors.InvalidParameterValue,
            match="on_error: got 'ignore' for features that are no images",
        ):
            trained.fetch(
                f"SELECT cerebro_predict('{model}', {values}, 'o', 'response', on_error := 'ignore')"
            )
    with pytest.raises(
        errors.InvalidParameterValue, match="on_error: got 'go on'; allowed: 'stop'"
    ):
        trained.fetch(call.format("images", "on_error := 'go on'"))


def test_weights_of_rows(trained, network):
    """Rows without weight have no part in training, but in the scores."""
    trained.fetch(
        "CREATE TABLE weighty AS SELECT id, x, CASE id % 2 WHEN 0 THEN 5.0 ELSE -1000.0 END::float8 AS t, "
        "1 - id % 2 AS w FROM rows"
    )
    trained.fetch(
        "SELECT cerebro_pack('weighty', 'weighty_packed', 't', 'x', num_partitions := 2, sample_weight := 'w'); "
        "SELECT cerebro_pack_validation('weighty', 'weighty_val', 't', 'x', 'weighty_packed'); "
        "SELECT cerebro_load_model('weighty_library', %s); "
        "SELECT cerebro_load_configs('weighty_library', 'weighty_configs', ARRAY[1], "
        "ARRAY['loss=''mse'',optimizer=''SGD(lr=0.1)'''], ARRAY['batch_size=8'])",
        (network((4,), (1, "linear")),),
    )
    trained.fetch(
        "SELECT cerebro_fit_multiple('weighty_packed', 'wm', 'weighty_configs', 12, num_workers := 1, "
        "validation_table := 'weighty_val')"
    )
    trained.fetch("SELECT cerebro_predict('wm', 'weighty', 'id', 'x', 'p_weighty', 'response')")
    low, high = trained.fetch("SELECT min(estimated), max(estimated) FROM p_weighty")[0]
    assert 3 < low < high < 7
    query = "SELECT training_loss_final, validation_loss_final FROM wm_info"
    training, validation = trained.fetch(query)[0]
    assert training == pytest.approx(validation, rel=1e-5)
    assert training > 400_000
    for number, table in enumerate(("weighty_packed", "weighty_val")):
        trained.fetch(f"SELECT cerebro_evaluate('wm', '{table}', 'e_weighty_{number}')")
        loss = trained.value(f"SELECT loss FROM e_weighty_{number}")
        assert loss == pytest.approx(training, rel=1e-5)
