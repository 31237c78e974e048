"""The schema with MADlib's names: made on request, kept, refused, removed; its functions hand their arguments on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from servers import connected

from cerebro_db.errors import CerebroError
from cerebro_db.install import installer
from cerebro_db.install.places import script_for
from cerebro_db.install.script import Script

NET = """{"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [
    {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 2], "dtype": "float32"}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2, "activation": "softmax"}}]}}"""
FUNCTIONS = """
SELECT p.proname::text, p.pronargs, has_function_privilege('public', p.oid, 'EXECUTE'),
       has_function_privilege('cerebro_user', p.oid, 'EXECUTE'), obj_description(p.oid, 'pg_proc')
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'madlib' ORDER BY 1, 2
"""

SCHEMAS = "SELECT nspname::text FROM pg_namespace WHERE nspname IN ('madlib', 'cerebro')"


@pytest.fixture
def theirs(empty_database: str) -> Iterator[Any]:
    """A connection to a database with the schema."""
    installer.install(empty_database, script_for(empty_database, None, None, None, madlib=True))
    connection = connected(empty_database)
    yield connection
    connection.close()


def rows(connection: Any, query: str, values: Any = None) -> list[tuple[Any, ...]]:
    """The rows of a statement, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def test_it_is_made_on_request_only_and_stays(empty_database: str) -> None:
    installer.install(empty_database, script_for(empty_database, None, None, None))
    connection = connected(empty_database)
    there = "SELECT count(*) > 20 FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'madlib')"
    assert rows(connection, there) == [(False,)]
    installer.upgrade(empty_database, script_for(empty_database, None, None, None, madlib=True))
    assert rows(connection, there) == [(True,)]
    rows(
        connection, "CREATE FUNCTION madlib.of_an_earlier_version() RETURNS void LANGUAGE sql AS ''"
    )
    rows(connection, "GRANT ALL ON SCHEMA madlib TO PUBLIC")
    installer.upgrade(empty_database, script_for(empty_database, None, None, None))
    assert rows(connection, there) == [(True,)]
    assert rows(
        connection, "SELECT count(*) FROM pg_proc WHERE proname = 'of_an_earlier_version'"
    ) == [(0,)]
    assert rows(connection, "SELECT has_schema_privilege('public', 'madlib', 'CREATE')") == [
        (False,)
    ]
    for _, _, of_all, of_users, comment in rows(connection, FUNCTIONS):
        assert (of_all, of_users) == (False, True)
        assert comment is None or comment.startswith("MADlib's name of cerebro.cerebro_")
    assert installer.uninstall(empty_database) == ()
    assert rows(connection, SCHEMAS) == []
    connection.close()


OF_SOMEONE_ELSE = """
CREATE SCHEMA madlib; COMMENT ON SCHEMA madlib IS 'Cerebro-DB: the names of the functions of MADlib';
CREATE ROLE madlib_planter; GRANT ALL ON SCHEMA madlib TO madlib_planter; SET ROLE madlib_planter;
CREATE FUNCTION madlib.load_keras_model() RETURNS void LANGUAGE sql AS ''; RESET ROLE
"""


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("CREATE SCHEMA madlib", 'schema "madlib" exists and is not one of Cerebro-DB'),
        (
            OF_SOMEONE_ELSE,
            r'function madlib\.load_keras_model\(\) belongs to role "madlib_planter"',
        ),
    ],
)
def test_a_schema_of_others_is_refused(empty_database: str, before: str, message: str) -> None:
    connection = connected(empty_database)
    rows(connection, before)
    try:
        with pytest.raises(CerebroError, match=message) as caught:
            installer.install(empty_database, Script(madlib=True))
        assert caught.value.hint
        assert rows(connection, SCHEMAS) == [("madlib",)]
    finally:
        rows(connection, "DROP SCHEMA madlib CASCADE; DROP ROLE IF EXISTS madlib_planter")
        connection.close()


def test_a_schema_of_others_is_left_alone(empty_database: str) -> None:
    connection = connected(empty_database)
    rows(connection, "CREATE SCHEMA madlib; CREATE TABLE madlib.migrationhistory (id integer)")
    for _ in range(2):
        installer.install(empty_database, script_for(empty_database, None, None, None))
    assert installer.uninstall(empty_database) == ()
    assert rows(connection, "SELECT count(*) FROM madlib.migrationhistory") == [(0,)]
    connection.close()


