"""Advisory locks are for everyone: who holds one that is in the way is told, and none stops an installation."""

from __future__ import annotations

from cerebro_db.install import installer
from cerebro_db.install.script import Script
from tests.security.conftest import Person

IN_USE, DENIED = "55006", "42501"


def test_who_holds_the_lock_of_a_run_is_told(root: Person, alice: Person, carol: Person) -> None:
    call = (
        "SELECT cerebro_fit_multiple('packed', 'locked', 'configs', 2, num_workers := 1, "
        "max_seconds := 0.001)"
    )
    run_id = alice.value(call)
    key = root.value("SELECT lock_key FROM cerebro.catalog_runs WHERE run_id = %s", (run_id,))
    carol.rows("SELECT pg_advisory_lock(%s)", (key,))
    holder = f"process {carol.connection.info.backend_pid} of role {carol.name}"
    try:
        for call in ("cerebro_resume", "cerebro_drop_run"):
            error = alice.refused(f"SELECT {call}(%s)", (run_id,))
            assert error.pgcode in (IN_USE, "55000")
            assert holder in error.diag.message_primary
            assert "pg_terminate_backend" in error.diag.message_hint
    finally:
        carol.rows("SELECT pg_advisory_unlock_all()")
        alice.rows("SELECT cerebro_drop_run(%s)", (run_id,))


def test_nobody_is_in_the_way_of_an_installation(
    security_dsn: str, carol: Person, bob: Person
) -> None:
    for person in (carol, bob):
        for mode in ("SHARE UPDATE EXCLUSIVE", "ACCESS SHARE"):
            lock = f"BEGIN; LOCK TABLE pg_catalog.pg_user_mapping IN {mode} MODE"
            assert person.refused(lock).pgcode == DENIED
            person.rows("ROLLBACK")
    carol.rows("SELECT pg_advisory_lock(4820170531)")
    try:
        installer.install(security_dsn, Script())
    finally:
        carol.rows("SELECT pg_advisory_unlock_all()")
