"""Functions that write the catalog: what concerns more than one role is neither changed, nor held up, nor learned by another."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from reasons import NO_SUCH_SQL

from tests.security.conftest import Person, Recruit, added, log_in, paused_run

DENIED, NOT_THERE = "42501", "44000"
ADD = "SELECT cerebro._add_job('[]', '{}', 0, NULL, NULL, %s)"
EVENT = "SELECT cerebro._tell_of_job(%s, %s, %s, NULL)"


@pytest.fixture
def run(alice: Person) -> Iterator[int]:
    """A run of alice's that has stopped."""
    number = paused_run(alice)
    yield number
    alice.rows("SELECT cerebro._drop_run(%s)", (number,))


@pytest.fixture
def waiting(bob: Person, root: Person) -> Iterator[Person]:
    """Another session of bob's, in a transaction that stays open."""
    person = log_in(bob.connection.dsn, bob.name)
    person.rows("BEGIN")
    yield person
    person.rows("ROLLBACK")
    person.connection.close()


# -- what holds for the whole database -------------------------------------------------------


def test_an_administrator_registers_functions(dave: Person, bob: Person) -> None:
    dave.rows(
        "SELECT cerebro.cerebro_register_expression('of_dave', 'mean(square(y_true - y_pred))')"
    )
    dave.rows("SELECT cerebro.cerebro_register_function('too', 'keras.losses:log_cosh')")
    found = "SELECT name, registered_by::text FROM cerebro.registered_functions WHERE name IN ('of_dave', 'too') ORDER BY 1"
    assert bob.rows(found) == [("of_dave", dave.name), ("too", dave.name)]
    for name in ("of_dave", "too"):
        assert bob.refused("SELECT cerebro.cerebro_unregister_function(%s)", (name,)).pgcode == DENIED  # fmt: skip
        dave.rows("SELECT cerebro.cerebro_unregister_function(%s)", (name,))
    assert bob.rows(found) == []


@pytest.mark.parametrize(
    ("call", "checks"),
    [("_set_setting('max_jobs', 'many')", "cerebro_set"),
     ("_set_setting('max_jobs', NULL)", "cerebro_set"),
     ("_register_function('evil', 'os:system', 'os', '1', NULL, 1)", "cerebro_register_function"),
     ("_unregister_function('evil')", "cerebro_unregister_function")],
)  # fmt: skip
def test_what_holds_for_everybody_is_checked_before_it_is_written(
    dave: Person, bob: Person, root: Person, call: str, checks: str
) -> None:
    """A setting that cannot be read would end each call of everybody."""
    for person in (dave, root):
        error = person.refused(f"SELECT cerebro.{call}")
        assert error.pgcode == DENIED
        assert f"allowed: cerebro.{checks}, which checks" in str(error)
    assert "permission denied" in str(bob.refused(f"SELECT cerebro.{call}"))
    assert bob.value("SELECT value FROM cerebro.settings WHERE name = 'max_jobs'") == "4"


# -- numbers of others as arguments ----------------------------------------------------------


def test_nobody_orders_workers_of_other_runs(
    alice: Person, bob: Person, root: Person, run: int, bobs_run: int
) -> None:
    alice.rows("SELECT pg_advisory_lock(7070)")
    worker = alice.value("SELECT cerebro._join_run(%s, 7070, 'here')", (run,))
    alice.rows("SELECT cerebro._worker_is_ready(%s, '{}')", (worker,))
    error = bob.refused("SELECT cerebro._give_order(%s, %s, '', 1)", (bobs_run, worker))
    assert (error.pgcode, f"worker_id: got {worker}; allowed" in str(error)) == (NOT_THERE, True)
    order = "INSERT INTO cerebro.catalog_direct_orders (run_id, worker_id, hop, fence) VALUES (%s, %s, '', 1)"
    status = "SELECT status FROM cerebro.direct_workers WHERE run_id = %s"
    root.rows(order, (bobs_run, worker))  # as another version may have left it
    assert alice.value(status, (run,)) == "waiting"
    alice.rows("SELECT cerebro._give_order(%s, %s, '', 1)", (run, worker))
    assert alice.value(status, (run,)) == "training"
    bob.rows("SELECT cerebro._revoke_orders(%s)", (bobs_run,))
    alice.rows("SELECT pg_advisory_unlock(7070)")


