"""An installation where tables are spread over segments."""

from __future__ import annotations

import contextlib
from functools import partial

import psycopg2
import pytest

from cerebro_db.errors import InstallationFailed
from cerebro_db.install import installer
from cerebro_db.install.connection import rows
from cerebro_db.install.script import Script
from cerebro_db.postgres.dialects.choice import IDENTITY
from cerebro_db.postgres.dialects.segments import hosts
from conftest import Sql


def test_every_segment_has_a_copy_of_the_catalog(segments: Sql) -> None:
    policies = segments.fetch(
        "SELECT c.relname, p.policytype::text FROM gp_distribution_policy p "
        "JOIN pg_class c ON c.oid = p.localoid "
        "WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')"
    )
    assert len(policies) >= 9
    assert {kind for _, kind in policies} == {"r"}


def test_installing_again_changes_nothing(segments: Sql) -> None:
    functions = "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')"
    functions = functions.replace(
        "(SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')",
        "(SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')",
    )
    before = sorted(segments.fetch(functions))
    installer.install(segments.dsn, Script())
    assert sorted(segments.fetch(functions)) == before


def test_the_package_runs_on_every_segment(segments: Sql) -> None:
    # Arguments that differ from row to row keep the planner from calling the function itself.
    rows = segments.fetch(
        "SELECT gp_segment_id, cerebro._pack_labels(int4send(gp_segment_id), "
        "'\\x000000000001'::bytea, NULL) FROM gp_dist_random('gp_id') ORDER BY 1"
    )
    assert len(rows) >= 2
    assert [bytes(label) for _, label in rows] == [
        number.to_bytes(4, "little") for number in range(len(rows))
    ]


def test_a_server_that_works_alone_has_no_segments(segments: Sql) -> None:
    query = f"SELECT {IDENTITY}"
    assert segments.value(query) == "greenplum6"
    alone = psycopg2.connect(segments.dsn, options="-c gp_session_role=utility")
    with contextlib.closing(alone), alone.cursor() as cursor:
        cursor.execute(query)
        assert cursor.fetchone() == ("postgresql",)


@pytest.mark.slow
def test_verify_asks_every_segment(segments: Sql) -> None:
    report = installer.verify(segments.dsn, Script())
    assert report.segments == segments.value(
        "SELECT count(*) FROM gp_segment_configuration WHERE role = 'p' AND content >= 0"
    )
    assert "tensorflow" in report.versions


def test_verify_names_the_host_that_differs(segments: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("there", 1, "0.0.1", "Python", "3.0")]
    monkeypatch.setattr(hosts, "_SEGMENT_VERSIONS", f"SELECT * FROM (VALUES {found[0]}) AS v")
    expected = {"Cerebro-DB": "0.1.0", "Python": "3.0"}
    with (
        installer.transaction(segments.dsn) as connection,
        pytest.raises(InstallationFailed, match='segment 1 on host "there" has Cerebro-DB'),
    ):
        hosts.SegmentHosts().check_versions(partial(rows, connection), expected)


def test_numbers_of_the_catalog_are_given_by_a_function_of_its_owner(segments: Sql) -> None:
    # nextval on a segment needs a right by which a sequence can be set back.
    of_catalog = "relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')"
    given = segments.fetch(
        "SELECT c.relname, pg_get_expr(d.adbin, c.oid) FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid "
        f"WHERE c.{of_catalog} AND pg_get_expr(d.adbin, c.oid) ~ 'nextval|_next_number'"
    )
    assert len(given) > 5
    assert [table for table, default in given if "_next_number" not in default] == []
    kept = (
        f"SELECT relname FROM pg_class WHERE {of_catalog} AND CASE WHEN relkind = 'S' "
        "THEN has_sequence_privilege('cerebro_user', oid, 'UPDATE') END"
    )
    assert segments.column(kept) == []
