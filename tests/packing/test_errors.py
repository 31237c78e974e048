"""Bad input: what was got and what is allowed, a SQLSTATE, and nothing left behind."""

from __future__ import annotations

import re
import threading
import time

import psycopg2
import pytest
from pace import stretched, until
from psycopg2 import errors
from servers import row_named


@pytest.fixture(scope="module")
def shop(digits):
    digits.fetch(
        "CREATE VIEW v AS SELECT * FROM digits; CREATE INDEX an_index ON digits (id); "
        "CREATE TABLE empty (x real[], y int); CREATE TABLE taken (x int); "
        "CREATE TABLE other_summary (x int); CREATE TABLE mine_packing (x int)"
    )
    digits.pack("digits", "train", "y", "x", num_partitions=2)
    return digits


CALLS = {
    "'nope','o','y','x'": (errors.UndefinedTable, "source_table: got 'nope'"),
    "NULL,'o','y','x'": (errors.InvalidParameterValue, "source_table: got NULL"),
    "'','o','y','x'": (errors.InvalidParameterValue, "source_table: got ''"),
    "'digits',NULL,'y','x'": (errors.InvalidParameterValue, "output_table: got NULL"),
    "'digits','  ','y','x'": (errors.InvalidParameterValue, "output_table: got"),
    "'digits','o',NULL,'x'": (errors.InvalidParameterValue, "dependent_varname: got NULL"),
    "'digits','o','y',''": (errors.InvalidParameterValue, "independent_varname: got ''"),
    "'an_index','o','y','x'": (errors.WrongObjectType, "a table or a view"),
    "'digits','o','q','x'": (errors.UndefinedColumn, "got 'q'.*id, x, y"),
    "'digits','o','y','z'": (errors.UndefinedColumn, "got 'z'.*id, x, y"),
    "'digits','o','y','id'": (errors.WrongObjectType, "of type integer; allowed: arrays"),
    "'digits','o','x','x'": (errors.InvalidParameterValue, "two columns"),
    "'digits','taken','y','x'": (errors.DuplicateTable, "public.taken exists"),
    "'digits','other','y','x'": (errors.DuplicateTable, "public.other_summary exists"),
    "'digits','mine','y','x'": (errors.DuplicateTable, "public.mine_packing exists"),
    "'digits','no.where','y','x'": (errors.UndefinedTable, "schema 'no'"),
    "'empty','o','y','x'": (errors.DataException, "has no rows"),
    "'digits','o','y','x',0": (errors.InvalidParameterValue, "buffer_size: got 0"),
    "'digits','o','y','x',NULL,0": (errors.InvalidParameterValue, "normalizing_const: got 0"),
    "'digits','o','y','x',NULL,'NaN'": (errors.InvalidParameterValue, "normalizing_const"),
    "'digits','o','y','x',NULL,1,3": (errors.InvalidParameterValue, "num_classes: got 3.*7"),
    "'digits','o','y','x',NULL,1,-1": (errors.InvalidParameterValue, "num_classes: got -1"),
    "'digits','o','y','x',NULL,1,'{9'": (errors.InvalidParameterValue, "num_classes: got '{9'"),
    "'digits','o','y','x',NULL,1,'9}'": (errors.InvalidParameterValue, "num_classes: got '9}'"),
    "'digits','o','y','x',NULL,1,NULL,'gpu_segments'": (
        errors.InvalidParameterValue,
        "distribution_rules: got 'gpu_segments'.*no segments",
    ),
    "'digits','o','y','x',num_partitions:=0": (errors.InvalidParameterValue, "num_partitions"),
    "'digits','o','y','x',num_partitions:=2000": (errors.InvalidParameterValue, r"at most \d+"),
    "'digits','o','y','x',seed:=NULL": (errors.InvalidParameterValue, "seed: got NULL"),
    "'train','o','y','x'": (errors.WrongObjectType, "is packed already"),
    "'digits',repeat('o',60),'y','x'": (errors.InvalidParameterValue, "suffix"),
    "'digits',repeat('o',70),'y','x'": (errors.InvalidParameterValue, "70 bytes"),
}


@pytest.mark.parametrize("arguments", CALLS)
def test_bad_arguments(shop, arguments, has_segments):
    kind, message = CALLS[arguments]
    if has_segments:
        message = message.replace("no segments", "there is no GPU on")
    before = shop.tables()
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        shop.fetch(f"SELECT cerebro_pack({arguments})")
    assert caught.value.pgcode == kind.sqlstate if hasattr(kind, "sqlstate") else True
    assert "Traceback" not in caught.value.diag.message_primary
    assert "cerebro_db" not in (caught.value.diag.context or "")
    assert shop.tables() == before


