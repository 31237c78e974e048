"""MADlib's tables of custom functions: names of functions that are registered."""

from __future__ import annotations

import pytest
from psycopg2 import errors

GRID = (
    "{'loss': ['zero', 'mse'], 'metrics': [['one', 'top_2_accuracy'], ['mae']], "
    "'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}"
)
LIST = [
    "loss='zero',optimizer='SGD(lr=0.1)',metrics=['one', \"mae\"]",
    "metrics=[one],  optimizer='SGD(lr=0.1)',loss=zero",
    "loss='mse',optimizer='SGD(lr=0.1)',metrics=[AUC(name='zero'), 'top_7_accuracy']",
    "optimizer='SGD(lr=0.1)',loss={'é': 'zero', 'zero': 'mae'},metrics={'zero': ['one']}",
]
FIT = "{'batch_size': [8]}"
LOAD = "SELECT cerebro_load_custom_function(%s, '\\x80'::bytea, %s, %s)"


@pytest.fixture(scope="module")
def library(db, network):
    db.fetch(
        "CREATE TABLE library (model_id int, model_arch json); INSERT INTO library VALUES (1, %s)",
        (network((4,), (2, "softmax")),),
    )
    db.fetch(
        "SELECT cerebro_register_expression('zero', 'y_true * y_pred * 0'), "
        "cerebro_register_expression('one', 'y_true * y_pred * 0 + 1')"
    )
    return db


@pytest.fixture
def objects(library):
    library.fetch("DROP TABLE IF EXISTS objects CASCADE")
    for name, description in (("zero", "returns 0"), ("one", None)):
        library.fetch(LOAD, ("objects", name, description))
    return library


def test_a_row_keeps_no_object(objects):
    told = objects.notices()
    assert "zero means the function that is registered as custom.zero" in told
    assert "function one added to public.objects" in told
    rows = objects.fetch("SELECT id, name, description, object FROM objects ORDER BY id")
    assert rows == [(1, "zero", "returns 0", None), (2, "one", None, None)]
    types = objects.fetch(
        "SELECT attname::text, atttypid::regtype::text FROM pg_attribute "
        "WHERE attrelid = 'objects'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert types == [
        ("id", "integer"),
        ("name", "text"),
        ("description", "text"),
        ("object", "bytea"),
    ]


def test_the_accuracy_among_the_k_best(library):
    for k in (3, 7):
        library.fetch("SELECT cerebro_load_top_k_accuracy_function('best', %s)", (k,))
    rows = library.fetch("SELECT id, name, description FROM best ORDER BY id")
    assert rows == [
        (1, "top_3_accuracy", "returns top_3_accuracy"),
        (2, "top_7_accuracy", "returns top_7_accuracy"),
    ]


def test_the_table_goes_with_its_last_function(objects):
    objects.fetch("SELECT cerebro_delete_custom_function('objects', 2)")
    assert objects.fetch("SELECT name FROM objects") == [("zero",)]
    with pytest.raises(
        errors.InvalidParameterValue, match=r"id: got 2, which public\.objects does"
    ):
        objects.fetch("SELECT cerebro_delete_custom_function('objects', 2)")
    objects.notices()
    objects.fetch("SELECT cerebro_delete_custom_function('objects', 'zero')")
    assert "public.objects had no other, and was dropped" in objects.notices()
    assert "public.objects" not in objects.tables()


def test_the_table_stays_where_something_depends_on_it(objects):
    objects.fetch("DELETE FROM objects WHERE name = 'one'; CREATE VIEW mine AS TABLE objects")
    with pytest.raises(errors.DependentObjectsStillExist):
        objects.fetch("SELECT cerebro_delete_custom_function('objects', 'zero')")
    assert objects.value("SELECT count(*) FROM mine") == 1
    objects.fetch("DROP VIEW mine")


