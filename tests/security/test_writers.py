"""Functions that write the catalog, which is nobody's to write by hand: whose rows each of them changes, and who calls it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from reasons import NO_SUCH_SQL

from tests.security.conftest import NO_RUN, Person, Recruit, added, log_in, paused_run

DENIED, NOT_THERE, TAKEN_BACK, UNDEFINED_RUN = "42501", "44000", "YC007", "42704"
# What the owner of a run says of it; {0} is the run.
OF_OWNER = {
    "_driven": "{0}",
    "_started": "{0}, '{{}}'",
    "_run_ended": "{0}, 'finished', NULL, NULL",
    "_run_queued": "{0}",
    "_output_renamed": "{0}, 'public.elsewhere', 'public', 'elsewhere'",
    "_revived": "{0}, 'run_00000000000000000000000000000000'",
    **{f"_add_{table}": f"{{0}}, $${added(table, mst_key=7, number=7).replace('{', '{{').replace('}', '}}')}$$"
       for table in ("configurations", "plan", "hops", "updates", "metrics", "decisions")},
    "_copy_updates": "{0}, {0}",
    "_add_architecture": "{0}, 7, '', '', NULL",
    "_forget_metrics": "{0}, 1, 1",
    "_forget_hops": "{0}, '{{1}}', 1, 0, '{{}}'",
    "_configurations_ended": "{0}, '{{1}}', 'finished', NULL, false",
    "_set_ends": "{0}, '{{1}}', 1, 1, 1, 'stopped'",
    "_promote": "{0}, 1, 9",
    "_add_request": "{0}, 'extend', NULL, '{{}}'",
    "_forget_requests": "{0}, 9223372036854775807",
    "_forget_extensions": "{0}",
    "_join_run": "{0}, 1, 'x'",
    "_give_order": "{0}, {worker}, '', 1",
    "_forget_orders": "{0}, '{{1}}'",
    "_revoke_orders": "{0}",
    "_answer_order": "{0}, 1, 7, ''",
    "_take_order_back": "{0}, 1, 7",
}  # fmt: skip
# Other changes of a run do nothing where it is gone.
ADDING = {name for name in OF_OWNER if name.startswith("_add_")} | {
    "_copy_updates", "_join_run", "_give_order", "_answer_order",
}  # fmt: skip
# What administrators say, too.
OF_ADMINISTRATORS = {
    "_run_ended": "{0}, 'cancelled', 'by dave', NULL",
    "_add_request": "{0}, 'cancel', NULL, '{{}}'",
    "_states_dropped": "{0}",
    "_drop_run": "{0}",
}
# Of what has a number of its own: nothing is done where it is somebody else's.
BY_NUMBER = {
    "_answer": "{request}, '{{}}'",
    "_forget_request": "{request}",
    "_admit_worker": "{worker}, 1, '{{}}'",
    "_worker_is_ready": "{worker}, '{{}}'",
    "_worker_departed": "{worker}, 'x'",
}
OTHERS = {
    "_add_run", "_check_writer", "_stands", "_writing_role",
    # Tried in test_rows_of_others.py.
    "_administrator", "_set_setting", "_register_function", "_unregister_function",
    # Tried in test_registry.py and test_encoding_of.py.
    "_add_model", "_add_version", "_add_model_state", "_describe_model", "_report_version", "_change_alias", "_grant_model", "_revoke_model",
    "_lock_model", "_drop_model", "_add_drift", "_forget_drift",
}  # fmt: skip
WRITERS = {*OF_OWNER, *OF_ADMINISTRATORS, *BY_NUMBER, *OTHERS}
TABLES = (
    "runs", "configurations", "architectures", "plan", "decisions", "hops", "updates", "metrics", "requests", "direct_workers",
    "direct_orders", "direct_answers",
)  # fmt: skip


@pytest.fixture
def run(alice: Person) -> Iterator[int]:
    """A run of alice's with a row in each table."""
    number = paused_run(alice)
    for table in ("configurations", "plan", "hops", "updates", "metrics", "decisions"):
        alice.rows(f"SELECT cerebro._add_{table}(%s, %s)", (number, added(table)))
    alice.rows("SELECT cerebro._add_architecture(%s, 1, 'x', 'x', NULL)", (number,))
    alice.rows("SELECT cerebro._add_request(%s, 'pause', NULL, '{}')", (number,))
    alice.rows("SELECT cerebro._join_run(%s, 1, 'x')", (number,))
    yield number
    if alice.rows("SELECT FROM cerebro.runs WHERE run_id = %s", (number,)):
        alice.rows("SELECT cerebro._drop_run(%s)", (number,))


def rows_of(root: Person, run: int) -> dict[str, Any]:
    """All that the catalog has of a run."""
    return {
        table: root.rows(
            f"SELECT t::text FROM cerebro.catalog_{table} t WHERE run_id = %s ORDER BY 1", (run,)
        )
        for table in TABLES
    }


