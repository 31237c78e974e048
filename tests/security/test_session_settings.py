"""What decides which rows and values a caller sees is so in each session that works for her."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from reasons import NO_SUCH_SQL

from cerebro_db.core.run_spec import RunSpec
from cerebro_db.decide.strategies import parse_strategy
from cerebro_db.errors import InvalidData
from cerebro_db.postgres.calls.host import Client
from cerebro_db.postgres.calls.settings import (
    CARRIED,
    DEFAULTS,
    EVERYWHERE,
    ISOLATION,
    SESSION_USER,
    beginning,
    everywhere,
    work_for_run,
)
from tests.security.conftest import (
    ADAM,
    NET,
    Person,
    Recruit,
    log_in,
    make_tables,
    quoted,
    trained_a_little,
)

# Values that no session has by itself.
OTHERS = {
    "row_security": "on",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Tokyo",
    "timezone_abbreviations": "India",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "xmlbinary": "hex",
    "xmloption": "document",
    "array_nulls": "off",
    "default_text_search_config": "pg_catalog.simple",
    "gin_fuzzy_search_limit": "7",
    "transform_null_equals": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "quote_all_identifiers": "on",
    "restrict_nonsystem_relation_kind": "foreign-table",
    "default_transaction_isolation": "repeatable read",
    "app.tenant": "acme; it's \\ 100 %",
    "app.Mixed.case": "",
}
# Settings of the same categories that do not: how statements run, and where what they make lies.
OWN = {
    "client_encoding", "lc_messages", "client_min_messages", "check_function_bodies", "synchronize_seqscans",
    "escape_string_warning", "default_transaction_read_only", "default_transaction_deferrable", "transaction_read_only", "transaction_deferrable",
    "statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout",
    "transaction_timeout", "default_tablespace", "temp_tablespaces", "default_table_access_method",
    "default_toast_compression", "gin_pending_list_limit", "dynamic_library_path", "extension_control_path",
    "default_with_oids", "operator_precedence_warning", "icu_validation_level", "createrole_self_grant",
    "event_triggers",
}  # fmt: skip
DECIDING = (
    "Locale and Formatting", "Statement Behavior", "Other Defaults", "Previous PostgreSQL Versions",
    "Other Platforms and Clients",
)  # fmt: skip


def test_every_setting_that_may_decide_is_carried_or_known_not_to(root: Person) -> None:
    found = root.rows(
        "SELECT name, category FROM pg_settings WHERE context IN ('user', 'superuser') AND name !~ '[.]'"
    )
    assert found
    names = {
        name
        for name, category in found
        if category.endswith(DECIDING) and not name.startswith("vacuum_")
    }
    assert names - set(CARRIED) - OWN == set()
    assert set(CARRIED) & OWN == set()
    # The values of this file are of all that a user may set.
    assert (
        set(CARRIED) - {"search_path", SESSION_USER, ISOLATION} - set(DEFAULTS) - set(OTHERS)
        == set()
    )


@pytest.fixture
def nell(recruit: Recruit, root: Person, security_dsn: str) -> Iterator[Person]:
    """A user whose session has set all that decides."""
    name = f"nell {os.urandom(3).hex()}"
    nell = recruit(name, "cerebro_user")
    known = {row[0] for row in root.rows("SELECT name FROM pg_settings")}
    nell.rows(f"SET search_path = {nell.sql_name}, public, cerebro")
    for setting, value in OTHERS.items():
        if setting in known or "." in setting:
            nell.rows("SELECT set_config(%s, %s, false)", (setting, value))
    names = [name for name in (*CARRIED, *OTHERS) if name in known or "." in name]
    listed = ", ".join(f"'{name}', current_setting('{name}')" for name in dict.fromkeys(names))
    # A function that finds what it calls on the path of who reads.
    nell.rows("CREATE FUNCTION two() RETURNS int LANGUAGE sql AS 'SELECT 2'")
    nell.rows("CREATE FUNCTION by_path() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN two(); END'")
    nell.rows(
        "CREATE VIEW seen AS SELECT i AS id, i %% 2 AS half, ARRAY[i, by_path()]::real[] AS x, "
        f"json_build_object({listed})::text AS y, interval '25 hours'::text AS lasts, "
        "timestamptz '2026-03-01 23:00+00'::date AS day, timestamptz '2026-03-01 23:00+00'::text AS at, "
        "(1.0::float8 / 3)::text AS third, decode('00ff', 'hex')::text AS bytes FROM generate_series(1, 8) i",
        (),
    )
    nell.rows("CREATE TABLE plain AS SELECT * FROM seen")  # as her own session sees it
    yield nell
    nell.connection.rollback()


COLUMNS = "id, half, y, lasts, day::text, at, third, bytes"


def plain(nell: Person) -> list[Any]:
    found = nell.rows(f"SELECT {COLUMNS} FROM plain ORDER BY id")
    seen = json.loads(found[0][2])
    assert {name: seen[name] for name in OTHERS if name in seen} == {
        name: value for name, value in OTHERS.items() if name in seen
    }
    assert found[0][4:6] == ("02.03.2026", "02.03.2026 08:00:00 JST")
    return found


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_a_view_shows_the_same_to_all_functions(nell: Person, security_dsn: str) -> None:
    expected = plain(nell)
    y, third = expected[0][2], expected[0][6]
    nell.rows("SELECT cerebro_pack('seen', 'packed', 'y', 'x', num_partitions := 2)")
    assert nell.value("SELECT y_class_values FROM packed_summary") == [y]
    # Features that are texts of what a session decides, and a date of it.
    nell.rows(
        "SELECT cerebro_pack_columns('seen', 'columns', 'half', 'lasts, day, at, third, bytes')"
    )
    categories = dict(
        nell.rows("SELECT column_name, category FROM columns_encoding WHERE category IS NOT NULL")
    )
    assert (categories["lasts"], categories["at"], categories["third"]) == (
        expected[0][3], expected[0][5], third,
    )  # fmt: skip
    nell.rows("SELECT cerebro_pack_validation('seen', 'validation', 'half', NULL, 'columns')")
    assert nell.value("SELECT num_rows FROM validation_summary") == 8
    nell.rows("SELECT cerebro_train_test_split('seen', 'parts', 0.5)")
    parts = f"SELECT {COLUMNS} FROM parts ORDER BY id"
    assert nell.rows(parts) == expected
    # What a packing made of the view, a table of features, a function and the session itself agree.
    nell.rows("SELECT cerebro_encode('seen', 'columns', 'features', 'id')")
    nell.rows("SELECT cerebro_create_encoder('seen', 'columns', 'encoder')")
    nell.rows("SELECT cerebro_encode('plain', 'columns', 'of_plain', 'id')")
    same = (
        "SELECT bool_and(f.features = encoder(s) AND f.features = p.features) FROM features f "
        "JOIN seen s USING (id) JOIN of_plain p USING (id)"
    )
    assert nell.value(same) is True
    # Our own settings were hers only meanwhile.
    assert nell.value("SHOW extra_float_digits") == "-3"


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_predictions_and_jobs_see_the_same(nell: Person, security_dsn: str) -> None:
    expected = plain(nell)
    y = expected[0][2]
    nell.rows("SELECT cerebro_pack('plain', 'packed', 'half', 'x', num_partitions := 1)")
    nell.rows("SELECT cerebro_load_model('models', %s)", (NET,))
    fit = "SELECT cerebro_fit('packed', 'out', 'models', 1, %s, 'batch_size=8', 1)"
    run_id = nell.value(fit, (ADAM,))
    # Who resumes it has the settings with which it began: no others come to its sessions.
    kept = nell.value("SELECT spec -> 'session' FROM cerebro._runs WHERE run_id = %s", (run_id,))
    everywhere = {name: OTHERS[name] for name in OTHERS if "." in name or name in EVERYWHERE}
    assert kept.items() >= everywhere.items()
    assert "TimeZone" not in kept
    nell.rows("SELECT cerebro_predict('out', 'seen', 'id, y, at', 'x', 'answers')")
    of_rows = "SELECT DISTINCT y, at FROM {}"
    assert nell.rows(of_rows.format("answers")) == [(y, expected[0][5])]
    assert nell.value("SELECT count(DISTINCT id) FROM answers") == 8
    plan = '{"cerebro_pack": {"source_table": "seen", "output_table": "again", "dependent_varname": "y", "independent_varname": "x", "num_partitions": 1, "replace": true}}'
    nell.rows("SELECT cerebro_schedule('nightly', '0 3 * * *', %s, timer := 'daemon')", (plan,))
    submitted = nell.value(
        "SELECT cerebro_predict('out', 'seen', 'id, y, at', 'x', 'later', wait := false)"
    )
    # A session with other settings starts the schedule, and ends the waiting.
    other = log_in(security_dsn, nell.name, options="-c app.tenant=bolt -c TimeZone=UTC")
    with closing(other.connection):
        started = other.value("SELECT cerebro_start_schedule('nightly')")
        for job in (submitted, started):
            wait = "SELECT cerebro_wait_job(%s)"
            status = other.value(wait, (job,))
            told = other.rows("SELECT message FROM cerebro.job_log WHERE job_id = %s", (job,))
            assert status == "finished", told
    assert nell.rows(of_rows.format("later")) == [(y, expected[0][5])]
    assert nell.value("SELECT y_class_values FROM again_summary") == [y]


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_rows_of_a_policy_are_those_of_the_session(
    recruit: Recruit, root: Person, security_dsn: str
) -> None:
    name = f"tess {os.urandom(3).hex()}"
    role = quoted(recruit(name, "cerebro_user").name)
    schema = f"{role}".replace("%", "%%")
    root.rows(
        f"CREATE TABLE {schema}.deals AS SELECT i AS id, CASE WHEN i %% 4 = 0 THEN 'acme' ELSE 'bolt' END AS tenant, "
        "i %% 2 AS y, ARRAY[i %% 2, i %% 5]::real[] AS x FROM generate_series(1, 200) i; "
        f"ALTER TABLE {schema}.deals ENABLE ROW LEVEL SECURITY; "
        f"CREATE POLICY t ON {schema}.deals USING (tenant = current_setting('app.tenant', true)); "
        f"GRANT SELECT ON {schema}.deals TO {schema}; ALTER ROLE {schema} SET app.tenant = 'bolt'",
        (),
    )
    bolt = log_in(security_dsn, f"{name} {os.getpid()}")
    acme = log_in(security_dsn, f"{name} {os.getpid()}")
    pack = "SELECT cerebro_pack('deals', %s, 'y', 'x', num_partitions := 2)"
    with closing(bolt.connection), closing(acme.connection):
        acme.rows("SET app.tenant = 'acme'")
        assert acme.value("SELECT count(*) FROM deals") == 50
        acme.rows(pack, ("deals_packed",))
        assert acme.value("SELECT num_rows FROM deals_packed_summary") == 50
        acme.rows("SELECT cerebro_pack_columns('deals', 'columns', 'y', 'tenant, id')")
        assert acme.rows("SELECT DISTINCT category FROM columns_encoding WHERE column_name = 'tenant'") == [
            ("acme",)
        ]  # fmt: skip
        bolt.rows(pack, ("of_bolt",))
        assert bolt.value("SELECT num_rows FROM of_bolt_summary") == 150
        # In one session the setting of each call counts, not that of the first.
        bolt.rows("SET app.tenant = 'acme'")
        bolt.rows("SELECT cerebro_train_test_split('deals', 'parts', 0.5)")
        assert bolt.rows("SELECT tenant, count(*) FROM parts GROUP BY 1") == [("acme", 50)]
        bolt.rows(pack, ("now_acme",))
        assert bolt.value("SELECT num_rows FROM now_acme_summary") == 50
        acme.rows("SELECT cerebro_load_model('models', %s)", (NET,))
        acme.rows(
            "SELECT cerebro_fit('deals_packed', 'out', 'models', 1, %s, 'batch_size=8', 1)", (ADAM,)
        )
        acme.rows("SELECT cerebro_predict('out', 'deals', 'id', 'x', 'answers')")
        assert acme.rows("SELECT count(*), bool_and(id %% 4 = 0) FROM answers", ()) == [(50, True)]
        # As in her own session: what she may not see whole is an error.
        acme.rows("SET row_security = off")
        assert acme.refused("SELECT count(*) FROM deals").pgcode == "42501"
        refused = acme.refused(pack, ("hidden",))
        assert (refused.pgcode, "row-level security" in str(refused)) == ("42501", True)


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_the_same_view_gives_the_same_features_in_tokyo(recruit: Recruit) -> None:
    """Packed, encoded, asked row by row, and predicted: by the zone of the session; another zone is told."""
    kim = recruit(f"kim {os.urandom(3).hex()}", "cerebro_user")
    run = kim.rows
    run("SET timezone = 'Asia/Tokyo'")
    run(
        "CREATE TABLE events AS SELECT i AS id, i %% 2 AS y, timestamptz '2026-03-01 12:00+00' + i * interval '6 hours' AS ts "
        "FROM generate_series(0, 7) i",
        (),
    )
    run("CREATE VIEW days AS SELECT id, y, ts::date AS day FROM events")
    run(
        "SELECT cerebro_pack_columns('days', 'packed', 'y', 'day', encodings := '{\"day\": \"onehot\"}')"
    )
    categories = "SELECT category FROM packed_encoding WHERE category IS NOT NULL ORDER BY 1"
    days = ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert [one for (one,) in run(categories)] == days
    run("SELECT cerebro_encode('days', 'packed', 'features', 'id')")
    run("SELECT cerebro_create_encoder('days', 'packed', 'encoder')")
    listed = run("SELECT features FROM features ORDER BY id")
    assert listed == run("SELECT encoder(d) FROM days d ORDER BY id")
    assert listed[0] == ([1, 0, 0],)  # 21:00 of the first of March in Tokyo
    assert listed[1] == ([0, 1, 0],)  # 03:00 of the second, where UTC has the first
    net = NET.replace("[null, 2]", "[null, 3]")
    run("SELECT cerebro_load_model('models', %s)", (net,))
    run("SELECT cerebro_fit('packed', 'out', 'models', 1, %s, 'batch_size=8', 1)", (ADAM,))
    predict = "SELECT cerebro_predict('out', 'days', 'id', NULL, 'answers', replace := true)"
    run(predict)
    same = (
        "SELECT bool_and(abs(r.prob - a.prob) < 1e-6), count(*) FROM days d, "
        "LATERAL cerebro_predict_row('out', encoder(d)) r, answers a "
        "WHERE a.id = d.id AND a.class_value = r.class_value"
    )
    assert run(same) == [(True, 8)]  # of each row the most probable class
    assert not any("Asia/Tokyo" in one for one in kim.connection.notices)
    run("SET timezone = 'UTC'")
    calls = [
        predict,
        "SELECT cerebro_encode('days', 'packed', 'features', 'id', replace := true)",
        "SELECT cerebro_create_encoder('days', 'packed', 'encoder', replace := true)",
        "SELECT cerebro_pack_validation('days', 'validation', 'y', NULL, 'packed')",
    ]
    for call in calls:
        del kim.connection.notices[:]
        run(call)
        told = [one for one in kim.connection.notices if "SET TimeZone = 'Asia/Tokyo'" in one]
        assert len(told) == 1, call
    del kim.connection.notices[:]
    # Of a plain table no session sees anything else.
    run("CREATE TABLE fixed AS SELECT * FROM days")
    run("SELECT cerebro_encode('fixed', 'packed', 'of_fixed', 'id')")
    assert not any("TimeZone" in one for one in kim.connection.notices)


def test_what_cannot_be_taken_from_a_session_is_refused(
    recruit: Recruit, root: Person, security_dsn: str
) -> None:
    """A role is given a setting that this session has not: those that work for it would have it."""
    uma = recruit(f"uma {os.urandom(3).hex()}", "cerebro_user")
    uma.rows(
        "CREATE TABLE rows AS SELECT i %% 2 AS y, ARRAY[i]::real[] AS x FROM generate_series(1, 8) i",
        (),
    )
    root.rows(f"ALTER ROLE {quoted(uma.name)} SET late.tenant = 'bolt'")
    error = uma.refused("SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 1)")
    assert error.pgcode == "0A000"
    assert "late.tenant" in str(error.diag.message_primary)
    assert "SET late.tenant" in str(error.diag.message_hint)
    assert uma.value("SELECT to_regclass('packed')") is None
    uma.rows("SET late.tenant = ''")
    uma.rows("SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 1)")


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_a_view_is_read_in_a_transaction_like_hers(recruit: Recruit) -> None:
    """Several statements of a function in a view see one snapshot, where those of her session do."""
    quin = recruit(f"quin {os.urandom(3).hex()}", "cerebro_user")
    quin.rows(
        "CREATE VIEW levels AS SELECT current_setting('transaction_isolation') AS y, ARRAY[i]::real[] AS x "
        "FROM generate_series(1, 8) i"
    )
    pack = "SELECT cerebro_pack('levels', 'packed', 'y', 'x', num_partitions := 1, replace := true)"
    for level in ("read committed", "repeatable read", "serializable"):
        quin.rows("SELECT set_config('default_transaction_isolation', %s, false)", (level,))
        quin.rows(pack)
        assert quin.value("SELECT y_class_values FROM packed_summary") == [level]


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_a_run_that_is_resumed_reads_what_it_read_before(
    recruit: Recruit, security_dsn: str
) -> None:
    """Its settings are those of the session that began it, whoever goes on with it."""
    pia = recruit(f"pia {os.urandom(3).hex()}", "cerebro_user")
    pia.rows("SET app.tenant = 'acme'")
    make_tables(pia)
    pia.rows(
        "ALTER TABLE packed ENABLE ROW LEVEL SECURITY; ALTER TABLE packed FORCE ROW LEVEL SECURITY; "
        "CREATE POLICY p ON packed USING (current_setting('app.tenant', true) = 'acme')"
    )
    run = trained_a_little(pia, "more")
    hops = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s"
    before = pia.value(hops, (run,))
    other = log_in(security_dsn, pia.name, options="-c app.tenant=bolt")
    with closing(other.connection):
        assert other.value("SELECT count(*) FROM packed") == 0
        other.rows("SELECT cerebro_resume(%s, max_seconds := 2)", (run,))
        status = "SELECT status, error FROM cerebro.runs WHERE run_id = %s"
        assert other.rows(status, (run,))[0][0] == "paused", other.rows(status, (run,))
        assert other.value(hops, (run,)) > before
        # A new one is by her own settings: there are no rows.
        fit = "SELECT cerebro_fit('packed', 'none', 'models', 1, %s, 'batch_size=8', 1)"
        other.refused(fit, (ADAM,))


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_a_view_by_the_login_is_refused_where_another_role_is_set(
    recruit: Recruit, root: Person
) -> None:
    ruth = recruit(f"ruth {os.urandom(3).hex()}", "cerebro_user")
    team = recruit(f"team {os.urandom(3).hex()}", "cerebro_user")
    root.rows(f"GRANT {team.sql_name} TO {ruth.sql_name}")
    made = "AS SELECT i AS id, i %% 2 AS y, ARRAY[i]::real[] AS x FROM generate_series(1, 8) i"
    team.rows(
        f"CREATE VIEW of_all {made}; CREATE TABLE rows {made}; CREATE TABLE guarded {made}", ()
    )
    team.rows("CREATE VIEW of_login AS SELECT * FROM rows WHERE session_user IS NOT NULL")
    team.rows("CREATE VIEW above AS SELECT * FROM of_login")
    team.rows("CREATE FUNCTION login() RETURNS name LANGUAGE sql STABLE AS 'SELECT session_user'")
    team.rows("CREATE VIEW by_function AS SELECT * FROM rows WHERE login() IS NOT NULL")
    team.rows(
        "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; ALTER TABLE guarded FORCE ROW LEVEL SECURITY; "
        "CREATE POLICY p ON guarded USING (session_user IS NOT NULL)"
    )
    pack = "SELECT cerebro_pack(%s, %s, 'y', 'x', num_partitions := 1)"
    for name in ("of_login", "above", "by_function", "guarded"):
        team.rows(pack, (name, f"own_{name}"))  # the login is the role
    ruth.rows(f"SET ROLE {team.sql_name}; SET search_path = {team.sql_name}, cerebro")
    for name in ("of_login", "above", "by_function", "guarded"):
        error = ruth.refused(pack, (name, f"packed_{name}"))
        assert (error.pgcode, "session_user" in str(error)) == ("0A000", True), name
        assert ruth.value("SELECT to_regclass(%s)", (f"packed_{name}",)) is None
        # In her own transaction it is hers.
        ruth.rows("SELECT cerebro_train_test_split(%s, %s, 0.5)", (name, f"parts_{name}"))
    for name in ("of_all", "rows"):
        ruth.rows(pack, (name, f"packed_{name}"))
    ruth.rows("RESET ROLE")


def test_no_more_than_fits_is_carried(recruit: Recruit) -> None:
    vera = recruit(f"vera {os.urandom(3).hex()}", "cerebro_user")
    vera.rows("SELECT set_config('app.large', repeat('x', 70000), false)")
    error = vera.refused("SELECT cerebro_pack('rows', 'packed', 'y', 'x')")
    assert (error.pgcode, "allowed: 60000" in str(error)) == ("0A000", True)


def test_settings_are_quoted() -> None:
    (sql,) = beginning({"app.it's": "a'b\\%", "TimeZone": "UTC"})
    assert sql == "SET \"app\".\"it's\" = E'a''b\\\\%%'"


def test_the_command_line_has_the_settings_of_its_connection(
    alice: Person, security_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its string, else of the environment; its driver registers them with a run."""
    monkeypatch.setenv("PGOPTIONS", "-c app.tenant=acme --app.more=a%b -c TimeZone=Asia/Tokyo")
    name = alice.name.replace("\\", "\\\\").replace("'", "\\'")
    client = Client.of(f"{security_dsn} user='{name}'")
    (session,) = client.pool.take(1)
    try:
        settings = dict(client.pool.caller)
        assert (settings["app.tenant"], settings["app.more"]) == ("acme", "a%b")
        assert settings["TimeZone"] == "Asia/Tokyo"
        found = session.run("SELECT current_setting('app.tenant'), current_setting('TimeZone')")
        assert found == [("acme", "UTC")]  # rows of others are read in hers
        assert everywhere(session.caller).items() >= {"app.tenant": "acme"}.items()
        work_for_run(client.pool, {"app.tenant": "bolt", "row_security": "on"})
        client.pool.give([session])
        assert session.closed  # as it works for another
        (session,) = client.pool.take(1)
        assert session.run("SELECT current_setting('app.tenant')") == [("bolt",)]
        assert session.caller["TimeZone"] == "Asia/Tokyo"
    finally:
        session.close()
        client.pool.close()


def test_settings_of_a_run_that_nobody_wrote_are_refused() -> None:
    for text in ('{"app.x": 1}', "[]", "x"):
        spec = f'{{"version": 1, "epochs": 1, "seed": 0, "frequency": 1, "partitions": {{}}, "session": {text}}}'
        with pytest.raises(InvalidData):
            RunSpec.from_text(spec, parse_strategy)
