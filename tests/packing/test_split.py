"""cerebro_train_test_split: shares, strata, the same choice whatever the order; bad input."""

from __future__ import annotations

import pytest
from psycopg2 import errors


@pytest.fixture(scope="module")
def flowers(db):
    db.fetch(
        "CREATE TABLE flowers AS SELECT i AS id, ARRAY[sin(i)]::real[] AS x, "
        "(ARRAY['a', 'b', 'c', NULL])[1 + (i % 10) / 3] AS kind, now() AS seen "
        "FROM generate_series(1, 203) i"
    )
    return db


def split(db, arguments, source="flowers", output="s"):
    db.fetch(f"DROP TABLE IF EXISTS {output}, {output}_train, {output}_test")
    db.fetch(f"SELECT cerebro_train_test_split('{source}', '{output}', {arguments})")


def parts(db, output="s", key="id"):
    rows = db.fetch(f"SELECT split, array_agg({key} ORDER BY {key}) FROM {output} GROUP BY 1")
    found = dict(rows)
    return found[1], found[0]


def test_the_share_is_exact_and_no_row_is_lost(flowers):
    split(flowers, "0.8")
    train, test = parts(flowers)
    assert (len(train), len(test)) == (162, 41)
    assert sorted(train + test) == list(range(1, 204))
    assert train != list(range(1, 163))
    assert "162 rows to train with and 41 to test with" in flowers.connection.notices[-1]
    columns = flowers.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 's'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert columns == [
        ("id", "integer"),
        ("x", "real[]"),
        ("kind", "text"),
        ("seen", "timestamp with time zone"),
        ("split", "integer"),
    ]


def test_the_seed_decides_and_not_the_order_of_the_rows(flowers, has_segments):
    flowers.fetch("CREATE TABLE backwards AS SELECT * FROM flowers ORDER BY id DESC")
    flowers.fetch("CREATE VIEW seen_through AS SELECT * FROM flowers WHERE id > 0")
    found = {}
    for name, source, seed in (
        ("here", "flowers", 5),
        ("there", "backwards", 5),
        ("view", "seen_through", 5),
        ("other", "flowers", 6),
    ):
        split(flowers, f"0.5, grouping_cols := 'kind', seed := {seed}", source)
        found[name] = flowers.fetch("SELECT id, split FROM s")
        if has_segments:  # rows come from them in any order
            found[name].sort()
    assert found["here"] == found["there"] == found["view"]
    assert sorted(found["here"]) != sorted(found["other"])


def test_strata_have_their_share(flowers):
    split(flowers, "0.6, grouping_cols := 'kind', separate_output_tables := true")
    assert flowers.value("SELECT to_regclass('s')") is None
    shares = flowers.fetch(
        "SELECT kind, count(*) * 0.6, (SELECT count(*) FROM s_train t "
        "WHERE t.kind IS NOT DISTINCT FROM f.kind), (SELECT count(*) FROM s_test t "
        "WHERE t.kind IS NOT DISTINCT FROM f.kind), count(*) FROM flowers f GROUP BY kind"
    )
    assert len(shares) == 4
    for _, wanted, train, test, rows in shares:
        assert abs(float(wanted) - train) < 1
        assert train + test == rows
    assert flowers.value("SELECT count(*) FROM s_train") == 122
    assert "4 strata" in flowers.connection.notices[-1]


def test_two_tables_may_be_named_after_their_source(flowers):
    flowers.fetch(
        "SELECT cerebro_train_test_split('flowers', 'flowers', 0.5, separate_output_tables := true)"
    )
    assert flowers.value("SELECT count(*) FROM flowers_train") == 102
    flowers.fetch("DROP TABLE flowers_train, flowers_test")


def test_a_part_of_the_rows(flowers):
    split(flowers, "0.25, 0.5, target_cols := 'kind, id'")
    train, test = parts(flowers)
    assert (len(train), len(test)) == (51, 101)
    assert not set(train) & set(test)
    (row,) = flowers.fetch("SELECT * FROM s LIMIT 1")
    assert len(row) == 3


def test_small_strata_are_trained_with(flowers):
    flowers.fetch(
        "CREATE TABLE rare AS SELECT i AS id, 'kind ' || i / 2 AS kind FROM generate_series(0, 39) i"
    )
    split(flowers, "0.2, grouping_cols := 'kind'", "rare")
    assert flowers.fetch("SELECT DISTINCT sum(split) FROM s GROUP BY kind") == [(1,)]


