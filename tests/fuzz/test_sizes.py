"""Large values for every SQL function: the server's process stays within its bound, and the answer is an error or right.

Functions are read from the catalog, so that a new one is tried as well. The highest resident memory of a process is
what Linux counts (VmHWM), from the moment that it is told to count anew. docs/security.md has the bounds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from fuzz.harness import INPUTS, LONGEST_MESSAGE
from pace import until
from reasons import NO_SUCH_SQL

from cerebro_db.install.embedded import Cluster
from cerebro_db.relay.wire import TRAINER

pytestmark = pytest.mark.not_on_segments(NO_SUCH_SQL)

MB = 2**20
SIZE = (1 if INPUTS <= 3000 else 24) * MB
# What a process may take beside what its arguments ask for: code and caches that a call loads.
FIXED = 48 * MB
# Bytes for each byte of a text: parsed, as a value, as Python has it, in a message, as that is sent, in an error.
OF_TEXTS = 12
# An array is a list in PL/Python: 40 bytes a number; then a message.
OF_ARRAYS = 25
OF_TRAINERS = 40
# The server reads a jsonb before it calls a function: so many bytes for each byte of its text.
OF_JSONB = 96

# Of each kind: large, and large in another way.
TEXTS = (f"repeat('x', {SIZE})", f"repeat('[', {SIZE})")
JSONS = (
    f"('\"' || repeat('x', {SIZE}) || '\"')::{{}}",
    f"('[' || repeat('[1],', {SIZE // 4}) || '1]')::{{}}",
)
BYTES = (f"decode(repeat('ff', {SIZE}), 'hex')", f"decode(repeat('43524253', {SIZE // 4}), 'hex')")
LARGE = {
    "text": TEXTS,
    "character varying": TEXTS,
    "json": tuple(one.format("json") for one in JSONS),
    "jsonb": tuple(one.format("jsonb") for one in JSONS),
    "bytea": BYTES,
}
SMALL = {
    "boolean": "true",
    "integer": "1",
    "bigint": "1",
    "smallint": "1::smallint",
    "double precision": "0.5",
    "real": "0.5::real",
    "interval": "interval '1 second'",
    "timestamp with time zone": "now()",
    "oid": "'pg_class'::regclass::oid",
    "regclass": "'pg_class'::regclass",
    "name": "'x'::name",
}
ELEMENTS = {**SMALL, "text": "'x'::text", "bytea": "'x'::bytea", "json": "'1'::json"}
# Errors that tell of a defect, or of a process that was lost.
LOST = ("XX", "38", "57", "08", "YC001", "YC002")


@dataclass(frozen=True)
class Function:
    """A function that members may call, with the types of its arguments."""

    name: str
    types: tuple[str, ...]

    @property
    def is_large(self) -> bool:
        """True if an argument may be."""
        return any(one in LARGE or one.endswith("[]") for one in self.types)

    def call(self, way: int, only: int | None = None) -> str:
        """A call with large arguments, of one of the two ways; of all, or of the one at that place."""
        values = [
            _large(one, way) if only in (None, place) else _small(one)
            for place, one in enumerate(self.types)
        ]
        return f"SELECT count(*) FROM (SELECT {self.name}({', '.join(values)})) called"


def _large(kind: str, way: int) -> str:
    if kind.endswith("[]"):
        one = ELEMENTS.get(kind[:-2], "NULL")
        if way:
            return f"array_fill({one}, ARRAY[1, {SIZE // 8}])::{kind}"
        return f"array_fill({one}, ARRAY[{SIZE // 8}])::{kind}"
    return LARGE[kind][way] if kind in LARGE else _small(kind)


def _small(kind: str) -> str:
    if kind in SMALL:
        return SMALL[kind]
    return f"'x'::{kind}" if kind in ("text", "character varying", "bytea") else f"NULL::{kind}"


FUNCTIONS = """
SELECT p.oid::regproc::text, ARRAY(SELECT format_type(a.type, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY a(type, place)
                                    ORDER BY a.place)
  FROM pg_proc p
 WHERE p.pronamespace = 'cerebro'::regnamespace AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
   AND has_function_privilege('cerebro_user', p.oid, 'EXECUTE') AND NOT 'internal'::regtype = ANY (p.proargtypes)
 ORDER BY 1, 2
"""


class Member:
    """A session of a member, whose processes are watched."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.pid: int = self.connection.info.backend_pid

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, if it has any."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def processes(self) -> list[int]:
        """The server's process, and the trainers beside it."""
        name = f"{TRAINER} {self.pid}"[:15]
        found = [self.pid]
        for comm in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):
                if comm.read_text().strip() == name:
                    found.append(int(comm.parent.name))
        return found

    def tried(self, call: str) -> tuple[psycopg2.Error | None, int, int]:
        """The error of a call, and bytes that the server's process and the largest trainer took beyond what they had."""
        before = {}
        for pid in self.processes():
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            before[pid] = _memory(pid)
        error = None
        try:
            self.run(call)
        except psycopg2.Error as caught:
            error = caught
        took = {pid: _memory(pid) - before.get(pid, 0) for pid in self.processes()}
        return error, took.pop(self.pid), max(took.values(), default=0)


