"""One-hot arrays are classes: packed as their places, trained, validated and predicted as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg2 import errors

from tests.models.conftest import Network

Rows = Callable[[str, str], list[tuple[bytes, ...]]]


@pytest.fixture(scope="module")
def leaves(db: Any, network: Network) -> Any:
    """60 rows of three classes, told in several ways, and a model of each of two losses."""
    db.fetch(
        "CREATE TABLE leaves AS SELECT i AS id, ARRAY[i % 3 = 0, i % 3 = 1, i % 3 = 2]::int[] AS kind, "
        "i % 3 AS place, (i % 3)::text AS digit, (ARRAY['ash', 'elm', 'oak'])[1 + i % 3] AS label, "
        "ARRAY[(i % 3 = 0)::int + sin(i) / 9, (i % 3 = 1)::int + cos(i) / 9]::real[] AS x "
        "FROM generate_series(1, 60) i"
    )
    db.fetch("SELECT cerebro_pack('leaves', 'hot', 'kind', 'x', num_partitions := 2)")
    db.fetch("SELECT cerebro_pack('leaves', 'labels', 'label', 'x', num_partitions := 2)")
    db.fetch("SELECT cerebro_load_model('nets', %s)", [network((2,), (3, "softmax"))])
    return db


@pytest.fixture
def packed(leaves: Any, has_segments: bool) -> Rows:
    """Features and targets of the rows of a packed table, in its order."""

    def rows(table: str, column: str) -> list[tuple[bytes, ...]]:
        arrays = leaves.fetch(
            f"SELECT x, x_shape[1], {column}, {column}_shape[1] FROM {table} ORDER BY partition_key, buffer_id"
        )
        found = [row for x, m, y, n in arrays for row in zip(split(x, m), split(y, n), strict=True)]
        return sorted(found) if has_segments else found  # rows come from segments in any order

    return rows


def split(array: memoryview, rows: int) -> Iterator[bytes]:
    """The rows of an array of numbers."""
    return (
        bytes(array[at : at + len(array) // rows])
        for at in range(0, len(array), len(array) // rows)
    )


@pytest.mark.parametrize("kind", ["smallint", "bigint", "integer"])
def test_the_place_of_the_one_is_the_class(leaves: Any, packed: Rows, kind: str) -> None:
    leaves.fetch(
        "DROP VIEW IF EXISTS cast_leaves; "
        f"CREATE VIEW cast_leaves AS SELECT x, place, kind::{kind}[] FROM leaves"
    )
    for target in ("place", "kind"):
        leaves.fetch(
            "SELECT cerebro_pack('cast_leaves', %s, %s, 'x', num_partitions := 2, replace := true)",
            [f"by_{target}", target],
        )
    assert packed("by_kind", "kind") == packed("by_place", "place")
    told = (
        "SELECT target_kinds[1], num_classes[1], classes_found[1], {0}_class_values, "
        "target_shapes::text FROM by_{0}_summary"
    )
    assert leaves.fetch(told.format("kind")) == leaves.fetch(told.format("place"))
    assert leaves.value("SELECT dependent_vartype[1] FROM by_kind_summary") == f"{kind}[]"


def test_validation_tables_tell_them_in_any_way(leaves: Any, packed: Rows) -> None:
    for name, training, column in (
        ("of_arrays", "hot", "kind"),
        ("of_places", "hot", "place"),
        ("of_texts", "hot", "digit"),
        ("of_labels", "labels", "kind"),
    ):
        leaves.fetch(
            "SELECT cerebro_pack_validation('leaves', %s, %s, 'x', %s)", [name, column, training]
        )
    stored = {
        name: packed(name, column)
        for name, column in (("of_arrays", "kind"), ("of_places", "place"), ("of_texts", "digit"))
    }
    assert stored["of_arrays"] == stored["of_places"] == stored["of_texts"]
    assert packed("of_labels", "kind") == stored["of_arrays"]
    values = leaves.fetch(
        "SELECT a.kind_class_values, b.place_class_values, c.digit_class_values, d.kind_class_values "
        "FROM of_arrays_summary a, of_places_summary b, of_texts_summary c, of_labels_summary d"
    )
    assert values == [([0, 1, 2], [0, 1, 2], [0, 1, 2], ["ash", "elm", "oak"])]


def fit(db: Any, source: str, validation: str) -> None:
    db.fetch(
        f"SELECT cerebro_fit('{source}', 'fitted', 'nets', 1, "
        "'loss=''categorical_crossentropy'',optimizer=''Adam(lr=0.1)'',metrics=[''accuracy'']', "
        f"'batch_size=5', 8, validation_table := '{validation}', replace := true)"
    )


def test_models_are_trained_and_predict_with_defaults(leaves: Any) -> None:
    leaves.fetch("SELECT cerebro_pack_validation('leaves', 'v1', 'digit', 'x', 'hot')")
    leaves.fetch("SELECT cerebro_pack_validation('leaves', 'v2', 'kind', 'x', 'labels')")
    weights = []
    for source, validation, column in (("hot", "v1", "place::text"), ("labels", "v2", "label")):
        fit(leaves, source, validation)
        weights.append(leaves.value("SELECT model_weights FROM fitted"))
        leaves.fetch("SELECT cerebro_evaluate('fitted', %s, 'evaluated')", [validation])
        assert leaves.value("SELECT metric FROM evaluated") == 1.0
        leaves.fetch("SELECT cerebro_predict('fitted', 'leaves', 'id', 'x', 'told')")
        right = f"SELECT count(*) FROM told t JOIN leaves l USING (id) WHERE t.rank = 1 AND t.class_value = l.{column}"
        assert leaves.value(right) == 60
        leaves.fetch("DROP TABLE evaluated, told")
    assert weights[0] == weights[1]


def test_what_is_not_one_hot_in_every_row_is_numbers(leaves: Any) -> None:
    for change in ("kind || 0 = 7", "'{1,1,0}'", "'{0,0,0}'", "'{0,2,0}'"):
        changed = (
            "ARRAY[id, 1, 2]" if "=" in change else f"CASE id WHEN 9 THEN {change} ELSE kind END"
        )
        leaves.fetch(
            f"DROP VIEW IF EXISTS several; CREATE VIEW several AS SELECT x, {changed} AS y FROM leaves"
        )
        leaves.fetch("SELECT cerebro_pack('several', 'numbers', 'y', 'x', replace := true)")
        query = "SELECT target_kinds[1], num_classes[1], target_shapes::text FROM numbers_summary"
        assert leaves.fetch(query) == [("float", None, "[[3]]")]
    leaves.fetch(
        "DROP VIEW several; CREATE VIEW several AS SELECT x, kind::real[] AS y FROM leaves"
    )
    leaves.fetch("SELECT cerebro_pack('several', 'numbers', 'y', 'x', replace := true)")
    assert leaves.value("SELECT target_kinds[1] FROM numbers_summary") == "float"


REFUSED = {
    "two ones": (
        "CASE id WHEN 3 THEN '{1,1,0}' ELSE kind END",
        "is not one-hot; allowed: arrays of 3 numbers",
    ),
    "longer": ("kind || 0", "is not one-hot; allowed: arrays of 3 numbers"),
    "null": ("CASE WHEN id <> 3 THEN kind END", "'y' is NULL; allowed: no NULL"),
    "a place that is none": (
        "CASE id WHEN 3 THEN 3 ELSE place END",
        "holds the class '3'; allowed: {0,1,2}",
    ),
    "a label": ("label", "holds the class '(ash|elm|oak)'; allowed: {0,1,2}"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_of_no_class_are_refused(leaves: Any, case: str) -> None:
    expression, message = REFUSED[case]
    leaves.fetch(
        f"DROP VIEW IF EXISTS odd; CREATE VIEW odd AS SELECT x, {expression} AS y FROM leaves"
    )
    with pytest.raises(errors.DataException, match=message):
        leaves.fetch("SELECT cerebro_pack_validation('odd', 'odd_packed', 'y', 'x', 'hot')")


def test_the_number_of_classes(leaves: Any) -> None:
    leaves.fetch("SELECT cerebro_pack('leaves', 'five', 'kind', 'x', num_classes := 5)")
    assert leaves.fetch("SELECT num_classes[1], kind_class_values FROM five_summary") == [
        (5, [0, 1, 2, None, None])
    ]
    leaves.fetch("SELECT cerebro_pack_validation('leaves', 'five_more', 'kind', 'x', 'five')")
    assert leaves.value("SELECT num_classes[1] FROM five_more_summary") == 5
    with pytest.raises(
        errors.InvalidParameterValue, match="num_classes: got 2; allowed: at least 3"
    ):
        leaves.fetch("SELECT cerebro_pack('leaves', 'two', 'kind', 'x', num_classes := 2)")


def test_one_of_several_targets(leaves: Any, packed: Rows) -> None:
    leaves.fetch(
        "SELECT cerebro_pack('leaves', 'two_targets', 'label,kind', 'x', num_partitions := 2)"
    )
    assert leaves.fetch(
        "SELECT target_kinds, num_classes, kind_class_values FROM two_targets_summary"
    ) == [(["class", "class"], [3, 3], [0, 1, 2])]
    assert packed("two_targets", "kind") == packed("hot", "kind")
    leaves.fetch(
        "SELECT cerebro_pack_validation('leaves', 'two_more', 'kind,digit', 'x', 'two_targets')"
    )
    values = "SELECT kind_class_values, digit_class_values FROM two_more_summary"
    assert leaves.fetch(values) == [(["ash", "elm", "oak"], [0, 1, 2])]