def test_an_administrator_forgets_no_request_of_others(
    alice: Person, dave: Person, root: Person, run: int
) -> None:
    forget = "SELECT cerebro._forget_request(%s)"
    there = "SELECT request_id FROM cerebro.catalog_requests WHERE run_id = %s"
    hers = alice.value("SELECT cerebro._add_request(%s, 'extend', NULL, '{}')", (run,))
    dave.rows(forget, (hers,))
    assert root.rows(there, (run,)) == [(hers,)]
    own = dave.value("SELECT cerebro._add_request(%s, 'cancel', NULL, '{}')", (run,))
    dave.rows(forget, (own,))
    assert root.rows(there, (run,)) == [(hers,)]
    alice.rows(forget, (hers,))
    assert root.rows(there, (run,)) == []


def test_a_job_has_runs_of_its_owner_only(
    alice: Person, bob: Person, dave: Person, root: Person, run: int, bobs_run: int
) -> None:
    """Who cancels a job, such as an administrator, would cancel a run of somebody else by it."""
    alice.rows("SELECT cerebro._run_ended(%s, 'interrupted', NULL, NULL)", (run,))
    job = bob.value(ADD, (7171,))
    for number in (run, run + 1000, None):
        error = bob.refused(EVENT, (job, "run", number))
        assert (error.pgcode, "a run of the owner of the job" in str(error)) == (NOT_THERE, True)
    bob.rows(EVENT, (job, "run", bobs_run))
    bob.rows(EVENT, (job, "queued", run))  # of which nothing is written down
    told = "SELECT DISTINCT run_id FROM cerebro.job_log WHERE job_id = %s AND run_id IS NOT NULL"
    assert bob.rows(told, (job,)) == [(bobs_run,)]
    assert dave.value("SELECT cerebro.cerebro_cancel_job(%s)", (job,)) == "cancelled"
    assert root.value("SELECT status FROM cerebro.catalog_runs WHERE run_id = %s", (run,)) == "interrupted"  # fmt: skip


def test_no_numbers_of_somebody_break_the_queue_for_others(
    alice: Person, bob: Person, root: Person
) -> None:
    """When a job begins is computed from runs of others: of more hops than a number holds, that took a thousand years."""
    most = 2**31 - 1
    run = paused_run(bob, num_partitions=most)
    for key in (1, 2, 3):
        bob.rows("SELECT cerebro._add_configurations(%s, %s)", (run, added("configurations", mst_key=key, budget=most)))  # fmt: skip
    bob.rows("SELECT cerebro._add_hops(%s, %s)", (run, added("hops", finished="2999-12-31")))
    for _ in range(2):
        bob.rows("SELECT cerebro._driven(%s)", (run,))
        bob.rows("SELECT cerebro._started(%s, '{}')", (run,))
    assert root.value("SELECT active > 1e10 FROM cerebro.catalog_runs WHERE run_id = %s", (run,))
    job, waits = bob.value(ADD, (7272,)), alice.value(ADD, (7373,))
    bob.rows("SELECT pg_advisory_lock(7272)")
    for action in ("queued", "run", "started"):
        bob.rows(EVENT, (job, action, run))
    root.rows("SELECT cerebro.cerebro_set('max_jobs', '1')")
    try:
        standing = (
            "SELECT status, estimated_start < '3001-01-01' FROM cerebro.jobs WHERE job_id = %s"
        )
        assert bob.rows(standing, (job,)) == [("running", None)]
        assert alice.value(standing.replace(", estimated_start < '3001-01-01'", ""), (waits,)) == "queued"  # fmt: skip
        assert root.value("SELECT count(*) FROM cerebro.schedules") >= 0
    finally:
        root.rows("SELECT cerebro.cerebro_set('max_jobs', NULL)")
        bob.rows("SELECT pg_advisory_unlock(7272)")
        for person, number in ((bob, job), (alice, waits)):
            person.rows(EVENT, (number, "cancelled", None))
        bob.rows("SELECT cerebro._drop_run(%s)", (run,))


