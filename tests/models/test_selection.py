"""cerebro_generate_configs and cerebro_load_configs: rows, appending, bad input, names."""

from __future__ import annotations

import pytest
from psycopg2 import errors

COMPILE = (
    "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': "
    "[{'optimizer': ['Adam', 'SGD'], 'lr': [0.001, 0.01]}], 'metrics': ['accuracy']}"
)
FIT = "{'batch_size': [8, 16], 'epochs': [1]}"
LIST = "loss='mse',optimizer='Adam(lr=0.1)',metrics=['mae']"


@pytest.fixture(scope="module")
def library(db, network):
    """Three architectures, the third with dropout, without loading TensorFlow for them."""
    dropout = {
        "module": "keras.layers",
        "class_name": "Dropout",
        "config": {"rate": 0.5, "name": "drop"},
        "registered_name": None,
    }
    db.fetch(
        "CREATE TABLE library (model_id int, model_arch json); "
        "INSERT INTO library VALUES (1, %s), (2, %s), (3, %s); "
        "CREATE TABLE others AS TABLE library",
        (
            network((4,), (2, "softmax")),
            network((4,), (5, "relu"), (2, "softmax")),
            network((4,), dropout, (2, "softmax")),
        ),
    )
    return db


def test_a_grid(library):
    library.fetch(
        "SELECT cerebro_generate_configs('library', 'grid_table', ARRAY[1, 2], %s, %s)",
        (COMPILE, FIT),
    )
    assert "16 configurations added to public.grid_table" in library.notices()
    rows = library.fetch("SELECT * FROM grid_table ORDER BY mst_key")
    assert [row[0] for row in rows] == list(range(1, 17))
    assert [row[1] for row in rows] == [1] * 8 + [2] * 8
    assert "lr=0.001" in rows[0][2]
    assert "batch_size=8" in rows[0][3]
    assert len({row[1:] for row in rows}) == 16
    assert library.fetch("SELECT * FROM grid_table_summary") == [("public.library", None)]


def test_appending_leaves_out_what_is_there(library):
    call = "SELECT cerebro_generate_configs('library', 'more', ARRAY[1], %s, %s)"
    library.fetch(call, (COMPILE, "{'batch_size': [8]}"))
    library.notices()
    library.fetch(call, (COMPILE, "{'batch_size': [8, 16]}"))
    assert "4 configurations added to public.more; 4 were there already" in library.notices()
    rows = library.fetch("SELECT mst_key, fit_params FROM more ORDER BY 1")
    assert [row[0] for row in rows] == list(range(1, 9))
    assert all("16" in row[1] for row in rows[4:])
    assert library.value("SELECT count(*) FROM more_summary") == 1


def test_appending_needs_the_same_architectures(library):
    call = "SELECT cerebro_generate_configs(%s, 'apart', ARRAY[1], %s, %s)"
    library.fetch(call, ("library", COMPILE, FIT))
    with pytest.raises(errors.InvalidParameterValue, match=r"public\.others; public\.apart"):
        library.fetch(call, ("others", COMPILE, FIT))
    assert library.value("SELECT count(*) FROM apart") == 8


def test_a_random_search_is_reproducible(library):
    grid = (
        "{'loss': ['mse'], 'optimizer_params_list': "
        "[{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log']}], 'metrics': ['mae']}"
    )
    for name in ("drawn_a", "drawn_b"):
        library.fetch(
            "SELECT cerebro_generate_configs(model_arch_table := 'library', "
            "model_selection_table := %s, model_id_list := ARRAY[1, 2], "
            "compile_params_grid := %s, fit_params_grid := %s, search_type := 'rand', "
            "num_configs := 7, random_state := 42)",
            (name, grid, FIT),
        )
    rows = library.fetch("SELECT * FROM drawn_a ORDER BY 1")
    assert len(rows) == 7
    assert rows == library.fetch("SELECT * FROM drawn_b ORDER BY 1")


def test_a_list(library):
    call = "SELECT cerebro_load_configs('library', 'listed', ARRAY[1, 2], %s, %s)"
    other = "loss='mae',optimizer='SGD()'"
    library.fetch(call, ([LIST, other], ["batch_size=4", "batch_size=8"]))
    rows = library.fetch("SELECT * FROM listed ORDER BY mst_key")
    assert len(rows) == 8
    assert rows[0] == (1, 1, LIST, "batch_size=4")
    assert library.fetch("SELECT * FROM listed_summary") == [("public.library", None)]
    with pytest.raises(errors.DuplicateTable, match=r"public\.listed exists already"):
        library.fetch(call, ([LIST], ["batch_size=4"]))


