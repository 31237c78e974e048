"""What is packed is what was in the source, in shuffled order and spread evenly."""

from __future__ import annotations

import numpy as np
import pytest
from servers import partitions

_UUID = "00000000-0000-0000-0000-00000000000"


def test_rows_come_back_shuffled_and_evenly_spread(digits):
    count = partitions(4)
    notice = digits.pack("digits", "p1", "y", "x", num_partitions=count, buffer_size=100)
    assert "packed 1003 rows" in notice
    got = digits.unpack("p1")
    ids = got.features[:, 0].astype(int)
    assert sorted(ids) == list(range(1, 1004))
    assert not np.array_equal(ids, np.sort(ids))
    assert np.array_equal(got.features, np.stack([ids, ids * 2, -ids, ids * 0 + 0.5], 1))
    assert np.array_equal(got.targets, ids % 7)
    assert got.targets.dtype == np.int32
    assert sorted(got.partitions.values()) == sorted((1003 + n) // count for n in range(count))
    assert {(key, buffer) for key, buffer, _ in got.buffers} == {
        (key, buffer) for key in range(count) for buffer in range(-(-1003 // count // 100))
    }
    assert {rows for *_, rows in got.buffers} == {83, 84}


def test_rows_within_a_buffer_are_shuffled_too(digits):
    digits.pack("digits", "one", "y", "x", num_partitions=1)
    ids = digits.unpack("one").features[:, 0]
    assert 0.4 < np.mean(np.diff(ids) > 0) < 0.6


def test_the_seed_decides_the_order(digits):
    for name, seed in (("s1", 1), ("s1again", 1), ("s2", 2), ("negative", -1)):
        digits.pack("digits", name, "y", "x", num_partitions=2, seed=seed)
    s1, again, s2, negative = (digits.unpack(t) for t in ("s1", "s1again", "s2", "negative"))
    assert s1.raw == again.raw
    assert s1.raw != s2.raw != negative.raw
    assert sorted(s1.features[:, 0]) == sorted(s2.features[:, 0])


@pytest.mark.parametrize(
    "kind", ["smallint", "integer", "bigint", "real", "double precision", "numeric"]
)
def test_arrays_of_all_numeric_types(db, kind):
    table = "of_" + kind.replace(" ", "_")
    db.fetch(
        f"CREATE TABLE {table} AS SELECT ARRAY[i, i + 1, 255]::{kind}[] AS x, 1 AS y "
        "FROM generate_series(1, 50) i"
    )
    db.pack(table, f"{table}_p", "y", "x", normalizing_const=255)
    got = db.unpack(f"{table}_p").features
    got = got[np.argsort(got[:, 0])]
    first = np.arange(1, 51)
    expected = (np.stack([first, first + 1, first * 0 + 255], 1) / 255.0).astype(np.float32)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    ("array", "shape"),
    [("ARRAY[i]", (1,)), ("ARRAY[[i,1,2],[3,4,5]]", (2, 3)), ("ARRAY[[[i],[1]]]", (1, 2, 1))],
)
def test_arrays_of_several_dimensions(db, array, shape):
    table = f"dims_{len(shape)}"
    db.fetch(f"CREATE TABLE {table} AS SELECT {array} x, i y FROM generate_series(1, 9) i")
    db.pack(table, f"{table}_p", "y", "x", num_partitions=2)
    got = db.unpack(f"{table}_p")
    assert got.features.shape == (9, *shape)
    flat = got.features.reshape(9, -1)
    assert np.array_equal(flat[:, 0], got.targets + 1)
    assert np.array_equal(flat[0, 1:], np.arange(1, flat.shape[1]))
    assert db.value(f"SELECT input_shapes::text FROM {table}_p_summary") == str([list(shape)])


def test_lower_bounds_do_not_matter(db):
    db.fetch(
        "CREATE TABLE bounds AS SELECT CASE i % 2 WHEN 0 THEN '[0:1]={7,8}'::int[] "
        "ELSE '{7,8}' END AS x, i AS y FROM generate_series(1, 10) i"
    )
    db.pack("bounds", "bounds_p", "y", "x")
    assert np.array_equal(db.unpack("bounds_p").features, np.tile([7.0, 8.0], (10, 1)))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("text", ["b", None, "a", "c"], ["a", "b", "c", None]),
        ("integer", ["10", "9", "-1"], ["-1", "9", "10"]),
        ("bigint", ["10", "9", None], ["9", "10", None]),
        ("boolean", ["t", "f", None], ["false", "true", None]),
        ("date", ["2024-01-02", "1999-12-31"], ["1999-12-31", "2024-01-02"]),
        ("character(3)", ["b", "a"], ["a  ", "b  "]),
        ("mood", ["low", "high"], ["low", "high"]),
        ("interval", ["02:00:00", "1 day"], ["02:00:00", "1 day"]),
        ("uuid", [_UUID + "2", _UUID + "1", None], [_UUID + "1", _UUID + "2", None]),
        ("inet", ["10.0.0.2", "10.0.0.1"], ["10.0.0.1/32", "10.0.0.2/32"]),
        ("text", ['"', "{}", "NULL", "a,b", "%s"], ['"', "%s", "NULL", "a,b", "{}"]),
    ],
)
def test_classes_are_sorted_by_their_type_and_null_is_last(db, kind, values, expected):
    db.fetch("DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('low', 'high')")
    db.fetch("DROP TABLE IF EXISTS c, c_p, c_p_summary")
    db.fetch(f"CREATE TABLE c (x real[], y {kind})")
    for number, value in enumerate(values * 3):
        db.fetch(f"INSERT INTO c VALUES (ARRAY[%s]::real[], %s::{kind})", (number, value))
    db.pack("c", "c_p", "y", "x")
    got = db.unpack("c_p")
    query = "SELECT unnest(y_class_values)::text FROM c_p_summary"
    stored = [text for (text,) in db.fetch(query)]
    assert [s and s.rstrip() for s in stored] == [e and e.rstrip() for e in expected]
    texts = [e and e.rstrip() for e in expected]
    short = {"t": "true", "f": "false"}
    for feature, label in zip(got.features[:, 0], got.targets, strict=True):
        value = values[int(feature) % len(values)]
        value = f"{value}/32" if kind == "inet" else value
        assert texts[label] == (short.get(value, value) if kind == "boolean" else value)
    assert db.fetch("SELECT num_classes, classes_found FROM c_p_summary") == [
        ([len(expected)], [len(expected)])
    ]