def test_nobody_learns_how_many_jobs_a_role_has(bob: Person, root: Person) -> None:
    owner = root.value("SELECT oid FROM pg_roles WHERE rolname = %s", (root.name,))
    assert bob.refused("SELECT cerebro._open_jobs(%s::oid)", (owner,)).pgcode == DENIED


# -- transactions that stay open -------------------------------------------------------------


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_who_has_a_role_written_down_keeps_it_from_nothing(
    bob: Person, root: Person, waiting: Person, recruit: Recruit
) -> None:
    """Bob grants a model to a role that the catalog does not know, and does not end his transaction."""
    newcomer = recruit(f"newcomer {time.monotonic_ns()}", "cerebro_user")
    number = root.value("SELECT oid FROM pg_roles WHERE rolname = %s", (newcomer.name,))
    assert bob.refused("SELECT cerebro._know_role(%s::oid, NULL)", (number,)).pgcode == DENIED
    model = bob.value("SELECT cerebro._add_model(%s)", (f"lent to {number}",))
    waiting.rows("SELECT cerebro._grant_model(%s, %s::oid)", (model, number))
    newcomer.rows("SET statement_timeout = '20s'")
    run = paused_run(newcomer)
    known = "SELECT name::text, mark <> '' FROM cerebro.catalog_roles WHERE role = %s::oid"
    marks = "SELECT count(*) FROM pg_class WHERE relname LIKE 'owner%%' AND relowner = %s::oid"
    assert root.rows(known, (number,)) == []
    assert root.value(marks, (number,)) == 0
    waiting.rows("ROLLBACK")
    newcomer.rows("SELECT cerebro._mark_role()")
    assert root.rows(known, (number,)) == [(newcomer.name, True)]
    assert root.value(marks, (number,)) == 1
    newcomer.rows("SELECT cerebro._drop_run(%s)", (run,))
    bob.rows("SELECT cerebro._drop_model(%s, NULL)", (model,))


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_who_removes_old_jobs_keeps_nobody_from_starting_others(
    alice: Person, root: Person, waiting: Person
) -> None:
    """A timer that waited for bob would start no job of anybody."""
    job = alice.value(ADD, (7474,))
    alice.rows(EVENT, (job, "finished", None))
    root.rows("UPDATE cerebro.catalog_job_events SET logged = now() - interval '2 days' WHERE job_id = %s", (job,))  # fmt: skip
    root.rows("SELECT cerebro.cerebro_set('keep_runs', '1 day')")
    try:
        waiting.rows("SELECT cerebro.cerebro_work()")
        assert waiting.value("SELECT count(*) FROM cerebro._jobs WHERE job_id = %s", (job,)) == 0
        alice.rows("SET statement_timeout = '20s'")
        alice.rows("SELECT cerebro.cerebro_work()")
    finally:
        alice.rows("RESET statement_timeout")
        root.rows("SELECT cerebro.cerebro_set('keep_runs', NULL)")


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_who_holds_a_schedule_of_his_holds_up_no_timer(bob: Person, waiting: Person) -> None:
    """The daemon starts those of others next."""
    bob.rows("SELECT cerebro._add_schedule('held', '* * * * *', '[]', '{}', NULL, 0, 'daemon', now())")  # fmt: skip
    waiting.rows("SELECT cerebro._set_due('held', now())")
    bob.rows("SET statement_timeout = '60s'")
    try:
        error = bob.refused("SELECT cerebro.cerebro_start_schedule('held')")
        assert (error.pgcode, "lock timeout" in str(error)) == ("55P03", True)
    finally:
        waiting.rows("ROLLBACK")
        bob.rows("RESET statement_timeout")
        bob.rows("SELECT cerebro._drop_schedule('held')")
