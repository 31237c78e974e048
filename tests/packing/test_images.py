"""cerebro_pack_images: raw and encoded images, validation as recorded, bad images."""

from __future__ import annotations

import io
import struct
import time
import zlib

import numpy as np
import pytest
from pace import stretched
from psycopg2 import errors
from reasons import NO_TABLES_ON_SEGMENTS
from servers import partitions, row_named

SHAPE = (4, 3, 3)


def picture(number):
    """An image that tells its number."""
    values = np.random.default_rng(number).integers(0, 256, SHAPE, np.uint8)
    values[0, 0, 0] = number
    return values


def png(values):
    image = pytest.importorskip("PIL.Image").fromarray(values)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def pictures(db):
    db.fetch('CREATE TABLE pictures (id int, y int, raw bytea, "P %% ""g" bytea)', ())
    for number in range(1, 21):
        values = picture(number)
        db.fetch(
            "INSERT INTO pictures VALUES (%s, %s, %s, %s)",
            (number, number % 2, values.tobytes(), png(values)),
        )
    db.fetch("CREATE VIEW pictures_view AS TABLE pictures")
    return db


def pack(db, column, arguments, output="i", source="pictures"):
    db.fetch(f"DROP TABLE IF EXISTS {output}, {output}_summary")
    db.fetch(f"SELECT cerebro_pack_images(%s, %s, 'y', %s, {arguments})", (source, output, column))


@pytest.mark.parametrize("source", ["pictures", "pictures_view"])
@pytest.mark.parametrize(("column", "kind"), [("raw", "raw"), ('P % "g', "encoded")])
def test_images_become_numbers(pictures, column, kind, source):
    arguments = f"ARRAY[4, 3, 3], '{kind}', num_partitions := {partitions(3)}"
    pack(pictures, column, arguments, source=source)
    got = pictures.unpack("i", column)
    assert got.features.shape == (20, *SHAPE)
    numbers = np.round(got.features[:, 0, 0, 0] * 255).astype(int)
    assert sorted(numbers) == list(range(1, 21))
    for number, features, target in zip(numbers, got.features, got.targets, strict=True):
        assert target == number % 2
        assert np.array_equal(features, (picture(number) / 255).astype(np.float32))
    facts = pictures.fetch("SELECT input_shapes, normalizing_const, encoding FROM i_summary")
    assert facts[0][0] == [list(SHAPE)]
    assert facts[0][1] == 255
    assert facts[0][2]["image"] == {"name": column, "format": kind, "shape": list(SHAPE)}
    assert "i_staging" not in pictures.tables()


def test_validation_reads_images_as_recorded(pictures):
    pack(pictures, '"P % ""g"', "ARRAY[2, 2], normalizing_const := 2")
    pictures.fetch("DROP TABLE IF EXISTS v, v_summary, w, w_summary")
    pictures.fetch("SELECT cerebro_pack_validation('pictures_view', 'v', 'y', NULL, 'i')")
    trained, found = (pictures.unpack(t, 'P % "g').features for t in ("i", "v"))
    assert found.shape == (20, 2, 2)
    assert np.array_equal(np.unique(found, axis=0), np.unique(trained, axis=0))
    pictures.fetch('CREATE VIEW renamed AS SELECT y, "P %% ""g" AS img FROM pictures', ())
    pictures.fetch("SELECT cerebro_pack_validation('renamed', 'w', 'y', 'img', 'i')")
    assert np.array_equal(pictures.unpack("w", "img").features, found)
    with pytest.raises(errors.UndefinedColumn, match="independent_varname"):
        pictures.fetch("SELECT cerebro_pack_validation('renamed', 'o', 'y', NULL, 'i')")


BAD_ROWS = {
    "NULL": "row 21 .*'raw' is NULL",
    "'\\x0102'": r"row 21 .*'raw' holds 2 bytes; allowed: 36, .*\(4, 3, 3\)",
}


@pytest.mark.parametrize("value", BAD_ROWS)
def test_bad_raw_images_are_named(pictures, value, has_segments):
    pictures.fetch(
        f"DROP TABLE IF EXISTS bad; CREATE TABLE bad AS TABLE pictures; "
        f"INSERT INTO bad VALUES (21, 1, {value})"
    )
    before = pictures.tables()
    with pytest.raises(errors.DataException, match=row_named(BAD_ROWS[value], has_segments)):
        pictures.fetch("SELECT cerebro_pack_images('bad', 'o', 'y', 'raw', ARRAY[4, 3, 3], 'raw')")
    assert pictures.tables() == before


