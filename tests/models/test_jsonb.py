"""Architectures given as jsonb, as json and as text."""

from __future__ import annotations

import psycopg2
import pytest

from tests.models.conftest import Database, Network


@pytest.mark.parametrize("kind", ["json", "jsonb", "text"])
def test_an_architecture_of_any_of_these_types_is_loaded(
    db: Database, network: Network, kind: str
) -> None:
    model = network((4,), (2, "softmax"))
    first = db.value("SELECT cerebro_load_model('nets', %s)", (model,))  # a literal of no type
    assert db.value(f"SELECT cerebro_load_model('nets', %s::{kind}, NULL, 'n')", (model,)) > first
    assert db.value("SELECT count(DISTINCT model_facts::text) FROM nets") == 1
    for nothing in ("NULL", f"NULL::{kind}"):
        with pytest.raises(psycopg2.Error, match="model_arch: got NULL"):
            db.fetch(f"SELECT cerebro_load_model('nets', {nothing})")
    with pytest.raises(psycopg2.Error) as raised:
        db.fetch("SELECT cerebro_load_model('nets', '{no json')")
    assert raised.value.pgcode == "22023"
    assert raised.value.diag.message_hint


def test_a_table_with_jsonb_columns_is_used(db: Database, network: Network) -> None:
    for statement in (
        "CREATE TABLE binary_nets (model_id integer, model_arch jsonb, model_weights bytea, "
        "name text, description text, model_facts jsonb)",
        "CREATE TABLE points AS SELECT i AS id, ARRAY[i, 1, 2, 3]::real[] AS x, i %% 2 AS y "
        "FROM generate_series(1, 40) i",
        "SELECT cerebro_load_model('binary_nets', %(net)s::jsonb)",
        "INSERT INTO binary_nets (model_id, model_arch) VALUES (7, %(net)s)",
        "SELECT cerebro_pack('points', 'points_packed', 'y', 'x', num_partitions := 1)",
        "SELECT cerebro_generate_configs('binary_nets', 'points_configs', ARRAY[1, 7], "
        "$${'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'optimizer': "
        "['SGD']}]}$$, $${'batch_size': [20]}$$)",
        "SELECT cerebro_fit_multiple('points_packed', 'points_out', 'points_configs', 1)",
        "UPDATE binary_nets SET model_weights = o.model_weights FROM points_out o "
        "WHERE o.mst_key = 1",
        "SELECT cerebro_predict_byom('binary_nets', 7, 'points', 'id', 'x', 'told')",
        "SELECT cerebro_delete_model('binary_nets', 7)",
    ):
        db.fetch(statement, {"net": network((4,), (2, "softmax"))})
    assert db.value("SELECT count(*) FROM told") == 80
