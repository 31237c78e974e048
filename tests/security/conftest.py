"""A database with four roles: two users, someone without rights, and an administrator."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg2
import pytest
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from servers import Server, connected, drop_database, make_database

from cerebro_db.core.run_spec import RunSpec
from cerebro_db.decide.strategies import parse_strategy

NO_RUN = 999_999_999
ADAM = "loss='sparse_categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
NET = json.dumps(
    {
        "module": "keras",
        "class_name": "Sequential",
        "config": {
            "name": "net",
            "layers": [
                {
                    "module": "keras.layers",
                    "class_name": "InputLayer",
                    "config": {"batch_shape": [None, 2], "name": "rows"},
                },
                {
                    "module": "keras.layers",
                    "class_name": "Dense",
                    "config": {"units": 2, "activation": "softmax", "name": "dense"},
                },
            ],
        },
    }
)
MODEL_TABLES = ("out", "out_info", "out_summary", "out_states", "out_history")
PACKED_TABLES = ("packed", "packed_summary", "columns", "columns_summary", "columns_encoding")
TABLES = (
    "rows",
    "images",
    *PACKED_TABLES,
    "models",
    "objects",
    "configs",
    "configs_summary",
    *MODEL_TABLES,
)


@dataclass
class Person:
    """A role that is logged in."""

    name: str
    connection: Any

    @property
    def sql_name(self) -> str:
        """The role as an identifier."""
        return quoted(self.name)

    def rows(self, query: str, values: Any = None) -> list[tuple[Any, ...]]:
        """The rows of a statement, if it has any."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, values: Any = None) -> Any:
        """The only value of a query."""
        ((value,),) = self.rows(query, values)
        return value

    def refused(self, query: str, values: Any = None) -> psycopg2.Error:
        """The error of a statement that must have one."""
        with pytest.raises(psycopg2.Error) as caught:
            self.rows(query, values)
        return caught.value


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def log_in(dsn: str, name: str, **options: Any) -> Person:
    """An autocommit session of a role."""
    return Person(name, connected(dsn, user=name, **options))


@pytest.fixture(scope="session")
def security_dsn(cluster: Server, administrator: Any, template: str) -> Iterator[str]:
    """A database for the tests of this folder."""
    name = f"security_{os.getpid()}"
    make_database(administrator, name, template)
    administrator.run(f'ALTER DATABASE {name} SET search_path = "$user", public, cerebro')
    yield cluster.dsn(name)
    drop_database(administrator, name)


@pytest.fixture(scope="session")
def root(security_dsn: str, administrator: Any) -> Iterator[Person]:
    """The superuser."""
    # What others put into schema public is not for a superuser to run, here as anywhere.
    name = administrator.value("SELECT current_user")
    root = log_in(security_dsn, name, options="-c search_path=pg_catalog")
    yield root
    root.connection.close()


Recruit = Callable[..., Person]
_PEOPLE: list[Person] = []


@pytest.fixture(autouse=True)
def no_transaction_is_left() -> Iterator[None]:
    """A test that leaves the session of somebody within a transaction fails itself, and no other one."""
    yield
    left = [
        person
        for person in _PEOPLE
        if not person.connection.closed
        and person.connection.info.transaction_status != TRANSACTION_STATUS_IDLE
    ]
    for person in left:
        with person.connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
    assert left == []


