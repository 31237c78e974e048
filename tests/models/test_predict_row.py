"""cerebro_predict_row: the answers of cerebro_predict, noticing what becomes of the model."""

from __future__ import annotations

import itertools
import os

import psycopg2
import pytest
from psycopg2 import errors
from reasons import NO_TABLES_ON_SEGMENTS
from servers import connected

_numbers = itertools.count(1)


def row_of(trained, arguments):
    return trained.fetch(f"SELECT * FROM cerebro_predict_row({arguments})")[0]


def test_classes_like_those_of_a_table(trained):
    trained.fetch("DROP TABLE IF EXISTS answers")
    trained.fetch("SELECT cerebro_predict('flowers', 'rows', 'id', 'x', 'answers', mst_key := 2)")
    best = trained.fetch("SELECT class_value, prob FROM answers WHERE rank = 1 ORDER BY id")
    every = trained.fetch(
        "SELECT array_agg(prob ORDER BY class_value IS NULL, class_value) "
        "FROM answers GROUP BY id ORDER BY id"
    )
    rows = trained.fetch(
        "SELECT p.* FROM rows r, cerebro_predict_row('flowers', r.x, 2) p ORDER BY r.id"
    )
    assert [row[0] for row in rows] == [row[0] for row in best]
    for (_, prob, numbers), (_, wanted), (probs,) in zip(rows, best, every, strict=True):
        assert prob == pytest.approx(wanted, abs=1e-6)
        assert numbers == pytest.approx(probs, abs=1e-6)


@pytest.mark.parametrize(("table", "count"), [("sums", 1), ("pairs", 2), ("grids", 6)])
def test_values_like_those_of_a_table(trained, table, count):
    trained.fetch("DROP TABLE IF EXISTS answers")
    trained.fetch(f"SELECT cerebro_predict('{table}', 'rows', 'id', 'x', 'answers', 'response')")
    wanted = "ARRAY[a.estimated]" if table == "sums" else "a.estimated"
    rows = trained.fetch(
        f"SELECT p.estimated, p.class_value, p.prob, ARRAY(SELECT unnest({wanted})) "
        f"FROM answers a JOIN rows r USING (id), cerebro_predict_row('{table}', r.x) p"
    )
    assert len(rows) == 120
    for found, value, prob, estimated in rows:
        assert (value, prob) == (None, None)
        flat = [n for part in found for n in (part if isinstance(part, list) else [part])]
        assert flat == pytest.approx(estimated, abs=1e-5)
        assert len(flat) == count


@pytest.mark.parametrize("kind", ["integer", "bigint", "numeric", "real"])
def test_features_of_any_type(trained, kind):
    assert row_of(trained, f"'halves', ARRAY[1, 2, 3, 4]::{kind}[]") == row_of(
        trained, "'halves', ARRAY[1, 2, 3, 4]::double precision[]"
    )


