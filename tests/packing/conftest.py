"""A database for each file of tests, and a way to unpack what was packed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg2
import psycopg2.sql
import pytest
from servers import connected, drop_database, make_database

from cerebro_db.training import buffers

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Unpacked:
    """The rows of a packed table, in the order of partitions, buffers and rows."""

    features: np.ndarray
    targets: np.ndarray
    partitions: dict[int, int]
    buffers: list[tuple[int, int, int]]
    raw: list[bytes]


class Database:
    """A database with Cerebro-DB and one connection to it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection = connected(dsn)

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
        """All user tables and views."""
        return [
            row[0]
            for row in self.fetch(
                "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE relkind IN ('r', 'v', 'm', 'p') AND nspname NOT IN "
                "('cerebro', 'pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1"
            )
        ]

    def pack(self, source: str, output: str, dependent: str, independent: str, **more: Any) -> str:
        """Call cerebro_pack; the notice."""
        self.connection.notices.clear()
        listed = "".join(f", {name} := %({name})s" for name in more)
        query = f"SELECT cerebro_pack(%(s)s, %(o)s, %(d)s, %(i)s{listed})"
        names = {"s": source, "o": output, "d": dependent, "i": independent}
        self.fetch(query, names | more)
        return "".join(self.connection.notices)

    def unpack(self, output: str, x: str = "x", y: str = "y", schema: str = "public") -> Unpacked:
        """All rows of a packed table."""
        name = psycopg2.sql.Identifier
        query = psycopg2.sql.SQL(
            "SELECT partition_key, buffer_id, num_rows, {}, {}, {}, {} FROM {} ORDER BY 1, 2"
        ).format(
            *(name(column) for column in (x, f"{x}_shape", y, f"{y}_shape")), name(schema, output)
        )
        rows = self.fetch(query)  # type: ignore[arg-type]
        summary = psycopg2.sql.SQL("SELECT target_dtypes[1] FROM {}").format(
            name(schema, f"{output}_summary")
        )
        dtype = np.dtype(self.value(summary))  # type: ignore[arg-type]
        partitions: dict[int, int] = {}
        for key, _, count, *_ in rows:
            partitions[key] = partitions.get(key, 0) + count
        return Unpacked(
            np.concatenate([buffers.decode(row[3], row[4], np.float32) for row in rows]),
            np.concatenate([buffers.decode(row[5], row[6], dtype) for row in rows]),
            partitions,
            [row[:3] for row in rows],
            [bytes(row[3]) + bytes(row[5]) for row in rows],
        )


@pytest.fixture(scope="module")
def db(cluster: Any, administrator: Any, template: str) -> Iterator[Database]:
    """The database of a file of tests."""
    name = f"packing_{os.getpid()}_{next(_numbers)}"
    make_database(administrator, name, template)
    administrator.run(f"ALTER DATABASE {name} SET search_path = public, cerebro")
    database = Database(cluster.dsn(name))
    yield database
    database.connection.close()
    drop_database(administrator, name)


@pytest.fixture(scope="module")
def digits(db: Database) -> Database:
    """1,003 rows: the id is a feature, the class is the id modulo 7."""
    db.fetch(
        "CREATE TABLE digits AS SELECT i AS id, ARRAY[i, i * 2, -i, 0.5]::real[] AS x, "
        "i % 7 AS y FROM generate_series(1, 1003) i"
    )
    return db
