"""The encoding ``auto``: what it chooses of each type and distribution, and what it remarks."""

from __future__ import annotations

from typing import Any

import pytest

ROWS = 700


@pytest.fixture(scope="module")
def mixed(db: Any) -> Any:
    db.fetch(
        "CREATE TABLE mixed AS SELECT id, id * 7 % 601 AS number, id * 31 % 5 AS grade, 3 AS same, "
        "id % 2 = 0 AS flag, (ARRAY['red', 'green', 'blue'])[1 + id % 3] AS colour, 'shop ' || id * 13 % 83 AS shop, "
        "'name ' || id AS name, 'one'::text AS word, date '2024-01-01' + id AS day, time '01:00' AS opens, "
        "id * interval '1 hour' AS lasts, CASE WHEN id % 61 < 20 THEN 'low' ELSE 'high' END AS y, "
        "CASE WHEN id % 61 < 20 THEN 'refused' ELSE 'paid' END AS outcome, (id % 61 - 19.5) * 3 AS score, "
        f"ARRAY[id]::real[] AS list FROM generate_series(1, {ROWS}) id"
    )
    db.fetch(
        "CREATE TABLE tails AS SELECT id, exp(id / 8.0)::float8 AS up, power(id - 60, 7)::float8 AS both, "
        "id * 0.5 AS even, ARRAY[id]::real[] AS y FROM generate_series(1, 120) id"
    )
    return db


def chosen(db: Any, source: str, target: str, **more: str) -> tuple[dict[str, str], str]:
    """The encodings by column, and the notices."""
    db.connection.notices.clear()
    listed = "".join(f", {name} := '{value}'" for name, value in more.items())
    db.fetch(
        f"SELECT cerebro_pack_columns('{source}', 'p', '{target}', '*', numbers := 'auto', categories := 'auto', "
        f"replace := true{listed})"
    )
    columns = db.value("SELECT input_columns FROM p_summary")
    found = {piece["column"]: piece["encoding"] for each in columns for piece in each}
    return found, "".join(db.connection.notices)


def test_each_type_has_an_encoding(mixed: Any) -> None:
    found, notices = chosen(mixed, "mixed", "y", excluded="list")
    assert found == {
        "id": "ple(28, target)",
        "number": "ple(28, target)",
        "grade": "ple(28, target)",
        "same": "standardize",
        "flag": "none",
        "colour": "onehot",
        "shop": "ids",
        "name": "ids",
        "word": "onehot",
        "day": "cyclic(weekday, month, elapsed)",
        "opens": "cyclic(hour)",
        "lasts": "ple(28, target)",
        "outcome": "onehot",
        "score": "ple(28, target)",
    }
    assert "encodings that 'auto' has chosen: id: ple(28, target) (700 values are enough" in notices
    assert "shop: ids (83 categories)" in notices
    assert "columns 'same', 'word' are the same in all rows" in notices
    assert "columns 'id', 'name' are other in most rows" in notices
    assert "columns 'outcome', 'score' are enough to know the dependent variable" in notices


def test_the_choice_is_recorded_with_its_reason(mixed: Any) -> None:
    chosen(mixed, "mixed", "y", excluded="list")
    columns = {one["name"]: one for one in mixed.value("SELECT encoding FROM p_summary")["columns"]}
    assert columns["shop"]["why"] == "83 categories"
    assert "700 values" in columns["number"]["why"]


def test_few_rows_or_no_usable_target_are_encoded_by_their_distribution(mixed: Any) -> None:
    found, notices = chosen(mixed, "tails", "y", excluded="id")
    assert found == {"up": "log1p", "both": "robust", "even": "standardize"}
    assert "up: log1p (a heavy tail of numbers from 0)" in notices


def test_rows_of_another_day_are_encoded_as_was_chosen(mixed: Any) -> None:
    first, _ = chosen(mixed, "mixed", "y", excluded="list, name")
    mixed.fetch(
        "DROP TABLE IF EXISTS kept, kept_summary, kept_encoding; ALTER TABLE p RENAME TO kept"
    )
    mixed.fetch(
        "ALTER TABLE p_summary RENAME TO kept_summary; CREATE VIEW few AS SELECT * FROM mixed WHERE id < 50"
    )
    mixed.fetch(
        "SELECT cerebro_pack_columns('few', 'p', 'y', NULL, numbers := 'auto', categories := 'auto', "
        "encoding_of := 'kept', replace := true)"
    )
    columns = mixed.value("SELECT input_columns FROM p_summary")
    assert {piece["column"]: piece["encoding"] for each in columns for piece in each} == first
