"""cerebro_predict_byom: models that were trained elsewhere, with MADlib's names and positions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from psycopg2 import errors

FIELDS = "id, class_value, prob, rank"


@pytest.fixture(scope="module")
def library(trained, network):
    """Architectures with the weights of trained models: flowers 1, halves 2, sums 3, pairs 4."""
    trained.fetch("DROP TABLE IF EXISTS brought")
    for name, key in (("flowers", 2), ("halves", 1), ("sums", 1), ("pairs", 1), ("grids", 1)):
        trained.fetch(
            "SELECT cerebro_load_model('brought', "
            f"(SELECT model_arch FROM {name} WHERE mst_key = {key}), "
            f"(SELECT model_weights FROM {name} WHERE mst_key = {key}))"
        )
    trained.fetch("SELECT cerebro_load_model('brought', %s)", (network((4,), (2, "softmax")),))
    trained.fetch(
        "CREATE TABLE foreign_models AS SELECT model_id, model_arch, model_weights FROM brought"
    )
    return trained


def asked(db, arguments, output="brought_answers", fields=FIELDS):
    db.fetch(f"DROP TABLE IF EXISTS {output}")
    db.fetch(f"SELECT cerebro_predict_byom({arguments})")
    return db.fetch(f"SELECT {fields} FROM {output} ORDER BY 1, 2, 3")


def of_run(db, arguments, fields=FIELDS):
    db.fetch("DROP TABLE IF EXISTS run_answers")
    db.fetch(f"SELECT cerebro_predict({arguments})")
    return db.fetch(f"SELECT {fields} FROM run_answers ORDER BY 1, 2, 3")


@pytest.mark.parametrize("table", ["brought", "foreign_models"])
def test_the_same_as_the_run_it_came_from(library, table):
    wanted = of_run(library, "'flowers', 'rows', 'id', 'x', 'run_answers', 'prob', false, 2")
    classes = "ARRAY['iris', 'ro''se', NULL]"
    found = asked(
        library,
        f"'{table}', 1, 'rows', 'id', 'x', 'brought_answers', 'prob', false, {classes}, 2.0",
    )
    assert found == wanted
    assert library.value("SELECT class_name FROM brought_answers LIMIT 1") == "dependent_var"


def test_a_list_of_the_classes_of_each_target(library):
    plain = asked(
        library,
        "'brought', 1, 'rows', 'id', 'x', 'brought_answers', 1, false, ARRAY['a', 'b', 'c']",
    )
    nested = asked(
        library,
        "'brought', 1, 'rows', 'id', 'x', 'brought_answers', 'response', NULL, "
        "ARRAY[ARRAY['a', 'b', 'c']], NULL, 1, 1",
    )
    assert plain == nested
    assert {row[1] for row in plain} <= {"a", "b", "c"}


def test_classes_are_numbers_where_none_are_given(library):
    rows = asked(library, "'brought', 1, 'rows', 'id', 'x', 'brought_answers'")
    assert {row[1] for row in rows} == {"0", "1", "2"}
    assert len(rows) == 360


def test_one_output_of_two_classes(library):
    wanted = of_run(library, "'halves', 'rows', 'id', 'x', 'run_answers'")
    found = asked(
        library,
        "'brought', 2, 'rows', 'id', 'x', 'brought_answers', class_values := "
        "ARRAY['false', 'true'], normalizing_const := 2.0",
    )
    assert found == wanted


@pytest.mark.parametrize(("name", "model_id"), [("sums", 3), ("pairs", 4)])
def test_values(library, name, model_id):
    if name == "pairs":  # without classes, several outputs are those of classes
        rows = asked(library, "'brought', 4, 'rows', 'id', 'x', 'brought_answers', 'response'")
        assert {row[1] for row in rows} <= {"0", "1"}
        return
    wanted = of_run(
        library, f"'{name}', 'rows', 'id', 'x', 'run_answers', 'response'", "id, estimated, 0"
    )
    found = asked(
        library,
        f"'brought', {model_id}, 'rows', 'id', 'x', 'brought_answers', 'response', "
        "normalizing_const := 2.0",
        fields="id, estimated, 0",
    )
    assert found == wanted


def test_a_packed_table(library):
    rows = asked(
        library,
        "'brought', 1, 'flowers_packed', NULL, NULL, 'brought_answers', 'response', "
        "normalizing_const := 2.0",
        fields="partition_key, buffer_id, row_number, class_value",
    )
    assert len(rows) == len({row[:3] for row in rows}) == 120


START = "'rows', 'id', 'x', 'o'"
BAD = {
    f"NULL, 1, {START}": (errors.InvalidParameterValue, "model_arch_table: got NULL"),
    f"'nope', 1, {START}": (errors.UndefinedTable, "model_arch_table: got 'nope'"),
    f"'rows', 1, {START}": (errors.WrongObjectType, "no column model_id"),
    f"'brought', NULL, {START}": (errors.InvalidParameterValue, "model_id: got NULL"),
    f"'brought', 99, {START}": (
        errors.InvalidParameterValue,
        "model_id: got 99; allowed: those that",
    ),
    f"'brought', 6, {START}": (errors.InvalidParameterValue, "got 6, which has no model_weights"),
    f"'brought', 1, {START}, 'best'": (errors.InvalidParameterValue, "pred_type: got 'best'"),
    f"'brought', 3, {START}": (errors.InvalidParameterValue, "pred_type: got 'prob'"),
    f"'brought', 1, {START}, 'prob', false, ARRAY['a', 'b']": (
        errors.InvalidParameterValue,
        "class_values: got 2 values; allowed: 3",
    ),
    f"'brought', 2, {START}, 'prob', false, ARRAY['a']": (
        errors.InvalidParameterValue,
        "class_values: got 1 values; allowed: 2",
    ),
    f"'brought', 5, {START}, 'response', false, ARRAY['a']": (
        errors.InvalidParameterValue,
        "class_values: got 1 values; allowed: NULL",
    ),
    f"'brought', 1, {START}, 'prob', false, ARRAY['a', 'a', 'b']": (
        errors.InvalidParameterValue,
        "got 'a' twice",
    ),
    f"'brought', 1, {START}, 'prob', false, ARRAY[['a', 'b'], ['c', 'd']]": (
        errors.WrongObjectType,
        "several lists",
    ),
    f"'brought', 1, {START}, normalizing_const := 0": (
        errors.InvalidParameterValue,
        "normalizing_const: got 0.0",
    ),
    f"'brought', 1, {START}, dependent_count := 2": (
        errors.InvalidParameterValue,
        "dependent_count: got 2",
    ),
    "'brought', 1, 'rows', 'id', 'pair', 'o'": (errors.DataException, r"shape \(2,\)"),
    "'brought', 1, 'rows', 'id', 'x', 'rows'": (errors.DuplicateTable, "public.rows exists"),
    "'brought', 1, 'rows', 'nope', 'x', 'o'": (errors.UndefinedColumn, "id_col: got 'nope'"),
    "'forged', 1, 'rows', 'id', 'pair', 'o'": (
        errors.InvalidParameterValue,
        r"rows of shape \(2,\); allowed: \(4,\)",
    ),
    "'short', 1, 'rows', 'id', 'x', 'o'": (errors.DataError, "model_weights of 4 bytes"),
}


@pytest.fixture(scope="module")
def strange(library):
    library.fetch(
        "CREATE TABLE short AS SELECT model_id, model_arch, '\\x00000000'::bytea AS model_weights "
        "FROM brought; CREATE TABLE forged AS TABLE brought"
    )
    for model_id, facts in library.fetch("SELECT model_id, model_facts FROM forged"):
        changed = json.dumps(facts | {"input_shapes": [[2]]})
        library.fetch("UPDATE forged SET model_facts = %s WHERE model_id = %s", (changed, model_id))
    return library


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls(strange, arguments):
    kind, message = BAD[arguments]
    before = strange.tables()
    with pytest.raises(kind) as caught:
        strange.fetch(f"SELECT cerebro_predict_byom({arguments})")
    assert caught.match(f"(?s){message}")
    assert strange.tables() == before


@pytest.fixture(scope="module")
def linear(library, network):
    """Models with weights of which the outputs are no probabilities: of three classes, and of one output."""
    weights = {
        7: [[1, -1, 0], [0, 2, 1], [0, 0, 0], [1, 0, -1]],
        8: [[3], [-2], [0], [1]],
    }
    for rows in weights.values():
        units = len(rows[0])
        data = np.array([*np.ravel(rows), *[0.5] * units], np.float32).tobytes()
        values = (network((4,), (units, "linear")), data)
        library.fetch("SELECT cerebro_load_model('brought', %s, %s)", values)
    return library, {key: np.array(rows) for key, rows in weights.items()}


def outputs_of(db, kernel):
    rows = np.array([row[0] for row in db.fetch("SELECT x FROM rows ORDER BY id")])
    return rows @ kernel + 0.5


CALL = "'rows', 'id', 'x', 'brought_answers'"


@pytest.mark.parametrize("wanted", ["'prob'", "2", "0.5"])
def test_outputs_that_are_no_probabilities_are_refused(linear, wanted):
    db, _ = linear
    db.fetch("DROP TABLE IF EXISTS brought_answers")
    with pytest.raises(errors.DataException) as caught:
        db.fetch(f"SELECT cerebro_predict_byom('brought', 7, {CALL}, {wanted})")
    assert caught.match("no probability; allowed: numbers from 0 to 1 whose sum is 1")
    assert "from_logits := true" in caught.value.diag.message_hint
    assert "pred_type := 'response'" in caught.value.diag.message_hint


def test_the_class_of_any_outputs(linear):
    db, kernels = linear
    rows = asked(db, f"'brought', 7, {CALL}, 'response'")
    assert [int(row[1]) for row in rows] == outputs_of(db, kernels[7]).argmax(axis=1).tolist()
    assert all(math.isnan(row[2]) for row in rows)


def test_logits(linear):
    db, kernels = linear
    rows = asked(db, f"'brought', 7, {CALL}, from_logits := true")
    found = np.array([row[2] for row in rows]).reshape(-1, 3)
    powers = np.exp(outputs_of(db, kernels[7]))
    assert found == pytest.approx(powers / powers.sum(axis=1, keepdims=True), abs=1e-6)


def test_logits_of_one_output(linear):
    db, kernels = linear
    classes = "class_values := ARRAY['no', 'yes']"
    logits = outputs_of(db, kernels[8])[:, 0]
    for wanted in ("'prob'", "'response'"):
        with pytest.raises(errors.DataException, match="allowed: a number from 0 to 1"):
            asked(db, f"'brought', 8, {CALL}, {wanted}, {classes}")
    rows = asked(db, f"'brought', 8, {CALL}, 'response', {classes}, from_logits := true")
    assert [row[1] == "yes" for row in rows] == (logits > 0).tolist()
    sure = 1 / (1 + np.exp(-np.abs(logits)))
    assert [row[2] for row in rows] == pytest.approx(sure, abs=1e-6)
