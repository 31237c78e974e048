"""Names as users write them, and sources that are no plain tables."""

from __future__ import annotations

import psycopg2
import pytest
from reasons import NO_SUCH_SQL
from servers import connected, partitioned

HOSTILE = ['we"ird', "Capital Name", "100% %s {0}", "naïve 表", "select", "dot.ted", "semi;colon'"]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(db, name):
    sql = quoted(name).replace("%", "%%")
    x, y = quoted("X " + name).replace("%", "%%"), quoted("y" + name).replace("%", "%%")
    db.fetch(f"CREATE SCHEMA {sql}", ())
    db.fetch(
        f"CREATE TABLE {sql}.{sql} AS SELECT ARRAY[i] AS {x}, i %% 2 AS {y} "
        "FROM generate_series(1, 10) i",
        (),
    )
    full = quoted(name) + "." + quoted(name)
    output = quoted(name) + "." + quoted("out " + name)
    db.pack(full, output, quoted("y" + name), quoted("X " + name))
    got = db.unpack("out " + name, "X " + name, "y" + name, schema=name)
    assert sorted(got.features[:, 0]) == list(range(1, 11))
    validation = quoted(name) + "." + quoted("val " + name)
    db.fetch(
        "SELECT cerebro_pack_validation(%s, %s, %s, %s, %s)",
        (full, validation, "y" + name, "X " + name, output),
    )
    assert len(db.unpack("val " + name, "X " + name, "y" + name, schema=name).features) == 10


def test_this_database_may_stand_before_a_schema(db):
    """As dbt and SQLMesh write names."""
    db.fetch("CREATE TABLE plain AS SELECT ARRAY[i] AS x, i % 2 AS y FROM generate_series(1, 10) i")
    here = db.fetch("SELECT quote_ident(current_database())")[0][0]
    db.pack(f'{here}."public"."plain"', f"{here}.public.plain_packed", "y", "x")
    assert len(db.unpack("plain_packed", "x", "y").features) == 10
    with pytest.raises(psycopg2.Error, match=r"source_table: got 'elsewhere\.public\.plain'"):
        db.pack("elsewhere.public.plain", "other", "y", "x")
    with pytest.raises(psycopg2.Error, match="plain_packed exists already"):
        db.pack("plain", f"{here}.public.plain_packed", "y", "x")


def test_names_as_exact_text(db):
    db.fetch('CREATE TABLE "My Table" AS SELECT ARRAY[1] AS "The X", 1 AS "Y"')
    db.pack("My Table", "My Packed", "Y", "The X")
    assert len(db.unpack("My Packed", "The X", "Y").features) == 1
    assert "My Packed_summary" in db.tables()


def test_capitals_without_quotes_are_folded_as_in_sql(db):
    db.fetch("CREATE TABLE Folded AS SELECT ARRAY[1] AS X, 1 AS Y")
    db.pack("FOLDED", "Folded_P", "Y", "X")
    assert "folded_p" in db.tables()


def test_the_callers_search_path_counts(db):
    db.fetch("CREATE SCHEMA mine; CREATE TABLE mine.hidden AS SELECT ARRAY[1] AS x, 1 AS y")
    db.fetch("SET search_path = mine, cerebro")
    try:
        db.pack("hidden", "hidden_p", "y", "x")
    finally:
        db.fetch("RESET search_path")
    assert db.value("SELECT count(*) FROM mine.hidden_p") == 1


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE VIEW {} AS SELECT * FROM base",
        "CREATE MATERIALIZED VIEW {} AS SELECT * FROM base",
        "PARTITIONED; INSERT INTO {0} SELECT * FROM base",
        "CREATE TABLE {0} (x int[], y int); CREATE TABLE {0}_child () INHERITS ({0}); "
        "INSERT INTO {0} SELECT * FROM base WHERE y = 0; "
        "INSERT INTO {0}_child SELECT * FROM base WHERE y > 0",
        "CREATE UNLOGGED TABLE {} AS TABLE base",
        "CREATE TABLE {} AS TABLE base; DELETE FROM {0} WHERE y = 1; "
        "INSERT INTO {0} SELECT * FROM base WHERE y = 1",
    ],
)
def test_sources_of_all_kinds(db, definition, has_segments):
    db.fetch("DROP TABLE IF EXISTS base, kind_p, kind_p_summary CASCADE")
    db.fetch("CREATE TABLE base AS SELECT ARRAY[i] x, i % 3 AS y FROM generate_series(1, 30) i")
    name = f"kind{abs(hash(definition))}"
    definition = definition.replace(
        "PARTITIONED", partitioned(name, "x int[], y int", has_segments)
    )
    db.fetch(definition.replace("{}", name).replace("{0}", name))
    db.pack(name, "kind_p", "y", "x")
    got = db.unpack("kind_p")
    assert sorted(got.features[:, 0]) == list(range(1, 31))
    assert "kind_p_staging" not in db.tables()
    assert "kind_p_packing" not in db.tables()


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_domains(db):
    db.fetch(
        "CREATE DOMAIN pixel AS smallint CHECK (VALUE >= 0); CREATE DOMAIN image AS pixel[]; "
        "CREATE DOMAIN label AS varchar(3); "
        "CREATE TABLE domains AS SELECT ARRAY[i]::image AS x, i::text::label AS y "
        "FROM generate_series(1, 5) i"
    )
    db.pack("domains", "domains_p", "y", "x")
    got = db.unpack("domains_p")
    assert list(got.features[:, 0]) == [label + 1 for label in got.targets]


