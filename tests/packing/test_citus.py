"""Distributed and reference tables of Citus: read whole, or refused before work begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from servers import connected, drop_database, make_database

from cerebro_db.install import installer
from cerebro_db.install.script import Script
from tests.security.conftest import ADAM, NET

VARIABLE = "CEREBRO_CITUS_DSN"
pytestmark = [
    pytest.mark.citus,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"needs Citus: {VARIABLE} is not set"),
]
ROWS = "SELECT i AS id, ARRAY[i % 2, sin(i)]::real[] AS x, i % 2 AS y, i::real AS n FROM generate_series(1, 2000) i"


class Client:
    """A session of the superuser in the database of the test."""

    def __init__(self, dsn: str) -> None:
        self.connection = connected(dsn, options="-c search_path=public,cerebro")

    def run(self, query: str, values: Any = None) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, values: Any = None) -> Any:
        """The only value of a query."""
        return self.run(query, values)[0][0]


@pytest.fixture(scope="module")
def citus() -> Iterator[Client]:
    """A database with the same rows in a plain, a distributed and a reference table, and a model."""
    given, name = os.environ[VARIABLE], f"cerebro_citus_{os.getpid()}"
    administrator = Client(given)
    make_database(administrator, name)
    dsn = psycopg2.extensions.make_dsn(given, dbname=name)
    client = Client(dsn)
    address = client.connection.get_dsn_parameters()
    client.run("CREATE EXTENSION citus")
    client.run("SELECT citus_set_coordinator_host('127.0.0.1', %s)", (int(address["port"]),))
    client.run(
        "SELECT citus_set_node_property('127.0.0.1', %s, 'shouldhaveshards', true)",
        (int(address["port"]),),
    )
    installer.install(dsn, Script())
    client.run(f"CREATE TABLE plain AS {ROWS}")
    for kind, spread in (
        ("dist", "create_distributed_table('dist', 'id')"),
        ("ref", "create_reference_table('ref')"),
    ):
        client.run(f"CREATE TABLE {kind} (LIKE plain)")
        client.run(f"SELECT {spread}")
        client.run(f"INSERT INTO {kind} SELECT * FROM plain")
    client.run("CREATE VIEW seen AS SELECT * FROM dist")
    client.run("SELECT cerebro_pack('plain', 'packed', 'y', 'x', num_partitions := 2)")
    client.run("SELECT cerebro_load_model('models', %s)", (NET,))
    client.run("SELECT cerebro_fit('packed', 'out', 'models', 1, %s, 'batch_size=32', 1)", (ADAM,))
    client.run("SELECT cerebro_pack_columns('plain', 'columns', 'y', 'n', num_partitions := 2)")
    client.run("SELECT cerebro_predict('out', 'plain', 'id', 'x', 'expected')")
    yield client
    client.connection.close()
    drop_database(administrator, name)
    administrator.connection.close()


@pytest.mark.parametrize("table", ["dist", "ref", "seen"])
def test_sources_that_are_distributed_are_read_whole(citus: Client, table: str) -> None:
    citus.run(
        "SELECT cerebro_pack(%s, 'o', 'y', 'x', num_partitions := 2, replace := true)", (table,)
    )
    assert citus.value("SELECT sum(num_rows) FROM o") == 2000
    citus.run(
        "SELECT cerebro_pack_validation(%s, 'v', 'y', 'x', 'packed', replace := true)", (table,)
    )
    assert citus.value("SELECT sum(num_rows) FROM v") == 2000
    citus.run("SELECT cerebro_predict('out', %s, 'id', 'x', 'p', replace := true)", (table,))
    assert citus.value("SELECT count(*) FROM p") == 4000
    differ = "SELECT count(*) FROM p FULL JOIN expected e USING (id, class_value) WHERE p.prob IS DISTINCT FROM e.prob"
    assert citus.value(differ) == 0
    citus.run("SELECT cerebro_train_test_split(%s, 's', 0.8, replace := true)", (table,))
    assert citus.run("SELECT count(*), sum(split) FROM s") == [(2000, 1600)]
    citus.run("SELECT cerebro_encode(%s, 'columns', 'e', 'id', replace := true)", (table,))
    assert citus.value("SELECT count(*) FROM e") == 2000


def test_tables_of_ours_that_were_distributed_are_refused(citus: Client) -> None:
    citus.run("SELECT cerebro_pack_validation('plain', 'moved', 'y', 'x', 'packed')")
    citus.run("SELECT create_distributed_table('moved', 'partition_key')")
    for call in (
        "cerebro_evaluate('out', 'moved', 'scores')",
        "cerebro_predict('out', 'moved', NULL, NULL, 'answers')",
        "cerebro_fit('moved', 'other', 'models', 1, 'loss=''mse'',optimizer=''SGD()''', 'batch_size=8', 1)",
    ):
        with pytest.raises(
            psycopg2.Error, match=r"the rows of public\.moved are distributed by Citus"
        ):
            citus.run(f"SELECT {call}")
    citus.run("SELECT create_distributed_table('out_states', 'mst_key')")
    with pytest.raises(psycopg2.Error, match=r"public\.out_states are distributed by Citus"):
        citus.run("SELECT cerebro_predict('out', 'plain', 'id', 'x', 'answers')")
