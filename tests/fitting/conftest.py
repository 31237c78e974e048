"""One database with small packed tables, and one session whose workers stay warm, for all tests of runs."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import psycopg2
import pytest
from gates import Gate
from servers import Server, connected, drop_database, make_database

from tests.conftest import FAILED, Sql

FEATURES, CLASSES, ROWS = 6, 3, 150
ADAM = "loss='sparse_categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
_names = (f"out_{number}" for number in itertools.count(1))
_TABLES = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
# The databases that files share, with the tables that stay in them.
_shared: dict[str, tuple[Sql, frozenset[str]]] = {}


def layer(kind: str, **config: Any) -> dict[str, Any]:
    """A layer as ``model.to_json()`` writes it."""
    return {"module": "keras.layers", "class_name": kind, "config": config}


def model(*layers: dict[str, Any], shape: Sequence[int] = (FEATURES,)) -> str:
    """A sequential model as JSON."""
    first = layer("InputLayer", batch_shape=[None, *shape])
    config = {"name": "net", "layers": [first, *layers]}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": config})


DENSE = layer("Dense", units=8, activation="relu")
SOFTMAX = layer("Dense", units=CLASSES, activation="softmax")
PLAIN = model(DENSE, SOFTMAX)
FULL = model(DENSE, layer("BatchNormalization"), layer("Dropout", rate=0.2), SOFTMAX)


@pytest.fixture(scope="session")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Three classes that a small net can tell apart: ``float32[150, 6]`` and labels."""
    generator = np.random.default_rng(3)
    centres = generator.normal(scale=2.0, size=(CLASSES, FEATURES))
    labels = generator.integers(0, CLASSES, ROWS)
    features = centres[labels] + generator.normal(size=(ROWS, FEATURES))
    return features.astype(np.float32), labels


@pytest.fixture(scope="session")
def bench(cluster: Server, administrator: Any, template: str, blobs: Any) -> Iterator[Any]:
    """A warm session on a database with the tables of these tests."""
    name = f"fitting_{os.getpid()}"
    make_database(administrator, name, template)
    administrator.run(f'ALTER DATABASE {name} SET search_path = "$user", public, cerebro')
    connection = connected(cluster.dsn(name))
    sql = Sql(connection, cluster.dsn(name))
    _make_tables(sql, blobs)
    _shared[name] = (sql, frozenset(sql.column(_TABLES)))
    yield sql
    del _shared[name]
    connection.close()
    drop_database(administrator, name)


@pytest.fixture(scope="module", autouse=True)
def tables_of_the_file() -> Iterator[None]:
    """Tables that a file makes end with it: files share the database, and may use the same names."""
    yield
    for sql, kept in _shared.values():
        made = [name for name in sql.column(_TABLES) if name not in kept]
        if made:
            sql.run(f"SET lock_timeout = '60s'; DROP TABLE IF EXISTS {', '.join(made)} CASCADE")
            sql.run("RESET lock_timeout")


@pytest.fixture(autouse=True)
def nothing_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run that a failed test has left would take the processors from the tests that follow."""
    yield
    if "bench" in request.fixturenames:
        request.getfixturevalue("bench").run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'active' "
            "AND datname = current_database() AND query ~ '^SELECT cerebro_(fit|resume)'"
        )


@pytest.fixture(scope="module")
def gate_of_the_file(bench: Any, has_segments: bool) -> Iterator[Gate]:
    """A gate for all tests of a file."""
    made = Gate(bench.dsn, works=not has_segments)
    yield made
    made.remove()


@pytest.fixture
def gate(gate_of_the_file: Gate) -> Iterator[Gate]:
    """A gate before the commit of hops, which is open before and after the test."""
    yield gate_of_the_file
    gate_of_the_file.open()


TABLES_OF_STATES = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relkind = 'r' AND n.nspname = 'cerebro_states' ORDER BY 1"
)


@pytest.fixture(autouse=True)
def no_states_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """States of a run that can go on stay until it is dropped: a test drops the runs that it stops.

    Tests of other files share the database, and would find them.
    """
    yield
    if "bench" not in request.fixturenames:
        return
    bench = request.getfixturevalue("bench")
    if request.config.stash.get(FAILED, False):
        with suppress(psycopg2.Error):  # it may have broken the session
            bench.run("SELECT cerebro_vacuum('0')")
    else:
        left = bench.fetch(TABLES_OF_STATES)
        if left:
            bench.run("SELECT cerebro_vacuum('0')")
        assert left == []


def _make_tables(sql: Any, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    from tests.fitting.sizes import PARTITIONS, ROWS_TRAINED

    sql.run("CREATE TABLE blobs (id int, x real[], label text, target real)")
    features, labels = blobs
    for number, (row, label) in enumerate(zip(features.tolist(), labels.tolist(), strict=True)):
        values = (number, row, "abc"[label], sum(row))
        sql.run("INSERT INTO blobs VALUES (%s, %s, %s, %s)", values)
    sql.run(f"CREATE VIEW blobs_train AS SELECT * FROM blobs WHERE id < {ROWS_TRAINED}")
    sql.run(f"CREATE VIEW blobs_test AS SELECT * FROM blobs WHERE id >= {ROWS_TRAINED}")
    packing = f"buffer_size := 11, num_partitions := {PARTITIONS}"
    sql.run(f"SELECT cerebro_pack('blobs_train', 'packed', 'label', 'x', {packing})")
    sql.run("SELECT cerebro_pack_validation('blobs_test', 'val', 'label', 'x', 'packed')")
    sql.run(f"SELECT cerebro_pack('blobs_train', 'floats', 'target', 'x', {packing})")
    for text in (PLAIN, FULL):
        sql.run("SELECT cerebro_load_model('models', %s)", (text,))
    select(sql, "configs", [1, 2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])


def select(
    sql: Any,
    name: str,
    model_ids: list[int],
    compile_params: list[str],
    fit_params: list[str],
    models: str = "models",
) -> None:
    """Make a model selection table from all combinations."""
    sql.run(
        "SELECT cerebro_load_configs(%s, %s, %s, %s, %s)",
        (models, name, model_ids, compile_params, fit_params),
    )


@pytest.fixture
def fit(bench: Any) -> Callable[..., tuple[str, int]]:
    """Trains; returns the name of the output table and the run_id."""

    def run(
        packed: str = "packed",
        configs: str = "configs",
        epochs: int = 2,
        *,
        out: str | None = None,
        **options: Any,
    ) -> tuple[str, int]:
        name = next(_names) if out is None else out
        given = "".join(f", {key} := %s" for key in options)
        run_id = bench.value(
            f"SELECT cerebro_fit_multiple(%s, %s, %s, %s{given})",
            (packed, name, configs, epochs, *options.values()),
        )
        return name, run_id

    return run


@pytest.fixture
def weights(bench: Any) -> Callable[[str], dict[int, bytes]]:
    """The weights of every configuration in an output table."""

    def read(out: str) -> dict[int, bytes]:
        rows = bench.fetch(f"SELECT mst_key, model_weights FROM {out} ORDER BY mst_key")
        return {mst_key: bytes(data) for mst_key, data in rows}

    return read


@pytest.fixture
def selection(bench: Any) -> Callable[..., str]:
    """Makes model selection tables under fresh names."""

    def make(
        model_ids: list[int],
        compile_params: list[str],
        fit_params: Sequence[str] = ("batch_size=8",),
    ) -> str:
        name = next(_names)
        select(bench, name, model_ids, compile_params, list(fit_params))
        return name

    return make
