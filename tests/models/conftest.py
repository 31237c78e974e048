"""A database for each file of tests, and tiny models as JSON."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from servers import connected, drop_database, make_database

_numbers = itertools.count(1)


@dataclass
class Database:
    """A database with Cerebro-DB and one autocommit connection to it."""

    dsn: str
    connection: Any

    def fetch(self, query: str, values: Any = None) -> list[tuple[Any, ...]]:
        """The rows of a statement, if it has any."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, values: Any = None) -> Any:
        """The only value of a query."""
        ((value,),) = self.fetch(query, values)
        return value

    def tables(self) -> list[str]:
        """All tables and views of users, but the view by which a role is known as an owner."""
        rows = self.fetch(
            "SELECT n.nspname || '.' || relname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = relnamespace WHERE relkind IN ('r', 'v', 'm', 'p') AND nspname NOT IN "
            "('cerebro', 'pg_catalog', 'information_schema', 'pg_toast') "
            "AND NOT (nspname = 'cerebro_states' AND relkind = 'v') ORDER BY 1"
        )
        return [row[0] for row in rows]

    def notices(self) -> str:
        """What was told since the last time."""
        told = "".join(self.connection.notices)
        self.connection.notices.clear()
        return told


@pytest.fixture(scope="module")
def db(cluster: Any, administrator: Any, template: str) -> Iterator[Database]:
    """The database of a file of tests."""
    with _made(cluster, administrator, template) as database:
        yield database


@contextmanager
def _made(cluster: Any, administrator: Any, template: str) -> Iterator[Database]:
    name = f"models_{os.getpid()}_{next(_numbers)}"
    make_database(administrator, name, template)
    administrator.run(f"ALTER DATABASE {name} SET search_path = public, cerebro")
    connection = connected(cluster.dsn(name))
    try:
        yield Database(cluster.dsn(name), connection)
    finally:
        connection.close()
        drop_database(administrator, name)


def layer(class_name: str, **config: Any) -> dict[str, Any]:
    """A layer as Keras writes it."""
    return {
        "module": "keras.layers",
        "class_name": class_name,
        "config": config,
        "registered_name": None,
    }


Network = Callable[..., str]


@pytest.fixture(scope="session")
def network() -> Network:
    """Makes the JSON of a sequential model: input shape, layers, or units and activations."""

    def make(shape: Sequence[int], *layers: tuple[int, str] | dict[str, Any]) -> str:
        listed = [layer("InputLayer", batch_shape=[None, *shape], dtype="float32", name="rows")]
        for number, given in enumerate(layers):
            if isinstance(given, tuple):
                given = layer("Dense", units=given[0], activation=given[1], name=f"dense_{number}")
            listed.append(given)
        return json.dumps(
            {
                "module": "keras",
                "class_name": "Sequential",
                "config": {"name": "tiny", "trainable": True, "layers": listed},
                "registered_name": None,
            }
        )

    return make


COMPILE = {
    "flowers": "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',"
    "metrics=['accuracy','AUC']",
    "halves": "loss='binary_crossentropy',optimizer='Adam(lr=0.05)',metrics=['accuracy']",
    "logits": "loss='SparseCategoricalCrossentropy(from_logits=True)',optimizer='SGD()',"
    "metrics=['accuracy']",
    "sums": "loss='mse',optimizer='Adam(lr=0.01)',metrics=['mae']",
    "pairs": "loss='mse',optimizer='SGD(lr=0.001)'",
    "grids": "loss='mse',optimizer='SGD(lr=0.001)'",
}


@pytest.fixture(scope="session")
def trained(
    cluster: Any, administrator: Any, template: str, network: Network
) -> Iterator[Database]:
    """Tables of trained models, named like the keys of COMPILE; ``flowers`` has two models.

    One database and one warm session for all files that use trained models.
    """
    with _made(cluster, administrator, template) as database:
        _train(database, network)
        yield database


