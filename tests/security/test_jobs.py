"""Jobs work as the role that has submitted them, and are seen by nobody else but administrators."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from pace import stretched

from cerebro_db.postgres.sessions.locks import lock_key
from tests.security.conftest import Person, Recruit, make_tables

FIT = (
    "SELECT cerebro_fit_multiple('packed', %s, 'configs', %s, num_workers := 1, wait := false, "
    "priority := %s)"
)


@pytest.fixture
def eve(recruit: Recruit) -> Person:
    """A user who has what a run needs, and will lose some rights."""
    eve = recruit(f"eve {time.monotonic_ns()}", "cerebro_user")
    make_tables(eve)
    return eve


@pytest.fixture
def halted(root: Person) -> Iterator[None]:
    """No job begins."""
    root.rows("SELECT cerebro.cerebro_set('max_jobs', '0')")
    yield
    root.rows("SELECT cerebro.cerebro_set('max_jobs', NULL)")


def begin(root: Person) -> None:
    """Let jobs begin again."""
    root.rows("SELECT cerebro.cerebro_set('max_jobs', NULL)")
    root.rows("SELECT cerebro.cerebro_work()")


def test_nobody_sees_the_jobs_of_others_but_administrators(
    root: Person, alice: Person, bob: Person, carol: Person, dave: Person, halted: None
) -> None:
    run_id = alice.value(FIT, ("secret_job", 1, 0))
    job_id = alice.value("SELECT job_id FROM cerebro.jobs WHERE run_id = %s", (run_id,))
    mine = "SELECT count(*) FROM cerebro.jobs WHERE job_id = %s"
    log = "SELECT count(*) FROM cerebro.job_log WHERE job_id = %s"
    assert [one.value(mine, (job_id,)) for one in (alice, bob, dave)] == [1, 0, 1]
    assert [one.value(log, (job_id,)) > 0 for one in (alice, bob, dave)] == [True, False, True]
    carol.refused("SELECT * FROM cerebro.jobs")
    for call in ("cerebro_cancel_job", "cerebro_wait_job"):
        error = bob.refused(f"SELECT cerebro.{call}(%s)", (job_id,))
        none = bob.refused(f"SELECT cerebro.{call}(999999999)")
        assert error.pgcode == none.pgcode == "42704"
        assert (
            str(error).replace(str(job_id), "999999999").split("\n")[0] == str(none).split("\n")[0]
        )
    # A cheap condition is not tried on rows that the views hide.
    bob.rows(
        "CREATE OR REPLACE FUNCTION leak_job(job_id bigint) RETURNS boolean LANGUAGE plpgsql "
        "COST 0.0000001 AS $$BEGIN RAISE NOTICE 'job %', $1; RETURN true; END$$"
    )
    bob.connection.notices.clear()
    for view in ("jobs", "job_log", "_jobs", "_job_events"):
        bob.rows(f"SELECT FROM cerebro.{view} WHERE leak_job(job_id)")
    assert f"job {job_id}" not in "".join(bob.connection.notices)
    # Nor does anybody write down what is not theirs, or start a driver as somebody.
    assert bob.refused(EVENT, (job_id, "cancel", None)).pgcode == "44000"
    assert bob.refused("SELECT cerebro._start_job(%s, 'postgres')", (job_id,)).pgcode == "42501"
    assert bob.refused("SELECT cerebro._job_failed(%s, 'x')", (job_id,)).pgcode == "42501"
    assert bob.refused("SELECT * FROM cerebro.catalog_jobs").pgcode == "42501"
    assert dave.value("SELECT cerebro.cerebro_cancel_job(%s)", (job_id,)) == "cancelled"
    alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))


def test_schedules_are_their_owners_alone(
    alice: Person, bob: Person, carol: Person, dave: Person
) -> None:
    calls = {
        "cerebro_pack": {
            "source_table": "rows", "output_table": "packed_again", "dependent_varname": "y",
            "independent_varname": "x", "replace": True,
        }
    }  # fmt: skip
    make = "SELECT cerebro_schedule('secret night', '0 3 * * *', %s, timer := 'crontab')"
    alice.rows(make, (json.dumps(calls),))
    seen = "SELECT count(*) FROM cerebro.schedules WHERE name = 'secret night'"
    assert [one.value(seen) for one in (alice, bob, dave)] == [1, 0, 1]
    carol.refused("SELECT * FROM cerebro.schedules")
    for call in ("cerebro_start_schedule", "cerebro_unschedule"):
        for other in (bob, dave):  # an administrator starts nothing as somebody else
            error = other.refused(f"SELECT cerebro.{call}('secret night')")
            none = other.refused(f"SELECT cerebro.{call}('none of them')")
            assert error.pgcode == none.pgcode == "42704"
    calls["cerebro_pack"]["source_table"] = f"{alice.sql_name}.rows"
    error = bob.refused(make, (json.dumps(calls),))
    assert error.pgcode == "42501"
    # Nor by the functions that write: they know the caller's own schedules only.
    for change in ("_set_due('secret night', now())", "_drop_schedule('secret night')"):
        dave.rows(f"SELECT cerebro.{change}")
    due = "SELECT next_start > now() FROM cerebro.schedules WHERE name = 'secret night'"
    assert alice.value(due)
    alice.rows("SELECT cerebro_unschedule('secret night')")


EVENT = "SELECT cerebro._tell_of_job(%s, %s, %s, NULL)"
ADD = "SELECT cerebro._add_job('[]', '{}', 0, NULL, NULL, %s)"
RAW = (
    "INSERT INTO {} (job_id) VALUES (1)", "UPDATE {} SET job_id = 1", "DELETE FROM {}",
)  # fmt: skip


@pytest.mark.parametrize("table", ["jobs", "job_events", "schedules"])
def test_nobody_writes_jobs_by_hand(alice: Person, dave: Person, carol: Person, table: str) -> None:
    for person in (alice, carol, dave):
        for relation in (f"cerebro._{table}", f"cerebro.catalog_{table}"):
            for text in RAW:
                text = (
                    text.replace("job_id", "name").replace("1", "'x'")
                    if table == "schedules"
                    else text
                )
                assert person.refused(text.format(relation)).pgcode == "42501"
    assert alice.refused("UPDATE cerebro.jobs SET priority = 1").pgcode in ("42501", "55000")


def test_functions_that_write_jobs_do_not_work_for_who_calls_a_function_of_somebody_else(
    alice: Person, bob: Person
) -> None:
    """With the rights of bob, or with hers: what he has written does not act for her."""
    for rights in ("DEFINER", "INVOKER"):
        bob.rows(
            f"CREATE OR REPLACE FUNCTION {bob.sql_name}.lure() RETURNS bigint LANGUAGE plpgsql SECURITY {rights} AS "
            f"$$ BEGIN RETURN ({ADD % 5}); END $$"
        )
        bob.rows(f"GRANT USAGE ON SCHEMA {bob.sql_name} TO {alice.sql_name}")
        error = alice.refused(f"SELECT {bob.sql_name}.lure()")
        assert (error.pgcode, "got a call by another function" in str(error)) == ("42501", True)
    bob.rows(f"DROP FUNCTION {bob.sql_name}.lure()")


@pytest.mark.parametrize(
    "action", ["run", "done", "started", "finished", "failed", "told", "queued"]
)
def test_an_administrator_tells_nothing_of_jobs_of_others_but_that_they_are_stopped(
    alice: Person, bob: Person, dave: Person, halted: None, action: str
) -> None:
    run_id = alice.value(FIT, ("kept_job", 1, 0))
    job_id = alice.value("SELECT job_id FROM cerebro.jobs WHERE run_id = %s", (run_id,))
    log = "SELECT count(*) FROM cerebro.job_log WHERE job_id = %s"
    before = alice.value(log, (job_id,))
    error = dave.refused(EVENT, (job_id, action, 1))
    assert error.pgcode == "42501"
    assert f"action: got {action} of a job of another role; allowed: cancel" in str(error)
    assert bob.refused(EVENT, (job_id, action, 1)).pgcode == "44000"
    assert alice.value(log, (job_id,)) == before
    dave.rows(EVENT, (job_id, "cancel", None))
    assert dave.value("SELECT cerebro.cerebro_cancel_job(%s)", (job_id,)) == "cancelled"
    alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))


def test_priority_before_others_is_for_administrators(alice: Person, halted: None) -> None:
    refused = alice.refused(FIT, ("hurried", 1, 1))
    assert refused.pgcode == "42501"
    assert "priority: got 1; allowed: -100 to 0" in str(refused)


def test_a_job_has_the_rights_of_its_owner(
    root: Person, alice: Person, dave: Person, halted: None
) -> None:
    run_id = alice.value(FIT, ("own_job", 1, 0))
    begin(root)
    assert alice.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
    owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'own_job'"
    assert alice.value(owner) == alice.name
    alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("REVOKE cerebro_user FROM {}", "permission denied"),
        ("ALTER ROLE {} NOLOGIN", "not permitted to log in"),
        ("ALTER TABLE {}.packed OWNER TO {}", "permission denied"),
    ],
)
def test_a_role_that_loses_its_rights_has_its_job_fail_with_that(
    root: Person, eve: Person, halted: None, loss: str, told: str
) -> None:
    run_id = eve.value(FIT, ("lost_rights", 1, 0))
    root.rows(loss.format(eve.sql_name, root.sql_name))
    begin(root)
    end = time.monotonic() + stretched(60)
    query = "SELECT status, error FROM cerebro.jobs WHERE run_id = %s"
    while (found := root.rows(f"{query}", (run_id,))[0])[0] not in ("failed", "finished"):
        assert time.monotonic() < end, found
        root.rows("SELECT cerebro.cerebro_work()")
        time.sleep(0.2)
    assert found[0] == "failed"
    assert told in found[1]
    status, error = root.rows(
        "SELECT status, error FROM cerebro.runs WHERE run_id = %s", (run_id,)
    )[0]
    assert status == "failed"
    assert told in error
    root.rows("SELECT cerebro.cerebro_drop_run(%s)", (run_id,))


def test_hostile_events_of_ones_own_harm_nobody_else(
    root: Person, alice: Person, bob: Person, halted: None
) -> None:
    """Who holds the locks of jobs of his own takes no more than his share."""
    for number in range(6):
        bob.rows(ADD, (1000 + number,))
        bob.rows("SELECT pg_advisory_lock(%s)", (1000 + number,))
    run_id = alice.value(FIT, ("beside_bob", 1, 0))
    begin(root)
    assert alice.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
    bob.rows("SELECT pg_advisory_unlock_all()")
    for (job_id,) in bob.rows("SELECT job_id FROM cerebro._jobs"):
        bob.rows(EVENT, (job_id, "cancelled", None))
    alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))


def test_a_role_that_has_no_connection_keeps_nobody_from_working(
    root: Person, alice: Person, eve: Person, halted: None
) -> None:
    """Its job is first in the queue, and stays there."""
    waits = eve.value(FIT, ("no_connection", 1, 0))
    run_id = alice.value(FIT, ("behind_eve", 1, 0))
    root.rows(f"ALTER ROLE {eve.sql_name} CONNECTION LIMIT 0")
    begin(root)
    assert alice.value("SELECT cerebro_wait(%s, '300 s')", (run_id,)) == "finished"
    status = "SELECT status FROM cerebro.jobs WHERE run_id = %s"
    assert root.value(status, (waits,)) == "queued"
    root.rows(f"ALTER ROLE {eve.sql_name} CONNECTION LIMIT -1")
    assert eve.value("SELECT cerebro_wait(%s, '300 s')", (waits,)) == "finished"
    alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))


def test_roles_have_their_turns(root: Person, alice: Person, bob: Person, halted: None) -> None:
    many = [bob.value(FIT, (f"many_{number}", 1, 0)) for number in range(4)]
    one = alice.value(FIT, ("one_job", 1, 0))
    everyone = ([*many, one],)
    places = "SELECT run_id FROM cerebro.jobs WHERE run_id = ANY (%s) ORDER BY place"
    told = [run_id for (run_id,) in root.rows(places, everyone)]
    # The first of each role, beginning with whose jobs were not started last; then the others.
    assert (set(told[:2]), told[2:]) == ({many[0], one}, many[1:])
    root.rows("SELECT cerebro.cerebro_set('max_jobs', '1')")
    root.rows("SELECT cerebro.cerebro_work()")
    for run_id, person in ((one, alice), *((run_id, bob) for run_id in many)):
        assert person.value("SELECT cerebro_wait(%s, '300 s')", (run_id,)) == "finished"
    started = "SELECT run_id FROM cerebro.jobs WHERE run_id = ANY (%s) ORDER BY started"
    assert [run_id for (run_id,) in root.rows(started, everyone)] == told
    for run_id, person in ((one, alice), *((run_id, bob) for run_id in many)):
        person.rows("SELECT cerebro_drop_run(%s)", (run_id,))


def test_so_many_jobs_of_a_role_may_wait(
    root: Person, alice: Person, bob: Person, halted: None
) -> None:
    root.rows("SELECT cerebro.cerebro_set('max_waiting_jobs_of_role', '2')")
    try:
        runs = [bob.value(FIT, (f"waits_{number}", 1, 0)) for number in range(2)]
        runs_before = bob.value("SELECT count(*) FROM cerebro.runs")
        error = bob.refused(FIT, ("waits_too", 1, 0))
        assert error.pgcode == "53400"
        assert "allowed: 2, the setting max_waiting_jobs_of_role" in str(error)
        assert bob.value("SELECT count(*) FROM cerebro.runs") == runs_before
        assert bob.refused(ADD, (77,)).pgcode == "53400"
        others = alice.value(FIT, ("of_alice", 1, 0))
        for run_id, person in ((others, alice), *((run_id, bob) for run_id in runs)):
            assert person.value("SELECT cerebro_cancel(%s)", (run_id,)) == "cancelled"
            person.rows("SELECT cerebro_drop_run(%s)", (run_id,))
        bob.value(FIT, ("waits_now", 1, 0))
    finally:
        root.rows("SELECT cerebro.cerebro_set('max_waiting_jobs_of_role', NULL)")
        for (job_id,) in bob.rows("SELECT job_id FROM cerebro.jobs WHERE status = 'queued'"):
            bob.rows("SELECT cerebro_cancel_job(%s)", (job_id,))


def test_nobody_holds_up_the_queue(root: Person, alice: Person, bob: Person, halted: None) -> None:
    """No transaction keeps its lock, no lock of an earlier version counts, and nobody removes rows."""
    for table in ("catalog_queue", "catalog_jobs", "_jobs", "_job_events"):
        for mode in ("SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"):
            assert bob.refused(f"LOCK TABLE cerebro.{table} IN {mode} MODE").pgcode in (
                "25P01", "42501",
            )  # fmt: skip
            bob.rows("BEGIN")
            assert bob.refused(f"LOCK TABLE cerebro.{table} IN {mode} MODE").pgcode == "42501"
            bob.rows("ROLLBACK")
    for statement in ("DELETE FROM cerebro._jobs", "DELETE FROM cerebro._job_events",
                      "UPDATE cerebro._jobs SET priority = 0", "UPDATE cerebro._jobs SET ended = true"):  # fmt: skip
        assert bob.refused(statement).pgcode == "42501"
    bob.rows("SELECT pg_advisory_lock(%s)", (lock_key("queue of jobs"),))
    run_id = alice.value(FIT, ("not_held_up", 1, 0))
    bob.rows("BEGIN")
    bob.rows("SELECT cerebro._start_jobs(), cerebro.cerebro_work()")
    try:
        begin(root)
        assert alice.value("SELECT cerebro_wait(%s, '300 s')", (run_id,)) == "finished"
    finally:
        bob.rows("ROLLBACK")
        bob.rows("SELECT pg_advisory_unlock_all()")
    alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))
