"""Views that users have made of ours survive an upgrade, with owners, rights and comments; runs that go on stop it at once."""

from __future__ import annotations

import gzip
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from pace import stretched
from reasons import EMBEDDED_ONLY
from servers import connected, drop_database, make_database

from cerebro_db.errors import InstallationFailed
from cerebro_db.install import installer, queries
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from tests.conftest import Sql
from tests.upgrades.leave import HERE

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)
FILE, NAME = HERE / "left_by_0.1.0.sql.gz", "dependents_of_0_1_0"
VIEWS = """
CREATE ROLE dependent_owner; CREATE ROLE dependent_reader; GRANT cerebro_admin TO dependent_owner;
CREATE SCHEMA watch AUTHORIZATION dependent_owner; GRANT USAGE ON SCHEMA watch TO dependent_reader;
CREATE VIEW watch.mine WITH (security_barrier=true) AS
    SELECT r.run_id AS number, r.status, l.mst_key, l.rank FROM cerebro.runs r JOIN cerebro.leaderboard l USING (run_id);
CREATE VIEW watch."Second one" AS SELECT number, count(*) AS models FROM watch.mine GROUP BY 1;
CREATE MATERIALIZED VIEW watch.kept AS SELECT * FROM watch."Second one" WHERE number > 0;
CREATE MATERIALIZED VIEW watch.empty AS SELECT number FROM watch.kept WITH NO DATA;
CREATE VIEW watch.version AS SELECT cerebro.cerebro_version() AS version;
CREATE UNIQUE INDEX kept_number ON watch.kept (number);
COMMENT ON VIEW watch.mine IS 'it''s mine'; COMMENT ON COLUMN watch.mine.rank IS 'the rank';
COMMENT ON MATERIALIZED VIEW watch.kept IS 'kept';
ALTER VIEW watch.mine OWNER TO dependent_owner; ALTER VIEW watch."Second one" OWNER TO dependent_owner;
ALTER MATERIALIZED VIEW watch.kept OWNER TO dependent_owner;
GRANT SELECT ON watch.mine TO dependent_reader WITH GRANT OPTION; GRANT SELECT (number) ON watch."Second one" TO PUBLIC;
REVOKE UPDATE ON watch.mine FROM dependent_owner; ALTER VIEW watch.mine ALTER COLUMN status SET DEFAULT 'none';
CREATE RULE no_insert AS ON INSERT TO watch.mine DO INSTEAD NOTHING;
"""
FACTS = """
SELECT c.relname, c.relkind, pg_get_userbyid(c.relowner), c.reloptions, c.relacl::text, obj_description(c.oid),
       col_description(c.oid, 4), c.relispopulated, pg_get_viewdef(c.oid),
       ARRAY(SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = c.oid),
       ARRAY(SELECT pg_get_ruledef(w.oid) FROM pg_rewrite w WHERE w.ev_class = c.oid AND w.rulename <> '_RETURN'),
       ARRAY(SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || coalesce(a.attacl::text, '')
                    || coalesce((SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = c.oid AND d.adnum = a.attnum), '')
               FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum)
  FROM pg_class c WHERE c.relnamespace = 'watch'::regnamespace AND c.relkind IN ('v', 'm') ORDER BY 1
"""


