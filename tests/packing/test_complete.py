"""Readers compare the rows that they have read with those that the source has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from reasons import NO_ADDRESSES
from servers import Caller

from cerebro_db.errors import IncompleteRead
from cerebro_db.packing import pack
from cerebro_db.postgres.dialects.choice import PostgreSQL, dialect_of
from cerebro_db.postgres.dialects.statements.packing import PackingStatements
from cerebro_db.postgres.dialects.statements.prediction import PredictionStatements
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.tables.completeness import scanned_elsewhere
from cerebro_db.requests.packing import PackRequest
from cerebro_db.scoring import prediction
from tests.security.conftest import NET

pytestmark = pytest.mark.not_on_segments(NO_ADDRESSES)


class Addressed(PackingStatements):
    """Takes every table for one whose rows have addresses, as a distributed table looks like one."""

    needs_staging = "SELECT false OR %s IS NULL"


class Halved(PredictionStatements):
    """Leaves out rows of each piece."""

    def insertion(self, *arguments: Any) -> Any:
        """The statement, which inserts a part of the answers."""
        sql, values = super().insertion(*arguments)
        return f"{sql} LIMIT 3", values


@pytest.fixture(scope="module")
def children(db: Any) -> Any:
    """A table of 4 rows with a child of 6 rows, and a model of such rows."""
    rows = "SELECT i AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y FROM generate_series({}, {}) i"
    db.fetch(f"CREATE TABLE parent AS {rows.format(1, 4)}")
    db.fetch(f"CREATE TABLE child () INHERITS (parent); INSERT INTO child {rows.format(5, 10)}")
    db.pack("parent", "whole", "y", "x", num_partitions=2)
    db.fetch("SELECT cerebro_load_model('complete_models', %s)", (NET,))
    db.fetch(
        "SELECT cerebro_fit('whole', 'complete_out', 'complete_models', 1, "
        "'loss=''sparse_categorical_crossentropy'',optimizer=''SGD()''', 'batch_size=8', 1)"
    )
    return db


@pytest.fixture
def caller(children: Any) -> Any:
    dialect = dialect_of(children.connection.server_version, "postgresql")
    pool = SessionPool(children.dsn, dialect.session_settings())
    yield Caller(pool, dialect, "public")
    pool.close()


def with_sql(dialect: PostgreSQL, **parts: Any) -> Any:
    """The dialect with other statements."""
    for name, value in parts.items():
        setattr(dialect, name, value)
    return dialect


def test_all_rows_are_read_where_nothing_is_amiss(children: Any) -> None:
    assert len(children.unpack("whole").features) == 10


def test_packing_that_misses_rows_is_refused(children: Any, caller: Any) -> None:
    with_sql(caller.dialect, packing=Addressed())
    with pytest.raises(IncompleteRead, match=r"source_table: public.parent has 10 rows, and 4 "):
        pack.pack(caller, PackRequest("public.parent", "public.partly", "y", "x", num_partitions=1))
    assert not {"partly", "partly_packing", "partly_staging"} & set(children.tables())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_prediction_that_misses_rows_is_refused(children: Any, caller: Any, workers: int) -> None:
    request = prediction.PredictionRequest(
        "public.complete_out", "public.child", "id", "x", "public.answers", num_workers=workers
    )
    with_sql(caller.dialect, prediction=Halved())
    with pytest.raises(IncompleteRead, match=r"test_table: public.child has 12 rows, and 3 were"):
        prediction.predict(caller, request)
    assert "answers" not in children.tables()


def test_addresses_that_reach_fewer_rows_are_refused(children: Any, caller: Any) -> None:
    class Shorter(PredictionStatements):
        def extent(self, source: Any) -> Any:
            return "SELECT 0", []

    with_sql(caller.dialect, prediction=Shorter())
    request = prediction.PredictionRequest(
        "public.complete_out", "public.child", "id", "x", "public.answers"
    )
    with pytest.raises(IncompleteRead, match=r"public.child has 6 rows, and 0 were read"):
        prediction.predict(caller, request)


def test_scans_of_citus_are_known() -> None:
    def answering(plan: dict[str, Any], *, known: bool = True) -> Any:
        answers = iter([[(known,)], [([{"Plan": plan}],)]])
        return SimpleNamespace(run=lambda _: next(answers))

    table = QualifiedName("public", "t")
    custom = {"Node Type": "Custom Scan", "Custom Plan Provider": "Citus Adaptive"}
    nested = {"Node Type": "Limit", "Plans": [custom]}
    other = {"Node Type": "Custom Scan", "Custom Plan Provider": "GpuScan"}
    assert scanned_elsewhere(answering({"Node Type": "Seq Scan"}), table) is None
    assert scanned_elsewhere(answering(nested), table) == "Citus Adaptive"
    assert scanned_elsewhere(answering(other), table) is None
    assert scanned_elsewhere(answering(nested, known=False), table) is None