def test_rules_of_a_validation_table(shop, has_segments):
    kind, message = errors.InvalidParameterValue, "distribution_rules: got 'train'"
    if has_segments:  # there it is the name of a table
        kind, message = errors.UndefinedColumn, "distribution_rules: public.train has no column"
    with pytest.raises(kind, match=message):
        shop.fetch("SELECT cerebro_pack_validation('digits','o','y','x','train',NULL,'train')")


ROWS = {
    "null": ("SELECT NULL::real[], 1", "row 5 of the scan of public.bad.*'x' is NULL"),
    "element": ("SELECT ARRAY[1, NULL]::real[], 1", "row 5 .*holds a NULL"),
    "nan": ("SELECT ARRAY[1, 'NaN']::real[], 1", "row 5 .*NaN, infinite"),
    "infinity": ("SELECT ARRAY['-Infinity', 1]::real[], 1", "row 5 .*NaN, infinite"),
    "ragged": ("SELECT ARRAY[1, 2, 3]::real[], 1", r"row 5 .*\(3,\); allowed: \(2,\)"),
    "dimensions": ("SELECT ARRAY[[1, 2]]::real[], 1", r"row 5 .*\(1, 2\); allowed: \(2,\)"),
    "empty": ("SELECT '{}'::real[], 1", "row 5 .*empty array"),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("source", ["bad", "bad_view"])
def test_bad_rows_are_named(shop, case, source, has_segments):
    row, message = ROWS[case]
    if has_segments and "allowed" in message:  # which row is the first is chance there
        message = "has shape"
    shop.fetch(
        "DROP TABLE IF EXISTS bad CASCADE; CREATE TABLE bad (x real[], y int); "
        "CREATE VIEW bad_view AS TABLE bad; "
        "INSERT INTO bad SELECT ARRAY[i, i], i FROM generate_series(1, 4) i; "
        f"INSERT INTO bad {row}; INSERT INTO bad SELECT ARRAY[i, i], i FROM generate_series(1, 4) i"
    )
    before = shop.tables()
    with pytest.raises(errors.DataException, match=row_named(message, has_segments)) as caught:
        shop.pack(source, "bad_p", "y", "x", num_partitions=2)
    address = r"gp_segment_id \d, ctid \(0,\d\)" if has_segments else r"ctid \(0,5\)"
    assert bool(re.search(address, str(caught.value))) == (source == "bad")
    assert caught.value.pgcode == "22000"
    assert shop.tables() == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("SELECT NULL::real[], 1", "row 1 .*'x' is NULL"),
        ("SELECT '{}'::real[], 1", "row 1 .*empty array"),
        ("SELECT '{1,2}'::real[], '{}'::real[]", "row 1 .*'y' is an empty array"),
        ("SELECT '{1,2}'::real[], NULL::real[]", "row 1 .*'y' is NULL"),
    ],
)
def test_no_row_has_a_shape(shop, rows, message, has_segments):
    shop.fetch(f"DROP TABLE IF EXISTS none; CREATE TABLE none (x, y) AS {rows}")
    with pytest.raises(errors.DataException, match=row_named(message, has_segments)):
        shop.pack("none", "none_p", "y", "x")


@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [
        ("double precision", "NULL", "row 3 .*'y' is NULL"),
        ("numeric", "'NaN'", "row 3 .*'y' holds a value that is NaN"),
        ("double precision", "1e300", "row 3 .*'y' holds a value"),
        ("integer[]", "'{1,2}'", r"row 3 .*'y' has shape \(2,\); allowed: \(1,\)"),
        ("integer[]", "NULL", "row 3 .*'y' is NULL"),
    ],
)
def test_bad_float_targets_are_named(shop, kind, bad, message, has_segments):
    good = "'{1}'" if "[]" in kind else "1"
    shop.fetch(
        f"DROP TABLE IF EXISTS bady; CREATE TABLE bady (x int[], y {kind}); INSERT INTO bady "
        f"VALUES ('{{1}}', {good}), ('{{2}}', {good}), ('{{3}}', {bad}), ('{{4}}', {good})"
    )
    if has_segments:  # which row is the first is chance there
        message = message.replace(r"\(2,\); allowed: \(1,\)", r"\([12],\); allowed: \([12],\)")
    with pytest.raises(errors.DataException, match=row_named(message, has_segments)):
        shop.pack("bady", "bady_p", "y", "x")