def test_equal_rows_are_counted_not_chosen(flowers):
    flowers.fetch("CREATE TABLE same AS SELECT 1 AS id FROM generate_series(1, 10)")
    split(flowers, "0.3", "same")
    assert parts(flowers) == ([1] * 3, [1] * 7)


def test_names_that_are_hard_to_quote(flowers):
    flowers.fetch(
        'CREATE TABLE "Odd %% ""T" AS SELECT i AS "i %% ""d", i %% 2 AS "a, b" '
        "FROM generate_series(1, 20) i",
        (),
    )
    flowers.fetch(
        "SELECT cerebro_train_test_split(%s, %s, 0.5, NULL, %s, %s)",
        ('"Odd % ""T"', '"Out % ""T"', '"a, b"', '"i % ""d"'),
    )
    rows = flowers.fetch('SELECT split, count(*) FROM "Out %% ""T" GROUP BY 1 ORDER BY 1', ())
    assert rows == [(0, 10), (1, 10)]


def test_what_is_split_can_be_packed(flowers):
    split(flowers, "0.5, grouping_cols := 'kind', separate_output_tables := true", output="sp")
    flowers.pack("sp_train", "sp_p", "kind", "x")
    flowers.fetch("SELECT cerebro_pack_validation('sp_test', 'sp_v', 'kind', 'x', 'sp_p')")
    assert flowers.value("SELECT num_rows FROM sp_v_summary") == 101


BAD = {
    "'nope','o',0.5": (errors.UndefinedTable, "source_table: got 'nope'"),
    "NULL,'o',0.5": (errors.InvalidParameterValue, "source_table: got NULL"),
    "'flowers',NULL,0.5": (errors.InvalidParameterValue, "output_table: got NULL"),
    "'flowers','flowers',0.5": (errors.DuplicateTable, "public.flowers exists"),
    "'flowers','two',0.5,separate_output_tables:=true": (errors.DuplicateTable, "two_test exists"),
    "'flowers','o',NULL": (errors.InvalidParameterValue, "train_proportion: got NULL"),
    "'flowers','o',1": (errors.InvalidParameterValue, "train_proportion: got 1; allowed: a number"),
    "'flowers','o','NaN'": (errors.InvalidParameterValue, "train_proportion: got nan"),
    "'flowers','o',0.5,0": (errors.InvalidParameterValue, "test_proportion: got 0"),
    "'flowers','o',0.7,0.4": (
        errors.InvalidParameterValue,
        "test_proportion: got 0.4.*at most 0.3",
    ),
    "'flowers','o',0.5,NULL,'kin'": (errors.UndefinedColumn, "grouping_cols: got 'kin'"),
    "'flowers','o',0.5,NULL,NULL,'id,id'": (
        errors.InvalidParameterValue,
        "target_cols: got.*twice",
    ),
    "'flowers','o',0.5,with_replacement:=true": (errors.InvalidParameterValue, "with_replacement"),
    "'flowers','o',0.5,seed:=NULL": (errors.InvalidParameterValue, "seed: got NULL"),
    "'marked','o',0.5": (errors.InvalidParameterValue, "target_cols: got 'split'"),
    "'nothing','o',0.5": (errors.DataException, "has no rows"),
    "'single','o',0.5": (errors.DataException, "test_proportion: got 0.5, which makes no row"),
    "'flowers_p','o',0.5": (errors.WrongObjectType, "is packed already"),
}


@pytest.fixture(scope="module")
def odd(flowers):
    flowers.fetch(
        "CREATE TABLE two_test (x int); CREATE TABLE marked AS SELECT 1 AS split, 2 AS x; "
        "CREATE TABLE nothing (x int); CREATE TABLE single AS SELECT 1 AS x"
    )
    flowers.pack("flowers", "flowers_p", "kind", "x")
    return flowers


@pytest.mark.parametrize("arguments", BAD)
def test_bad_arguments(odd, arguments):
    kind, message = BAD[arguments]
    before = odd.tables()
    with pytest.raises(kind, match=f"(?s){message}"):
        odd.fetch(f"SELECT cerebro_train_test_split({arguments})")
    assert odd.tables() == before


def test_the_nearest_column_is_reported(odd):
    with pytest.raises(errors.UndefinedColumn) as caught:
        odd.fetch("SELECT cerebro_train_test_split('flowers', 'o', 0.5, NULL, 'knid')")
    assert caught.value.diag.message_hint == "Did you mean 'kind'?"