def numbers(root: Person, run: int) -> dict[str, int]:
    """The request and the direct worker of a run."""
    return {
        kind: root.value(f"SELECT {kind}_id FROM cerebro.catalog_{table} WHERE run_id = %s", (run,))
        for kind, table in (("request", "requests"), ("worker", "direct_workers"))
    }


def literal(text: str) -> str:
    """A call whose text has percent signs, if any, as they are."""
    return text.replace("%", "%%")


def test_what_is_added_is_there_to_the_bit(alice: Person, run: int, root: Person) -> None:
    found = rows_of(root, run)
    assert [len(found[table]) for table in TABLES] == [1] * 10 + [0] * 2
    hop = "SELECT loss::text, started FROM cerebro.hops WHERE run_id = %s"
    assert alice.rows(hop, (run,))[0][0] == "NaN"
    measured = "SELECT metric_names, metrics FROM cerebro.metrics WHERE run_id = %s"
    assert alice.rows(measured, (run,)) == [(["a"], [1.5])]


def test_nobody_changes_runs_of_others(
    bob: Person, dave: Person, alice: Person, run: int, root: Person
) -> None:
    """Bob is not even told which runs there are, and an administrator changes nothing that a driver goes on with."""
    before, given = rows_of(root, run), numbers(root, run)
    for name, arguments in (*OF_OWNER.items(), *OF_ADMINISTRATORS.items()):
        told = []
        for number in (run, NO_RUN):
            call = literal(f"SELECT cerebro.{name}({arguments.format(number, **given)})")
            if name not in ADDING:
                bob.rows(call, ())
                continue
            error = bob.refused(call, ())
            assert error.pgcode == NOT_THERE, f"{name}: {error}"
            told.append(str(error.diag.message_primary).replace(str(number), "N"))
        assert len(set(told)) == (name in ADDING), name
    for name, arguments in OF_OWNER.items():
        error = dave.refused(
            literal(f"SELECT cerebro.{name}({arguments.format(run, **given)})"), ()
        )
        assert (error.pgcode, f"got {run}, a run of another role" in str(error)) == (DENIED, True)
    for name, arguments in BY_NUMBER.items():
        for other in (bob, dave) if name != "_forget_request" else (bob,):
            other.rows(literal(f"SELECT cerebro.{name}({arguments.format(**given)})"), ())
    assert rows_of(root, run) == before


def test_an_administrator_stops_and_drops_runs_of_others(
    alice: Person, dave: Person, run: int, root: Person
) -> None:
    alice.rows("SELECT cerebro._run_ended(%s, 'finished', NULL, NULL)", (run,))
    alice.rows("SELECT cerebro._revived(%s, %s)", (run, f"run_{secrets.token_hex(16)}"))
    for name, arguments in OF_ADMINISTRATORS.items():
        dave.rows(f"SELECT cerebro.{name}({arguments.format(run)})")
        if name == "_states_dropped":
            stands = "SELECT status, error, states FROM cerebro.catalog_runs WHERE run_id = %s"
            assert root.rows(stands, (run,)) == [("cancelled", "by dave", None)]
            asked = "SELECT quote_ident(pg_get_userbyid(role)) FROM cerebro.catalog_requests WHERE run_id = %s AND action = 'cancel'"
            assert root.value(asked, (run,)) == dave.sql_name
    assert not any(rows_of(root, run).values())


def test_the_owner_calls_each_of_them(alice: Person, run: int, root: Person) -> None:
    given = numbers(root, run)
    order = alice.value("SELECT cerebro._give_order(%s, %s, '', 7)", (run, given["worker"]))
    for name, arguments in (*BY_NUMBER.items(), *OF_OWNER.items()):
        if name not in ("_answer_order", "_take_order_back"):
            call = f"SELECT cerebro.{name}({arguments.format(run, **given)})"
            if name == "_copy_updates":  # the orders that it has
                assert alice.refused(call).pgcode == "23505"
            else:
                alice.rows(literal(call), ())
    assert alice.refused("SELECT cerebro._answer_order(%s, %s, 7, '')", (run, order)).pgcode == TAKEN_BACK  # fmt: skip
    order = alice.value("SELECT cerebro._give_order(%s, %s, '', 7)", (run, given["worker"]))
    alice.rows("SELECT cerebro._answer_order(%s, %s, 7, '')", (run, order))
    assert not alice.value("SELECT cerebro._take_order_back(%s, %s, 7)", (run, order))
    alice.rows("SELECT cerebro._forget_orders(%s, ARRAY[%s]::bigint[])", (run, order))
    assert alice.value("SELECT cerebro._take_order_back(%s, %s, 7)", (run, order))
    assert rows_of(root, run)["direct_answers"] == []


