"""cerebro_load_model: ids, checks before anything is stored, hostile names, concurrent callers."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import psycopg2
import pytest
from psycopg2 import errors


@pytest.fixture(scope="module")
def small(network):
    return network((4,), (3, "relu"), (2, "softmax"))


def test_ids_count_from_one(db, small):
    first = db.value("SELECT cerebro_load_model('library', %s)", (small,))
    second = db.value(
        "SELECT cerebro_load_model(model_arch_table := 'library', model_arch := %s, "
        "name := 'Sophie', description := 'two layers')",
        (small,),
    )
    assert (first, second) == (1, 2)
    rows = db.fetch("SELECT model_id, name, description, model_arch FROM library ORDER BY 1")
    assert [row[:3] for row in rows] == [(1, None, None), (2, "Sophie", "two layers")]
    assert rows[0][3] == json.loads(small)
    facts = db.value("SELECT model_facts FROM library WHERE model_id = 1")
    assert facts["parameters"] == 4 * 3 + 3 + 3 * 2 + 2
    assert facts["input_shapes"] == [[4]]
    storage = (
        "SELECT attstorage FROM pg_attribute "
        "WHERE attrelid = 'library'::regclass AND attname = 'model_weights'"
    )
    assert db.value(storage) == "e"


def test_weights_are_kept_and_their_size_is_checked(db, small):
    weights = np.arange(23, dtype=np.float32).tobytes()
    key = db.value("SELECT cerebro_load_model('weighted', %s, %s)", (small, weights))
    stored = db.value("SELECT model_weights FROM weighted WHERE model_id = %s", (key,))
    assert bytes(stored) == weights
    with pytest.raises(errors.InvalidParameterValue, match=r"88 bytes.*23 weights"):
        db.fetch("SELECT cerebro_load_model('weighted', %s, %s)", (small, weights[:-4]))
    assert db.value("SELECT cerebro_load_model('weighted', %s, %s)", (small, weights)) == 2


NAMES = ['"My Models"', '"a""b"', '"it\'s"', '"100%"', '"odd one"."Models; --"', "Upper", "ü"]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names(db, small, name):
    db.fetch('CREATE SCHEMA IF NOT EXISTS "odd one"')
    for expected in (1, 2):
        assert db.value("SELECT cerebro_load_model(%s, %s)", (name, small)) == expected
    assert db.fetch(f"SELECT count(*) FROM {name.replace('%', '%%')}", ()) == [(2,)]


def test_the_callers_search_path_counts(db, small):
    db.fetch("CREATE SCHEMA mine; SET search_path = mine, cerebro")
    try:
        db.fetch("SELECT cerebro_load_model('here', %s)", (small,))
    finally:
        db.fetch("RESET search_path")
    assert "mine.here" in db.tables()


def test_a_table_of_madlib_is_added_to(db, small):
    db.fetch(
        "CREATE TABLE theirs (model_id serial, model_arch json, model_weights bytea, "
        "name text, description text, __internal_madlib_id__ text)"
    )
    assert db.value("SELECT cerebro_load_model('theirs', %s)", (small,)) == 1


def test_deleting(db, small):
    for _ in range(2):
        db.fetch("SELECT cerebro_load_model('deleted', %s)", (small,))
    db.notices()
    db.fetch("SELECT cerebro_delete_model('deleted', 1)")
    assert "model 1 deleted from public.deleted" in db.notices()
    assert db.fetch("SELECT model_id FROM deleted") == [(2,)]
    for model_id in (1, None):
        with pytest.raises(errors.InvalidParameterValue, match="model_id: got"):
            db.fetch("SELECT cerebro_delete_model('deleted', %s)", (model_id,))
    db.fetch("SELECT cerebro_delete_model('deleted', 2)")
    assert "public.deleted" not in db.tables()
    with pytest.raises(errors.UndefinedTable, match="'deleted'"):
        db.fetch("SELECT cerebro_delete_model('deleted', 2)")
    db.fetch("CREATE TABLE unlike (model_id int)")
    with pytest.raises(errors.WrongObjectType, match="unlike, a table; allowed: a table with"):
        db.fetch("SELECT cerebro_delete_model('unlike', 2)")


def test_bad_calls(db, small, network):
    db.fetch(
        "CREATE TABLE other (model_id int); CREATE VIEW seen AS SELECT 1 AS model_id, "
        "'{}'::json AS model_arch, ''::bytea AS model_weights, ''::text AS name, "
        "''::text AS description; CREATE INDEX an_index ON other (model_id)"
    )
    open_shape = network((None, 4), (2, "relu"))
    calls = [
        (("other", small), errors.WrongObjectType, "without the columns model_arch"),
        (("seen", small), errors.WrongObjectType, "a view"),
        (("an_index", small), errors.WrongObjectType, "a table or a view"),
        ((None, small), errors.InvalidParameterValue, "model_arch_table: got NULL"),
        (("", small), errors.InvalidParameterValue, "model_arch_table: got ''"),
        (("x" * 70, small), errors.InvalidParameterValue, "70 bytes"),
        (("no.where", small), errors.UndefinedTable, "schema 'no'"),
        (("new", None), errors.InvalidParameterValue, "model_arch: got NULL"),
        (("new", "[1]"), errors.InvalidParameterValue, "to_json"),
        (("new", '{"class_name": "Sequential"}'), errors.InvalidParameterValue, "Keras 3"),
        (("new", network((4,), (2, "evil"))), errors.InvalidParameterValue, "'evil'"),
        (("new", small.replace("Dense", "Lambda")), errors.InvalidParameterValue, "Lambda"),
        (("new", open_shape), errors.InvalidParameterValue, "open shape"),
        (("new", network((4,), (-1, "relu"))), errors.InvalidParameterValue, "cannot build"),
    ]
    before = db.tables()
    for values, kind, message in calls:
        with pytest.raises(kind, match=f"(?s){message}") as caught:
            db.fetch("SELECT cerebro_load_model(%s, %s)", values)
        assert "Failed" not in caught.value.diag.message_primary
        assert db.tables() == before


def layer(class_name, **config):
    return {
        "module": "keras.layers",
        "class_name": class_name,
        "config": config,
        "registered_name": None,
    }


@pytest.fixture
def settings(db):
    yield lambda name, value: db.fetch("SELECT cerebro_set(%s, %s)", (name, value))
    db.fetch("SELECT cerebro_set('max_layers', NULL), cerebro_set('max_parameters', NULL)")


def test_limits_are_those_of_the_settings(db, small, settings):
    count = 4 * 3 + 3 + 3 * 2 + 2
    settings("max_parameters", str(count))
    assert db.value("SELECT cerebro_load_model('limited', %s)", (small,)) == 1
    settings("max_parameters", str(count - 1))
    with pytest.raises(
        errors.InvalidParameterValue, match=rf"got {count} param.*at most {count - 1}"
    ):
        db.fetch("SELECT cerebro_load_model('limited', %s)", (small,))
    settings("max_parameters", None)
    settings("max_layers", "3")  # the model itself counts, and so does its input
    with pytest.raises(errors.InvalidParameterValue, match="more than the 3 layers"):
        db.fetch("SELECT cerebro_load_model('limited', %s)", (small,))
    settings("max_layers", "4")
    assert db.value("SELECT cerebro_load_model('limited', %s)", (small,)) == 2


def test_more_layers_than_by_default(db, network, settings):
    wide = network((4,), *[(2, "relu")] * 20)
    settings("max_layers", "10")
    with pytest.raises(errors.InvalidParameterValue, match="more than the 10 layers"):
        db.fetch("SELECT cerebro_load_model('wide', %s)", (wide,))
    settings("max_layers", None)
    assert db.value("SELECT cerebro_load_model('wide', %s)", (wide,)) == 1


@pytest.mark.parametrize(
    ("shape", "layers", "message"),
    [
        ((10**6,), [(10**9, "relu")], "got 1000001000000000 parameters; at most 1000000000"),
        ((10**9,), [layer("Normalization", mean=0.0, variance=1.0)], "got 1000000000 numbers"),
        ((9,), [layer("RepeatVector", n=2**31 - 1)], "got 19327352823 numbers for one row"),
    ],
)
def test_giants_are_refused_and_the_worker_lives(db, network, shape, layers, message):
    before = db.tables(), db.value("SELECT pg_postmaster_start_time()")
    with pytest.raises(errors.InvalidParameterValue, match=message):
        db.fetch("SELECT cerebro_load_model('giants', %s)", (network(shape, *layers),))
    assert (db.tables(), db.value("SELECT pg_postmaster_start_time()")) == before


def test_a_tensor_without_elements_is_refused_and_the_server_lives(db, network):
    empty = network(
        (2,),
        layer("Reshape", target_shape=[1, 2, 1]),
        layer("CenterCrop", height=1, width=0),
        layer("Flatten"),
        (2, "softmax"),
    )
    before = db.tables(), db.value("SELECT pg_postmaster_start_time()")
    with pytest.raises(errors.InvalidParameterValue, match=r"'center_crop': got the shape .*0, 1"):
        db.fetch("SELECT cerebro_load_model('empty', %s)", (empty,))
    assert (db.tables(), db.value("SELECT pg_postmaster_start_time()")) == before


def test_what_no_text_of_the_server_can_hold(db, small):
    for name in ("\\ud800", "\\u0000"):
        with pytest.raises(errors.InvalidParameterValue, match=r"not Unicode|NUL"):
            db.fetch("SELECT cerebro_load_model('odd', %s)", (small.replace("tiny", name),))


def test_the_callers_backend_stays_light(db, small):
    db.fetch("SELECT cerebro_load_model('light', %s)", (small,))
    mapped = Path(f"/proc/{db.value('SELECT pg_backend_pid()')}/maps").read_text()
    assert "plpython3" in mapped
    assert "tensorflow" not in mapped


def test_concurrent_callers_share_the_numbers(db, small):
    found, failures = [], []

    def call() -> None:
        connection = psycopg2.connect(db.dsn)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                for _ in range(3):
                    cursor.execute("SELECT cerebro_load_model('shared', %s)", (small,))
                    found.append(cursor.fetchone()[0])
        except psycopg2.Error as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(found) == [1, 2, 3, 4, 5, 6]


def test_comments(db):
    query = (
        "SELECT proname FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') "
        "AND obj_description(oid, 'pg_proc') IS NULL"
    )
    assert db.fetch(query) == []
