"""Whose rights count: row-level security, SET ROLE, functions of others, roles that go and come."""

from __future__ import annotations

from typing import Any

import pytest
from reasons import NO_SUCH_SQL

from tests.security.conftest import Person, Recruit, log_in, paused_run, quoted


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_rows_that_a_policy_hides_are_not_packed(alice: Person, bob: Person, carol: Person) -> None:
    table = f"{alice.sql_name}.shared".replace("%", "%%")
    alice.rows(
        f"CREATE TABLE {table} (x real[], y int, who name); "
        f"INSERT INTO {table} SELECT ARRAY[i, 100 * (i %% 2)], i %% 2, "
        "CASE WHEN i %% 2 = 0 THEN %(bob)s ELSE 'someone' END FROM generate_series(1, 20) i; "
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; "
        f"CREATE POLICY own ON {table} USING (who = current_user); "
        f"GRANT SELECT ON {table} TO {bob.sql_name}".replace("%(bob)", "%(bob)"),
        {"bob": bob.name},
    )
    name = table.replace("'", "''")
    bob.rows(f"SELECT cerebro_pack('{name}', 'visible', 'y', 'x', num_partitions := 1)", ())
    assert bob.rows("SELECT sum(num_rows) FROM visible") == [(10,)]
    assert bob.value("SELECT y_class_values FROM visible_summary") == [0]
    features = b"".join(bytes(row[0]) for row in bob.rows("SELECT x FROM visible"))
    assert len(features) == 10 * 2 * 4
    # What is hidden is not told by an error either: the class of those rows is not known.
    assert bob.value("SELECT classes_found FROM visible_summary") == [1]
    bob.rows(f"SELECT cerebro_pack_validation('{name}', 'visible_2', 'y', 'x', 'visible')", ())
    assert bob.rows("SELECT sum(num_rows) FROM visible_2") == [(10,)]


def test_a_role_that_takes_over_a_name_gets_no_runs(
    recruit: Recruit, root: Person, security_dsn: str
) -> None:
    frank = recruit("frank", "cerebro_user")
    run = paused_run(frank)
    old, name = quoted(frank.name + " then"), frank.sql_name
    root.rows(f"ALTER ROLE {name} RENAME TO {old}; CREATE ROLE {name} LOGIN IN ROLE cerebro_user")
    new = log_in(security_dsn, frank.name)
    try:
        assert new.rows("SELECT * FROM cerebro.runs") == []
        assert new.refused("SELECT cerebro_resume(%s)", (run,)).pgcode == "42704"
        # The one who was renamed keeps them.
        assert frank.value("SELECT owner FROM cerebro.runs") == frank.name + " then"
        root.rows(f"DROP OWNED BY {old} CASCADE; DROP ROLE {old}")
        assert new.refused("SELECT cerebro_drop_run(%s)", (run,)).pgcode == "42704"
        owner = root.rows("SELECT owner FROM cerebro.runs WHERE run_id = %s", (run,))
        assert "unknown" in owner[0][0]
        # An administrator clears up after someone who is gone.
        root.rows("SELECT cerebro.cerebro_drop_run(%s)", (run,))
    finally:
        new.connection.close()


def test_set_role_counts(recruit: Recruit, root: Person, alice: Person) -> None:
    """Workers log in as the role that is set: it must be one that may."""
    gina = recruit("gina", "cerebro_user")
    team = recruit("team", "cerebro_user")
    root.rows(f"GRANT {team.sql_name} TO {gina.sql_name}")
    run = paused_run(team)
    # A member that inherits sees the runs of the team, and stops or drops them ...
    assert gina.rows("SELECT run_id FROM cerebro.runs") == [(run,)]
    # ... but goes on with them as the team only.
    error = gina.refused("SELECT cerebro_resume(%s)", (run,))
    assert (error.pgcode, "another role" in str(error)) == ("42501", True)
    root.rows(f"ALTER ROLE {team.sql_name} NOLOGIN")
    gina.rows(f"SET ROLE {team.sql_name}")
    error = gina.refused("SELECT cerebro.cerebro_resume(%s)", (run,))
    assert (error.pgcode, "not permitted to log in" in str(error)) == ("08001", True)
    root.rows(f"ALTER ROLE {team.sql_name} LOGIN")
    gina.rows("CREATE TABLE seen AS SELECT 1 AS y, ARRAY[1, 2] AS x")
    gina.rows("SELECT cerebro.cerebro_pack('seen', 'packed', 'y', 'x', num_partitions := 1)")
    owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'packed' AND schemaname = %s"
    assert gina.value(owner, (team.name,)) == team.name
    gina.rows("SELECT cerebro.cerebro_drop_run(%s)", (run,))
    gina.rows("RESET ROLE")


def test_a_member_that_does_not_inherit_has_to_set_the_role(
    recruit: Recruit, root: Person, security_dsn: str
) -> None:
    henry = recruit("henry", "cerebro_user", "LOGIN NOINHERIT")
    assert henry.refused("SELECT cerebro.cerebro_version()").pgcode == "42501"
    assert henry.refused("SELECT * FROM cerebro.runs").pgcode == "42501"


def test_a_function_of_another_runs_with_that_ones_rights(
    alice: Person, bob: Person, root: Person
) -> None:
    """SECURITY DEFINER: as everywhere in PostgreSQL, for sessions of workers too."""
    schema = alice.sql_name.replace("%", "%%")
    alice.rows(
        f"CREATE FUNCTION {schema}.pack_for_all(name text) RETURNS void LANGUAGE sql "
        f"SECURITY DEFINER SET search_path = {schema}, cerebro, pg_temp AS "
        "$$SELECT cerebro_pack('rows', $1, 'y', 'x', num_partitions := 1)$$",
        (),
    )
    bob.rows(f"SELECT {schema}.pack_for_all('for_bob')", ())
    owner: Any = root.rows("SELECT tableowner FROM pg_tables WHERE tablename = 'for_bob'")
    assert owner == [(alice.name,)]
    # The worker sessions of alice are not used for what bob does next as himself.
    bob.rows("SELECT cerebro_pack('rows', 'own_again', 'y', 'x', num_partitions := 1)")
    owner = root.rows("SELECT tableowner FROM pg_tables WHERE tablename = 'own_again'")
    assert owner == [(bob.name,)]


def test_a_view_of_another_runs_nothing_as_the_caller(alice: Person, bob: Person) -> None:
    """Who reads it in SQL runs functions of that one; Cerebro-DB does not (test_code_of_others.py)."""
    bob.rows(
        "CREATE FUNCTION whoami(int) RETURNS int LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'as %', current_user; END$$; "
        "CREATE VIEW bait AS SELECT whoami(y) AS y, x FROM rows; "
        f"GRANT USAGE ON SCHEMA {bob.sql_name} TO {alice.sql_name.replace('%', '%%')}; "
        f"GRANT SELECT ON bait TO {alice.sql_name.replace('%', '%%')}".replace("'as %'", "'as %%'"),
        (),
    )
    error = alice.refused(
        f"SELECT cerebro_pack('{bob.sql_name}.bait', 'baited', 'y', 'x', num_partitions := 1)"
    )
    assert error.pgcode == "42501"
    assert f"as {alice.name}" not in str(error)
    assert ".whoami(integer) of bob" in str(error)
