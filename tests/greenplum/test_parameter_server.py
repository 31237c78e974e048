"""Parameter server and groups on segments: results, records that a driver writes, runs made again, kills."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from servers import connected

from chaos.server import until as until_true
from conftest import Sql
from tests.fitting.conftest import select
from tests.fitting.test_parameter_server import ASYNCHRONOUS, SGD, updates
from tests.fitting.test_progress import Background, until
from tests.fitting.test_resume import results
from tests.greenplum.processes import kill_trainer
from tests.greenplum.test_groups import both as both

pytestmark = pytest.mark.slow

PAIR = "DROP TABLE IF EXISTS pair, pair_summary"
OUTPUTS = ("served", "served_again")
LONG = 14  # epochs, during which something can be killed
ORDERS = "SELECT mst_key, epoch, round, md5(updates) FROM cerebro._updates WHERE run_id = %s ORDER BY 1, 2, 3"


def make_pair(sql: Sql) -> None:
    """Two configurations of a net with batch normalisation and dropout."""
    sql.run(PAIR)
    select(sql, "pair", [2], [SGD, SGD.replace("0.02", "0.01")], ["batch_size=8"])


@pytest.fixture(scope="module")
def tables(both: tuple[Sql, Callable[[Sql], None]]) -> Iterator[Sql]:
    """A connection to tables on segments."""
    sql, _ = both
    make_pair(sql)
    yield sql
    sql.run(PAIR)


@pytest.fixture
def served(tables: Sql) -> Iterator[Sql]:
    """The same, without the tables of another test."""
    ends = ("", "_info", "_summary", "_states", "_history")
    drop = f"DROP TABLE IF EXISTS {', '.join(name + end for name in OUTPUTS for end in ends)}"
    tables.run(drop)
    yield tables
    tables.run(drop)


def call(epochs: int, **given: Any) -> str:
    """A call that trains the pair."""
    options = {"validation_table": "val", "metrics_compute_frequency": 1, **given}
    told = "".join(f", {name} := '{value}'" for name, value in options.items())
    return f"SELECT cerebro_fit_multiple('packed', 'served', 'pair', {epochs}{told})"


def partitions_of(sql: Sql) -> int:
    return int(sql.value("SELECT count(DISTINCT partition_key) FROM packed"))


def assert_made_again(sql: Sql, run_id: int) -> None:
    """A run made again has the same weights, states, scores, hops and records."""
    again = sql.value("SELECT cerebro_replay(%s, 'served_again')", (run_id,))
    assert results(sql, "served_again", again) == results(sql, "served", run_id)
    assert updates(sql, again) == updates(sql, run_id)
    assert sql.fetch(ORDERS, (again,)) == sql.fetch(ORDERS, (run_id,))


def test_a_synchronous_server_equals_allreduce_and_a_server_without_segments(
    served: Sql,
    both: tuple[Sql, Callable[[Sql], None]],
    database: str,
    connect: Callable[[str], Sql],
) -> None:
    plain = connect(database)
    both[1](plain)
    make_pair(plain)
    given = {"strategy": "parameter_server", "strategy_params": "rounds=2"}
    found = {}
    for sql in (plain, served):
        run_id = sql.value(call(2, deterministic=True, **given))
        found[sql.dsn] = results(sql, "served", run_id)
        rows = updates(sql, run_id)
        assert len(rows) == 2 * 2 * 2 * partitions_of(sql)
        assert {row[3:5] + row[6:8] for row in rows} == {(1, 0, 0.0, 0)}
    assert found[plain.dsn] == found[served.dsn]
    run_id = served.value(call(2, replace=True, **given | {"strategy": "allreduce"}))
    assert results(served, "served", run_id) == found[served.dsn]


@pytest.mark.parametrize(
    ("given", "durability"),
    [
        (ASYNCHRONOUS, "hop"),
        ({"strategy": "groups", "strategy_params": "groups=2, rounds=2"}, "epoch"),
    ],
)
def test_an_asynchronous_run_is_made_again_in_its_order(
    served: Sql, given: dict[str, str], durability: str
) -> None:
    run_id = served.value(call(3, durability=durability, **given))
    rows = updates(served, run_id)
    partitions = partitions_of(served)
    groups = partitions if given is ASYNCHRONOUS else 2
    assert len(rows) == len({row[:3] for row in rows})
    assert len(rows) == 2 * 3 * partitions * (1 if given is ASYNCHRONOUS else 2)
    assert {row[3:5] for row in rows} == {(groups, number) for number in range(groups)}
    assert max(row[7] for row in rows) > 0
    assert all(0 <= row[6] <= row[7] for row in rows)
    momentum = None if given is ASYNCHRONOUS else pytest.approx(0.4)
    assert all(row[8] == momentum for row in rows)
    assert_made_again(served, run_id)


def test_an_order_of_segments_gives_the_same_bits_on_a_server_without(
    served: Sql,
    both: tuple[Sql, Callable[[Sql], None]],
    database: str,
    connect: Callable[[str], Sql],
) -> None:
    plain = connect(database)
    both[1](plain)
    make_pair(plain)
    wanted = results(served, "served", served.value(call(2, **ASYNCHRONOUS)))
    source = served.value("SELECT max(run_id) FROM cerebro.runs")
    run_id = plain.value(call(2, **ASYNCHRONOUS))
    for *where, order in served.fetch(ORDERS.replace("md5(updates)", "updates"), (source,)):
        plain.run(
            "UPDATE cerebro.catalog_updates SET updates = %s "
            "WHERE run_id = %s AND mst_key = %s AND epoch = %s AND round = %s",
            (order, run_id, *where),
        )
    again = plain.value("SELECT cerebro_replay(%s, 'served_again')", (run_id,))
    assert results(plain, "served_again", again) == wanted


def test_probes_choose_groups_once_and_the_choice_is_recorded(served: Sql) -> None:
    given = {"strategy": "groups", "strategy_params": "probe_steps=3"}
    run_id = served.value(call(3, **given))
    rows = updates(served, run_id)
    for key in (1, 2):
        own = [row for row in rows if row[0] == key]
        assert len(own) == 3 * partitions_of(served)
        assert len({(row[3], row[8]) for row in own}) == 1
        first, later = [row for row in own if row[1] == 1], [row for row in own if row[1] > 1]
        probes = json.loads(first[0][10])
        assert {one["momentum"] for one in probes} == {0.0, 0.3, 0.6, 0.9}
        assert any((one["groups"], one["momentum"]) == (first[0][3], first[0][8]) for one in probes)
        assert first[0][9] is not None
        assert {row[9:] for row in later} == {(None, None)}
    assert_made_again(served, run_id)


def under_way(sql: Sql, **given: Any) -> tuple[Background, int]:
    """A long run that has made some hops."""
    last = sql.value("SELECT coalesce(max(run_id), 0) FROM cerebro.runs")
    caller = Background(sql.dsn, call(LONG, **given), ())
    return caller, until(sql, "SELECT max(run_id) FROM cerebro.hops WHERE run_id > %s", (last,))


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_a_round_whose_trainer_is_killed_is_made_again(served: Sql, mode: str) -> None:
    given = {"strategy": "parameter_server", "strategy_params": f"mode={mode}"}
    calm = None
    if mode == "synchronous":
        calm = results(served, "served", served.value(call(LONG, **given)))
        served.run("DROP TABLE served, served_info, served_summary, served_states, served_history")
    caller, run_id = under_way(served, **given)
    assert kill_trainer(served)
    caller.join()
    assert caller.error is None
    # It may have been at something else than a round.
    assert any("is done again" in line for line in caller.connection.notices)
    found = results(served, "served", run_id)
    assert len(updates(served, run_id)) == len(found[-1]) == 2 * LONG * partitions_of(served)
    if calm is not None:
        assert found == calm
    else:
        assert_made_again(served, run_id)


def versions(sql: Sql, run_id: int) -> dict[int, int]:
    """Hops that the newest state of each configuration tells of."""
    name = sql.value("SELECT states FROM cerebro._runs WHERE run_id = %s", (run_id,))
    found: dict[int, int] = {}
    for table in sql.column("SELECT relname FROM pg_class WHERE relname LIKE %s", (f"{name}%",)):
        if table.endswith("_pkey"):
            continue
        for key, version in sql.fetch(
            f"SELECT mst_key, max(version) FROM cerebro_states.{table} GROUP BY 1"
        ):
            found[key] = max(found.get(key, 0), version)
    return found


def recorded(sql: Sql, run_id: int, table: str) -> dict[int, int]:
    """Rows of each configuration, in hops."""
    each = partitions_of(sql) if table == "catalog_updates" else 1
    rows = sql.fetch(
        f"SELECT mst_key, count(*) FROM cerebro.{table} WHERE run_id = %s GROUP BY 1", (run_id,)
    )
    return {key: int(count) * each for key, count in rows}


@pytest.mark.parametrize("table", ["catalog_updates", "catalog_hops"])
def test_a_driver_that_is_lost_between_a_round_and_its_record_goes_on(
    served: Sql, table: str
) -> None:
    """It waits where it writes that, which a lock of the table holds, and loses its session."""
    caller, run_id = under_way(served, **ASYNCHRONOUS)
    waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    driver = "SELECT driver_pid FROM cerebro._runs WHERE run_id = %s"
    with closing(connected(served.dsn)) as connection:
        holder = Sql(connection, served.dsn)
        holder.run("BEGIN")
        holder.run(f"LOCK TABLE cerebro.{table} IN EXCLUSIVE MODE")
        until(served, waits, (f"cerebro.{table}",))
        done, known = versions(served, run_id), recorded(served, run_id, table)
        assert any(done[key] > known.get(key, 0) for key in done)
        orders = set(served.fetch(ORDERS, (run_id,)))
        assert served.value(f"SELECT pg_terminate_backend(({driver}))", (run_id,))
        until_true(
            lambda: not served.value(waits, (f"cerebro.{table}",)), 30.0, "the driver is gone"
        )
        holder.run("ROLLBACK")
    caller.join()
    assert caller.error is None
    assert any("lost its sessions" in line for line in caller.connection.notices)
    # A round that was recorded is made again in that order.
    assert orders <= set(served.fetch(ORDERS, (run_id,)))
    rows = updates(served, run_id)
    assert len(rows) == len(results(served, "served", run_id)[-1])
    assert len(rows) == 2 * LONG * partitions_of(served)
    assert_made_again(served, run_id)


def test_a_run_that_was_paused_goes_on_and_is_made_again(served: Sql) -> None:
    caller, run_id = under_way(served, **ASYNCHRONOUS)
    served.run("SELECT cerebro_pause(%s)", (run_id,))
    caller.join()
    assert served.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    assert served.value("SELECT cerebro_resume(%s)", (run_id,)) == run_id
    assert len(updates(served, run_id)) == 2 * LONG * partitions_of(served)
    assert_made_again(served, run_id)
