"""One database with a trained run, whose names are hostile, and a large run that only the catalog knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from servers import Server, connected, drop_database, make_database

from benchmarks.watching import make_run
from tests.conftest import Sql
from tests.fitting.conftest import ADAM, _make_tables, blobs, select

__all__ = ["blobs"]

HOSTILE = "</script><script>alert('run')</script> <b>& \"you\"</b>"
EPOCHS = 3


@dataclass(frozen=True)
class Watched:
    """The database and its runs.

    Attributes:
        run_id: of the trained run, of four configurations.
        large: of 1,000 configurations and 20 epochs, never trained.
    """

    sql: Any
    dsn: str
    run_id: int
    large: int


@pytest.fixture(scope="session")
def watched(
    cluster: Server, administrator: Any, template: str, blobs: tuple[np.ndarray, np.ndarray]
) -> Iterator[Watched]:
    """The database of all tests that look at runs."""
    name = f"watching_{os.getpid()}"
    make_database(administrator, name, template)
    administrator.run(f'ALTER DATABASE {name} SET search_path = "$user", public, cerebro')
    dsn = cluster.dsn(name)
    sql = Sql(connected(dsn), dsn)
    _make_tables(sql, blobs)
    select(sql, "grid", [1, 2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])
    run_id = sql.value(
        "SELECT cerebro_fit_multiple('packed', 'watched_out', 'grid', %s, validation_table := 'val', "
        "metrics_compute_frequency := 1, name := %s, description := %s)",
        (EPOCHS, HOSTILE, HOSTILE),
    )
    with sql.connection.cursor() as cursor:

        def execute(statement: str, values: Any) -> list[tuple[Any, ...]]:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

        large = make_run(execute)
        execute("ANALYZE", None)
    yield Watched(sql, dsn, run_id, large)
    sql.close()
    drop_database(administrator, name)
