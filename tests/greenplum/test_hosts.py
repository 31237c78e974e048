"""Hosts that are lost: mirrors and the standby coordinator take over, and runs end to the same bits.

These tests need a cluster on this machine whose segments have mirrors. They leave it working, with all
servers in step; primaries may then be on mirrors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from servers import VARIABLE

from chaos.hosts import Hosts, Node
from chaos.segments import NotHere, Segments
from tests.greenplum.test_faults import Bench, Call

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# With the default settings Greenplum takes six minutes to give up a host that says nothing any more.
SECONDS = 900.0


@pytest.fixture(scope="module")
def bench(segments_dsn: str, blobs: Any) -> Iterator[Bench]:
    try:
        server = Segments(segments_dsn)
    except NotHere as error:
        pytest.skip(str(error))
    if not server.value("SELECT count(*) FROM gp_segment_configuration WHERE role = 'm'"):
        pytest.skip(f"{VARIABLE} names a cluster without mirrors")
    found = Bench(server, blobs)
    yield found
    found.drop()
    server.forget_session()


@pytest.fixture
def hosts(bench: Bench) -> Iterator[Hosts]:
    """All servers in step, before and after."""
    found = Hosts(bench.server.dsn)
    found.rejoin()
    yield found
    found.rejoin()


def _mirrored(hosts: Hosts, content: int) -> Node:
    """A primary whose mirror is in step."""
    if hosts.node(content, "m") is None:
        pytest.skip(f"segment {content} has no mirror")
    primary = hosts.node(content, "p")
    assert primary is not None
    return primary


def _goes_on(bench: Bench, call: Call, output: str, run_id: int) -> None:
    """By itself, to the same end."""
    assert call.end(SECONDS) is None, call.error
    assert any("lost its sessions" in notice for notice in call.connection.notices)
    bench.is_same(output, run_id)


@pytest.mark.parametrize("durability", ["hop", "epoch"])
def test_a_mirror_takes_over_from_a_primary(bench: Bench, hosts: Hosts, durability: str) -> None:
    lost = _mirrored(hosts, 0)
    call, output, run_id = bench.begin(durability)
    hosts.kill(lost)
    _goes_on(bench, call, output, run_id)
    now = hosts.node(0, "p")
    assert now is not None
    assert now.dbid != lost.dbid


def test_a_host_is_lost_with_all_that_runs_there(bench: Bench, hosts: Hosts) -> None:
    primary = _mirrored(hosts, 0)
    try:
        lost = hosts.host(primary)
    except NotHere as error:
        pytest.skip(str(error))
    call, output, run_id = bench.begin()
    hosts.lose(lost)
    _goes_on(bench, call, output, run_id)
    down = {node.dbid for node in hosts.nodes() if node.status == "d"}
    assert down == {node.dbid for node in lost}


def test_a_standby_coordinator_takes_over(bench: Bench, hosts: Hosts) -> None:
    if hosts.node(-1, "m") is None:
        pytest.skip(f"{VARIABLE} names a cluster without a standby coordinator")
    call, output, run_id = bench.begin()
    bench.server.forget_session()
    hosts.take_over()
    try:
        assert call.end() is not None
        there = Call(hosts.dsn, f"SELECT cerebro_resume({run_id})")
        assert there.end(SECONDS) is None, there.error
    finally:
        hosts.rejoin()
        hosts.take_over()  # back to where others expect it
    bench.is_same(output, run_id)