def test_no_role_writes_a_table_or_a_view(root: Person) -> None:
    written = root.rows(
        "SELECT c.oid::regclass::text, r.rolname, p.privilege FROM pg_class c, pg_roles r, "
        "unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p(privilege) "
        "WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND c.relkind IN ('r', 'v', 'm', 'p', 'f') "
        "AND r.rolname IN ('cerebro_user', 'cerebro_admin') AND (has_table_privilege(r.oid, c.oid, p.privilege) "
        "OR p.privilege IN ('INSERT', 'UPDATE') AND has_any_column_privilege(r.oid, c.oid, p.privilege))"
    )
    assert written == []
    numbers = root.rows(
        "SELECT c.oid::regclass::text FROM pg_class c, pg_roles r WHERE c.relkind = 'S' AND c.relnamespace = "
        "(SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND r.rolname IN ('cerebro_user', 'cerebro_admin') "
        "AND has_sequence_privilege(r.oid, c.oid, 'USAGE, SELECT, UPDATE')"
    )
    assert numbers == []


def test_nobody_acts_for_who_calls_his_function(
    alice: Person, bob: Person, run: int, root: Person
) -> None:
    """With the rights of bob, or with those of who calls: what he has written does not act for alice, nor for a superuser."""
    before = rows_of(root, run)
    bob.rows(f"GRANT USAGE ON SCHEMA {bob.sql_name} TO PUBLIC")
    call = f"cerebro._run_ended({run}, 'failed', 'by bob', NULL)"
    for rights in ("DEFINER", "INVOKER"):
        bob.rows(
            f"CREATE OR REPLACE FUNCTION {bob.sql_name}.lure() RETURNS bigint LANGUAGE plpgsql SECURITY {rights} AS "
            f"$$ BEGIN PERFORM {call}; RETURN 1; END $$"
        )
        for person in (alice, root):
            error = person.refused(f"SELECT {bob.sql_name}.lure()")
            assert (error.pgcode, "got a call by another function" in str(error)) == (DENIED, True)
    # Our own functions act for bob there.
    bob.rows(
        f"CREATE OR REPLACE FUNCTION {bob.sql_name}.lure() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS "
        f"$$ BEGIN PERFORM cerebro.cerebro_drop_run({run}); RETURN 1; END $$"
    )
    for person in (alice, root):
        assert person.refused(f"SELECT {bob.sql_name}.lure()").pgcode == UNDEFINED_RUN
    assert rows_of(root, run) == before
    own = paused_run(bob)
    bob.rows(
        f"CREATE OR REPLACE FUNCTION {bob.sql_name}.lure() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS "
        f"$$ BEGIN PERFORM cerebro.cerebro_drop_run({own}); RETURN 1; END $$"
    )
    assert alice.value(f"SELECT {bob.sql_name}.lure()") == 1
    assert not any(rows_of(root, own).values())
    bob.rows(f"DROP FUNCTION {bob.sql_name}.lure()")


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_a_superuser_who_refreshes_a_view_of_somebody_writes_nothing_for_him(
    bob: Person, run: int, root: Person
) -> None:
    """The server works as bob then, in a session of the superuser."""
    before = rows_of(root, run)
    for name, call in (
        ("ends", f"cerebro._run_ended({run}, 'failed', 'by bob', NULL)"),
        ("adds", "cerebro._add_job('[]', '{}', 0, NULL, NULL, 1)"),
    ):
        view = f"{bob.sql_name}.{name}"
        bob.rows(f"CREATE MATERIALIZED VIEW {view} AS SELECT ({call})::text AS told WITH NO DATA")
        error = root.refused(f"REFRESH MATERIALIZED VIEW {view}")
        assert (error.pgcode, "security-restricted operation" in str(error)) == (DENIED, True)
        bob.rows(f"DROP MATERIALIZED VIEW {view}")
    assert rows_of(root, run) == before


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_no_collation_makes_another_status_one_of_those_of_administrators(
    dave: Person, run: int, root: Person, recruit: Recruit
) -> None:
    if dave.connection.server_version < 120000:
        return
    root.rows(
        "CREATE COLLATION public.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    for status in ("CANCELLED", "Paused"):
        call = f"SELECT cerebro._run_ended({run}, '{status}' COLLATE public.loose, NULL, NULL)"
        assert dave.refused(call).pgcode == DENIED
    root.rows("DROP COLLATION public.loose")


def test_a_role_that_is_set_counts(alice: Person, bob: Person, run: int, root: Person) -> None:
    member = log_in(bob.connection.dsn, bob.name)
    root.rows(literal(f"GRANT {alice.sql_name} TO {bob.sql_name}"), ())
    try:
        # Who has the rights of the owner writes, in whichever role.
        member.rows("SELECT cerebro._forget_extensions(%s)", (run,))
        member.rows(literal(f"SET ROLE {alice.sql_name}"), ())
        member.rows("SELECT cerebro._add_request(%s, 'cancel', NULL, '{}')", (run,))
        asked = "SELECT quote_ident(pg_get_userbyid(role)) FROM cerebro.catalog_requests WHERE run_id = %s AND action = 'cancel'"
        assert root.value(asked, (run,)) == alice.sql_name
    finally:
        root.rows(f"REVOKE {alice.sql_name} FROM {bob.sql_name}".replace("%", "%%"), ())
        member.connection.close()
