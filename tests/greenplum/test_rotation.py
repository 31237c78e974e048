"""cerebro_fit_multiple in steps: one statement trains on all segments at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Sql

from tests.fitting.conftest import ADAM, FULL, PLAIN, select

pytestmark = pytest.mark.slow

FIT = "SELECT cerebro_fit_multiple('{}', '{}', '{}', {}, schedule := '{}'{})"
TABLES = "packed", "val", "models", "configs", "hopper", "rotation", "failing", "out"


@pytest.fixture
def tables(segments: Sql, blobs: Any) -> Iterator[Sql]:
    segments.run("CREATE TABLE blobs (id int, x real[], label text)")
    features, labels = blobs
    for number, (row, label) in enumerate(zip(features.tolist(), labels.tolist(), strict=True)):
        segments.run("INSERT INTO blobs VALUES (%s, %s, %s)", (number, row, "abc"[label]))
    segments.run("CREATE VIEW train AS SELECT * FROM blobs WHERE id < 120")
    segments.run("CREATE VIEW test AS SELECT * FROM blobs WHERE id >= 120")
    segments.run("SELECT cerebro_pack('train', 'packed', 'label', 'x', 11)")
    segments.run("SELECT cerebro_pack_validation('test', 'val', 'label', 'x', 'packed')")
    for text in (PLAIN, FULL):
        segments.run("SELECT cerebro_load_model('models', %s)", (text,))
    select(segments, "configs", [1, 2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])
    segments.run("SET extra_float_digits = 3")
    yield segments
    names = [f"{name}{end}" for name in TABLES for end in ("", "_info", "_summary", "_states")]
    segments.run(f"DROP TABLE IF EXISTS blobs, {', '.join(names)} CASCADE")


def _weights(sql: Sql, table: str) -> dict[int, bytes]:
    rows = sql.fetch(f"SELECT mst_key, model_weights FROM {table} ORDER BY mst_key")
    return {key: bytes(weights) for key, weights in rows}


def _fit(sql: Sql, out: str, schedule: str, *, configs: str = "configs", more: str = "") -> int:
    run_id: int = sql.value(FIT.format("packed", out, configs, 2, schedule, more))
    return run_id


def test_a_rotation_gives_what_the_hopper_gives(tables: Sql) -> None:
    validation = ", validation_table := 'val'"
    hopper = _fit(tables, "hopper", "hopper", more=validation)
    rotation = _fit(tables, "rotation", "rotation", more=validation)
    assert _weights(tables, "rotation") == _weights(tables, "hopper")
    losses = "SELECT training_loss, validation_loss FROM {}_info ORDER BY mst_key"
    assert tables.fetch(losses.format("rotation")) == tables.fetch(losses.format("hopper"))
    visits = (
        "SELECT mst_key, epoch, position, partition_key, rows, loss FROM cerebro.hops "
        "WHERE run_id = %s ORDER BY 1, 2, 3"
    )
    assert tables.fetch(visits, (rotation,)) == tables.fetch(visits, (hopper,))