def _memory(pid: int) -> int:
    """The highest resident memory in bytes."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


@pytest.fixture
def member(cluster: Any, sql: Any, database: str) -> Iterator[Member]:
    """A session of a member of cerebro_user."""
    if not isinstance(cluster, Cluster) or os.geteuid() != 0:
        pytest.skip("memory of the server's processes cannot be counted anew")
    role = f"large_{os.getpid()}"
    sql.run(f"CREATE ROLE {role} LOGIN IN ROLE cerebro_user")
    sql.run(f"GRANT CREATE ON SCHEMA public TO {role}")
    one = Member(f"{database} user={role} options='-c search_path=public,cerebro'")
    yield one
    one.connection.close()
    until(
        lambda: not sql.value("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", (role,))
    )
    sql.run(f"DROP OWNED BY {role} CASCADE")
    sql.run(f"DROP ROLE {role}")


def test_every_function_is_given_large_values(sql: Any, member: Member) -> None:
    found = [Function(name, tuple(types)) for name, types in sql.fetch(FUNCTIONS)]
    large = [one for one in found if one.is_large]
    assert len(large) > 80
    member.tried(
        "SELECT cerebro._image_fault('', ARRAY[1, 1, 1], 'encoded', 1)"
    )  # a trainer is there
    wrong: list[str] = []
    for function in large:
        places: list[int | None] = [None]
        if INPUTS > 3000:
            places += range(len(function.types))
        for call in (function.call(way, place) for place in places for way in (0, 1)):
            wrong += _wrong(member, function, call)
    assert wrong == []


@pytest.mark.parametrize("dimensions", ["ARRAY[16777217]", "ARRAY[4097, 4096]"])
def test_the_features_of_a_row_are_counted_before_they_become_a_list(
    member: Member, dimensions: str
) -> None:
    call = f"SELECT cerebro_predict_row('out', array_fill(0::float8, {dimensions}))"
    error, server, trainer = member.tried(call)
    assert error is not None
    assert error.pgcode == "22023"
    # The value and a copy of it; as a list it would be 670 MB more.
    assert server < 3 * 8 * 2**24 + FIXED
    assert trainer == 0


def test_a_table_of_very_many_columns(member: Member) -> None:
    columns = ", ".join(f"c{number} real DEFAULT 0" for number in range(1500))
    member.run(f"CREATE TABLE wide (id int, y int, {columns})")
    member.run("INSERT INTO wide (id, y) SELECT i, i % 2 FROM generate_series(1, 20) i")
    call = "SELECT cerebro_pack_columns('wide', 'wide_packed', 'y', '*', excluded := 'id')"
    error, server, _ = member.tried(call)
    assert error is None
    assert server < FIXED
    assert member.run("SELECT count(*) FROM wide_packed_encoding WHERE column_name LIKE 'c%'") == [
        (1500,)
    ]


def _wrong(one: Member, function: Function, call: str) -> list[str]:
    error, server, trainer = one.tried(call)
    told = []
    texts = sum(kind in LARGE for kind in function.types) * SIZE
    arrays = sum(kind.endswith("[]") for kind in function.types) * SIZE
    parsed = function.types.count("jsonb") * SIZE
    allowed = FIXED + OF_TEXTS * texts + OF_ARRAYS * arrays + (OF_JSONB - OF_TEXTS) * parsed
    if "bytea_to" in function.name:
        allowed += OF_ARRAYS * texts
    if server > allowed:
        told.append(f"took {server // MB} MB of {allowed // MB}")
    if trainer > FIXED + OF_TRAINERS * (texts + arrays):
        told.append(f"its trainer took {trainer // MB} MB")
    if error is not None:
        text = f"{error.diag.message_primary} {error.diag.message_hint}"
        if error.pgcode is None or error.pgcode.startswith(LOST):
            told.append(f"{error.pgcode}: {text[:300]}")
        if len(text) > LONGEST_MESSAGE:
            told.append(f"an error of {len(text)} characters: {text[:200]}")
    return [f"{function.name}, {call[-40:]}: {one}" for one in told]