NAMES = ['"My Grid"', '"a""b"', '"it\'s"', '"100%"', '"odd one"."Grid; --"', "Upper"]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names(library, name):
    library.fetch(
        'CREATE SCHEMA IF NOT EXISTS "odd one"; DROP TABLE IF EXISTS "odd one"."L %%""x"; '
        'CREATE TABLE "odd one"."L %%""x" AS TABLE library',
        (),
    )
    models = '"odd one"."L %""x"'
    for _ in range(2):
        library.fetch(
            "SELECT cerebro_generate_configs(%s, %s, ARRAY[1], %s, %s)",
            (models, name, COMPILE, FIT),
        )
    quoted = name.replace("%", "%%")
    summary = quoted[:-1] + '_summary"' if quoted.endswith('"') else f"{quoted}_summary"
    assert library.fetch(f"SELECT count(*) FROM {quoted}", ()) == [(8,)]
    assert library.fetch(f"SELECT model_arch_table FROM {summary}", ()) == [(models,)]


def test_dropout_needs_a_dropout_layer(library):
    grid = COMPILE[:-1] + ", 'dropout': [0.1, 0.2]}"
    call = "SELECT cerebro_generate_configs('library', 'dropped', %s, %s, %s)"
    with pytest.raises(errors.InvalidParameterValue, match=r"model_id 2: .*no dropout layer"):
        library.fetch(call, ([2], grid, FIT))
    assert "public.dropped" not in library.tables()
    library.fetch(call, ([3], grid, FIT))
    assert library.value("SELECT count(*) FROM dropped") == 16


@pytest.fixture(scope="module")
def strange(library):
    library.fetch(
        "CREATE TABLE plain (x int); CREATE TABLE half (mst_key int, model_id int, "
        "compile_params text, fit_params text); CREATE VIEW looked AS TABLE half; "
        "CREATE TABLE looked_summary (model_arch_table text); "
        "CREATE TABLE free_summary (x int); CREATE TABLE twice AS TABLE library; "
        "INSERT INTO twice TABLE library; CREATE TABLE bare (model_id int)"
    )
    return library


GENERATE = {
    "'nope','o',ARRAY[1],%(c)s,%(f)s": (errors.UndefinedTable, "model_arch_table: got 'nope'"),
    "NULL,'o',ARRAY[1],%(c)s,%(f)s": (errors.InvalidParameterValue, "model_arch_table: got NULL"),
    "'library','',ARRAY[1],%(c)s,%(f)s": (errors.InvalidParameterValue, "selection_table: got ''"),
    "'library','o',NULL,%(c)s,%(f)s": (errors.InvalidParameterValue, "model_id_list"),
    "'library','o','{}',%(c)s,%(f)s": (errors.InvalidParameterValue, "model_id_list"),
    "'library','o','{1,NULL}',%(c)s,%(f)s": (errors.InvalidParameterValue, "model_id_list"),
    "'library','o','{1,1}',%(c)s,%(f)s": (errors.InvalidParameterValue, "only once"),
    "'library','o','{1,7}',%(c)s,%(f)s": (errors.InvalidParameterValue, r"got \[7\]"),
    "'twice','o','{1}',%(c)s,%(f)s": (errors.InvalidParameterValue, "exactly once"),
    "'bare','o','{1}',%(c)s,%(f)s": (errors.WrongObjectType, "no column model_arch"),
    "'library','plain','{1}',%(c)s,%(f)s": (errors.WrongObjectType, "no column mst_key"),
    "'library','looked','{1}',%(c)s,%(f)s": (errors.WrongObjectType, "looked"),
    "'library','free','{1}',%(c)s,%(f)s": (errors.DuplicateTable, "free_summary"),
    "'library','o','{1}',NULL,%(f)s": (errors.InvalidParameterValue, "compile_params_grid: got"),
    "'library','o','{1}',%(c)s,NULL": (errors.InvalidParameterValue, "fit_params_grid: got"),
    "'library','o','{1}',%(c)s,%(f)s,'best'": (errors.InvalidParameterValue, "search_type"),
    "'library','o','{1}',%(c)s,%(f)s,'grid',NULL,NULL,'objects'": (
        errors.UndefinedTable,
        "object_table: got 'objects'; no table",
    ),
    "'library','o','{1}',%(c)s,%(f)s,NULL": (errors.InvalidParameterValue, "search_type: got NULL"),
    "'library','o','{1}',%(c)s,%(f)s,'grid',3": (errors.InvalidParameterValue, "num_configs"),
    "'library','o','{1}',%(c)s,%(f)s,'random'": (errors.InvalidParameterValue, "num_configs"),
    "'library','o','{1}',replace(%(c)s,'Adam','Adan'),%(f)s": (
        errors.InvalidParameterValue,
        "'?Adan",
    ),
    "'library','o','{1}',replace(%(c)s,'accuracy','acuracy'),%(f)s": (
        errors.InvalidParameterValue,
        "acuracy",
    ),
    "'library','o','{1}',replace(%(c)s,'lr','lrr'),%(f)s": (errors.InvalidParameterValue, "lrr"),
    "'library','o','{1}',%(c)s,replace(%(f)s,'epochs','epoch')": (
        errors.InvalidParameterValue,
        "epoch",
    ),
    "'library','no.where','{1}',%(c)s,%(f)s": (errors.UndefinedTable, "schema 'no'"),
    "'library',repeat('o',60),'{1}',%(c)s,%(f)s": (errors.InvalidParameterValue, "suffix"),
}


