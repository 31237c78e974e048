"""Which segments and hosts are meant, without a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cerebro_db.errors import InvalidArgument, RunFailed
from cerebro_db.packing.segments import Chosen, of_dbids, on_hosts
from cerebro_db.postgres.calls.gpus import (
    check_gpus,
    checked_source,
    first_segments,
    gpu_places,
    places_on_hosts,
)
from cerebro_db.postgres.dialects.segments.hosts import SegmentHosts
from cerebro_db.postgres.dialects.statements.hosts import Hosts, Server
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable

# A coordinator with its standby; two hosts with two segments each, which mirror each other. The
# mirror of segment 3 has taken over.
SERVERS = [
    Server(1, -1, "p", "c"),
    Server(2, 0, "p", "a"),
    Server(3, 1, "p", "a"),
    Server(4, 2, "p", "b"),
    Server(5, 3, "m", "b"),
    Server(6, 0, "m", "b"),
    Server(7, 1, "m", "b"),
    Server(8, 2, "m", "a"),
    Server(9, 3, "p", "a"),
    Server(10, -1, "m", "d"),
]
SEGMENTS = sorted((s for s in SERVERS if s.is_segment), key=lambda server: server.content)


def test_a_table_of_dbids_names_segments() -> None:
    assert of_dbids(SERVERS, [(9, 1), (2, 1), (4, 1)], "t") == (0, 2, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"t has no rows; allowed: those of primary segments, 2, 3, 4, 9"),
        ([(2, 1), (11, 1)], r"t has the dbid 11; allowed: .* 2, 3, 4, 9"),
        ([(None, 1)], r"t has the dbid NULL; allowed"),
        ([(1, 1)], r"t has the dbid 1, which is the coordinator; allowed"),
        ([(10, 1)], r"t has the dbid 10, which is the standby of the coordinator; allowed"),
        ([(5, 1)], r"t has the dbid 5, which is the mirror of segment 3; allowed"),
        ([(2, 1), (3, 2)], r"t has the dbid 3 2 times; allowed: each once"),
    ],
)
def test_other_dbids_are_refused(rows: list[tuple[int | None, int]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^distribution_rules: {message}"):
        of_dbids(SERVERS, rows, "t")


def test_hosts_with_gpus_are_those_of_their_segments() -> None:
    assert on_hosts(SEGMENTS, {"b"}) == (2,)
    assert on_hosts(SEGMENTS, {"a", "elsewhere"}) == (0, 1, 3)
    with pytest.raises(InvalidArgument, match=r"there is no GPU on a, b$"):
        on_hosts(SEGMENTS, {"c"})


def test_each_host_is_queried_once() -> None:
    assert first_segments(SERVERS) == {0: "a", 2: "b"}
    assert first_segments([]) == {}


def test_a_validation_table_follows_its_training_table() -> None:
    every = tuple(SEGMENTS)
    following = Chosen(every, like=(7, 3))
    assert following.followed([1, 3]) == Chosen(every, (1, 3))
    assert following.followed([1, 3]).dbids == [3, 9]
    assert following.followed([0, 1, 2, 3]) == Chosen(every)
    chosen = Chosen(every, (1, 3))
    assert chosen.followed([1]) == chosen


def test_the_source_of_gpus_is_checked() -> None:
    assert checked_source(None) == "tensorflow"
    assert checked_source(" NVIDIA") == "nvidia"
    with pytest.raises(InvalidArgument, match="source: got 'cuda'; allowed"):
        checked_source("cuda")


class FakeSession:
    """Answers as a cluster would: its servers, where rows lie, and who tells of which GPUs."""

    def __init__(self, rows_on: list[int], gpus: dict[tuple[int, str], list[str]]) -> None:
        self.rows_on, self.gpus = rows_on, gpus
        self.asked: list[tuple[list[int], str]] = []

    def run(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        if "_gpus" in sql:
            source, segments = parameters if len(parameters) == 2 else (*parameters, [0])
            self.asked.append((segments, source))
            return [(segment, self.gpus.get((segment, source), [])) for segment in segments]
        if "DISTINCT" in sql:
            return [(segment,) for segment in self.rows_on]
        return [(s.dbid, s.content, s.role, s.hostname) for s in SERVERS]


def packed(kind: str = "r") -> PackedTable:
    """A packed table, or a view of one; nothing else of it is looked at."""

    class Relation:
        name = QualifiedName("public", "p")

    class Table:
        relation = Relation()

    Relation.kind = kind  # type: ignore[attr-defined]
    return cast(PackedTable, Table())


def checked(session: FakeSession, *tables: PackedTable) -> None:
    check_gpus(cast(Session, session), SegmentHosts(), tables)


def test_segments_are_counted_on_each_host() -> None:
    assert places_on_hosts(SERVERS) == {0: 0, 1: 1, 2: 0, 3: 2}
    session = cast(Session, FakeSession([], {}))
    assert gpu_places(session, SegmentHosts(), True) == {0: 0, 1: 1, 2: 0, 3: 2}
    assert gpu_places(session, SegmentHosts(), False) == {}
    assert gpu_places(session, Hosts(), True) == {}


def test_a_server_without_segments_needs_a_gpu_of_its_own() -> None:
    hosts = Hosts()
    there = FakeSession([], {(0, "nvidia"): ["GPU 0"]})
    check_gpus(cast(Session, there), hosts, [packed()])
    slower = FakeSession([], {(0, "tensorflow"): ["GPU 0"]})
    check_gpus(cast(Session, slower), hosts, [packed()])
    none = FakeSession([], {})
    check_gpus(cast(Session, none), hosts, [])
    assert none.asked == []
    with pytest.raises(RunFailed, match=r"there is no GPU on the server's host$") as caught:
        check_gpus(cast(Session, none), hosts, [packed()])
    assert caught.value.hint == "use_gpus := false computes on processors"


def test_hosts_of_the_rows_need_gpus() -> None:
    session = FakeSession([0, 3], {(0, "nvidia"): ["GPU 0"]})
    checked(session, packed())
    assert session.asked == [([0], "nvidia")]  # host b has no rows
    with pytest.raises(RunFailed, match=r"use_gpus := true; there is no GPU on a, b$"):
        checked(FakeSession([0, 2], {}), packed())
    with pytest.raises(RunFailed, match=r"there is no GPU on b$"):
        checked(FakeSession([0], {(0, "nvidia"): ["GPU 0"]}), packed(), packed("v"))


def test_tensorflow_is_queried_where_nvidia_is_silent() -> None:
    session = FakeSession([0, 2], {(0, "nvidia"): ["GPU 0"], (2, "tensorflow"): ["device: 0"]})
    checked(session, packed())
    assert session.asked == [([0, 2], "nvidia"), ([2], "tensorflow")]


def test_nothing_is_queried_where_nothing_computes_on_gpus() -> None:
    session = FakeSession([0], {})
    checked(session)
    assert session.asked == []