@pytest.fixture(scope="session")
def recruit(security_dsn: str, root: Person) -> Iterator[Recruit]:
    """Makes roles with a schema of the same name, and logs them in."""
    made = _PEOPLE

    def make(name: str, member_of: str | None, options: str = "LOGIN") -> Person:
        role = quoted(f"{name} {os.getpid()}")
        root.rows(f"CREATE ROLE {role} {options}" + (f" IN ROLE {member_of}" if member_of else ""))
        root.rows(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
        made.append(log_in(security_dsn, f"{name} {os.getpid()}"))
        return made[-1]

    yield make
    for person in made:
        person.connection.close()
        root.rows(f"DROP OWNED BY {person.sql_name} CASCADE; DROP ROLE {person.sql_name}")


@pytest.fixture(scope="session")
def alice(recruit: Recruit) -> Person:
    """A user with tables, models, configurations, a finished run; what others want to get at."""
    # Her name is one that nobody may put into a connection string or a statement as it is.
    alice = recruit("al'i\"ce \\ %s;", "cerebro_user")
    make_tables(alice)
    alice.rows("SELECT cerebro_fit_multiple('packed', 'out', 'configs', 1, num_workers := 1)")
    return alice


def make_tables(person: Person) -> None:
    """What a run needs, small."""
    person.rows(
        "CREATE TABLE rows AS SELECT i AS id, ARRAY[sin(i), cos(i)]::real[] AS x, i %% 2 AS y "
        "FROM generate_series(1, 40) i",
        (),
    )
    person.rows("SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 2)")
    person.rows(
        "CREATE TABLE images AS SELECT i %% 2 AS y, '\\x0102'::bytea AS x FROM generate_series(1, 9) i",
        (),
    )
    person.rows("SELECT cerebro_pack_columns('rows', 'columns', 'y', 'id')")
    person.rows("SELECT cerebro_load_model('models', %s)", (NET,))
    person.rows("SELECT cerebro_load_top_k_accuracy_function('objects', 3)")
    person.rows(
        "SELECT cerebro_load_configs('models', 'configs', ARRAY[1], ARRAY[%s], ARRAY['batch_size=8'])",
        (ADAM,),
    )


_SPEC = RunSpec(
    epochs=1, seed=0, frequency=1, partitions={}, strategy=parse_strategy("hopper", None)
).to_text()


_RUN = {
    **dict.fromkeys(("source_table", "model_output_table", "model_selection_table"), "x"),
    **dict.fromkeys(("num_iterations", "metrics_compute_frequency", "num_partitions", "num_workers", "threads", "rounds"), 1),
    "warm_start": False, "replaces": False, "seed": 0, "schedule": "hopper", "strategy_params": "", "status": "queued",
}  # fmt: skip


def paused_run(person: Person, **given: Any) -> int:
    """A run of someone who never trained: what the catalog knows of it, without workers."""
    person.rows("SELECT cerebro._mark_role()")
    run = int(person.value("SELECT cerebro._add_run(%s, %s)", (json.dumps(_RUN | given), _SPEC)))
    person.rows("SELECT cerebro._run_ended(%s, 'paused', NULL, NULL)", (run,))
    return run


_ROWS: dict[str, dict[str, Any]] = {
    "configurations": {
        "budget": 1, "mst_key": 1, "model_id": 1, "compile_params": "", "fit_params": "", "hop_seconds": 1, "initial_seed": 1,
        "jit": False, "steps_per_call": 1, "goal": "", "is_warm": False, "status": "training",
    },
    "plan": {"epoch": 1, "mst_key": 1, "position": 0, "partition_key": 0, "group_size": 1},
    "hops": {
        "mst_key": 1, "epoch": 1, "position": 0, "partition_key": 0, "worker": 0, "pid": 1, "started": "2026-01-01",
        "finished": "2026-01-01", "waited": 0, "read": 0, "trained": 0, "written": 0, "rows": 1, "loss": "NaN",
        "compiled": False, "cached": False, "memory_mb": 0,
    },
    "updates": {
        "mst_key": 1, "epoch": 1, "round": 0, "groups": 1, "probes": "", "counts": "{1}", "staleness": "{NaN}",
        "stalest": "{1}", "updates": "\\x00",
    },
    "metrics": {
        "mst_key": 1, "epoch": 1, "dataset": "training", "loss": 1.5, "metric_names": "{a}", "metrics": "{1.5}", "elapsed": 1,
    },
    "decisions": {
        "number": 1, "mst_key": 1, "action": "stop", "epochs": 1, "reason": "", "who": "", "detail": {}, "heard": [],
    },
}  # fmt: skip


def added(table: str, **given: Any) -> str:
    """A row for the function that adds rows of a table to a run."""
    return json.dumps([_ROWS[table] | given])


def run_with_states(person: Person) -> tuple[int, str]:
    """A paused run that nobody trained, and the table of its states."""
    run, states = paused_run(person), f"run_{secrets.token_hex(16)}"
    table = f"cerebro_states.{states}_7"
    person.rows("SELECT cerebro._run_ended(%s, 'finished', NULL, NULL)", (run,))
    person.rows("SELECT cerebro._revived(%s, %s)", (run, states))
    person.rows(f"CREATE TABLE {table} AS SELECT repeat('x', 10000) AS state")
    return run, table


def trained_a_little(person: Person, out: str) -> int:
    """A run that was paused soon after it began, and has states."""
    watcher = log_in(person.connection.dsn, person.name)
    trained = (
        "SELECT run_id FROM cerebro.runs r WHERE status = 'running' "
        "AND EXISTS (SELECT 1 FROM cerebro.hops h WHERE h.run_id = r.run_id)"
    )
    with closing(watcher.connection), ThreadPoolExecutor(1) as thread:
        call = thread.submit(
            person.value,
            "SELECT cerebro_fit_multiple('packed', %s, 'configs', 2000, num_workers := 1, "
            "metrics_compute_frequency := 2000, name := 'the secret')",
            (out,),
        )
        while not (found := watcher.rows(trained)):
            assert not call.done(), call.exception()
            time.sleep(0.1)
        watcher.rows("SELECT cerebro_pause(%s)", found[0])
        return int(call.result())


@pytest.fixture(scope="session")
def stopped(alice: Person) -> int:
    """A run of alice that was paused, and has states."""
    return trained_a_little(alice, "later")


@pytest.fixture(scope="session")
def bob(recruit: Recruit, root: Person, alice: Person) -> Person:
    """Another user, with tables of his own; he may even look up names in alice's schema."""
    bob = recruit("bob", "cerebro_user")
    root.rows(f"GRANT USAGE ON SCHEMA {alice.sql_name} TO {bob.sql_name}")
    for table in TABLES:
        copy = f"{bob.sql_name}.{table}"
        root.rows(f"CREATE TABLE {copy} AS SELECT * FROM {alice.sql_name}.{table}")
        root.rows(f"ALTER TABLE {copy} OWNER TO {bob.sql_name}")
    root.rows(f"UPDATE {bob.sql_name}.configs_summary SET model_arch_table = 'models'")
    return bob


@pytest.fixture(scope="session")
def bobs_run(bob: Person) -> int:
    """A run of bob that was paused."""
    return paused_run(bob)


@pytest.fixture(scope="session")
def carol(recruit: Recruit) -> Person:
    """Someone who may log in, and no more."""
    return recruit("carol", None)


@pytest.fixture(scope="session")
def dave(recruit: Recruit) -> Person:
    """An administrator of Cerebro-DB who is no superuser."""
    return recruit("dave", "cerebro_admin")
