"""Sample weights: stored beside the targets, row by row; bad ones are named."""

from __future__ import annotations

import numpy as np
import pytest
from psycopg2 import errors
from servers import partitions, row_named

from cerebro_db.training import buffers
from cerebro_db.training.scores.targets import TargetFacts


@pytest.fixture(scope="module")
def weighty(db):
    db.fetch(
        "CREATE TABLE heavy AS SELECT i AS id, ARRAY[i, 1]::real[] AS x, i % 3 AS y, i / 2.0 AS f, "
        "ARRAY[i, i]::real[] AS v, i::numeric / 4 AS \"w %\", '\\x01'::bytea AS image "
        "FROM generate_series(1, 50) i; CREATE VIEW heavy_view AS TABLE heavy"
    )
    return db


def records(db, output, x, y, facts):
    rows = db.fetch(
        f"SELECT {x}, {x}_shape, {y}, {y}_shape FROM {output} ORDER BY partition_key, buffer_id"
    )
    return (
        np.concatenate([buffers.decode(row[0], row[1], np.float32) for row in rows]),
        np.concatenate([buffers.decode(row[2], row[3], facts.record) for row in rows]),
    )


@pytest.mark.parametrize("source", ["heavy", "heavy_view"])
@pytest.mark.parametrize(
    ("target", "facts"),
    [
        ("y", TargetFacts("class", 3, (), True)),
        ("f", TargetFacts("float", 0, (), True)),
        ("v", TargetFacts("float", 0, (2,), True)),
    ],
)
def test_weights_lie_beside_their_targets(weighty, source, target, facts):
    weighty.fetch("DROP TABLE IF EXISTS h, h_summary")
    options = {"num_partitions": partitions(3), "buffer_size": 7, "sample_weight": "w %"}
    weighty.pack(source, "h", target, "x", **options)
    features, stored = records(weighty, "h", "x", target, facts)
    ids = features[:, 0]
    assert sorted(ids) == list(range(1, 51))
    assert np.array_equal(stored["weight"], ids / 4)
    wanted = {"y": ids % 3, "f": ids / 2, "v": np.stack([ids, ids], 1)}[target]
    assert np.array_equal(stored["target"], wanted.astype(np.float32))
    assert weighty.value("SELECT sample_weight FROM h_summary") == "w %"


def test_columns_and_images_have_weights_too(weighty):
    facts = TargetFacts("class", 3, (), True)
    weighty.fetch(
        "SELECT cerebro_pack_columns('heavy', 'hc', 'y', '*', numbers := 'none', "
        "excluded := 'x, v, image, f', sample_weight := 'w %')"
    )
    features, stored = records(weighty, "hc", "features", "y", facts)
    assert features.shape == (50, 1)
    assert np.array_equal(stored["weight"], features[:, 0] / 4)
    weighty.fetch(
        "SELECT cerebro_pack_images('heavy', 'hi', 'y', 'image', ARRAY[1], 'raw', sample_weight := 'w %')"
    )
    _, stored = records(weighty, "hi", "image", "y", facts)
    assert sorted(stored["weight"]) == [i / 4 for i in range(1, 51)]


@pytest.mark.parametrize("value", ["NULL", "-0.5", "'NaN'", "1e39"])
def test_bad_weights_are_named(weighty, value, has_segments):
    weighty.fetch(
        f"DROP TABLE IF EXISTS odd; CREATE TABLE odd AS SELECT x, y, 1::float8 AS w FROM heavy; "
        f"INSERT INTO odd VALUES ('{{1, 1}}', 1, {value})"
    )
    message = row_named("row 51 .*'w' holds .* as a sample weight", has_segments)
    with pytest.raises(errors.DataException, match=message):
        weighty.pack("odd", "o", "y", "x", sample_weight="w")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nope", errors.UndefinedColumn, "sample_weight: got 'nope'"),
        ("x", errors.WrongObjectType, r"sample_weight: the column 'x' is of type real\[\]"),
        ("", errors.InvalidParameterValue, "sample_weight: got ''"),
    ],
)
def test_bad_arguments(weighty, name, kind, message):
    with pytest.raises(kind, match=message):
        weighty.pack("heavy", "o", "y", "x", sample_weight=name)