def test_bad_encoded_images_are_named(pictures):
    pictures.fetch("DROP TABLE IF EXISTS bad; CREATE TABLE bad AS TABLE pictures_view")
    pictures.fetch('UPDATE bad SET "P %% ""g" = \'no image\' WHERE id = 7', ())
    with pytest.raises(errors.DataException, match="holds no JPEG or PNG") as caught:
        pictures.fetch("SELECT cerebro_pack_images('bad', 'o', 'y', %s, ARRAY[4, 3])", ('P % "g',))
    assert caught.value.diag.message_hint.startswith("store that image anew, or leave its row out")


def tall(rows):
    """A small file that is slow to decode: a PNG of one column."""
    compressor = zlib.compressobj()
    packed = b"".join(compressor.compress(bytes(2_000_000)) for _ in range(rows // 1_000_000))
    header = struct.pack(">IIBBBBB", 1, rows, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", packed + compressor.flush()), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


@pytest.fixture(scope="module")
def slow(pictures):
    """A table and a view of images that take seconds."""
    pytest.importorskip("PIL")
    data = tall(60_000_000)
    assert len(data) < 150_000
    pictures.fetch("CREATE TABLE slow (id int, y int, picture bytea)")
    pictures.fetch("CREATE VIEW slow_view AS TABLE slow")
    pictures.fetch("INSERT INTO slow SELECT i, i, %s FROM generate_series(1, 2) i", (data,))
    yield pictures
    pictures.fetch("DROP TABLE slow CASCADE")


READERS = {
    "packing": "cerebro_pack_images('slow', 'o', 'y', 'picture', ARRAY[4, 4])",
    "packing a view": "cerebro_pack_images('slow_view', 'o', 'y', 'picture', ARRAY[4, 4])",
    "an array": "cerebro_image_array(picture, ARRAY[4, 4]) FROM slow",
    "an internal function": "cerebro._image_fault(picture, ARRAY[4, 4], 'encoded', 70000000) FROM slow",
}


@pytest.mark.parametrize("reader", READERS)
def test_a_timeout_interrupts_while_an_image_is_decoded(slow, reader):
    slow.fetch("SET statement_timeout = '1s'")
    began = time.monotonic()
    try:
        with pytest.raises(errors.QueryCanceled):
            slow.fetch(f"SELECT {READERS[reader]}")
        assert time.monotonic() - began < stretched(15)  # it takes 30 s and more to its end
    finally:
        slow.fetch("SET statement_timeout = 0")


@pytest.mark.parametrize(
    "reader",
    [
        "packing",
        "packing a view",
        pytest.param("an array", marks=pytest.mark.not_on_segments(NO_TABLES_ON_SEGMENTS)),
    ],
)
def test_the_limit_on_pixels_is_a_setting(slow, reader):
    slow.fetch("SELECT cerebro_set('max_image_pixels', '59999999')")
    told = "holds an image of 1 x 60000000 pixels; allowed: 59999999 together, the setting max_image_pixels"
    try:
        time.sleep(1)  # for so long a session may go by what it has read
        with pytest.raises(errors.DataException, match=told):
            slow.fetch(f"SELECT {READERS[reader]}")
    finally:
        slow.fetch("SELECT cerebro_set('max_image_pixels', NULL)")


IGNORE = "on_error := 'ignore'"
SOURCES = {
    "table": "damaged",
    "view": "damaged_view",
    "partitioned table": "damaged_parts",
}


@pytest.fixture(scope="module")
def damaged(pictures, has_segments):
    """Rows 3 and 12 have images that cannot be read, row 7 has none; of class 9 there is only such."""
    parts = "" if has_segments else " PARTITION BY RANGE (id)"
    image = "CASE id WHEN 3 THEN 'no image' WHEN 12 THEN '' WHEN 7 THEN NULL ELSE {} END"
    raw, encoded = image.format("raw"), image.format('"P %% ""g"')
    pictures.fetch(
        "CREATE TABLE damaged AS SELECT id, CASE id WHEN 12 THEN 9 ELSE y END AS y, "
        f'{raw} AS raw, {encoded} AS "P %% ""g" FROM pictures',
        (),
    )
    pictures.fetch(f"CREATE TABLE damaged_parts (LIKE damaged){parts}")
    if not has_segments:
        pictures.fetch(
            "CREATE TABLE damaged_1 PARTITION OF damaged_parts FOR VALUES FROM (0) TO (9)"
        )
        pictures.fetch("CREATE TABLE damaged_2 PARTITION OF damaged_parts DEFAULT")
    pictures.fetch(
        "INSERT INTO damaged_parts TABLE damaged; CREATE VIEW damaged_view AS TABLE damaged_parts; "
        "CREATE VIEW good AS SELECT * FROM damaged WHERE id NOT IN (3, 7, 12)"
    )
    return pictures


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("column", "kind"), [("raw", "raw"), ('P % "g', "encoded")])
def test_damaged_images_are_left_out(damaged, source, column, kind, has_segments):
    arguments = f"ARRAY[4, 3, 3], '{kind}', num_partitions := 2"
    pack(damaged, column, arguments, output="without", source="good")
    damaged.connection.notices.clear()
    pack(damaged, column, f"{arguments}, {IGNORE}", source=SOURCES[source])
    told = "".join(damaged.connection.notices)
    assert (
        f"on_error: 3 rows are left out of public.{SOURCES[source]}, as the images of column {column!r} cannot be read"
        in told
    )
    assert ": is NULL; allowed: no NULL" in told
    found, wanted = damaged.unpack("i", column), damaged.unpack("without", column)
    if has_segments:
        assert np.array_equal(np.sort(found.targets), np.sort(wanted.targets))
    else:
        assert found.raw == wanted.raw
        assert "row 3 of the scan" in told
        assert ("ctid" in told) == (source == "table")
    facts = "SELECT num_classes, y_class_values, rows_per_partition FROM {}_summary"
    assert damaged.fetch(facts.format("i")) == damaged.fetch(facts.format("without"))
    assert "i_staging" not in damaged.tables()


def test_damaged_images_of_a_validation_table_are_left_out(damaged):
    pack(damaged, "raw", f"ARRAY[4, 3, 3], 'raw', {IGNORE}", source="damaged")
    damaged.fetch("DROP TABLE IF EXISTS v, v_summary, w, w_summary")
    call = "SELECT cerebro_pack_validation('{}', '{}', 'y', NULL, 'i'{})"
    with pytest.raises(errors.DataException, match="'raw'"):
        damaged.fetch(call.format("damaged", "v", ""))
    damaged.fetch(call.format("damaged", "v", f", {IGNORE}"))
    damaged.fetch(call.format("good", "w", ""))
    assert np.array_equal(
        np.unique(damaged.unpack("v", "raw").features, axis=0),
        np.unique(damaged.unpack("w", "raw").features, axis=0),
    )


def test_other_faults_still_stop(damaged):
    damaged.fetch(
        "DROP TABLE IF EXISTS weighed; CREATE TABLE weighed AS SELECT *, "
        "CASE WHEN id IN (3, 15) THEN -1 ELSE 1 END AS w FROM damaged"
    )
    with pytest.raises(errors.DataException, match="'w' holds -1 as a sample weight") as caught:
        damaged.fetch(
            "SELECT cerebro_pack_images('weighed', 'o', 'y', 'raw', ARRAY[4, 3, 3], 'raw', "
            f"sample_weight := 'w', {IGNORE})"
        )
    assert "row 3 " not in str(caught.value)


def test_nothing_but_damaged_images(damaged):
    damaged.fetch("CREATE VIEW none_good AS SELECT * FROM damaged WHERE id IN (3, 7, 12)")
    before = damaged.tables()
    with pytest.raises(errors.DataException, match="none_good has no image that can be read"):
        damaged.fetch(
            "SELECT cerebro_pack_images('none_good', 'o', 'y', 'raw', ARRAY[4, 3, 3], 'raw', "
            f"{IGNORE})"
        )
    assert damaged.tables() == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'skip'", "on_error: got 'skip'; allowed: 'stop', 'ignore'"),
        ("NULL", "on_error: got NULL; allowed: 'stop', 'ignore'"),
    ],
)
def test_bad_on_error(pictures, value, message):
    with pytest.raises(errors.InvalidParameterValue, match=message):
        pictures.fetch(
            "SELECT cerebro_pack_images('pictures', 'o', 'y', 'raw', ARRAY[36], 'raw', "
            f"on_error := {value})"
        )