BAD = {
    "load_custom_function('objects', NULL, 'zero')": (
        errors.InvalidParameterValue,
        "object: got NULL",
    ),
    "load_custom_function('objects', 'x', NULL)": (errors.InvalidParameterValue, "name: got NULL"),
    "load_custom_function('objects', 'x', 'Zero')": (
        errors.InvalidParameterValue,
        "name: got 'Zero'",
    ),
    "load_custom_function('objects', 'x', 'rmse')": (
        errors.InvalidParameterValue,
        "which Keras has",
    ),
    "load_custom_function('objects', 'x', 'two')": (
        errors.InvalidParameterValue,
        r"name: got 'two'; allowed: a function that is registered as custom\.two",
    ),
    "load_custom_function('objects', 'x', 'zero')": (
        errors.InvalidParameterValue,
        r"name: got 'zero', which public\.objects has already",
    ),
    "load_custom_function('library', 'x', 'zero')": (
        errors.WrongObjectType,
        "without the columns id",
    ),
    "load_custom_function(NULL, 'x', 'zero')": (
        errors.InvalidParameterValue,
        "object_table: got NULL",
    ),
    "load_custom_function('no.objects', 'x', 'zero')": (errors.UndefinedTable, "schema 'no'"),
    "load_top_k_accuracy_function('objects', 0)": (errors.InvalidParameterValue, "k: got 0"),
    "load_top_k_accuracy_function('objects', NULL)": (errors.InvalidParameterValue, "k: got NULL"),
    "delete_custom_function('objects', NULL)": (errors.InvalidParameterValue, "name: got NULL"),
    "delete_custom_function('objects', 9)": (errors.InvalidParameterValue, "id: got 9"),
    "delete_custom_function('nowhere', 1)": (errors.UndefinedTable, "object_table: got 'nowhere'"),
    "delete_custom_function('library', 1)": (errors.WrongObjectType, "without the columns id"),
}


@pytest.mark.parametrize("call", BAD)
def test_bad_arguments(objects, call):
    kind, message = BAD[call]
    before = objects.tables(), objects.fetch("SELECT * FROM objects ORDER BY id")
    with pytest.raises(kind, match=message) as caught:
        objects.fetch(f"SELECT cerebro_{call}")
    assert caught.value.diag.message_hint
    assert (objects.tables(), objects.fetch("SELECT * FROM objects ORDER BY id")) == before


def test_names_mean_registered_functions(objects):
    objects.fetch(
        "SELECT cerebro_generate_configs('library', 'grid', ARRAY[1], %s, %s, object_table := 'objects')",
        (GRID, FIT),
    )
    assert objects.fetch("SELECT compile_params FROM grid ORDER BY mst_key") == [
        (f"optimizer='SGD(lr=0.1)',metrics={metrics},loss={loss}",)
        for loss in ("'custom.zero'", "'mse'")
        for metrics in ("['custom.one', 'top_2_accuracy']", "['mae']")
    ]
    assert objects.fetch("TABLE grid_summary") == [("public.library", "public.objects")]
    objects.fetch("DROP TABLE grid, grid_summary")


def test_what_is_listed_stays_as_it_is_written(objects):
    objects.fetch(
        "SELECT cerebro_load_configs('library', 'listed', ARRAY[1], %s, ARRAY['batch_size=8'], 'objects')",
        (LIST,),
    )
    assert objects.fetch("SELECT compile_params FROM listed ORDER BY mst_key") == [
        ("loss='custom.zero',optimizer='SGD(lr=0.1)',metrics=['custom.one', \"mae\"]",),
        ("metrics=[custom.one],  optimizer='SGD(lr=0.1)',loss=custom.zero",),
        (LIST[2],),
        (
            "optimizer='SGD(lr=0.1)',loss={'é': 'custom.zero', 'zero': 'mae'},"
            "metrics={'zero': ['custom.one']}",
        ),
    ]
    objects.fetch("DROP TABLE listed, listed_summary")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("loss='two',optimizer='SGD'", r"loss 'two', which Keras .* public\.objects has one, zero"),
        ("loss='mse',optimizer='SGD',metrics=['zer']", "compile_params: got the metric 'zer'"),
        ("loss='zero',optimizer=", "Python-like"),
        ("loss='zero',metrics=['mae']", "without optimizer"),
    ],
)
def test_bad_parameters(objects, params, message):
    before = objects.tables()
    with pytest.raises(errors.InvalidParameterValue, match=message):
        objects.fetch(
            "SELECT cerebro_load_configs('library', 'bad', ARRAY[1], ARRAY[%s], ARRAY['epochs=1'], 'objects')",
            (params,),
        )
    assert objects.tables() == before


def test_a_row_by_hand_must_be_registered(objects):
    objects.fetch("INSERT INTO objects (name, object) VALUES ('planted', '\\x80')")
    with pytest.raises(errors.InvalidParameterValue, match="has the function 'planted'"):
        objects.fetch(
            "SELECT cerebro_load_configs('library', 'bad', ARRAY[1], %s, ARRAY['epochs=1'], 'objects')",
            (LIST[:1],),
        )