@pytest.fixture
def left(cluster: Cluster, administrator: Any, template: str) -> Iterator[Sql]:
    """A database that 0.1.0 has left, with views of a user."""
    make_database(administrator, NAME)
    dsn = cluster.dsn(NAME)
    command = [cluster.psql(), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f", "-"]
    subprocess.run(command, input=gzip.decompress(FILE.read_bytes()), check=True)
    sql = Sql(connected(dsn), dsn)
    sql.run(VIEWS)
    yield sql
    sql.run(
        "DROP SCHEMA IF EXISTS watch CASCADE; DROP OWNED BY dependent_owner CASCADE; DROP OWNED BY dependent_reader CASCADE"
    )
    sql.close()
    drop_database(administrator, NAME)
    administrator.run("DROP ROLE dependent_owner, dependent_reader")


def test_views_on_ours_survive_upgrades(left: Sql) -> None:
    """What is no view stops one, with its name, before anything changes."""
    left.run("SET search_path = pg_catalog")
    before, rows = left.fetch(FACTS), left.fetch("SELECT * FROM watch.kept ORDER BY 1")
    assert len(before) == 5
    assert rows
    for table, message in (
        (
            "cerebro.runs",
            r"column one of table watch\.copies depends on the type of .* cerebro\.runs",
        ),
        ("watch.kept", r"something that is no view depends on watch\.kept"),
    ):
        left.run(f"CREATE TABLE watch.copies (one {table})")
        with pytest.raises(InstallationFailed, match=message):
            installer.upgrade(left.dsn, Script())
        left.run("DROP TABLE watch.copies")
        assert left.fetch(FACTS) == before
    left.run(
        "CREATE TABLE watch.divisor AS SELECT 1 AS one; CREATE MATERIALIZED VIEW watch.fails AS "
        "SELECT r.run_id / d.one AS x FROM cerebro.runs r, watch.divisor d; UPDATE watch.divisor SET one = 0"
    )
    told = installer.upgrade(left.dsn, Script())
    assert any(
        "watch.fails was made anew, and has no rows: division by zero" in text for text in told
    )
    left.run("DROP MATERIALIZED VIEW watch.fails; DROP TABLE watch.divisor")
    for upgrades in (1, 2):  # from 0.1.0, and over the same version
        if upgrades > 1:
            installer.upgrade(left.dsn, Script())
        left.run("SET search_path = pg_catalog")
        assert left.fetch(FACTS) == before
        assert left.fetch("SELECT * FROM watch.kept ORDER BY 1") == rows
        assert left.fetch('SELECT * FROM watch."Second one" ORDER BY 1') == rows


def test_runs_and_sessions_that_are_in_the_way_are_named_at_once(
    left: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.run("DROP SCHEMA watch CASCADE")
    changed = "UPDATE cerebro.catalog_runs SET status = {}, driver_pid = %s WHERE run_id = %s"
    with closing(connected(left.dsn)) as driver, driver.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
        run_id, key = left.row(
            "SELECT run_id, lock_key FROM cerebro.catalog_runs WHERE lock_key IS NOT NULL LIMIT 1"
        )
        cursor.execute("SELECT pg_advisory_lock(%s)", (key,))
        left.run(changed.format("'running'"), (pid, run_id))
        began = time.monotonic()
        with pytest.raises(
            InstallationFailed,
            match=rf"runs go on in this database: run {run_id} of \w+ \(process {pid}\)",
        ) as caught:
            installer.upgrade(left.dsn, Script())
        assert time.monotonic() - began < stretched(5)
        assert caught.value.sqlstate == "55006"
        assert f"cerebro.cerebro_pause({run_id})" in str(caught.value.hint)
        monkeypatch.setattr(queries, "PAUSE", "SELECT {run_id}")
        with pytest.raises(InstallationFailed, match=f"runs go on 0.1 seconds after .*: {run_id}"):
            installer.pause_runs(left.dsn, 0.1)
        monkeypatch.setattr(
            queries,
            "PAUSE",
            "UPDATE cerebro.catalog_runs SET status = 'paused' WHERE run_id = {run_id} RETURNING 1",
        )
        assert installer.pause_runs(left.dsn) == (run_id,)
        assert installer.pause_runs(left.dsn) == ()
    with closing(psycopg2.connect(left.dsn)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid() FROM cerebro.settings LIMIT 1")
        (pid,) = cursor.fetchone()
        with pytest.raises(
            InstallationFailed,
            match=rf"process {pid} of role \w+ has used cerebro\.\w+ for 5 seconds",
        ) as caught:
            installer.upgrade(left.dsn, Script())
        assert f"pg_terminate_backend({pid})" in str(caught.value.hint)
    installer.upgrade(left.dsn, Script())
