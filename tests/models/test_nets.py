"""Models that nobody has to write: cerebro_mlp, nets by name, shapes that a packed table tells."""

from __future__ import annotations

import pytest
from psycopg2 import errors


@pytest.fixture(scope="module")
def packed(db):
    """Packed tables of rows of numbers, of images, and of numbers to predict."""
    db.fetch(
        "CREATE TABLE plain AS SELECT i AS id, ARRAY[i, 2.0, 3.0]::real[] AS x, i % 4 AS kind,"
        " i::double precision AS amount FROM generate_series(1, 20) AS i;"
        "CREATE TABLE pictures AS SELECT i % 2 AS kind,"
        " array_fill(i::real, ARRAY[28, 28, 1]) AS x FROM generate_series(1, 8) AS i"
    )
    for source, name, target in (
        ("plain", "kinds", "kind"), ("plain", "amounts", "amount"), ("pictures", "images", "kind"),
    ):  # fmt: skip
        db.fetch(f"SELECT cerebro_pack('{source}', '{name}', '{target}', 'x', num_partitions := 2)")
    return db


def loaded(db, call):
    db.fetch("DROP TABLE IF EXISTS nets")
    db.fetch(f"SELECT cerebro_load_model('nets', {call})")
    facts, model = db.fetch("SELECT model_facts, model_arch FROM nets")[0]
    last = model["config"]["layers"][-1]["config"]
    return facts["input_shapes"], facts["output_shapes"], last["activation"]


@pytest.mark.parametrize(
    ("call", "inputs", "outputs", "activation"),
    [
        ("cerebro_mlp(3, ARRAY[8], 4)", [[3]], [[4]], "softmax"),
        ("cerebro_mlp(3, ARRAY[]::int[], 1, dropout := 0.5)", [[3]], [[1]], "linear"),
        ("cerebro_mlp(3, outputs := 4, output_activation := 'tanh')", [[3]], [[4]], "tanh"),
        ("cerebro_mlp(), packed_table := 'kinds'", [[3]], [[4]], "softmax"),
        ("cerebro_mlp(), packed_table := 'amounts'", [[3]], [[1]], "linear"),
        ("cerebro_mlp(), packed_table := 'images'", [[28, 28, 1]], [[2]], "softmax"),
        ("'LeNet5', packed_table := 'images'", [[28, 28, 1]], [[2]], "softmax"),
    ],
)
def test_models_that_fit(packed, call, inputs, outputs, activation):
    assert loaded(packed, call) == (inputs, outputs, activation)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("cerebro_mlp()", "got an open shape"),
        ("cerebro_mlp(4, outputs := 4), packed_table := 'kinds'", "rows of .3. and outputs of 4"),
        ("cerebro_mlp(3, outputs := 5), packed_table := 'kinds'", "rows of .3. and outputs of 4"),
        ("cerebro_mlp(0)", "inputs: got 0"),
        ("cerebro_mlp(3, ARRAY[0])", "hidden: got 0"),
        ("cerebro_mlp(3, ARRAY[1, NULL])", "hidden: got NULL"),
        ("cerebro_mlp(3, activation := 'rleu')", "activation: got 'rleu'"),
        ("cerebro_mlp(3, dropout := 1)", "from 0 below 1"),
        ("'LeNet5'", "allowed with packed_table"),
        ("'LeNet5', packed_table := 'kinds'", "LeNet5 for rows of the shape"),
        ("'LeNet6', packed_table := 'images'", "the name of a net"),
        ("'MobileNetV2', packed_table := 'images'", "MobileNetV2 for rows of the shape"),
    ],
)
def test_what_does_not_fit(packed, call, message):
    with pytest.raises(errors.InvalidParameterValue, match=message):
        loaded(packed, call)


def test_numbers_of_a_packed_table(packed):
    first = packed.fetch(
        "SELECT cerebro_convert_bytea_to_real_array(x), cerebro_convert_bytea_to_integer_array(kind)"
        " FROM kinds ORDER BY partition_key, buffer_id"
    )
    rows = [
        numbers[place : place + 3] for numbers, _ in first for place in range(0, len(numbers), 3)
    ]
    classes = [one for _, numbers in first for one in numbers]
    assert sorted(row[0] for row in rows) == list(range(1, 21))
    assert all(int(row[0]) % 4 == kind for row, kind in zip(rows, classes, strict=True))
    assert packed.value("SELECT cerebro_convert_bytea_to_real_array(NULL)") is None
    with pytest.raises(errors.InvalidParameterValue, match="got 3 bytes"):
        packed.fetch("SELECT cerebro_convert_bytea_to_real_array('abc'::bytea)")
