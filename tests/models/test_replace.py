"""Outputs that give way to new ones, and outputs that are dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from reasons import NO_SUCH_SQL
from servers import as_role, connected

from tests.models.conftest import Database

# A call for each kind of output; "{}" is its name.
CALLS = {
    "pack": "cerebro_pack('rows', '{}', 'half', 'x', replace := true)",
    "pack_columns": "cerebro_pack_columns('ids_and_halves', '{}', 'half', 'id', replace := true)",
    "pack_validation": (
        "cerebro_pack_validation('rows', '{}', 'half', 'x', 'halves_packed', replace := true)"
    ),
    "split": "cerebro_train_test_split('rows', '{}', 0.5, replace := true)",
    "split in two": (
        "cerebro_train_test_split('rows', '{}', 0.5, separate_output_tables := true, "
        "replace := true)"
    ),
    "generate": (
        "cerebro_generate_configs('library', '{}', ARRAY[1], $${{'loss': ['mse'], "
        "'optimizer_params_list': [{{'optimizer': ['SGD']}}]}}$$, $${{'batch_size': [8]}}$$, "
        "replace := true)"
    ),
    "load_configs": (
        "cerebro_load_configs('library', '{}', ARRAY[1], "
        "ARRAY[$$loss='mse',optimizer='SGD()'$$], ARRAY['batch_size=8'], replace := true)"
    ),
    "evaluate": "cerebro_evaluate('halves', 'halves_packed', '{}', replace := true)",
    "confusion": "cerebro_confusion_matrix('halves', 'halves_packed', '{}', replace := true)",
    "predict": "cerebro_predict('halves', 'rows', 'id', 'x', '{}', replace := true)",
    "predict by two": (
        "cerebro_predict('halves', 'packed_in_two', NULL, NULL, '{}', num_workers := 2, "
        "replace := true)"
    ),
    "predict_byom": (
        "cerebro_predict_byom('carried_over', 1, 'rows', 'id', 'x', '{}', 'response', replace := true)"
    ),
    "encode": "cerebro_encode('ids_and_halves', 'columns_to_give_way', '{}', 'id', replace := true)",
    "gpus": "cerebro_gpu_configuration('{}', 'nvidia', replace := true)",
    "fit": (
        "cerebro_fit('halves_packed', '{}', 'library', 2, "
        "$$loss='binary_crossentropy',optimizer='SGD()'$$, 'batch_size=40', 1, replace := true)"
    ),
    "fit_multiple": (
        "cerebro_fit_multiple('halves_packed', '{}', 'halves_configs', 1, replace := true)"
    ),
}


@pytest.fixture(scope="module")
def db(trained: Database) -> Iterator[Database]:
    """Tables that the calls read."""
    run(
        trained,
        "CREATE VIEW ids_and_halves AS SELECT id, half FROM rows; "
        "SELECT cerebro_pack_columns('ids_and_halves', 'columns_to_give_way', 'half', 'id'); "
        "CREATE TABLE many AS SELECT id, x, half FROM rows, generate_series(1, 300); "
        "SELECT cerebro_pack('many', 'packed_in_two', 'half', 'x', num_partitions := 2, "
        "normalizing_const := 2.0); "
        "CREATE TABLE carried_over AS SELECT 1 AS model_id, model_arch, model_weights FROM sums",
    )
    yield trained
    run(
        trained,
        "DROP VIEW ids_and_halves; DROP TABLE columns_to_give_way, columns_to_give_way_summary, columns_to_give_way_encoding, "
        "many, packed_in_two, packed_in_two_summary, carried_over",
    )


def run(db: Any, text: str) -> None:
    """Statements, each in a transaction of its own."""
    for statement in text.split("; "):
        db.fetch(statement)


def refused(db: Any, query: str) -> psycopg2.Error:
    with pytest.raises(psycopg2.Error) as raised:
        db.fetch(query)
    assert raised.value.diag.message_hint, raised.value
    return raised.value


def oids(db: Database, name: str) -> dict[str, int]:
    """The tables that are there under a name, with any suffix."""
    rows = db.fetch(
        "SELECT relname, oid::bigint FROM pg_class WHERE relkind = 'r' AND "
        "left(relname, length(%s)) = %s",
        (name, name),
    )
    return dict(rows)


@pytest.mark.parametrize("call", CALLS)
def test_outputs_give_way_to_new_ones(db: Database, call: str) -> None:
    name = 'an "out"put'
    written = CALLS[call].format(name)
    db.fetch(f"SELECT {written}")  # nothing is there yet
    before = oids(db, name)
    assert before
    without = written.replace("replace := true", "replace := false")
    if call != "generate":  # which adds to them
        error = refused(db, f"SELECT {without}")
        assert error.pgcode == "42P07"
        assert "replace := true" in str(error.diag.message_hint)
        assert "cerebro.cerebro_drop_outputs('an \"out\"put')" in str(error.diag.message_hint)
    first = sorted(before)[0]
    quoted = '"' + first.replace('"', '""') + '"'
    db.fetch(f"GRANT SELECT ON {quoted} TO cerebro_user WITH GRANT OPTION")
    db.fetch(f"SELECT {written}")
    after = oids(db, name)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert db.value(
        "SELECT has_table_privilege('cerebro_user', %s, 'SELECT WITH GRANT OPTION')", (quoted,)
    )
    assert "cerebro_" not in "".join(db.tables())
    told = db.fetch(
        "SELECT cerebro_drop_outputs(%s)", (f'public."{name.replace(chr(34), chr(34) * 2)}"',)
    )
    assert len(told) == len(after)
    assert oids(db, name) == {}


def test_a_call_that_fails_leaves_what_is_there(db: Database) -> None:
    db.fetch(f"SELECT {CALLS['predict'].format('kept')}")
    db.fetch(f"SELECT {CALLS['pack'].format('kept_rows')}")
    before = oids(db, "kept")
    db.fetch("CREATE TABLE faulty AS SELECT id, CASE WHEN id < 100 THEN x END AS x, half FROM rows")
    refused(db, "SELECT cerebro_predict('halves', 'faulty', 'id', 'x', 'kept', replace := true)")
    refused(db, "SELECT cerebro_pack('faulty', 'kept_rows', 'half', 'x', replace := true)")
    assert oids(db, "kept") == before
    run(
        db,
        "DROP TABLE faulty; SELECT cerebro_drop_outputs('kept'); SELECT cerebro_drop_outputs('kept_rows')",
    )


def test_an_encoding_that_is_not_made_anew_goes_too(db: Database) -> None:
    db.fetch(f"SELECT {CALLS['pack_columns'].format('encoded_before')}")
    assert "encoded_before_encoding" in oids(db, "encoded_before")
    db.fetch(f"SELECT {CALLS['pack'].format('encoded_before')}")
    assert sorted(oids(db, "encoded_before")) == ["encoded_before", "encoded_before_summary"]
    db.fetch("SELECT cerebro_drop_outputs('encoded_before')")


def test_tables_of_another_kind_stay(db: Database) -> None:
    before = db.tables()
    run(db, "CREATE TABLE plain (id integer); CREATE VIEW seen AS SELECT 1 AS id")
    for call, taken in (("predict", "plain"), ("predict", "seen"), ("predict", "halves")):
        error = refused(db, f"SELECT {CALLS[call].format(taken)}")
        assert error.pgcode == "42P07"
        assert f"public.{taken}" in str(error)
    assert "trained models" in str(refused(db, f"SELECT {CALLS['predict'].format('halves')}"))
    for name in ("plain", "seen"):
        assert refused(db, f"SELECT cerebro_drop_outputs('{name}')").pgcode == "42809"
    error = refused(db, "SELECT cerebro_drop_outputs('halves_summary')")
    assert "public.halves" in str(error.diag.message_hint)
    assert refused(db, "SELECT cerebro_drop_outputs('nothing')").pgcode == "42P01"
    assert refused(db, "SELECT cerebro_drop_outputs(NULL)").pgcode == "22023"
    run(db, "DROP VIEW seen; DROP TABLE plain")
    assert db.tables() == before


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_what_others_depend_on_stays(db: Database) -> None:
    call = f"SELECT {CALLS['predict'].format('needed')}"
    run(db, f"{call}; CREATE VIEW reader AS SELECT * FROM needed")
    error = refused(db, call)
    assert error.pgcode == "2BP01"
    assert "view public.reader" in str(error)
    assert "view public.reader" in str(refused(db, "SELECT cerebro_drop_outputs('needed')"))
    run(db, "DROP VIEW reader; CREATE POLICY mine ON needed USING (id > 3)")
    assert "policy mine" in str(refused(db, call))
    run(db, "DROP POLICY mine ON needed; ALTER TABLE needed ENABLE ROW LEVEL SECURITY")
    assert "has row level security" in str(refused(db, call))
    run(
        db,
        "ALTER TABLE needed DISABLE ROW LEVEL SECURITY; CREATE RULE quiet AS ON DELETE TO needed DO NOTHING",
    )
    assert "rule quiet" in str(refused(db, call))
    run(
        db,
        "DROP RULE quiet ON needed; CREATE TABLE whole (LIKE needed); "
        "ALTER TABLE needed INHERIT whole",
    )
    assert "public.whole" in str(refused(db, call))
    run(db, "ALTER TABLE needed NO INHERIT whole; DROP TABLE whole")
    run(db, f"{call}; SELECT cerebro_drop_outputs('needed')")


def test_what_is_read_stays(db: Database) -> None:
    db.fetch(f"SELECT {CALLS['encode'].format('loop')}")
    error = refused(
        db, "SELECT cerebro_encode('loop', 'columns_to_give_way', 'loop', 'id', replace := true)"
    )
    assert error.pgcode in ("22023", "42703")  # it lacks the columns, too
    db.fetch("SELECT cerebro_pack('rows', 'loops', 'half', 'x')")
    error = refused(
        db, "SELECT cerebro_pack_validation('rows', 'loops', 'half', 'x', 'loops', replace := true)"
    )
    assert "which this call reads" in str(error)
    db.fetch("SELECT cerebro_train_test_split('rows', 'halved', 0.5)")
    error = refused(
        db,
        "SELECT cerebro_train_test_split('halved', 'halved', 0.5, target_cols := 'id', "
        "replace := true)",
    )
    assert "which this call reads" in str(error)
    for name in ("loop", "loops", "halved"):
        db.fetch("SELECT cerebro_drop_outputs(%s)", (name,))


def test_readers_are_not_waited_for_long(db: Database) -> None:
    call = f"SELECT {CALLS['predict'].format('busy')}"
    db.fetch(call)
    reader = connected(db.dsn)
    reader.autocommit = False
    with reader.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM busy")
        error = refused(db, call)
        assert error.pgcode == "55006"
        reader.rollback()
    reader.close()
    run(db, f"{call}; SELECT cerebro_drop_outputs('busy')")


def test_dropping_is_of_the_callers_transaction(db: Database) -> None:
    db.fetch(f"SELECT {CALLS['predict'].format('again')}")
    connection = connected(db.dsn)
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("SELECT cerebro.cerebro_drop_outputs('again')")
        assert cursor.fetchall() == [("public.again",)]
        cursor.execute("SELECT to_regclass('again')::text")
        assert cursor.fetchall() == [(None,)]
        connection.rollback()
        cursor.execute("SELECT count(*) FROM again")
        cursor.execute("SELECT cerebro.cerebro_drop_outputs('again')")
        connection.commit()
    connection.close()
    assert oids(db, "again") == {}


def test_what_is_left_of_outputs_is_dropped(db: Database) -> None:
    run(db, f"SELECT {CALLS['pack_columns'].format('parts')}; DROP TABLE parts")
    told = db.fetch("SELECT cerebro_drop_outputs('parts')")
    assert sorted(told) == [("public.parts_encoding",), ("public.parts_summary",)]


def test_outputs_of_an_earlier_version_have_no_comment(db: Database) -> None:
    call = f"SELECT {CALLS['fit_multiple'].format('older')}"
    db.fetch(call)
    before = oids(db, "older")
    for table in before:
        db.fetch(f"COMMENT ON TABLE {table} IS NULL")
    db.fetch("CREATE TABLE older_copy AS SELECT * FROM older")
    assert refused(db, "SELECT cerebro_drop_outputs('older_copy')").pgcode == "42809"
    run(db, f"DROP TABLE older_copy; {call}")
    assert not set(before.values()) & set(oids(db, "older").values())
    assert len(db.fetch("SELECT cerebro_drop_outputs('older')")) == 5


def test_an_encoder_gives_way_in_place(db: Database) -> None:
    make = "SELECT cerebro_create_encoder('ids_and_halves', 'columns_to_give_way', 'told'{})"
    db.fetch(make.format(""))
    db.fetch("CREATE VIEW features AS SELECT told(w) FROM ids_and_halves w")
    assert "replace := true" in str(refused(db, make.format("")).diag.message_hint)
    db.fetch(make.format(", replace := true"))
    run(db, "DROP VIEW features; COMMENT ON FUNCTION told(ids_and_halves) IS 'mine'")
    assert refused(db, make.format(", replace := true")).pgcode == "42723"
    db.fetch("DROP FUNCTION told(ids_and_halves)")


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_outputs_of_another_role_stay(db: Database, administrator: Any) -> None:
    users = {}
    for name in ("ann", "ben"):
        administrator.run(f"CREATE ROLE replacing_{name} LOGIN IN ROLE cerebro_user")
        users[name] = Database(db.dsn, connected(as_role(db.dsn, f"replacing_{name}")))
    try:
        for statement in (
            "CREATE SCHEMA shared",
            "GRANT ALL ON SCHEMA shared TO cerebro_user",
            'CREATE TABLE shared."Of all" (id integer, half boolean, x real[]) PARTITION BY '
            "RANGE (id)",
            'CREATE TABLE shared.part PARTITION OF shared."Of all" FOR VALUES FROM (0) TO (999)',
            'INSERT INTO shared."Of all" SELECT id, half, x FROM rows',
            'GRANT SELECT ON shared."Of all" TO cerebro_user',
        ):
            db.fetch(statement)
        call = (
            "SELECT cerebro.cerebro_pack('shared.\"Of all\"', 'shared.\"Its Pack\"', "
            "'half', 'x', replace := true)"
        )
        users["ann"].fetch(call)
        before = oids(db, "Its Pack")
        for person in (users["ben"], db):  # a superuser does not own it either
            error = refused(person, call)
            assert error.pgcode == "42501"
            assert "replacing_ann" in str(error)
        drop = "SELECT cerebro.cerebro_drop_outputs('shared.\"Its Pack\"')"
        assert refused(users["ben"], drop).pgcode == "42501"
        assert oids(db, "Its Pack") == before
        users["ann"].fetch(call)
        assert not set(before.values()) & set(oids(db, "Its Pack").values())
        assert len(users["ann"].fetch(drop)) == 2
    finally:
        for person in users.values():
            person.connection.close()
        db.fetch("DROP SCHEMA IF EXISTS shared CASCADE")
        for name in users:
            db.fetch(f"DROP OWNED BY replacing_{name}")
            administrator.run(f"DROP ROLE replacing_{name}")


def test_a_table_that_takes_the_name_meanwhile_is_not_dropped(db: Database) -> None:
    db.fetch(f"SELECT {CALLS['predict'].format('taken')}")
    other = connected(db.dsn)
    other.autocommit = False
    for change, told in (
        (
            "ALTER TABLE taken RENAME TO first; CREATE TABLE taken (mine integer); "
            "COMMENT ON TABLE taken IS 'Cerebro-DB: predictions'",
            "public.taken was replaced or dropped",
        ),
        ("ALTER TABLE taken RENAME TO second", "public.taken was replaced or dropped"),
    ):
        with other.cursor() as cursor:
            cursor.execute(change)
            later = threading.Timer(1.0, other.commit)
            later.start()
            error = refused(db, "SELECT cerebro_drop_outputs('taken')")
            later.join()
        assert error.pgcode == "55006"
        assert told in str(error)
    other.close()
    assert db.value("SELECT count(*) FROM first") == 240
    db.fetch("DROP TABLE first, second")
