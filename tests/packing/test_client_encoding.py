"""A client of another encoding than the database's gives and gets the same texts."""

from __future__ import annotations

import psycopg2
import pytest


@pytest.fixture
def latin(db):
    db.fetch(
        "DROP TABLE IF EXISTS colours CASCADE; CREATE TABLE colours AS SELECT k AS id, k % 2 AS y, "
        "(ARRAY['blau', 'grün'])[1 + k % 2] AS \"Farbton für\", 0.1 * k AS z FROM generate_series(1, 40) k"
    )
    db.connection.set_client_encoding("LATIN1")
    yield db
    db.connection.set_client_encoding("UTF8")


def test_features_and_names(latin):
    latin.fetch("SELECT cerebro_pack_columns('colours', 'gepackt_ü', 'y', 'z, \"Farbton für\"')")
    latin.fetch("SELECT cerebro_encode('colours', 'gepackt_ü', 'ü_zeilen', 'id')")
    latin.fetch("SELECT cerebro_create_encoder('colours', 'gepackt_ü', 'merkmale_ü')")
    rows = latin.fetch(
        'SELECT c."Farbton für", e.features[2:3], (merkmale_ü(c))[2:3] '
        "FROM colours c JOIN ü_zeilen e USING (id) ORDER BY id LIMIT 2"
    )
    assert rows == [("grün", [0, 1], [0, 1]), ("blau", [1, 0], [1, 0])]
    assert latin.value("SELECT count(*) FROM \"gepackt_ü_encoding\" WHERE category = 'grün'") == 1
    latin.pack("colours", "klassen_ü", "Farbton für", "z, id")
    latin.connection.set_client_encoding("UTF8")
    values = latin.value('SELECT "Farbton für_class_values" FROM klassen_ü_summary')
    assert values == ["blau", "grün"]
    assert {"gepackt_ü", "ü_zeilen", "klassen_ü"} <= set(latin.tables())


def test_errors(latin):
    with pytest.raises(psycopg2.errors.UndefinedTable, match="got 'grüße'"):
        latin.pack("grüße", "p", "y", "z")
