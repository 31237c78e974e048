"""A database of 0.1.0 is upgraded: its models predict the same, registered ones too, and a paused run ends as if nothing had been."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY
from servers import connected, drop_database, make_database

import cerebro_db
from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from tests.conftest import Sql
from tests.upgrades.leave import EPOCHS, HERE, fingerprint

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)

FILE = HERE / "left_by_0.1.0.sql.gz"
NAME = "left_by_0_1_0"
# Relations, their columns and what holds for them.
CATALOG = """
SELECT format('%s.%s %s %s %s', c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
              pg_get_expr(d.adbin, d.adrelid))
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = 'cerebro'::regnamespace
 UNION ALL
SELECT format('%s %s', t.conrelid::regclass, pg_get_constraintdef(t.oid)) FROM pg_constraint t
 WHERE t.connamespace = 'cerebro'::regnamespace
 UNION ALL
SELECT format('%s %s', c.oid::regclass, a.*) FROM pg_class c,
       aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))) a
 WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind IN ('r', 'v', 'S')
 UNION ALL
SELECT format('%s %s', p.oid::regprocedure, md5(p.prosrc)) FROM pg_proc p WHERE p.pronamespace = 'cerebro'::regnamespace
 UNION ALL
SELECT name || ' ' || checksum FROM cerebro.catalog_migrations
 ORDER BY 1