@pytest.mark.parametrize(
    "call",
    ["columns('digits','o','y, id','id')", "images('digits','o','y, id','x',ARRAY[2],'raw')"],
)
def test_one_target_where_columns_or_images_become_features(shop, call):
    with pytest.raises(
        errors.InvalidParameterValue, match=r"dependent_varname: got 2 .*allowed: one"
    ):
        shop.fetch(f"SELECT cerebro_pack_{call}")


def test_classes_are_wanted_of_a_float_target(shop):
    shop.fetch("CREATE VIEW fl AS SELECT x, y::real FROM digits")
    with pytest.raises(errors.InvalidParameterValue, match=r"num_classes: got 3.*float targets"):
        shop.pack("fl", "fl_p", "y", "x", num_classes=3)


def test_numbers_of_classes_have_one_dimension(shop):
    with pytest.raises(errors.InvalidParameterValue, match=r"num_classes: got \[3, 3\]; allowed"):
        shop.fetch("SELECT cerebro_pack('digits', 'o', 'y', 'x', NULL, 1, ARRAY[[3, 3]])")


def test_numeric_beyond_double(shop):
    shop.fetch("CREATE TABLE huge AS SELECT ARRAY[1e400]::numeric[] x, 1 y")
    with pytest.raises(psycopg2.DataError, match="out of range"):
        shop.pack("huge", "huge_p", "y", "x")
    assert "huge_p_packing" not in shop.tables()