@pytest.mark.parametrize("arguments", GENERATE)
def test_bad_grids(strange, arguments):
    kind, message = GENERATE[arguments]
    before = strange.tables()
    with pytest.raises(kind, match=f"(?s){message}"):
        strange.fetch(f"SELECT cerebro_generate_configs({arguments})", {"c": COMPILE, "f": FIT})
    assert strange.tables() == before


LISTS = {
    "'library','o','{1}',NULL,ARRAY['epochs=1']": "compile_params_list",
    "'library','o','{1}',ARRAY[%(c)s],NULL": "fit_params_list",
    "'library','o','{1}',ARRAY[NULL,%(c)s],ARRAY['epochs=1']": "compile_params_list: got NULL",
    "'library','o','{9}',ARRAY[%(c)s],ARRAY['epochs=1']": r"got \[9\]",
    "'library','o','{1}',ARRAY['loss=1'],ARRAY['epochs=1']": "optimizer|loss",
    "'library','o','{1}',ARRAY[%(c)s],ARRAY['epochs=0']": "epochs",
    "'library','o','{1}',ARRAY[%(c)s || ',dropout=0.5'],ARRAY['epochs=1']": "no dropout layer",
}


@pytest.mark.parametrize("arguments", LISTS)
def test_bad_lists(strange, arguments):
    before = strange.tables()
    with pytest.raises(errors.InvalidParameterValue, match=LISTS[arguments]):
        strange.fetch(f"SELECT cerebro_load_configs({arguments})", {"c": LIST})
    assert strange.tables() == before


def test_dropout_applies_where_there_are_such_layers(library):
    with_dropout = COMPILE.replace(
        "{'loss'", "{'dropout': [0.0, 0.2], 'freeze': [['drop'], []], 'loss'"
    )
    library.notices()
    library.fetch(
        "SELECT cerebro_generate_configs('library', 'left_out', ARRAY[1, 3], %s, %s)",
        (with_dropout, "{'batch_size': [8]}"),
    )
    told = library.notices()
    assert "dropout is left out where no layer of the architecture has it: model_id 1" in told
    assert "freeze is left out where no layer of the architecture has it: model_id 1" in told
    counts = library.fetch(
        "SELECT model_id, count(*), count(nullif(strpos(compile_params, 'dropout'), 0)),"
        " count(nullif(strpos(compile_params, 'drop'')'), 0)) FROM left_out GROUP BY 1 ORDER BY 1"
    )
    assert [row[:3] for row in counts] == [(1, 4, 0), (3, 16, 16)]


def test_grids_of_single_models(library):
    own = COMPILE.replace(
        "{'loss'", "{'model_params_list': [{'model_id': [2], 'l2': [0.1, 0.2]}], 'loss'"
    )
    library.fetch(
        "SELECT cerebro_generate_configs('library', 'own', ARRAY[1, 2], %s, %s)",
        (own, "{'batch_size': [8], 'model_params_list': [{'model_id': [1], 'batch_size': [16]}]}"),
    )
    rows = library.fetch(
        "SELECT model_id, count(*), count(nullif(strpos(compile_params, 'l2='), 0)), min(fit_params)"
        " FROM own GROUP BY 1 ORDER BY 1"
    )
    assert rows == [(1, 4, 0, "batch_size=16"), (2, 8, 8, "batch_size=8")]
    with pytest.raises(errors.InvalidParameterValue, match=r"model_id 2; allowed: .*model_id_list"):
        library.fetch(
            "SELECT cerebro_generate_configs('library', 'own', ARRAY[1], %s, %s)", (own, FIT)
        )


def test_a_summary_that_was_dropped_is_made_anew(library):
    call = "SELECT cerebro_generate_configs('library', 'lost', ARRAY[1], %s, %s)"
    library.fetch(call, (COMPILE, FIT))
    library.fetch("DROP TABLE lost_summary")
    library.fetch(call, (COMPILE, FIT.replace("16", "32")))
    assert library.fetch("SELECT * FROM lost_summary") == [("public.library", None)]
    assert library.value("SELECT count(*) FROM lost") == 12


def test_epsilon_none_is_the_default(library):
    params = COMPILE.replace("'lr'", "'epsilon': [None], 'lr'")
    library.fetch(
        "SELECT cerebro_generate_configs('library', 'eps', ARRAY[1], %s, %s)", (params, FIT)
    )
    library.fetch(
        "SELECT cerebro_generate_configs('library', 'eps', ARRAY[1], %s, %s)", (COMPILE, FIT)
    )
    assert (
        library.value(
            "SELECT count(DISTINCT replace(compile_params, 'epsilon=None,', '')) FROM eps"
        )
        == 4
    )
