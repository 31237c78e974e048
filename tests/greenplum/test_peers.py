"""Trainers of several hosts that exchange gradients, where an administrator lets them.

Where all segments of the cluster are on one host it is told that they are on two: then they meet on the
loopback network.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pytest
from servers import connected

from chaos.server import until
from conftest import Sql
from tests.greenplum.processes import kill_trainer
from tests.greenplum.test_fitting import _weights
from tests.greenplum.test_groups import both as both
from tests.greenplum.test_groups import fit

pytestmark = pytest.mark.slow

SET = "SELECT cerebro.cerebro_set(%s, %s)"
_PRIMARIES = "SELECT content, hostname, address FROM gp_segment_configuration WHERE content >= 0 AND role = 'p'"
_RENAME = (
    "SET allow_system_table_mods = true; UPDATE gp_segment_configuration SET hostname = %s WHERE content = %s; "
    "RESET allow_system_table_mods"
)


# Trainers are where the keeper of theirs is, whose folder network namespaces of one machine may share.
_PLACES = """
CREATE OR REPLACE FUNCTION pg_temp.place(n integer) RETURNS text
LANGUAGE plpython3u AS $$
import os
with open('/proc/sys/kernel/random/boot_id') as file:
    boot = file.read()
found = os.stat('/tmp/cerebro-{}'.format(os.geteuid()))
return '{} {} {}'.format(boot, found.st_dev, found.st_ino)
$$
"""


@dataclass(frozen=True)
class Apart:
    """Segments of several hosts.

    Attributes:
        network: that the hosts have in common.
        is_real: whether trainers of one host cannot pass for those of another.
    """

    network: str
    is_real: bool


@pytest.fixture(scope="module")
def apart(both: tuple[Sql, Callable[[Sql], None]]) -> Iterator[Apart]:
    """The segments, of which half are told to be elsewhere where they are not."""
    sql, _ = both
    rows = sql.fetch(_PRIMARIES)
    names = {name for _, name, _ in rows}
    if len(names) > 1:
        address = socket.gethostbyname(rows[0][2])
        network = str(ipaddress.ip_network(f"{address}/24", strict=False))
        sql.run(_PLACES)
        places = sql.column("SELECT pg_temp.place(gp_segment_id) FROM gp_dist_random('gp_id')")
        yield Apart(network, is_real=len(set(places)) == len(names))
        return
    try:
        for content, name, _ in rows:
            sql.run(_RENAME, (f"{name}-{content % 2}", content))
        yield Apart("127.0.0.0/8", is_real=False)
    finally:
        for content, name, _ in rows:
            sql.run(_RENAME, (name, content))


@pytest.fixture
def peers(both: tuple[Sql, Callable[[Sql], None]], apart: Apart) -> Iterator[Sql]:
    """A connection where trainers of several hosts may meet."""
    sql, _ = both
    sql.run(SET, ("peer_network", apart.network))
    yield sql
    sql.run("DELETE FROM cerebro.catalog_settings")


def strategies(sql: Sql) -> dict[str, str]:
    """Strategies whose trainers exchange gradients, with parameters."""
    partitions = sql.value("SELECT count(DISTINCT partition_key) FROM packed")
    auto = f"processors={partitions}, neighbours={(partitions + 1) // 2}"
    return {
        "allreduce": "strategy := 'allreduce'",
        "pipe": "strategy := 'pipe', strategy_params := 'bits=8, rounds=2'",
        "auto": f"strategy := 'auto', strategy_params := '{auto}'",
    }


def test_trainers_of_several_hosts_come_to_the_bits_of_those_of_one(
    peers: Sql,
    both: tuple[Sql, Callable[[Sql], None]],
    database: str,
    connect: Callable[[str], Sql],
) -> None:
    plain = connect(database)
    both[1](plain)
    for strategy, params in strategies(peers).items():
        run_id = fit(peers, params)
        fit(plain, params)
        assert _weights(peers, "out") == _weights(plain, "out"), strategy
    if peers.value("SELECT count(DISTINCT partition_key) FROM packed") == 2:
        return  # as many as models: no group is of use
    sizes = "SELECT DISTINCT group_size FROM cerebro._plan WHERE run_id = %s"
    assert max(peers.column(sizes, (run_id,))) > 1
    told = "SELECT strategy_params FROM cerebro.runs WHERE run_id = %s"
    assert "neighbours=" in peers.value(told, (run_id,))


def test_it_is_off_until_somebody_allows_it(
    both: tuple[Sql, Callable[[Sql], None]], apart: Apart
) -> None:
    sql, _ = both
    runs = sql.value("SELECT count(*) FROM cerebro.runs")
    for strategy in ("allreduce", "pipe"):
        with pytest.raises(psycopg2.Error, match="on segments of several hosts") as caught:
            fit(sql, f"strategy := '{strategy}'", out="refused")
        assert caught.value.pgcode == "0A000"
        assert "cerebro_set('peer_network'" in (caught.value.diag.message_hint or "")
    assert sql.value("SELECT count(*) FROM cerebro.runs") == runs
    run_id = fit(sql, "strategy := 'auto'")
    sizes = "SELECT DISTINCT group_size FROM cerebro._plan WHERE run_id = %s"
    assert sql.column(sizes, (run_id,)) == [1]


def test_a_host_without_an_address_there_is_reported_before_any_hop(peers: Sql) -> None:
    peers.run(SET, ("peer_network", "203.0.113.0/24"))  # which is nobody's
    with pytest.raises(
        psycopg2.Error, match=r"got 203.0.113.0/24; allowed: .* host .* has an"
    ) as caught:
        fit(peers, "strategy := 'allreduce'", out="refused")
    assert "superusers may" in (caught.value.diag.message_hint or "")
    assert no_hops(peers)


def test_who_cannot_be_reached_is_reported_before_any_hop(peers: Sql, apart: Apart) -> None:
    if not apart.is_real:
        pytest.skip("trainers of all segments are on one host, where all can be reached")
    peers.run(SET, ("peer_network", "127.0.0.0/8"))  # which each has for itself
    told = r"host (\S+) cannot reach 127\.0\.0\.1:\d+ of host (\S+): "
    with pytest.raises(psycopg2.Error, match=told) as caught:
        fit(peers, "strategy := 'pipe'", out="refused")
    assert caught.value.pgcode == "YC006"
    assert "a firewall has to let" in (caught.value.diag.message_hint or "")
    assert no_hops(peers)


def no_hops(sql: Sql) -> bool:
    """True if the last run has none."""
    last = "SELECT max(run_id) FROM cerebro.runs"
    return bool(
        sql.value(f"SELECT NOT EXISTS (SELECT 1 FROM cerebro.hops WHERE run_id = ({last}))")
    )


_FIRST_PORT = 24_100  # below those that systems give


def test_a_trainer_that_is_killed_costs_no_more_than_a_round(peers: Sql) -> None:
    params, epochs = "strategy := 'allreduce'", 20
    # No more ports than trainers: new ones wait for those of before, also of the run before, to leave theirs.
    last_port = _FIRST_PORT + peers.value("SELECT count(DISTINCT partition_key) FROM packed") - 1
    peers.run(SET, ("peer_ports", f"{_FIRST_PORT}-{last_port}"))
    fit(peers, params, epochs)
    calm = _weights(peers, "out")
    last = peers.value("SELECT max(run_id) FROM cerebro.runs")
    with closing(connected(peers.dsn)) as connection:
        other = Sql(connection, peers.dsn)
        thread = threading.Thread(target=fit, args=(other, params, epochs, "again"))
        thread.start()
        begun = "SELECT count(*) > 0 FROM cerebro.hops WHERE run_id > %s"
        until(lambda: peers.value(begun, (last,)), 60.0, "the first hops are made")
        assert kill_trainer(peers)
        thread.join()
        # Between two rounds it may have had something else to do.
        assert any("is done again" in notice for notice in connection.notices)
    assert _weights(peers, "again") == calm
