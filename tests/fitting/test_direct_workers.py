"""Workers that join a run by "cerebro worker": the same bits, whoever makes a hop, and whoever dies."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from gates import Gate
from pace import until
from servers import as_role

from cerebro_db.decide.strategies import STRATEGIES
from cerebro_db.errors import (
    CerebroError,
    NotPermitted,
    NotSupported,
    UndefinedRun,
    WrongRunStatus,
)
from cerebro_db.postgres.direct.session import DirectSession
from cerebro_db.postgres.sessions.errors import StatementFailed
from tests.fitting.direct import Worker, hops_of, ordered, paused, status, stuck
from tests.fitting.direct import calm as calm
from tests.fitting.direct import gate as gate
from tests.fitting.direct import keepers as keepers
from tests.fitting.direct import worker as worker
from tests.fitting.test_progress import Background
from tests.fitting.test_resume import other as other
from tests.fitting.test_resume import results


def test_workers_come_die_and_leave_and_nothing_else_changes(
    bench: Any, calm: list[Any], gate: Gate, worker: Callable[..., Worker]
) -> None:
    """Killed in a hop, without its trainer, without its driver, asked to leave; and one that keeps nothing."""
    run_id = paused(bench, "direct_out")
    first = worker(run_id)
    until(lambda: status(bench, run_id) == ["joining"])
    resume = "SELECT cerebro_resume(%s)"
    with gate:
        caller = Background(bench.dsn, resume, (run_id,))
        until(lambda: ordered(bench, run_id))
    until(lambda: hops_of(bench, run_id)[0] >= 2)
    with stuck(bench, gate, run_id, first):
        second = worker(run_id, "--cache-mb", "0")
        until(lambda: status(bench, run_id)[1:] in (["waiting"], ["training"]))
        first.process.send_signal(signal.SIGKILL)
        until(lambda: status(bench, run_id)[0] == "left")
    until(lambda: hops_of(bench, run_id)[1] > 2)
    with stuck(bench, gate, run_id, second):  # afterwards its trainer is killed
        before = hops_of(bench, run_id)[1]
    until(lambda: hops_of(bench, run_id)[1] > before + 1)
    with gate:
        bench.run("SELECT pg_terminate_backend(%s)", (caller.pid,))
        caller.join()
    shown = "SELECT status FROM cerebro.runs WHERE run_id = %s"
    until(lambda: bench.value(shown, (run_id,)) == "interrupted")
    until(lambda: not gate.waiting())  # the worker is done with the hop that nobody wants any more
    with gate:
        caller = Background(bench.dsn, resume, (run_id,))
        until(lambda: ordered(bench, run_id))
        before = hops_of(bench, run_id)[1]
    until(lambda: hops_of(bench, run_id)[1] > before)
    with gate:
        until(lambda: ordered(bench, run_id))
        second.process.send_signal(signal.SIGTERM)
    code, told, errors = second.ended()
    assert (code, errors) == (0, "")
    assert "was killed by SIGKILL" in told
    assert "it was asked to leave" in told
    gate.slow_down(0)
    caller.join()
    assert caller.error is None
    assert results(bench, "direct_out", run_id) == calm
    assert status(bench, run_id) == ["left", "left"]
    reasons = "SELECT reason FROM cerebro.direct_workers WHERE run_id = %s ORDER BY joined"
    assert bench.column(reasons, (run_id,)) == ["its session has ended", "it was asked to leave"]
    made = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND worker > 0"
    assert bench.value(made, (run_id,)) == sum(hops_of(bench, run_id)) > 6
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    for table in ("workers", "orders", "answers"):
        assert bench.value(f"SELECT count(*) FROM cerebro.catalog_direct_{table}") == 0


def test_a_hop_that_nobody_wants_any_more_is_given_up(
    bench: Any, calm: list[Any], gate: Gate, worker: Callable[..., Worker]
) -> None:
    run_id = paused(bench, "direct_cancelled")
    other = worker(run_id, "--threads", "7")
    one = worker(run_id)
    until(lambda: status(bench, run_id) == ["joining", "joining"])
    with gate:
        caller = Background(bench.dsn, "SELECT cerebro_resume(%s)", (run_id,))
        until(lambda: ordered(bench, run_id))
    with stuck(bench, gate, run_id, one) as mst_key:
        gate.slow_down(0)
        bench.run("SELECT cerebro_cancel(%s, %s)", (run_id, mst_key))
        caller.join()
    code, _, errors = other.ended()
    assert code == 1
    assert re.search(r"began with threads \d+; this worker has 7", errors)
    assert "--any-machine" in errors
    assert caller.error is None
    others = [row for row in calm[0] if row[0] != mst_key]
    assert results(bench, "direct_cancelled", run_id)[0] == others
    code, told, _ = one.ended()
    assert code == 0
    assert f"run {run_id} is finished" in told
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_who_may_join(bench: Any, calm: list[Any], worker: Callable[..., Worker]) -> None:
    run_id = paused(bench, "direct_refused", ", strategy := 'auto'")
    refused: list[tuple[Callable[[DirectSession], Any], type[CerebroError], str]] = [
        (lambda one: one.find(0), UndefinedRun, "--run: got 0; role .* has no run of that number"),
    ]  # fmt: skip
    bench.run(
        "CREATE ROLE direct_owner LOGIN; CREATE ROLE direct_outsider LOGIN IN ROLE cerebro_user"
    )
    try:
        refused.append((lambda one: one.act_as("direct_owner"), NotPermitted, "got the superuser"))
        for call, kind, message in refused:
            with (
                closing(DirectSession(bench.dsn)) as session,
                pytest.raises(kind, match=message) as caught,
            ):
                call(session)
            assert caught.value.hint
        for strategy in sorted(set(STRATEGIES) - {"hopper", "averaging"}):
            bench.run(
                "UPDATE cerebro.catalog_runs SET schedule = %s WHERE run_id = %s",
                (strategy, run_id),
            )
            with (
                closing(DirectSession(bench.dsn)) as session,
                pytest.raises(
                    NotSupported, match=f"the strategy '{strategy}'; allowed: 'hopper', 'averaging'"
                ),
            ):
                session.find(run_id)
        bench.run("UPDATE cerebro.catalog_runs SET schedule = 'auto' WHERE run_id = %s", (run_id,))
        with closing(DirectSession(as_role(bench.dsn, "direct_outsider"))) as session:
            session.check_version()
            with pytest.raises(UndefinedRun):
                session.find(run_id)
            with pytest.raises(
                NotPermitted, match="of which direct_outsider is no member"
            ) as caught:
                session.act_as("direct_owner")
            assert caught.value.hint == 'GRANT "direct_owner" TO direct_outsider lets it join'
            with pytest.raises(StatementFailed) as failed:
                session.join(run_id, "somewhere")
            assert failed.value.sqlstate == "44000"
        with (
            closing(DirectSession(as_role(bench.dsn, "direct_owner"))) as session,
            pytest.raises(NotSupported, match="has no Cerebro-DB for role direct_owner"),
        ):
            session.check_version()
    finally:
        bench.run("DROP ROLE direct_owner, direct_outsider")
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_another_version_is_refused(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cerebro_db.__version__", "0.0.7")
    with (
        closing(DirectSession(bench.dsn)) as session,
        pytest.raises(WrongRunStatus, match=r"this worker has version 0\.0\.7 of Cerebro-DB; allowed: ") as caught,
    ):  # fmt: skip
        session.check_version()
    assert "pip install" in (caught.value.hint or "")


def test_bad_options_are_reported_in_two_lines(bench: Any, worker: Callable[..., Worker]) -> None:
    code, _, errors = worker(1, "--threads", "0").ended()
    assert (code, errors.splitlines()) == (1, ["cerebro: --threads: got 0; allowed: from 1"])
    code, _, errors = worker(1, dsn="host=/nowhere dbname=nothing").ended()
    assert (code, errors.splitlines()[1][:12]) == (1, "HINT: --dsn ")


READING = "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'packed'::regclass AND granted AND pid = ANY (%s::int[])"
BLOCKED = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE packed%' AND wait_event_type = 'Lock'"


def test_a_table_that_took_the_name_in_mid_run_is_read_by_no_worker(
    bench: Any,
    calm: list[Any],
    gate: Gate,
    worker: Callable[..., Worker],
    other: Callable[[str], None],
    connect: Callable[[str], Any],
    has_segments: bool,
) -> None:
    run_id, looking = paused(bench, "swapped_out"), connect(bench.dsn)
    # Of two workers the direct one reads its rows anew for each hop.
    worker(run_id, "--cache-mb", "0")
    until(lambda: status(bench, run_id) == ["joining"])
    with gate:
        caller = Background(bench.dsn, "SELECT cerebro_resume(%s)", (run_id,))
        until(lambda: ordered(bench, run_id))
        # Hops at the gate hold the table: the swap has its turn after them, before all others.
        if not has_segments:  # which have no gate
            until(lambda: looking.value(READING, (gate.waiting(),)))
        swap = threading.Thread(target=other, args=("packed",))
        swap.start()
        until(lambda: looking.value(BLOCKED))
    swap.join()
    caller.join()
    assert "packed: got another table; allowed: the table that was read" in str(caller.error)
    shown = "SELECT status FROM cerebro.runs WHERE run_id = %s"
    assert bench.value(shown, (run_id,)) == "failed"
    other("packed")
    gate.slow_down(0)
    worker(run_id)
    until(lambda: "joining" in status(bench, run_id))
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert sum(hops_of(bench, run_id)) > 0
    assert results(bench, "swapped_out", run_id) == calm
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