def _train(db: Database, network: Network) -> None:
    db.fetch(
        "CREATE TABLE rows AS SELECT i AS id, 'row ' || i AS name, "
        "ARRAY[sin(i), cos(i), sin(3 * i), cos(7 * i)]::real[] AS x, "
        "(ARRAY['iris', 'ro''se', NULL])[1 + i %% 3] AS flower, i %% 2 = 0 AS half, "
        "10 * sin(i) AS sum, ARRAY[sin(i), cos(i)] AS pair, "
        "ARRAY[[1, i, 3], [4, 5, i]]::real[] AS grid FROM generate_series(1, 120) i",
        (),
    )
    shapes = {
        "flowers": ("flower", (5, "relu"), (3, "softmax")),
        "halves": ("half", (1, "sigmoid")),
        "logits": ("flower", (3, "linear")),
        "sums": ("sum", (4, "tanh"), (1, "linear")),
        "pairs": ("pair", (2, "linear")),
        "grids": ("grid", (6, "linear"), layer("Reshape", target_shape=[2, 3], name="grid")),
    }
    for model_id, (name, (target, *layers)) in enumerate(shapes.items(), 1):
        values = {
            "name": name,
            "json": network((4,), *layers),
            "id": model_id,
            "target": target,
            "compile": COMPILE[name],
            "fit": ["batch_size=8", "batch_size=16"] if name == "flowers" else ["batch_size=8"],
        }
        for statement in (
            "cerebro_load_model('library', %(json)s)",
            "cerebro_load_configs('library', %(name)s || '_configs', ARRAY[%(id)s], "
            "ARRAY[%(compile)s], %(fit)s)",
            "cerebro_pack('rows', %(name)s || '_packed', %(target)s, 'x', "
            "num_partitions := 2, normalizing_const := 2.0)",
            "cerebro_fit_multiple(%(name)s || '_packed', %(name)s, %(name)s || '_configs', 2, "
            "num_workers := 1)",
        ):
            db.fetch(f"SELECT {statement}", values)
    db.notices()


COUNT = 400
KINDS = ("x", "y", "z")
OF_KIND = dict(zip(KINDS, (2.0, 0.0, -2.0), strict=True))


@pytest.fixture(scope="session")
def lines(cluster: Any, administrator: Any, template: str, network: Network) -> Iterator[Database]:
    """Rows whose target is 3 a - b + the number of a kind, and a linear net that has learnt exactly that.

    Table ``lines`` with its packed table, the models ``line`` and ``model:line``; column c has no weight.
    """
    with _made(cluster, administrator, template) as database:
        _make_lines(database, network)
        yield database


def _make_lines(db: Database, network: Network) -> None:
    db.fetch(
        "CREATE TABLE lines AS SELECT g.*, 3 * a - b + CASE kind WHEN 'x' THEN 2 WHEN 'z' THEN -2 ELSE 0 END AS y "
        "FROM (SELECT i AS id, sin(i) * 2 AS a, cos(7 * i) AS b, sin(11 * i) AS c, "
        f"(ARRAY['x', 'y', 'z'])[1 + i * i %% 7 %% 3] AS kind FROM generate_series(1, {COUNT}) i) g",
        (),
    )
    db.fetch(
        "SELECT cerebro_pack_columns('lines', 'lines_packed', 'y', 'a, b, c, kind', num_partitions := 2)"
    )
    means = db.fetch("SELECT avg(a), stddev_pop(a), avg(b), stddev_pop(b) FROM lines")[0]
    mean_a, scale_a, mean_b, scale_b = map(float, means)
    weights = [3 * scale_a, -scale_b, 0.0, *OF_KIND.values(), 3 * mean_a - mean_b]
    fitted(db, "line", network((6,), (1, "linear")), weights, "loss='mse',metrics=['mae']")
    db.fetch("SELECT cerebro_register_model((SELECT run_id FROM line_summary), 1, 'line')")


def fitted(
    db: Any, name: str, net: str, weights: Any, compile_params: str, packed: str = "lines_packed"
) -> None:
    """A run whose only model has these weights: it is trained at a rate of 0."""
    data = np.asarray(weights, "<f4").tobytes()
    db.fetch("SELECT cerebro_load_model(%s, %s::json, %s)", (f"{name}_nets", net, data))
    db.fetch(
        "SELECT cerebro_fit(%s, %s, %s, 1, %s, 'batch_size=400', 1)",
        (packed, name, f"{name}_nets", f"{compile_params},optimizer='SGD(lr=0.0)'"),
    )
