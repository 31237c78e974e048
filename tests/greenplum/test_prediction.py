"""Predictions on segments: no features travel, and each segment's own process predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cerebro_db.columns.inputs import ArrayInput, NumberInput
from cerebro_db.columns.values import Column
from cerebro_db.postgres.dialects.greenplum6.dialect import Greenplum6
from cerebro_db.postgres.dialects.segments.prediction import SegmentPrediction
from cerebro_db.postgres.dialects.statements.answers import Answer, Classes, Several, Values
from cerebro_db.postgres.dialects.statements.sources import PackedSource, RowSource, Source
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from conftest import Sql

X = ArrayInput(Column("x", "real[]", 1021, "real[]", "A", 700, "N"), element_oid=700)
ID = NumberInput(Column("id", "integer", 23, "integer", "N", None, None), "bigint", element_oid=20)
SQL = SegmentPrediction(90426)
ROWS = RowSource(
    QualifiedName("public", "plain"), (("id", "integer"),), ("t.id",), (X,), addressed=True
)
PACKED = PackedSource(QualifiedName("public", "packed"), (("x", 8),))
MORE_ROWS = replace(ROWS, inputs=(X, ID))
MORE_BUFFERS = replace(PACKED, columns=(("x", 8), ("z", 4)))
OUTPUT = QualifiedName("public", "answers")


@pytest.fixture
def session(segments: Sql) -> Iterator[Session]:
    """A session such as drivers use, in a transaction with tables to predict on."""
    session = Session(segments.dsn, "test")
    session.settle()
    session.run("; ".join(Greenplum6(90426).session_settings()))
    session.run(
        "SET search_path = public; BEGIN; CREATE TABLE plain AS SELECT g AS id, ARRAY[g, g]::real[] AS x "
        "FROM generate_series(1, 600) g DISTRIBUTED BY (id); "
        "CREATE TABLE packed (segment_key integer, partition_key integer, buffer_id integer, "
        "num_rows integer, x bytea, z bytea) DISTRIBUTED BY (segment_key)"
    )
    keys = [key for _, key in session.run(SQL.segment_keys)]
    session.run(SQL.stage, (keys, "{}"))
    yield session
    session.close()


@pytest.mark.parametrize("source", [ROWS, PACKED, MORE_ROWS, MORE_BUFFERS])
@pytest.mark.parametrize(
    "answer",
    [
        Classes("y", ("a", "b"), 2),
        Values("y", ()),
        Values("y", (2, 2)),
        Several((Classes("y", ("a", "b"), 2, 0.1), Values("z", (2,)), Values("n", ()))),
    ],
)
def test_nothing_but_answers_travels(session: Session, source: Source, answer: Answer) -> None:
    session.run(SQL.create(OUTPUT, source, answer.columns, unfinished=False))
    sql, parameters = SQL.predict(OUTPUT, source, answer, 100)
    plan = [str(line) for (line,) in session.run(f"EXPLAIN {sql}", parameters)]
    motions = [number for number, line in enumerate(plan) if "Motion" in line]
    assert len(motions) == 1, plan
    assert "Redistribute Motion" in plan[motions[0]], plan
    scans = [number for number, line in enumerate(plan) if "Scan on" in line]
    assert motions[0] < min(scans), plan


def test_a_row_is_answered_where_it_lies(session: Session) -> None:
    session.run(SQL.create(OUTPUT, ROWS, "estimated double precision", unfinished=False))
    session.run("INSERT INTO answers SELECT id, 'y', 0.0 FROM plain")
    moved = session.run(
        "SELECT count(*) FROM answers a JOIN plain p USING (id) "
        "WHERE a.gp_segment_id <> p.gp_segment_id"
    )
    assert moved == [(0,)]


def test_rows_of_a_view_are_spread_first(session: Session) -> None:
    session.run("CREATE VIEW seen AS SELECT * FROM plain; CREATE TABLE everywhere (id integer)")
    session.run("ALTER TABLE everywhere SET DISTRIBUTED REPLICATED")
    found = [
        session.run(SQL.needs_copy, (name,))[0][0]
        for name in ("public.plain", "public.seen", "public.everywhere", "pg_catalog.pg_class")
    ]
    assert found == [False, True, True, True]