def test_the_callers_session_has_no_limit_of_memory_afterwards(trained):
    told = (
        "DO $$import resource; plpy.notice(resource.getrlimit(resource.RLIMIT_DATA))$$ "
        "LANGUAGE plpython3u"
    )
    connection = connected(trained.dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(told)
            cursor.execute("SELECT * FROM cerebro.cerebro_predict_row('halves', ARRAY[1, 2, 3, 4])")
            cursor.execute(told)
        before, after = connection.notices[0], connection.notices[-1]
        assert before == after
    finally:
        connection.close()


def test_null_is_refused(trained):
    with pytest.raises(psycopg2.DataError, match="features: got NULL; allowed: no NULL"):
        row_of(trained, "'halves', NULL")


@pytest.mark.not_on_segments(NO_TABLES_ON_SEGMENTS)
def test_a_trigger_answers_on_insertion(trained):
    trained.fetch(
        "CREATE TABLE arrivals (id int, x real[], guess text); "
        "CREATE FUNCTION guessed() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        "NEW.guess := (cerebro_predict_row('halves', NEW.x)).class_value; RETURN NEW; END$$; "
        "CREATE TRIGGER guessed BEFORE INSERT ON arrivals FOR EACH ROW EXECUTE PROCEDURE guessed()"
    )
    trained.fetch("INSERT INTO arrivals SELECT id, x FROM rows")
    differing = trained.value(
        "SELECT count(*) FROM arrivals a JOIN rows r USING (id), "
        "cerebro_predict_row('halves', r.x) p WHERE p.class_value IS DISTINCT FROM a.guess"
    )
    assert differing == 0


def copy(trained, source, name):
    trained.fetch(
        "; ".join(
            f"DROP TABLE IF EXISTS {name}{part}; CREATE TABLE {name}{part} AS TABLE {source}{part}"
            for part in ("", "_info", "_summary", "_states")
        )
    )


def test_a_replaced_model_is_noticed(trained, has_segments):
    copy(trained, "flowers", "changing")
    call = "'changing', ARRAY[1, 2, 3, 4], 1"
    first, second = row_of(trained, call), row_of(trained, "'changing', ARRAY[1, 2, 3, 4], 2")
    assert first != second
    swap = (
        "UPDATE changing_states s SET state = o.state FROM flowers_states o "
        "WHERE s.mst_key = 1 AND o.mst_key = {}"
    )
    trained.fetch("BEGIN")
    trained.fetch(swap.format(2))
    # What the caller has not committed counts, where the caller's session reads it.
    assert row_of(trained, call) == (first if has_segments else second)
    trained.fetch(swap.format(1))
    assert row_of(trained, call) == first
    trained.fetch(swap.format(2))
    trained.fetch("ROLLBACK")
    assert row_of(trained, call) == first
    copy(trained, "flowers", "changing")
    trained.fetch(swap.format(2))
    assert row_of(trained, call) == second
    for part in ("", "_info", "_summary", "_states"):
        trained.fetch(f"ALTER TABLE changing{part} RENAME TO changed{part}")
    assert row_of(trained, "'changed', ARRAY[1, 2, 3, 4], 1") == second
    with pytest.raises(errors.UndefinedTable, match="model_table: got 'changing'"):
        row_of(trained, call)
    copy(trained, "halves", "changing")
    assert row_of(trained, "'changing', ARRAY[1, 2, 3, 4]") == row_of(
        trained, "'halves', ARRAY[1, 2, 3, 4]"
    )


def test_names_are_those_of_the_search_path_at_the_call(trained):
    trained.fetch("DROP SCHEMA IF EXISTS first CASCADE; CREATE SCHEMA first")
    copy(trained, "sums", "first.halves")
    there = row_of(trained, "'halves', ARRAY[1, 2, 3, 4]")
    trained.fetch("SET search_path = first, public, cerebro")
    try:
        assert row_of(trained, "'halves', ARRAY[1, 2, 3, 4]")[0] is None
        assert row_of(trained, "'public.halves', ARRAY[1, 2, 3, 4]") == there
        assert trained.value("SHOW search_path") == "first, public, cerebro"
    finally:
        trained.fetch("SET search_path = public, cerebro")
    assert row_of(trained, "'halves', ARRAY[1, 2, 3, 4]") == there


def test_a_role_without_rights_gets_nothing_of_what_is_loaded(trained, administrator, has_segments):
    first = "halves" if has_segments else "halves_"  # of the tables that are read
    name = f"reader_{os.getpid()}_{next(_numbers)}"
    administrator.run(f"CREATE ROLE {name} LOGIN IN ROLE cerebro_user")
    call = "'halves', ARRAY[1, 2, 3, 4]"
    wanted = row_of(trained, call)
    trained.fetch(f"SET ROLE {name}")
    try:
        with pytest.raises(errors.InsufficientPrivilege, match=first):
            row_of(trained, call)
        trained.fetch("RESET ROLE")
        tables = "halves, halves_info, halves_summary, halves_states"
        trained.fetch(f"GRANT SELECT ON {tables} TO {name}")
        trained.fetch(f"SET ROLE {name}")
        assert row_of(trained, call) == wanted
        trained.fetch(f"RESET ROLE; REVOKE SELECT ON {tables} FROM {name}; SET ROLE {name}")
        with pytest.raises(errors.InsufficientPrivilege):
            row_of(trained, call)
    finally:
        trained.fetch("RESET ROLE")
        trained.fetch(f"DROP OWNED BY {name}")
        administrator.run(f"DROP ROLE {name}")


BAD = {
    "NULL, ARRAY[1, 2, 3, 4]": (errors.InvalidParameterValue, "model_table: got NULL"),
    "'', ARRAY[1, 2, 3, 4]": (errors.InvalidParameterValue, "model_table: got ''"),
    "'nope', ARRAY[1, 2, 3, 4]": (errors.UndefinedTable, "model_table: got 'nope'"),
    "'no such.table', ARRAY[1]": (errors.UndefinedTable, "model_table: got 'no such.table'"),
    "'rows', ARRAY[1, 2, 3, 4]": (errors.WrongObjectType, "no column mst_key"),
    "'flowers', ARRAY[1, 2, 3, 4]": (errors.InvalidParameterValue, "mst_key: got NULL.*1, 2"),
    "'flowers', ARRAY[1, 2, 3, 4], 3": (errors.InvalidParameterValue, "mst_key: got 3.*1, 2"),
    "'halves', ARRAY[1, 2, 3]": (errors.InvalidParameterValue, r"shape \(3,\); allowed: \(4,\)"),
    "'halves', ARRAY[[1, 2], [3, 4]]": (errors.InvalidParameterValue, r"shape \(2, 2\)"),
    "'halves', '{}'": (errors.InvalidParameterValue, r"shape \(0,\)"),
    "'halves', ARRAY[1, NULL, 3, 4]": (errors.DataException, "got a NULL"),
    "'halves', ARRAY[1, 'NaN', 3, 4]::float[]": (errors.DataException, "NaN"),
    "'halves', ARRAY[1, 1e300, 3, 4]": (errors.DataException, "too large"),
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls(trained, arguments):
    kind, message = BAD[arguments]
    with pytest.raises(kind) as caught:
        row_of(trained, arguments)
    assert caught.match(f"(?s){message}")
    assert trained.value("SHOW search_path") == "public, cerebro"
