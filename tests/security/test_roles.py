"""Whose runs and models are: after a restore elsewhere, and after roles were renamed, dropped or have given away what they own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY
from servers import connected, drop_database, make_database

from cerebro_db.install import doctor
from cerebro_db.install.embedded import Cluster
from tests.conftest import FAST, Sql
from tests.security.conftest import ADAM, Person, log_in, make_tables, paused_run, trained_a_little

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)

ROLES = ("restore_anna", "restore_bert", "restore_carol")
OWNERS = "SELECT run_id, owner::text FROM cerebro.runs ORDER BY 1"


@pytest.fixture
def home(cluster: Cluster, administrator: Any, template: str) -> Iterator[Sql]:
    """A database of its own, with three roles that are users."""
    name = f"roles_{os.getpid()}"
    make_database(administrator, name, template)
    dsn = cluster.dsn(name)
    sql = Sql(connected(dsn), dsn)
    for role in ROLES:
        sql.run(f"CREATE ROLE {role} LOGIN IN ROLE cerebro_user")
        sql.run(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    yield sql
    sql.close()
    drop_database(administrator, name)
    for (role,) in administrator.fetch(
        "SELECT rolname FROM pg_roles WHERE rolname LIKE 'restore\\_%'"
    ):
        administrator.run(f"DROP ROLE {role}")


def member(sql: Sql, name: str) -> Person:
    return log_in(sql.dsn, name, options=f"-c search_path={name},cerebro")


def put(server: Cluster, dsn: str, text: bytes) -> str:
    """What psql says while it restores a dump."""
    command = [server.psql(), "-X", "-q", "-d", dsn, "-f", "-"]
    return subprocess.run(command, input=text, capture_output=True, check=True).stderr.decode()


def dump(server: Cluster, dsn: str) -> bytes:
    command = [str(Path(server.psql()).with_name("pg_dump")), "-d", dsn]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_restored_elsewhere_all_belongs_to_roles_of_the_same_names(
    home: Sql, cluster: Cluster, own_folder: Path
) -> None:
    anna, bert, carol = (member(home, name) for name in ROLES)
    make_tables(anna)
    finished = anna.value(
        "SELECT cerebro_fit('packed', 'out', 'models', 1, %s, 'batch_size=8', 1)", (ADAM,)
    )
    anna.rows("SELECT cerebro_register_model(%s, 1, 'net')", (finished,))
    anna.rows("SELECT cerebro_grant_model('net', 'restore_bert')")
    paused = trained_a_little(anna, "more")
    of_bert, of_carol = paused_run(bert), paused_run(carol)
    anna.rows("CREATE TABLE asked AS SELECT id, x FROM rows")
    anna.rows("SELECT cerebro_predict('model:net:1', 'asked', 'id', 'x', 'answers')")
    expected = anna.rows("SELECT id, class_value, prob FROM answers ORDER BY 1, 2")
    # Since she registered it she has another name.
    home.run("ALTER ROLE restore_bert RENAME TO restore_berta")
    assert home.fetch(OWNERS) == [
        (finished, "restore_anna"), (paused, "restore_anna"), (of_bert, "restore_berta"), (of_carol, "restore_carol"),
    ]  # fmt: skip
    for one in (anna, bert, carol):
        one.connection.close()
    text = dump(cluster, home.dsn)
    other = Cluster(own_folder / "other", settings=FAST)
    other.start()
    try:
        dsn = other.dsn("postgres")
        there = Sql(connected(dsn), dsn)
        # Roles in another order, one of the old name of another, and one is not there.
        for role in ("restore_berta", "someone", "restore_bert", "restore_anna"):
            there.run(f"CREATE ROLE {role} LOGIN")
        for role in ("cerebro_owner", "cerebro_user", "cerebro_admin"):
            there.run(
                f"DO $$BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END$$"
            )
        there.run("GRANT cerebro_user TO cerebro_admin, restore_anna, restore_bert, restore_berta")
        there.run("GRANT pg_read_all_settings TO cerebro_owner")
        there.run("CREATE DATABASE restored")
        there.close()
        dsn = other.dsn("restored")
        said = put(other, dsn, text)
        assert 'role "restore_carol" does not exist' in said
        there = Sql(connected(dsn), dsn)
        assert there.fetch(OWNERS) == [
            (finished, "restore_anna"), (paused, "restore_anna"), (of_bert, "restore_berta"),
            (of_carol, "restore_carol (unknown role)"),
        ]  # fmt: skip
        # Nobody has what belonged to someone else.
        for name, runs in (
            ("restore_berta", [of_bert]),
            ("restore_bert", []),
            ("restore_anna", [finished, paused]),
        ):
            person = member(there, name)
            assert [
                run for (run,) in person.rows("SELECT run_id FROM cerebro.runs ORDER BY 1")
            ] == runs
            person.connection.close()
        told = [one for one in doctor.examine(dsn, None) if one.name == "owners"]
        assert [(one.state, one.value) for one in told] == [
            ("warning", '1 runs of role "restore_carol", which is not in this cluster')
        ]
        assert "cerebro_reassign_owned('restore_carol', 'new_owner')" in str(told[0].advice)
        assert (
            there.value("SELECT cerebro.cerebro_reassign_owned('restore_carol', 'restore_bert')")
            == 1
        )
        assert there.fetch(OWNERS)[-1] == (of_carol, "restore_bert")
        assert [one.state for one in doctor.examine(dsn, None) if one.name == "owners"] == ["ok"]
        # The registered model predicts, for whom it was granted too, and the paused run goes on.
        anna = member(there, "restore_anna")
        anna.rows("SELECT cerebro_predict('model:net:1', 'asked', 'id', 'x', 'again')")
        assert anna.rows("SELECT id, class_value, prob FROM again ORDER BY 1, 2") == expected
        anna.rows("SELECT cerebro_resume(%s, max_seconds := 1)", (paused,))
        assert (
            anna.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (paused,)) == "paused"
        )
        berta = member(there, "restore_berta")
        assert berta.rows("SELECT owner::text, name FROM cerebro.registered_models") == [
            ("restore_anna", "net")
        ]
        for one in (anna, berta):
            one.connection.close()
        there.close()
    finally:
        other.stop()
        other.destroy()


def test_roles_are_renamed_dropped_and_reassigned(home: Sql) -> None:
    anna, bert, carol = (member(home, name) for name in ROLES)
    runs = {one.name: paused_run(one) for one in (anna, bert, carol)}
    carol.rows("SELECT * FROM cerebro.runs")
    # A rename takes all with it.
    home.run("ALTER ROLE restore_anna RENAME TO restore_anne")
    assert home.fetch(OWNERS)[0] == (runs["restore_anna"], "restore_anne")
    assert (
        home.value("SELECT name FROM cerebro.catalog_roles WHERE name LIKE 'restore_an%'")
        == "restore_anna"
    )
    home.run("SELECT cerebro._adopt()")
    assert (
        home.value("SELECT name FROM cerebro.catalog_roles WHERE name LIKE 'restore_an%'")
        == "restore_anne"
    )
    # Nobody drops a role by mistake that owns runs.
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist, match="owner_"):
        home.run("DROP ROLE restore_bert")
    # What a role owns is given away with its tables, and the next call of anybody writes it down.
    home.run("REASSIGN OWNED BY restore_bert TO restore_carol")
    bert.connection.close()
    home.run("DROP OWNED BY restore_bert; DROP ROLE restore_bert")
    carol.rows("SELECT cerebro.cerebro_wait(%s)", (runs["restore_carol"],))
    assert home.fetch(OWNERS)[1:] == [
        (runs["restore_bert"], "restore_carol"), (runs["restore_carol"], "restore_carol"),
    ]  # fmt: skip
    # Dropped with all that it owned: its runs are nobody's, also not of who takes its name.
    anna.connection.close()
    home.run(
        "DROP OWNED BY restore_anne CASCADE; DROP ROLE restore_anne; CREATE ROLE restore_anne LOGIN IN ROLE cerebro_user"
    )
    assert home.fetch(OWNERS)[0] == (runs["restore_anna"], "restore_anne (unknown role)")
    other = log_in(home.dsn, "restore_anne")
    assert other.rows("SELECT * FROM cerebro.runs") == []
    error = other.refused("SELECT cerebro.cerebro_reassign_owned('restore_anne', 'restore_anne')")
    assert error.pgcode == "42501"
    other.connection.close()
    assert home.value("SELECT cerebro.cerebro_reassign_owned('restore_anne', 'restore_anne')") == 1
    assert home.fetch(OWNERS)[0] == (runs["restore_anna"], "restore_anne")
    missing, null = psycopg2.errors.UndefinedObject, psycopg2.errors.InvalidParameterValue
    for call, error_class, message in (
        ("cerebro_reassign_owned('restore_anne', 'nobody_of_this_name')", missing, "new_owner"),
        ("cerebro_reassign_owned('nobody_of_this_name', 'restore_anne')", missing, "owner"),
        ("cerebro_reassign_owned('restore_anne', NULL)", null, "new_owner: got NULL"),
    ):
        with pytest.raises(error_class, match=message):
            home.run(f"SELECT cerebro.{call}")


def test_models_of_the_same_name_stay_where_they_are(home: Sql) -> None:
    anna, bert, _ = (member(home, name) for name in ROLES)
    for one in (anna, bert):
        one.rows("SELECT cerebro._add_model('net')")
    anna.rows("SELECT cerebro._add_model('other')")
    given = "SELECT cerebro.cerebro_reassign_owned('restore_anna', 'restore_bert')"
    assert home.value(given) == 1
    owners = "SELECT owner::text FROM cerebro.registered_models ORDER BY name, 1"
    assert home.column(owners) == ["restore_anna", "restore_bert", "restore_bert"]
    home.run(
        "DELETE FROM cerebro.catalog_models WHERE owner = 'restore_bert'::regrole AND name = 'net'"
    )
    assert home.value(given) == 1
    assert home.column(owners) == ["restore_bert", "restore_bert"]


def test_each_column_with_the_number_of_a_role_is_known(home: Sql) -> None:
    known = home.fetch("SELECT relation::text, attribute::text FROM cerebro._role_columns()")
    assert {
        ("cerebro.catalog_runs", "owner"),
        ("cerebro.catalog_models", "owner"),
        ("cerebro.catalog_jobs", "owner"),
        ("cerebro.catalog_schedules", "owner"),
        ("cerebro.catalog_drift", "owner"),
        ("cerebro.catalog_job_events", "role"),
        ("cerebro.catalog_requests", "role"),
        ("cerebro.catalog_functions", "registered_by"),
        ("cerebro.catalog_model_versions", "registered_by"),
        ("cerebro.catalog_model_aliases", "changed_by"),
        ("cerebro.catalog_model_grants", "grantee"),
        ("cerebro.catalog_model_grants", "granted_by"),
    } == set(known)
    # What else has a number of something that a dump does not carry.
    others = home.fetch(
        "SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped "
        "AND a.atttypid IN ('oid'::regtype, 'regclass'::regtype, 'regrole'::regtype, 'xid'::regtype, 'tid'::regtype)"
    )
    rest = {one for one in others if (f"cerebro.{one[0]}", one[1]) not in set(known)}
    assert rest == {
        ("catalog_runs", "source_oid"),
        ("catalog_runs", "validation_oid"),
        ("catalog_roles", "role"),
        ("catalog_roles", "marker"),
        ("catalog_roles", "home"),
    }


def test_nobody_says_whose_rows_are(home: Sql) -> None:
    """Functions that the catalog needs for it give a user nothing."""
    anna, bert, _ = (member(home, name) for name in ROLES)
    run = paused_run(anna)
    number = {one.name: one.value("SELECT cerebro._role()::bigint") for one in (anna, bert)}
    moves = "SELECT cerebro._move_role(%s::oid, %s::oid)"
    assert bert.refused(moves, (number["restore_anna"], number["restore_bert"])).pgcode == "42501"
    for call in ("cerebro._free_number()", "cerebro._is_told_of(1::oid)"):
        assert bert.refused(f"SELECT {call}").pgcode == "42501"
    # A mark is a view of the role itself, and the first one counts as long as it is there.
    marks = "SELECT mark, marker FROM cerebro.catalog_roles WHERE name = 'restore_anna'"
    before = home.fetch(marks)
    assert str(before[0][0]).startswith("owner_")
    bert.rows("CREATE VIEW cerebro_states.owner_of_mine AS SELECT 1 AS one")
    knows = "SELECT cerebro._know_role(%s::oid, 'owner_of_mine')"
    assert bert.refused(knows, (number["restore_anna"],)).pgcode == "42501"
    bert.rows("SELECT cerebro._know_mark('owner_of_mine')")
    bert.rows("SELECT cerebro._know_mark(%s)", (before[0][0],))
    assert home.fetch(marks) == before
    # Who makes one of the same name after it has gone gets nothing.
    home.run("DROP OWNED BY restore_anna CASCADE")
    bert.rows(f"CREATE VIEW cerebro_states.{before[0][0]} AS SELECT 1 AS one")
    bert.rows("SELECT cerebro._adopt()")
    assert home.fetch(marks) == [("", 0)]  # by which a restore would find him
    assert home.fetch(OWNERS) == [(run, "restore_anna")]
    assert bert.rows("SELECT * FROM cerebro.runs") == []


def test_an_event_trigger_that_gives_away_what_is_made_takes_no_runs(home: Sql) -> None:
    home.run("CREATE ROLE restore_team; GRANT restore_team TO restore_anna")
    home.run("GRANT CREATE ON SCHEMA cerebro_states, restore_anna TO restore_team")
    home.run(
        "CREATE FUNCTION public.hand_over() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE o record; BEGIN "
        "FOR o IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type IN ('table', 'view') LOOP "
        "EXECUTE format('ALTER TABLE %s OWNER TO restore_team', o.object_identity); END LOOP; END $$"
    )
    tags = "WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'CREATE VIEW', 'SELECT INTO')"
    home.run(
        f"CREATE EVENT TRIGGER hand_over ON ddl_command_end {tags} EXECUTE FUNCTION public.hand_over()"
    )
    anna, bert, _ = (member(home, name) for name in ROLES)
    make_tables(anna)
    fit = "SELECT cerebro_fit('packed', 'out', 'models', 1, %s, 'batch_size=8', 1, replace := %s)"
    run = anna.value(fit, (ADAM, False))
    assert home.fetch(OWNERS) == [(run, "restore_anna")]
    owner = "SELECT tableowner FROM pg_tables WHERE schemaname = 'restore_anna' AND tablename IN {} ORDER BY 1"
    assert set(home.column(owner.format("('packed', 'packed_summary', 'out', 'out_info')"))) == {
        "restore_team"
    }
    # Members of the owner replace, again and again, and what they make is its own.
    pack = "SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 2, replace := true)"
    predict = "SELECT cerebro_predict('out', 'rows', 'id', 'x', 'answers', replace := true)"
    for _ in range(2):
        anna.rows(pack)
        anna.rows(fit, (ADAM, True))
        anna.rows(predict)
    home.run("DROP EVENT TRIGGER hand_over")
    anna.rows(pack)
    anna.rows(fit, (ADAM, True))
    anna.rows(predict)
    listed = "('packed', 'packed_summary', 'out', 'out_info', 'out_summary', 'answers')"
    assert home.column(owner.format(listed)) == ["restore_team"] * 6
    # Nobody else does; nor where the new table could not be the owner's.
    home.run(
        "GRANT USAGE, CREATE ON SCHEMA restore_anna TO restore_bert; GRANT SELECT ON restore_anna.rows TO restore_bert"
    )
    theirs = (
        "SELECT cerebro_pack('restore_anna.rows', 'restore_anna.packed', 'y', 'x', replace := true)"
    )
    assert bert.refused(theirs).pgcode == "42501"
    home.run("REVOKE CREATE ON SCHEMA restore_anna FROM restore_team")
    error = anna.refused(pack)
    assert (error.pgcode, "may not make tables in schema restore_anna" in str(error)) == (
        "42501",
        True,
    )
    assert len(anna.rows("SELECT cerebro_drop_outputs('answers')")) == 1