@pytest.fixture(scope="module")
def plain_user(db):
    db.fetch("DROP ROLE IF EXISTS packing_user; CREATE ROLE packing_user LOGIN")
    db.fetch("GRANT USAGE ON SCHEMA cerebro TO packing_user")
    db.fetch("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA cerebro TO packing_user")
    db.fetch("CREATE SCHEMA IF NOT EXISTS theirs AUTHORIZATION packing_user")
    connection = connected(db.dsn + " user=packing_user")
    yield connection
    connection.close()


def test_only_the_callers_rights_are_used(db, plain_user):
    db.fetch("CREATE SCHEMA closed; GRANT USAGE ON SCHEMA closed TO packing_user")
    db.fetch("CREATE TABLE secret AS SELECT ARRAY[i] x, i % 2 y, i z FROM generate_series(1, 9) i")
    cursor = plain_user.cursor()
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        cursor.execute("SELECT cerebro_pack('secret', 'theirs.p', 'y', 'x')")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="may not create"):
        cursor.execute("SELECT cerebro_pack('secret', 'closed.p', 'y', 'x')")
    db.fetch("GRANT SELECT (x, y) ON secret TO packing_user")
    cursor.execute("SELECT cerebro_pack('secret', 'theirs.p', 'y', 'x')")
    assert db.value("SELECT tableowner FROM pg_tables WHERE tablename = 'p'") == "packing_user"
    assert db.value("SELECT sum(num_rows) FROM theirs.p") == 9


def test_a_wrong_name_is_reported_with_the_nearest_table_that_the_caller_may_read(db, plain_user):
    db.fetch(
        "CREATE TABLE mistyped AS SELECT 1 AS x; CREATE TABLE mistyped_or_not AS SELECT 1 AS x; "
        'CREATE SCHEMA sales; GRANT USAGE ON SCHEMA sales TO packing_user; CREATE TABLE sales."Mistyped" AS SELECT 1 AS x'
    )
    wrong = ("mistypd", "sales.mistypd", "mistyped_or_nt", "theirs.mistypd", "nothing like it")
    near = ("mistyped", '"Mistyped"', "mistyped_or_not", None, None)
    with plain_user.cursor() as mine, db.connection.cursor() as theirs:
        db.fetch("GRANT SELECT (x) ON mistyped TO packing_user")
        for cursor, seen in ((theirs, near), (mine, ("mistyped", None, "mistyped", None, None))):
            for name, meant in zip(wrong, seen, strict=True):
                with pytest.raises(psycopg2.errors.UndefinedTable) as caught:
                    cursor.execute("SELECT cerebro_pack(%s, 'theirs.n', 'x', 'x')", (name,))
                told = caught.value.diag.message_hint
                assert told.startswith(f"Did you mean '{meant}'? " if meant else "the schemas")
                assert "schemas of the search_path" in told


def test_foreign_tables(db):
    if not db.fetch("SELECT 1 FROM pg_available_extensions WHERE name = 'file_fdw'"):
        pytest.skip("the server has no file_fdw")
    db.fetch(
        "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw; "
        "CREATE FOREIGN TABLE distant (id int, x int[], y int) SERVER files OPTIONS (format 'csv', "
        "program 'for i in $(seq 1 30); do echo $i,{$i},$((i % 3)); done')"
    )
    db.pack("distant", "distant_p", "y", "x", num_partitions=2)
    assert sorted(db.unpack("distant_p").features[:, 0]) == list(range(1, 31))
    db.fetch("SELECT cerebro_pack_columns('distant', 'distant_c', 'y', 'id', numbers := 'none')")
    assert sorted(db.unpack("distant_c", "features").features[:, 0]) == list(range(1, 31))
    db.fetch("SELECT cerebro_train_test_split('distant', 'distant_s', 0.5, grouping_cols := 'y')")
    assert db.value("SELECT sum(split) FROM distant_s") == 15
    assert "distant_p_staging" not in db.tables()


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_partitions_of_partitions_in_another_schema(db):
    db.fetch(
        'CREATE SCHEMA "Far away"; CREATE TABLE "Far away"."By day" (x int[], y int, d date) '
        "PARTITION BY RANGE (d); "
        'CREATE TABLE "Far away".january PARTITION OF "Far away"."By day" '
        "FOR VALUES FROM ('2026-01-01') TO ('2026-02-01') PARTITION BY LIST (y); "
        'CREATE TABLE "Far away".january_0 PARTITION OF "Far away".january FOR VALUES IN (0); '
        'CREATE TABLE "Far away".others PARTITION OF "Far away"."By day" DEFAULT; '
        'INSERT INTO "Far away"."By day" SELECT ARRAY[i], CASE WHEN i < 10 THEN 0 ELSE 1 END, '
        "date '2026-01-01' + 10 * i FROM generate_series(3, 20) i; "
        "INSERT INTO \"Far away\".\"By day\" VALUES ('{1}', 0, '2026-01-05')"
    )
    db.pack('"Far away"."By day"', '"Far away".packed', "y", "x")
    got = db.unpack("packed", schema="Far away")
    assert sorted(got.features[:, 0]) == [1, *range(3, 21)]