def test_only_images_are_left_out(pictures):
    pictures.fetch("DROP TABLE IF EXISTS n, n_summary, plain")
    pictures.fetch("CREATE TABLE plain AS SELECT y, ARRAY[id] AS x FROM pictures")
    pictures.fetch("SELECT cerebro_pack('plain', 'n', 'y', 'x')")
    with pytest.raises(
        errors.InvalidParameterValue, match="on_error: got 'ignore' for features that"
    ):
        pictures.fetch(f"SELECT cerebro_pack_validation('plain', 'o', 'y', 'x', 'n', {IGNORE})")


BAD = {
    "'id', ARRAY[4, 3]": (errors.WrongObjectType, "'id' is of type integer; allowed: bytea"),
    "'nope', ARRAY[4, 3]": (errors.UndefinedColumn, "independent_varname: got 'nope'"),
    "'raw', NULL": (errors.InvalidParameterValue, "image_shape: got NULL"),
    "'raw', ARRAY[4, 3, 2]": (errors.InvalidParameterValue, r"image_shape: got \[4, 3, 2\]"),
    "'raw', ARRAY[4, NULL]": (errors.InvalidParameterValue, "image_shape: got"),
    "'raw', ARRAY[100000, 100000], 'raw'": (errors.InvalidParameterValue, "image_shape: got"),
    "'raw', ARRAY[4, 3], 'gif'": (errors.InvalidParameterValue, "image_format: got 'gif'"),
    "'raw', ARRAY[36], 'raw', normalizing_const := 0": (
        errors.InvalidParameterValue,
        "normalizing_const: got 0",
    ),
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_arguments(pictures, arguments):
    kind, message = BAD[arguments]
    before = pictures.tables()
    with pytest.raises(kind, match=message):
        pictures.fetch(f"SELECT cerebro_pack_images('pictures', 'o', 'y', {arguments})")
    assert pictures.tables() == before


@pytest.mark.parametrize(("column", "kind"), [("raw", "raw"), ('"P % ""g"', "encoded")])
def test_an_image_in_a_query_has_the_values_of_packing(pictures, column, kind):
    array = f"cerebro_image_array({column.replace('%', '%%')}, ARRAY[4, 3, 3], '{kind}')"
    shown = pictures.fetch(f"SELECT id, {array} FROM pictures ORDER BY id", ())
    for number, values in shown:
        expected = (picture(number) / 255).astype(np.float32)
        assert np.array_equal(np.float32(values), expected)
    assert pictures.fetch("SELECT cerebro_image_array(NULL, ARRAY[4, 3])") == [(None,)]


def test_an_image_is_one_of_several_inputs(pictures):
    array = "cerebro_image_array(raw, ARRAY[4, 3, 3], 'raw', normalizing_const := 2)"
    pictures.fetch("DROP VIEW IF EXISTS mixed; DROP TABLE IF EXISTS m, m_summary")
    pictures.fetch(f"CREATE VIEW mixed AS SELECT y, id AS number, {array} AS seen FROM pictures")
    pictures.fetch("SELECT cerebro_pack('mixed', 'm', 'y', 'number, seen')")
    numbers, seen = (pictures.unpack("m", name).features for name in ("number", "seen"))
    assert sorted(numbers[:, 0]) == list(range(1, 21))
    for number, values in zip(numbers[:, 0], seen, strict=True):
        assert np.array_equal(values, (picture(int(number)) / 2).astype(np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'\\x0102'::bytea, ARRAY[3], 'raw'", "image: holds 2 bytes; allowed: 3"),
        ("'\\x0102'::bytea, ARRAY[3, 3]", "image: holds no JPEG or PNG"),
        ("'\\x01'::bytea, ARRAY[1], 'raw', 0", "normalizing_const: got 0"),
        ("NULL, ARRAY[1], 'raw', NULL", "normalizing_const: got NULL"),
        ("NULL, NULL, 'raw'", "image_shape: got NULL"),
        ("NULL, ARRAY[1], 'gif'", "image_format: got 'gif'"),
    ],
)
def test_bad_images_in_a_query(pictures, arguments, message):
    with pytest.raises(errors.DatabaseError, match=message):
        pictures.fetch(f"SELECT cerebro_image_array({arguments})")