"""


def restored(cluster: Cluster, administrator: Any, name: str) -> Sql:
    """A database that 0.1.0 has left, as a dump brings it."""
    make_database(administrator, name)
    dsn = cluster.dsn(name)
    command = [cluster.psql(), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f", "-"]
    done = subprocess.run(
        command, input=gzip.decompress(FILE.read_bytes()), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return Sql(connected(dsn), dsn)


@pytest.fixture(scope="module")
def left(cluster: Cluster, administrator: Any, template: str) -> Iterator[Any]:
    """A database that 0.1.0 has left, upgraded."""
    sql = restored(cluster, administrator, NAME)
    dsn = sql.dsn
    # A dump that is restored gives new numbers to tables and rows; these are what 0.1.0 would have kept of them.
    sql.run(
        "UPDATE cerebro.catalog_runs SET source_oid = 'public.points_packed'::regclass, source_print = %s",
        [fingerprint(sql)],
    )
    installer.upgrade(dsn, Script())
    sql.run("SET search_path = public, cerebro")
    yield sql
    sql.close()
    drop_database(administrator, NAME)


def test_it_is_like_one_that_was_just_installed(left: Any, sql: Any) -> None:
    left.run("SET search_path = pg_catalog")
    sql.run("SET search_path = pg_catalog")
    try:
        assert set(left.column(CATALOG)) ^ set(sql.column(CATALOG)) == set()
    finally:
        left.run("SET search_path = public, cerebro")
    installer.verify(left.dsn, Script())


def predicted(left: Any, model: str, more: str = "") -> list[Any]:
    """Predictions of a model for all rows, and how they differ from those of 0.1.0."""
    left.run("DROP TABLE IF EXISTS predicted_now")
    left.run(
        f"SELECT cerebro_predict('{model}', 'points', 'id', 'features', 'predicted_now'{more})"
    )
    return left.fetch(
        "SELECT n.id, n.rank = o.rank AND abs(n.prob - o.prob) < 1e-6 FROM predicted_now n "
        "JOIN points_predicted o USING (id, class_name, class_value) ORDER BY n.id, n.rank"
    )


def test_models_predict_the_same(left: Any) -> None:
    found = predicted(left, "points_out", ", mst_key := 1")
    assert len(found) == left.value("SELECT count(*) FROM points_predicted") > 0
    assert {same for _, same in found} == {True}


def test_registered_models_predict_the_same(left: Any) -> None:
    found = predicted(left, "model:points@champion")
    assert len(found) == left.value("SELECT count(*) FROM points_predicted") > 0
    assert {same for _, same in found} == {True}
    assert left.fetch("SELECT name, version, description FROM cerebro.registered_versions") == [
        ("points", 1, "made by 0.1.0")
    ]


def test_raw_rows_and_earlier_encodings_of_models_that_say_less(left: Any) -> None:
    """0.1.0 has recorded neither the columns of a registered model nor how many classes there were."""
    left.run(
        "SELECT cerebro_evaluate('points_out', 'points_packed', 'packed_scores', mst_key := 1)"
    )
    left.run("SELECT cerebro_evaluate('points_out', 'points', 'raw_scores', mst_key := 1)")
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="by an earlier version"):
        left.run("SELECT cerebro_evaluate('model:points:1', 'points', 'named_scores')")
    left.run(
        "SELECT cerebro_evaluate('model:points:1', 'points', 'named_scores', independent_varname := 'features')"
    )
    wanted = left.row("SELECT loss, metrics FROM packed_scores")
    for table in ("raw_scores", "named_scores"):
        loss, metrics = left.row(f"SELECT loss, metrics FROM {table}")
        assert loss == pytest.approx(wanted[0], rel=1e-6)
        assert metrics == pytest.approx(wanted[1], rel=1e-6)
    left.run(
        "SELECT cerebro_pack('points', 'like_points', 'label', 'features', encoding_of := 'model:points:1')"
    )
    facts = "SELECT label_class_values::text, num_classes, normalizing_const FROM {}_summary"
    assert left.row(facts.format("like_points")) == left.row(facts.format("points_packed"))


def states(left: Any, out: str) -> list[Any]:
    """States of the configurations of a run."""
    return left.fetch(
        f"SELECT mst_key, md5(string_agg(state, '' ORDER BY chunk)) FROM {out}_states GROUP BY 1 ORDER BY 1"
    )


def test_a_paused_run_is_refused_for_its_version_and_goes_on_to_the_same_bits(left: Any) -> None:
    hops = left.value("SELECT count(*) FROM cerebro.hops WHERE run_id = 2")
    told = rf"run 2 began with version 0\.1\.0 of Cerebro-DB; this server has {re.escape(cerebro_db.__version__)}"
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match=told):
        left.run("SELECT cerebro_resume(2)")
    mark = "UPDATE cerebro.catalog_runs SET source_print = {} WHERE run_id = 2"
    left.run(mark.format("'2:' || source_print"))
    with pytest.raises(psycopg2.Error, match=r"points_packed: got a fingerprint of version 2"):
        left.run("SELECT cerebro_resume(2, any_version := true)")
    left.run(mark.format("substr(source_print, 3)"))
    left.run("SELECT cerebro_resume(2, any_version := true)")
    assert left.value("SELECT status FROM cerebro.runs WHERE run_id = 2") == "finished"
    assert left.value("SELECT count(*) FROM cerebro.hops WHERE run_id = 2") > hops > 0
    whole, resumed = losses(left, "points_out"), losses(left, "points_paused")
    assert resumed == pytest.approx(whole, rel=1e-4)
    left.run(
        "SELECT cerebro_fit_multiple('points_packed', 'points_again', 'points_configs', "
        f"{EPOCHS}, seed := 5, num_workers := 1, metrics_compute_frequency := 2)"
    )
    again = losses(left, "points_again")
    assert again == pytest.approx(whole, rel=1e-4)
    if again == whole:  # this processor computes as the one on which 0.1.0 ran, to the bit
        assert resumed == whole
        assert states(left, "points_paused") == states(left, "points_out")


def losses(left: Any, out: str) -> list[float]:
    """Training losses of all configurations of a run, one after the other."""
    found = left.column(f"SELECT training_loss FROM {out}_info ORDER BY mst_key")
    return [loss for of_one in found for loss in of_one]


def test_numbers_of_roles_of_another_server_are_converted(
    cluster: Cluster, administrator: Any, template: str
) -> None:
    """0.1.0 kept no names: whose runs they were is told by the tables that they made."""
    name, role = f"{NAME}_elsewhere", "left_anna"
    sql = restored(cluster, administrator, name)
    try:
        sql.run(
            f"CREATE ROLE {role} LOGIN IN ROLE cerebro_user; GRANT ALL ON SCHEMA public TO {role}"
        )
        for (table,) in sql.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            sql.run(f'ALTER TABLE public."{table}" OWNER TO {role}')
        # As they come from a server where hers was another number, which is that of someone else here.
        someone = sql.value("SELECT oid::bigint FROM pg_roles WHERE rolname = 'cerebro_admin'")
        for table in ("runs", "models"):
            sql.run(f"UPDATE cerebro.catalog_{table} SET owner = %s", (someone,))
        installer.upgrade(sql.dsn, Script())
        owners = "SELECT DISTINCT owner::text FROM cerebro.{}"
        assert sql.column(owners.format("runs")) == [role]
        assert sql.column(owners.format("registered_models")) == [role]
        packed = sql.value("SELECT 'public.points_packed'::regclass::oid::bigint")
        assert sql.column("SELECT DISTINCT source_oid::bigint FROM cerebro.catalog_runs") == [
            packed
        ]
    finally:
        sql.close()
        drop_database(administrator, name)
        administrator.run(f"DROP ROLE IF EXISTS {role}")
