"""A plain member of cerebro_user does all of it, and nothing that the tables do not allow it."""

from __future__ import annotations

import itertools
import os

import psycopg2
import pytest
from psycopg2 import errors

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def clerk(db, administrator):
    name = f"clerk_{os.getpid()}_{next(_numbers)}"
    administrator.run(f"CREATE ROLE {name} LOGIN IN ROLE cerebro_user")
    db.fetch(f"CREATE SCHEMA own AUTHORIZATION {name}; CREATE TABLE secret (model_id int)")
    connection = psycopg2.connect(db.dsn, user=name)
    connection.autocommit = True
    clerk = type(db)(db.dsn, connection)
    clerk.fetch("SET search_path = own, public, cerebro")
    yield clerk
    connection.close()
    db.fetch(f"DROP OWNED BY {name} CASCADE")
    administrator.run(f"DROP ROLE {name}")


def test_from_model_to_prediction(clerk, network):
    clerk.fetch(
        "CREATE TABLE rows AS SELECT i AS id, ARRAY[sin(i), cos(i)]::real[] AS x, i % 2 AS y "
        "FROM generate_series(1, 40) i"
    )
    clerk.fetch("SELECT cerebro_load_model('m', %s)", (network((2,), (2, "softmax")),))
    clerk.fetch(
        "SELECT cerebro_load_configs('m', 'c', ARRAY[1], ARRAY['loss=''mse'',optimizer=''SGD()'''],"
        " ARRAY['batch_size=8'])"
    )
    clerk.fetch("SELECT cerebro_pack('rows', 'p', 'y', 'x', num_partitions := 2)")
    clerk.fetch("SELECT cerebro_fit_multiple('p', 'out', 'c', 1, num_workers := 1)")
    clerk.fetch("SELECT cerebro_evaluate('out', 'p', 'scores')")
    clerk.fetch("SELECT cerebro_predict('out', 'rows', 'id', 'x', 'answers', 'response')")
    assert clerk.value("SELECT count(*) FROM own.answers") == 40
    assert clerk.value("SELECT count(*) FROM own.scores") == 1


def test_tables_of_others(clerk, db, network):
    # Older servers let everybody create there.
    db.fetch("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    db.fetch(
        "CREATE TABLE theirs AS SELECT 1 AS model_id, '{}'::json AS model_arch, "
        "''::bytea AS model_weights, ''::text AS name, ''::text AS description"
    )
    calls = {
        "cerebro_load_model('theirs', %(json)s)": "theirs",
        "cerebro_load_model('public.fresh', %(json)s)": "schema",
        "cerebro_load_configs('theirs', 'x', ARRAY[1], ARRAY['loss=''mse'',optimizer=''SGD()'''], "
        "ARRAY['epochs=1'])": "theirs",
        "cerebro_evaluate('out', 'p', 'public.fresh')": "schema",
        "cerebro_predict('out', 'rows', 'id', 'x', 'public.fresh')": "schema",
    }
    for call, message in calls.items():
        with pytest.raises(errors.InsufficientPrivilege, match=message):
            clerk.fetch(f"SELECT {call}", {"json": network((2,), (2, "softmax"))})
