"""Advisory locks are for everyone: who holds one that is in the way is told, and none stops an installation."""

from __future__ import annotations

import psycopg2.extensions
import pytest

from cerebro_db.errors import ObjectInUse
from cerebro_db.install import installer
from cerebro_db.install.script import Script
from cerebro_db.postgres.sessions import locks
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.outputs import table_key
from tests.security.conftest import Person

IN_USE, DENIED = "55006", "42501"


def test_who_holds_the_lock_of_a_run_is_reported(
    root: Person, alice: Person, carol: Person
) -> None:
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


def test_nobody_waits_for_ever_for_a_lock(
    security_dsn: str, alice: Person, carol: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.3)
    carol.rows("SELECT pg_advisory_lock(%s)", (locks.lock_key("models of public.zoo"),))
    holder = f"process {carol.connection.info.backend_pid} of role {carol.name}"
    ticks: list[None] = []
    session = Session(
        psycopg2.extensions.make_dsn(security_dsn, user=alice.name),
        "test",
        lambda: ticks.append(None),
    )
    try:
        session.settle()
        with pytest.raises(ObjectInUse) as caught, locks.transaction(session):
            locks.lock(session, "models of public.zoo")
        assert holder in caught.value.message
        assert "pg_terminate_backend" in str(caught.value.hint)
        assert ticks
        carol.rows("SELECT pg_advisory_unlock_all()")
        with locks.transaction(session):
            locks.lock(session, "models of public.zoo")
    finally:
        session.close()
        carol.rows("SELECT pg_advisory_unlock_all()")


def test_who_holds_a_table_is_reported(alice: Person, carol: Person) -> None:
    key = table_key(alice.value("SELECT 'packed'::regclass::oid::bigint"))
    carol.rows("SELECT pg_advisory_lock(%s)", (key,))
    holder = f"process {carol.connection.info.backend_pid} of role {carol.name}"
    fit = "SELECT cerebro_fit_multiple('packed', 'locked', 'configs', 1, num_workers := 1)"
    try:
        for call in (fit, "SELECT cerebro_drop_outputs('packed')"):
            error = alice.refused(call)
            assert error.pgcode == IN_USE
            assert holder in error.diag.message_primary
            assert "pg_terminate_backend" in error.diag.message_hint
    finally:
        carol.rows("SELECT pg_advisory_unlock_all()")


def test_who_holds_the_workers_is_reported(root: Person, alice: Person, carol: Person) -> None:
    role = root.value("SELECT oid::bigint FROM pg_roles WHERE rolname = %s", (alice.name,))
    most = root.value("SELECT value::integer FROM cerebro.settings WHERE name = 'max_workers'")
    for number in range(most):
        key = locks.lock_key(f"worker {number} of role {role}")
        carol.rows("SELECT pg_advisory_lock(%s)", (key,))
    try:
        error = alice.refused(
            "SELECT cerebro_fit_multiple('packed', 'locked', 'configs', 1, num_workers := 1)"
        )
        assert error.pgcode == IN_USE
        holder = f"process {carol.connection.info.backend_pid} of role {carol.name}"
        assert holder in error.diag.message_primary
        assert "pg_terminate_backend" in error.diag.message_hint
    finally:
        carol.rows("SELECT pg_advisory_unlock_all()")


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