def test_a_script_of_madlib_runs(theirs: Any) -> None:
    rows(theirs, "SET search_path = public")
    rows(
        theirs,
        "CREATE TABLE spots AS SELECT i AS id, ARRAY[sin(i), cos(i)]::real[] AS x, "
        "CASE WHEN sin(i) > 0 THEN 'up' ELSE 'down' END AS y FROM generate_series(1, 60) i",
    )
    for call in (
        "train_test_split('spots', 'part', 0.8, NULL, NULL, NULL, NULL, TRUE)",
        "training_preprocessor_dl('part_train', 'packed', 'y', 'x', NULL, 2, ARRAY[2])",
        "validation_preprocessor_dl('part_test', 'tested', 'y', 'x', 'packed')",
        f"load_keras_model('nets', $${NET}$$::json, decode(repeat('00', 24), 'hex'), 'net')",
        "load_top_k_accuracy_function('objects', 1)",
        "load_model_selection_table('nets', 'msts', ARRAY[1], ARRAY[$$loss='categorical_crossentropy',"
        "optimizer='Adam(lr=0.01)',metrics=['top_1_accuracy']$$], ARRAY['batch_size=8,epochs=1'], 'objects')",
        "generate_model_configs('nets', 'grid', ARRAY[1], $${'loss': ['mse'], 'optimizer_params_list': "
        "[{'optimizer': ['SGD'], 'lr': [0.1, 0.2]}]}$$, $${'batch_size': [8]}$$, 'grid')",
        "madlib_keras_fit('packed', 'one', 'nets', 1, $$loss='mse',optimizer='SGD'$$, NULL, 1)",
        "madlib_keras_fit_multiple_model('packed', 'models', 'msts', 2, FALSE, 'tested', 1, NULL, 'named')",
        "madlib_keras_automl('packed', 'found', 'nets', 'best', ARRAY[1], $${'loss': ['mse'], "
        "'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}$$, $${'batch_size': [8]}$$, 'hyperopt', "
        "'num_configs=1, num_iterations=1, algorithm=rand', 1)",
        "hyperband_schedule('schedule', 9)",
        "madlib_keras_evaluate('models', 'tested', 'scores', FALSE, 1)",
        "madlib_keras_predict('models', 'spots', 'id', 'x', 'likely', 'prob', FALSE, 1)",
        "madlib_keras_predict('models', 'spots', 'id', 'x', 'first', 1)",
        "madlib_keras_predict('models', 'spots', 'id', 'x', 'sure', 0.4)",
        "madlib_keras_predict_byom('nets', 1, 'spots', 'id', 'x', 'brought', 'response', NULL, ARRAY['a', 'b'])",
        "gpu_configuration('gpus')",
    ):  # fmt: skip
        assert rows(theirs, f"SELECT madlib.{call}") in ([("",)], [(None,)]), call
    found = rows(
        theirs,
        "SELECT (SELECT count(*) FROM likely), (SELECT count(*) FROM first), (SELECT count(*) FROM brought),"
        " (SELECT count(*) FROM grid), (SELECT count(*) FROM schedule), (SELECT object_table FROM models_summary),"
        " (SELECT name FROM models_summary), (SELECT metrics_type FROM scores),"
        " (SELECT normalizing_const FROM packed_summary)",
    )
    assert found == [(120, 60, 60, 2, 6, "public.objects", "named", ["top_1_accuracy"], 2.0)]
    for call in ("delete_keras_model('nets', 1)", "delete_custom_function('objects', 1)"):
        rows(theirs, f"SELECT madlib.{call}")
    assert rows(theirs, "SELECT to_regclass('nets'), to_regclass('objects')") == [(None, None)]
    told = rows(theirs, "SELECT madlib.madlib_keras_fit('usage')")
    assert "calls cerebro.cerebro_fit;" in told[0][0]
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="is registered as"):
        rows(theirs, "SELECT madlib.load_custom_function('objects', 'x', 'unknown')")