REMEDIES = {
    "null": ("'{1,2}', NULL", "SELECT ... WHERE y IS NOT NULL"),
    "no array": ("NULL, 1", "SELECT ... WHERE x IS NOT NULL"),
    "element": ("'{1,NULL}', 1", "a view can replace it: SELECT array_replace(x, NULL, 0)"),
    "nan": ("'{1,NaN}', 1", "SELECT ... WHERE 'NaN' <> ALL (x); infinite"),
    "ragged": ("'{1,2,3}', 1", "SELECT ... WHERE array_length(x, 1) = 2"),
    "empty": ("'{}', 1", "SELECT ... WHERE array_length(x, 1) > 0"),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_the_hint_leaves_out_the_row_that_is_wrong(shop, case, has_segments):
    row, hint = REMEDIES[case]
    shop.fetch(
        "DROP TABLE IF EXISTS wrong; CREATE TABLE wrong (x real[], y real); "
        f"INSERT INTO wrong SELECT ARRAY[i, i], i FROM generate_series(1, 4) i; "
        f"INSERT INTO wrong VALUES ({row})"
    )
    with pytest.raises(errors.DataException) as caught:
        shop.pack("wrong", "wrong_p", "y", "x")
    told = caught.value.diag.message_hint
    if has_segments and case == "ragged" and "= 3" in told:
        return  # any row may come first, also the one that differs from all others
    assert hint in told
    for condition in re.findall(r"(WHERE [^;]*)", told):
        assert shop.fetch(f"SELECT count(*) FROM wrong {condition}") == [(4,)]


VALIDATION = {
    "unseen": ("SELECT x, 77 AS y FROM digits", errors.DataException, "row 1 .*class '77'"),
    "null": (
        "SELECT x, nullif(y, 1) AS y FROM digits ORDER BY id",
        errors.DataException,
        "row 1 .*'y' is NULL; allowed: no NULL, as in the training table",
    ),
    "shape": (
        "SELECT x || 1::real AS x, y FROM digits",
        errors.DataException,
        r"shape \(5,\).*\(4,\)",
    ),
    "type": ("SELECT x, y::text AS y FROM digits", errors.DataException, "type text.*type integer"),
    "kind": ("SELECT x, y::real AS y FROM digits", errors.DataException, "holds float targets"),
}


@pytest.mark.parametrize("case", VALIDATION)
def test_bad_validation(shop, case, has_segments):
    query, kind, message = VALIDATION[case]
    shop.fetch(f"DROP VIEW IF EXISTS bad_val; CREATE VIEW bad_val AS {query}")
    before = shop.tables()
    with pytest.raises(kind, match=row_named(message, has_segments)):
        shop.fetch("SELECT cerebro_pack_validation('bad_val', 'bv_p', 'y', 'x', 'train')")
    assert shop.tables() == before


def test_the_training_table_must_be_packed(shop):
    shop.fetch("CREATE TABLE half (partition_key int, buffer_id int)")
    for table, message in (
        ("digits", "digits is not packed"),
        ("half", "no summary table"),
    ):
        with pytest.raises(errors.WrongObjectType, match=message) as caught:
            shop.fetch("SELECT cerebro_pack_validation('digits', 'o', 'y', 'x', %s)", (table,))
        assert "cerebro_pack" in caught.value.diag.message_hint
    with pytest.raises(errors.UndefinedTable, match="training_table: got 'nope'"):
        shop.fetch("SELECT cerebro_pack_validation('digits', 'o', 'y', 'x', 'nope')")
    with pytest.raises(errors.InvalidParameterValue, match="training_table: got NULL"):
        shop.fetch("SELECT cerebro_pack_validation('digits', 'o', 'y', 'x', NULL)")
    with pytest.raises(errors.InvalidParameterValue, match="distribution_rules: got 'gpu"):
        shop.fetch(
            "SELECT cerebro_pack_validation('digits','o','y','x','train',NULL,'gpu_segments')"
        )


def test_tables_that_other_sessions_cannot_see(shop):
    shop.fetch("CREATE TEMP TABLE temporary AS TABLE digits")
    with pytest.raises(errors.UndefinedTable) as caught:
        shop.pack("temporary", "o", "y", "x")
    assert "temporary tables" in caught.value.diag.message_hint


@pytest.fixture
def slow(shop):
    """A source that takes seconds to read."""
    shop.fetch(
        "CREATE OR REPLACE VIEW slow AS SELECT x, y + 0 * length(pg_sleep(0.01)::text) AS y "
        "FROM digits"
    )
    yield shop
    shop.fetch("DROP VIEW slow")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_cancel_leaves_nothing(slow, how):
    before = slow.tables()
    began = time.monotonic()
    if how == "timeout":
        slow.fetch("SET statement_timeout = '1500ms'")
    else:
        threading.Timer(1.5, slow.connection.cancel).start()
    try:
        with pytest.raises(errors.QueryCanceled):
            slow.pack("slow", "slow_p", "y", "x")
    finally:
        slow.fetch("SET statement_timeout = 0")
    assert time.monotonic() - began < stretched(6)
    assert slow.tables() == before
    slow.pack("digits", "slow_p", "y", "x")
    slow.fetch("DROP TABLE slow_p, slow_p_summary")


def test_what_a_killed_packing_left_is_cleared(shop):
    shop.fetch(
        "CREATE TABLE killed_packing (x int); "
        "COMMENT ON TABLE killed_packing IS 'Cerebro-DB: a packing that is not finished'"
    )
    shop.pack("digits", "killed", "y", "x")
    assert "killed_packing" not in shop.tables()


def test_functions_have_comments(shop):
    query = (
        "SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'cerebro' AND proname ~ 'pack' AND obj_description(p.oid, 'pg_proc') IS NULL"
    )
    assert shop.fetch(query) == []


def test_a_cancel_at_any_moment_leaves_all_or_nothing(shop):
    shop.fetch(
        "CREATE TABLE larger AS SELECT ARRAY[i, 1, 2, 3, 4, 5]::numeric[] AS x, i % 5 AS y "
        "FROM generate_series(1, 60000) i"
    )
    before = shop.tables()
    outcomes = set()
    for milliseconds in (20, 60, 100, 150, 200, 300, 400, 20000):
        shop.fetch(f"SET statement_timeout = {milliseconds}")
        try:
            shop.pack("larger", "larger_p", "y", "x", buffer_size=3000)
            outcomes.add("packed")
        except errors.QueryCanceled:
            outcomes.add("cancelled")
            made = set(shop.tables()) - set(before)
            assert made in (set(), {"larger_p", "larger_p_summary"})  # the latter: after its commit
        finally:
            shop.fetch("SET statement_timeout = 0")
        shop.fetch("DROP TABLE IF EXISTS larger_p, larger_p_summary")
    assert outcomes == {"packed", "cancelled"}


def packed_again(shop):
    """True unless another session is still packing."""
    try:
        shop.pack("digits", "again", "y", "x")
    except errors.DuplicateTable as error:
        if "is being packed by another session" not in str(error):
            raise
        return False
    return True


def test_a_killed_caller_leaves_nothing_that_stands_in_the_way(shop):
    shop.fetch(
        "CREATE OR REPLACE VIEW very_slow AS SELECT x, y + 0 * length(pg_sleep(0.05)::text) AS y FROM digits"
    )
    other = psycopg2.connect(shop.dsn)
    pid = other.info.backend_pid
    threading.Timer(1.0, lambda: shop.fetch("SELECT pg_terminate_backend(%s)", (pid,))).start()
    with pytest.raises(psycopg2.OperationalError), other.cursor() as cursor:
        cursor.execute("SELECT cerebro_pack('very_slow', 'again', 'y', 'x')")
    shop.fetch("DROP VIEW very_slow")
    until(lambda: packed_again(shop), 20)  # its driver has to notice first
    assert not [name for name in shop.tables() if name.startswith("again_") and "summ" not in name]
