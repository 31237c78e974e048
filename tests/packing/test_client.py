"""Packing from a client process, and packed tables as values."""

from __future__ import annotations

import pytest
from servers import Caller, partitions

from cerebro_db.packing import pack, survey
from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.tables.packed import load_packed
from cerebro_db.postgres.tables.relations import column, find
from cerebro_db.requests.packing import PackRequest


@pytest.fixture(scope="module")
def dialect(db, has_segments):
    return dialect_of(db.connection.server_version, "greenplum6" if has_segments else "postgresql")


@pytest.fixture
def pool(db, dialect):
    pool = SessionPool(db.dsn, dialect.session_settings())
    yield pool
    pool.close()


def test_a_client_packs_the_same_bytes(digits, pool, dialect, monkeypatch):
    # A table of many chunks of addresses, too.
    monkeypatch.setattr(survey, "BLOCKS_PER_FETCH", 2)
    caller, count = Caller(pool, dialect), partitions(3)
    request = PackRequest(
        "public.digits", "public.by_client", "y", "x", num_partitions=count, seed=4
    )
    summary = pack.pack(caller, request)
    digits.pack("digits", "by_server", "y", "x", num_partitions=count, seed=4)
    assert digits.unpack("by_client").raw == digits.unpack("by_server").raw
    assert (summary.rows, summary.partitions, summary.num_classes) == (1003, count, 7)
    assert caller.told == [str(summary)]


def test_a_packed_table_as_a_value(digits, pool):
    digits.fetch(
        "CREATE TABLE named AS SELECT ARRAY[x, x] AS x, nullif('c' || y, 'c3')::varchar(5) AS y "
        "FROM digits"
    )
    digits.pack("named", "named_p", "y", "x", num_partitions=2, buffer_size=300, num_classes=9)
    (session,) = pool.take(1)
    packed = load_packed(session, "public.named_p", "source_table")
    assert str(packed.relation.name) == "public.named_p"
    assert packed.input.shape == (2, 4)
    target = packed.target
    assert (target.kind, target.type, target.dtype) == ("class", "character varying(5)", "int32")
    assert target.class_values == ("c0", "c1", "c2", "c4", "c5", "c6", None, None, None)
    assert (target.num_classes, target.classes_found, target.shape) == (9, 7, ())
    assert packed.buffer_size == 251
    assert [p.rows for p in packed.partitions] == [501, 502]
    assert packed.partitions[1].buffers == ((0, 251), (1, 251))
    assert packed.rows == 1003
    pool.give([session])


def test_float_targets_have_no_classes(digits, pool):
    digits.fetch("CREATE VIEW regression AS SELECT x, ARRAY[y, 1.5]::real[] AS y FROM digits")
    digits.pack("regression", "regression_p", "y", "x")
    (session,) = pool.take(1)
    target = load_packed(session, "public.regression_p", "source_table").target
    assert (target.kind, target.shape, target.dtype) == ("float", (2,), "float32")
    assert (target.num_classes, target.class_values, target.class_array) == (0, (), None)
    pool.give([session])


def test_columns_tell_their_types(digits, pool):
    (session,) = pool.take(1)
    relation = find(session, "PUBLIC.digits", "source_table")
    assert [c.name for c in relation.columns] == ["id", "x", "y"]
    found = column(relation, ' "x" ', "independent_varname")
    assert (found.type, found.is_array, found.element_oid) == ("real[]", True, 700)
    pool.give([session])