def test_more_classes_than_found_are_padded(digits):
    digits.pack("digits", "padded", "y", "x", num_classes=9)
    query = "SELECT y_class_values, num_classes[1], classes_found[1] FROM padded_summary"
    assert digits.fetch(query) == [([0, 1, 2, 3, 4, 5, 6, None, None], 9, 7)]


@pytest.mark.parametrize("kind", ["real", "double precision", "numeric"])
def test_numbers_are_float_targets(db, kind):
    table = "float_" + kind.split()[0]
    db.fetch(
        f"CREATE TABLE {table} AS SELECT ARRAY[i]::int[] AS x, (i / 4.0)::{kind} AS y "
        "FROM generate_series(1, 30) i"
    )
    db.pack(table, f"{table}_p", "y", "x", num_partitions=partitions(3), normalizing_const=2)
    got = db.unpack(f"{table}_p")
    assert got.targets.dtype == np.float32
    assert got.targets.shape == (30,)
    assert np.array_equal(got.targets, got.features[:, 0] / 2)


def test_arrays_are_float_targets(db):
    db.fetch(
        "CREATE TABLE vectors AS SELECT ARRAY[i] x, ARRAY[[i, 0], [1, i]] y "
        "FROM generate_series(1, 20) i"
    )
    db.pack("vectors", "vectors_p", "y", "x")
    got = db.unpack("vectors_p")
    assert got.targets.shape == (20, 2, 2)
    assert np.array_equal(got.targets[:, 1, 1], got.features[:, 0])


def test_validation_follows_the_training_table(digits, has_segments):
    options = {"num_partitions": partitions(3), "normalizing_const": 10, "num_classes": 8}
    digits.pack("digits", "train", "y", "x", **options)
    digits.fetch(
        "CREATE TABLE val AS SELECT x::float8[] AS x, y::bigint AS y FROM digits WHERE y IN (3, 5)"
    )
    digits.fetch("SELECT cerebro_pack_validation('val', 'val_p', 'y', 'x', 'train', 50)")
    got = digits.unpack("val_p")
    assert set(got.targets) == {3, 5}
    if not has_segments:  # there the order is that of the rows on each of them
        assert (np.diff(got.features[:, 0]) > 0).all()
    assert np.array_equal(np.round(got.features[:, 0] * 10).astype(int) % 7, got.targets)
    assert len(got.partitions) == partitions(3)
    assert max(rows for *_, rows in got.buffers) <= 50
    query = "SELECT y_class_values, num_classes, normalizing_const, training_table FROM {}_summary"
    (train,), (val,) = digits.fetch(query.format("train")), digits.fetch(query.format("val_p"))
    assert val[:3] == train[:3]
    assert val[3] == "public.train"


def test_fewer_rows_than_partitions_in_validation(digits):
    digits.pack("digits", "train4", "y", "x", num_partitions=partitions(4))
    digits.fetch("CREATE VIEW two AS SELECT * FROM digits WHERE id < 3")
    digits.fetch("SELECT cerebro_pack_validation('two', 'two_p', 'y', 'x', 'train4')")
    assert list(digits.unpack("two_p").partitions.values()) == [1, 1]


def test_bytes_are_stored_uncompressed(digits):
    digits.pack("digits", "stored", "y", "x")
    query = (
        "SELECT attname, attstorage FROM pg_attribute "
        "WHERE attrelid = 'stored'::regclass AND attname IN ('x', 'y') ORDER BY 1"
    )
    assert digits.fetch(query) == [("x", "e"), ("y", "e")]


def test_defaults(digits):
    digits.pack("digits", "defaults", "y", "x")
    query = "SELECT seed, normalizing_const, distribution_rules, num_rows FROM defaults_summary"
    assert digits.fetch(query) == [(0, 1.0, "all_segments", 1003)]
    digits.fetch("SELECT cerebro_pack('digits', 'nulls', 'y', 'x', NULL, NULL, NULL, NULL)")
    query = query.replace("defaults", "nulls")
    assert digits.fetch(query) == [(0, 1.0, "all_segments", 1003)]
