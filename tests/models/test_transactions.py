"""Functions in a transaction of their caller, who is a plain member of cerebro_user."""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import closing, contextmanager

import psycopg2
import pytest
from pace import stretched, until
from psycopg2 import errors
from reasons import WAITS_FOR_LOCKS
from servers import connected

_numbers = itertools.count(1)
COMPILE = "loss='mse',optimizer='SGD()'"


@pytest.fixture(scope="module")
def user(db, administrator, network):
    """Their tables: rows, packed, m(odels), c(onfigurations), and out of a finished run."""
    name = f"user_{os.getpid()}_{next(_numbers)}"
    administrator.run(f"CREATE ROLE {name} LOGIN IN ROLE cerebro_user")
    db.fetch(f"CREATE SCHEMA own AUTHORIZATION {name}")
    user = type(db)(db.dsn, connected(db.dsn, user=name))
    user.fetch("SET search_path = own, public, cerebro")
    user.fetch(
        "CREATE TABLE rows AS SELECT i AS id, ARRAY[sin(i), cos(i)]::real[] AS x, i % 2 AS y, "
        "i % 5 AS kind FROM generate_series(1, 40) i"
    )
    user.fetch("SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 2)")
    user.fetch("SELECT cerebro_pack_columns('rows', 'columns', 'y', 'kind', num_partitions := 2)")
    user.fetch("SELECT cerebro_load_model('m', %s)", (network((2,), (2, "softmax")),))
    user.fetch(
        "SELECT cerebro_load_configs('m', 'c', ARRAY[1], ARRAY[%s], ARRAY['batch_size=8'])",
        (COMPILE,),
    )
    user.fetch("SELECT cerebro_fit_multiple('packed', 'out', 'c', 1, num_workers := 1)")
    yield user
    user.connection.close()
    db.fetch(f"DROP OWNED BY {name} CASCADE")
    administrator.run(f"DROP ROLE {name}")


@pytest.fixture
def net(network):
    return network((2,), (2, "softmax"))


@contextmanager
def transaction(db, how="BEGIN", end="ROLLBACK"):
    """A transaction of the caller."""
    db.fetch(how)
    try:
        yield
    finally:
        db.fetch(end)


# -- in the caller's transaction -----------------------------------------------------------------
def test_a_table_that_the_transaction_has_dropped_is_made_anew(user, net):
    user.fetch(
        "SELECT cerebro_load_model('again', %s), cerebro_load_model('again', %s)", (net, net)
    )
    began = time.monotonic()
    with transaction(user):
        user.fetch("DROP TABLE again")
        assert user.value("SELECT cerebro_load_model('again', %s, %s)", (net, None)) == 1
    assert time.monotonic() - began < stretched(20)
    assert user.value("SELECT count(*) FROM again") == 2


def test_what_is_made_counts_and_is_taken_back(user, net):
    before = user.tables()
    search = "SHOW search_path"
    with transaction(user):
        user.fetch("SET LOCAL TimeZone = 'Asia/Tokyo'")
        assert user.value("SELECT cerebro_load_model('fresh', %s, name := 'a')", (net,)) == 1
        assert user.value("SELECT cerebro_load_model('fresh', %s)", (net,)) == 2
        user.fetch("SELECT cerebro_delete_model('fresh', 2)")
        user.fetch(
            "SELECT cerebro_load_configs('fresh', 'picked', ARRAY[1], ARRAY[%s], ARRAY['epochs=1'])",
            (COMPILE,),
        )
        user.fetch(
            "SELECT cerebro_generate_configs('fresh', 'picked', ARRAY[1], %s, %s)",
            (
                "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD']}]}",
                "{'batch_size': [4, 8]}",
            ),
        )
        assert user.value("SELECT count(*) FROM picked") == 3
        for _ in range(2):  # more than once in a transaction
            user.fetch(
                "SELECT cerebro_train_test_split('rows', 'parts', 0.5, seed := 3); DROP TABLE parts"
            )
        user.fetch("INSERT INTO rows VALUES (41, ARRAY[1, 2], 1, 3)")
        user.fetch("SELECT cerebro_encode('rows', 'columns', 'coded', 'id')")
        assert user.value("SELECT count(*) FROM coded") == 41
        user.fetch("SELECT cerebro_create_encoder('rows', 'columns', 'coder')")
        assert user.value("SELECT coder(rows) IS NOT NULL FROM rows LIMIT 1")
        user.fetch("SELECT cerebro_gpu_configuration('gpus', 'nvidia')")
        assert user.value(search) == "own, public, cerebro"
        assert user.value("SHOW TimeZone") == "Asia/Tokyo"
        assert user.value("SHOW client_min_messages") == "notice"
    assert user.tables() == before
    assert user.value(search) == "own, public, cerebro"


def test_the_registry(user, has_segments):
    run_id = user.value("SELECT run_id FROM cerebro.runs")
    known = "SELECT count(*) FROM cerebro.registered_models"
    with transaction(user):
        assert user.value("SELECT cerebro_register_model(%s, 1, 'held')", (run_id,)) == 1
        user.fetch("SELECT cerebro_set_alias('held', 'best', 1)")
        user.fetch("SELECT cerebro_describe_model('held', 'text', '{\"a\": 1}')")
        user.fetch("SELECT cerebro_grant_model('held', 'cerebro_user')")
        user.fetch("SELECT cerebro_revoke_model('held', 'cerebro_user')")
        row = "SELECT class_value FROM cerebro_predict_row('model:held@best', ARRAY[1, 2])"
        if not has_segments:  # there it reads what is committed
            assert user.value(row) in ("0", "1")
        user.fetch("SELECT cerebro_set_alias('held', 'best', NULL)")
        assert user.value("SELECT cerebro_rollback_alias('held', 'best')") == 1
        user.fetch(
            "SELECT cerebro_register_model(%s, 1, 'held'), cerebro_drop_model('held', 2)", (run_id,)
        )
        user.fetch("SELECT cerebro_drop_model('held')")
        assert user.value(known) == 0
        user.fetch("SELECT cerebro_register_model(%s, 1, 'held')", (run_id,))
        assert user.value(known) == 1
        rows = user.value(
            "SELECT lineage->'training'->>'rows' FROM cerebro.registered_versions WHERE name = 'held'"
        )
        assert rows == "40"
    assert user.value(known) == 0


def test_a_dropped_run_comes_back(user):
    run_id = user.value("SELECT run_id FROM cerebro.runs")
    with transaction(user):
        user.fetch("SELECT cerebro_drop_run(%s)", (run_id,))
        assert user.fetch("SELECT FROM cerebro.runs") == []
    assert user.value("SELECT status FROM cerebro.runs") == "finished"
    assert user.value("SELECT count(*) FROM cerebro.hops") == 2


def test_an_error_ends_the_statement_alone(user, net):
    with transaction(user):
        user.fetch("SELECT cerebro_load_model('kept', %s)", (net,))
        user.fetch("SAVEPOINT here")
        with pytest.raises(errors.InvalidParameterValue):
            user.fetch("SELECT cerebro_load_model('kept', '{}')")
        user.fetch("ROLLBACK TO here")
        assert user.value("SELECT count(*) FROM kept") == 1
        with pytest.raises(errors.NotNullViolation) as caught:
            user.fetch(
                "CREATE TABLE odd (model_id int, model_arch json, model_weights bytea, name text, "
                "description text, more int NOT NULL); SELECT cerebro_load_model('odd', %s)",
                (net,),
            )
        assert caught.value.diag.message_hint


def test_what_a_trigger_raises(user, net):
    user.fetch("SELECT cerebro_load_model('guarded', %s)", (net,))
    user.fetch(
        "CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "USING ERRCODE = 'U0042', MESSAGE = 'no more', HINT = 'ask', DETAIL = 'full'; END $$; "
        "CREATE TRIGGER guard BEFORE INSERT ON guarded FOR EACH ROW EXECUTE PROCEDURE guard()"
    )
    with pytest.raises(psycopg2.Error, match="no more") as caught:
        user.fetch("SELECT cerebro_load_model('guarded', %s)", (net,))
    found = caught.value.diag
    assert (found.sqlstate, found.message_hint, found.message_detail) == ("U0042", "ask", "full")
    user.fetch("DROP TABLE guarded; DROP FUNCTION guard()")


def test_a_timeout_is_reported_as_one(user):
    user.fetch("CREATE VIEW slow AS SELECT id, pg_sleep(0.2)::text AS s FROM rows")
    user.fetch("SET statement_timeout = '1s'")
    try:
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            user.fetch("SELECT cerebro_train_test_split('slow', 'o', 0.5)")
    finally:
        user.fetch("SET statement_timeout = 0; DROP VIEW slow")


def test_a_temporary_table_counts(user, net):
    user.fetch("CREATE TEMP TABLE rows AS SELECT 1 AS id, ARRAY[1.0] AS x, 0 AS y, 2 AS kind")
    try:
        user.fetch("SELECT cerebro_encode('rows', 'own.columns', 'pg_temp.coded', 'id')")
        assert user.value("SELECT count(*) FROM pg_temp.coded") == 1
        assert user.value("SELECT cerebro_load_model('pg_temp.passing', %s)", (net,)) == 1
        assert user.value("SELECT cerebro_load_model('passing', %s)", (net,)) == 2
        assert user.value("SELECT count(*) FROM pg_temp.passing") == 2
        with pytest.raises(errors.DuplicateTable):
            user.fetch("SELECT cerebro_encode('rows', 'own.columns', 'pg_temp.coded', 'id')")
    finally:
        user.fetch("DISCARD TEMP")


def test_settings_of_the_caller_decide_nothing(user):
    user.fetch(
        "CREATE TABLE days AS SELECT i, now() + i * interval '1 day' AS day, '\\x01'::bytea AS b "
        "FROM generate_series(1, 50) i"
    )
    split = "SELECT cerebro_train_test_split('days', %s, 0.5, seed := 3)"
    user.fetch(split, ("one",))
    with transaction(user, end="COMMIT"):
        user.fetch(
            "SET LOCAL DateStyle = 'German'; SET LOCAL TimeZone = 'Asia/Tokyo'; "
            "SET LOCAL bytea_output = 'escape'; SET LOCAL standard_conforming_strings = off"
        )
        user.fetch(split, ("two",))
    assert user.value("SELECT count(*) FROM (TABLE one EXCEPT TABLE two) d") == 0
    user.fetch("DROP TABLE days, one, two")


# -- in sessions of their own --------------------------------------------------------------------
APART = {
    "cerebro_pack": "SELECT cerebro_pack('rows', 'o', 'y', 'x')",
    "cerebro_pack_columns": "SELECT cerebro_pack_columns('rows', 'o', 'y', 'kind')",
    "cerebro_pack_images": "SELECT cerebro_pack_images('rows', 'o', 'y', 'x', ARRAY[1, 1, 1])",
    "cerebro_pack_validation": "SELECT cerebro_pack_validation('rows', 'o', 'y', 'x', 'packed')",
    "cerebro_fit_multiple": "SELECT cerebro_fit_multiple('packed', 'o', 'c', 1)",
    "cerebro_fit": "SELECT cerebro_fit('packed', 'o', 'm', 1, 'x', 'y', 1)",
    "cerebro_search": "SELECT cerebro_search('packed', 'o', 'm', NULL, ARRAY[1], "
    "'{''loss'': [''mse''], ''optimizer'': [''SGD'']}', '{}')",
    "cerebro_automl": "SELECT cerebro_automl('rows', 'm', 'y')",
    "cerebro_replay_automl": "SELECT cerebro_replay_automl('m', 'n')",
    "cerebro_extend": "SELECT cerebro_extend(1)",
    "cerebro_replay": "SELECT cerebro_replay(1, 'o')",
    "cerebro_resume": "SELECT cerebro_resume(1)",
    "cerebro_vacuum": "SELECT cerebro_vacuum('1 day')",
    "cerebro_evaluate": "SELECT cerebro_evaluate('out', 'packed', 'o')",
    "cerebro_confusion_matrix": "SELECT cerebro_confusion_matrix('out', 'packed', 'o')",
    "cerebro_explain": "SELECT cerebro_explain('out', 'packed', 'o')",
    "cerebro_contributions": "SELECT cerebro_contributions('out', 'rows', 'id', 'x', 'o')",
    "cerebro_dependence": "SELECT cerebro_dependence('out', 'packed', 'o')",
    "cerebro_ensemble": "SELECT cerebro_ensemble(1, 'm', 'packed')",
    "cerebro_calibrate": "SELECT cerebro_calibrate('model:m', 'packed')",
    "cerebro_reliability": "SELECT cerebro_reliability('out', 'packed', 'o')",
    "cerebro_threshold": "SELECT cerebro_threshold('out', 'packed', 'o')",
    "cerebro_predict": "SELECT cerebro_predict('out', 'rows', 'id', 'x', 'o', 'response')",
    "cerebro_predict_folds": "SELECT cerebro_predict_folds('out', 'o', 'response')",
    "cerebro_predict_byom": "SELECT cerebro_predict_byom('m', 1, 'rows', 'id', 'x', 'o')",
    "cerebro_export": "SELECT cerebro_export('out')",
}


@pytest.mark.parametrize("call", APART.values(), ids=APART)
def test_what_sessions_cannot_see_is_reported_at_once(user, call):
    before = user.tables()
    for change in ("UPDATE rows SET y = 1 - y", "SELECT 1 FROM m FOR UPDATE", "TRUNCATE packed"):
        began = time.monotonic()
        with transaction(user):
            user.fetch(change)
            with pytest.raises(errors.ActiveSqlTransaction, match="has written") as caught:
                user.fetch(call)
        assert "COMMIT" in caught.value.diag.message_hint
        assert time.monotonic() - began < stretched(5)
    assert user.tables() == before


def test_what_has_written_nothing_is_let_through(user):
    with transaction(user, end="COMMIT"):
        user.fetch("SELECT * FROM rows; SAVEPOINT s; SELECT count(*) FROM cerebro.runs")
        user.fetch("DO $$ BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END $$")
        user.fetch("SELECT cerebro_predict_row('out', ARRAY[1, 2])")
        user.fetch("SELECT cerebro_pack('rows', 'o', 'y', 'x')")
        user.fetch("SELECT cerebro_predict('out', 'rows', 'id', 'x', 'p', 'response')")
        user.fetch("SELECT cerebro_export('out')")
        with pytest.raises(errors.ActiveSqlTransaction):
            user.fetch("DROP TABLE o, o_summary, p; SELECT cerebro_export('out')")
    user.fetch("DROP TABLE o, o_summary, p")


def test_the_row_that_a_call_fills(user):
    user.fetch("CREATE TABLE files (file bytea)")
    user.fetch("INSERT INTO files SELECT cerebro_export('out')")
    assert user.value("SELECT length(file) > 0 FROM files")
    user.fetch("DROP TABLE files")


WRITING = {
    **{name: call for name, call in APART.items() if name != "cerebro_export"},
    "cerebro_load_model": "SELECT cerebro_load_model('o', '{}')",
    "cerebro_load_model_file": "SELECT cerebro_load_model_file('o', '')",
    "cerebro_delete_model": "SELECT cerebro_delete_model('m', 1)",
    "cerebro_load_configs": "SELECT cerebro_load_configs('m', 'o', ARRAY[1], "
    "ARRAY['loss=''mse'',optimizer=''SGD()'''], ARRAY['epochs=1'])",
    "cerebro_register_model": "SELECT cerebro_register_model(1, 1, 'o')",
    "cerebro_set_alias": "SELECT cerebro_set_alias('o', 'a', 1)",
    "cerebro_drop_model": "SELECT cerebro_drop_model('o')",
    "cerebro_drop_run": "SELECT cerebro_drop_run(1)",
    "cerebro_train_test_split": "SELECT cerebro_train_test_split('rows', 'o', 0.5)",
    "cerebro_encode": "SELECT cerebro_encode('rows', 'columns', 'o', 'id')",
    "cerebro_create_encoder": "SELECT cerebro_create_encoder('rows', 'columns', 'o')",
    "cerebro_gpu_configuration": "SELECT cerebro_gpu_configuration('o')",
    "cerebro_hyperband_schedule": "SELECT cerebro_hyperband_schedule('o', 9)",
    "cerebro_best": "SELECT cerebro_best(1)",
    "cerebro_add_configs": "SELECT cerebro_add_configs(1, ARRAY[1], ARRAY['loss=mse,optimizer=SGD'], ARRAY[''])",
    "cerebro_stop_config": "SELECT cerebro_stop_config(1, 1)",
    "cerebro_clone": "SELECT cerebro_clone(1, 1)",
    "cerebro_narrow": "SELECT cerebro_narrow(1, ARRAY[1])",
    "cerebro_finish": "SELECT cerebro_finish(1)",
    "cerebro_cancel": "SELECT cerebro_cancel(1)",
    "cerebro_pause": "SELECT cerebro_pause(1)",
}


@pytest.mark.parametrize("call", WRITING.values(), ids=WRITING)
def test_a_transaction_that_may_not_write(user, call):
    before = user.tables()
    with (
        transaction(user, "BEGIN READ ONLY"),
        pytest.raises(errors.ReadOnlySqlTransaction, match="read-only") as caught,
    ):
        user.fetch(call)
    assert "READ WRITE" in caught.value.diag.message_hint
    assert user.tables() == before


def test_a_session_that_may_not_write(user):
    user.fetch("SET default_transaction_read_only = on")
    try:
        with pytest.raises(errors.ReadOnlySqlTransaction):
            user.fetch(APART["cerebro_pack"])
        user.fetch(APART["cerebro_export"])
        user.fetch("SELECT cerebro_predict_row('out', ARRAY[1, 2])")
    finally:
        user.fetch("SET default_transaction_read_only = off")


@pytest.mark.not_on_segments(WAITS_FOR_LOCKS)
@pytest.mark.parametrize(
    ("lock", "call", "table"),
    [
        ("LOCK TABLE rows IN SHARE UPDATE EXCLUSIVE MODE", "cerebro_predict", None),
        # The table that the call replaces is read in the same transaction.
        ("SELECT FROM out LIMIT 1", "warm", "out"),
        ("DECLARE c CURSOR FOR SELECT FROM out; FETCH c", "warm", "out"),
    ],
)
def test_a_lock_of_the_caller_is_not_waited_for(user, lock, call, table):
    warm = "SELECT cerebro_fit_multiple('packed', 'out', 'c', 1, warm_start := true)"
    before = user.tables()
    began = time.monotonic()
    with transaction(user):
        user.fetch(lock)
        if table is None:
            user.fetch(APART[call])
        else:
            with pytest.raises(
                errors.ActiveSqlTransaction, match=f'holds a lock of "{table}"'
            ) as caught:
                user.fetch(warm)
            assert "COMMIT" in caught.value.diag.message_hint
    assert time.monotonic() - began < stretched(25)
    user.fetch("DROP TABLE IF EXISTS o")
    assert user.tables() == before


def stands_in_a_queue(session):
    """Whether a session waits for a lock."""
    watching = connected(session.dsn)
    with closing(watching), watching.cursor() as cursor:
        query = "SELECT count(*) > 0 FROM pg_locks WHERE pid = %s AND NOT granted"
        cursor.execute(query, (session.info.backend_pid,))
        return cursor.fetchone()[0]


@pytest.mark.not_on_segments(WAITS_FOR_LOCKS)
def test_nor_is_one_behind_which_somebody_else_waits(user):
    other = connected(user.dsn)
    began = time.monotonic()
    with transaction(user):
        user.fetch("SELECT count(*) FROM own.rows")
        waiting = threading.Thread(
            target=other.cursor().execute, args=("BEGIN; LOCK TABLE own.rows; COMMIT",)
        )
        waiting.start()
        until(lambda: stands_in_a_queue(other))
        with pytest.raises(errors.ActiveSqlTransaction, match="holds a lock of"):
            user.fetch("SELECT cerebro_pack('rows', 'o', 'y', 'x')")
    waiting.join()
    other.close()
    assert time.monotonic() - began < stretched(25)


# -- temporary tables ----------------------------------------------------------------------------
@pytest.fixture
def hidden(user):
    """Temporary tables of the same names as those that last."""
    for table in ("rows", "packed", "packed_summary", "out", "m", "c", "o"):
        user.fetch(f"CREATE TEMP TABLE {table} (id int)")
    yield user
    user.fetch("DISCARD TEMP")


# These take the number of a run first, or a registered model.
OF_RUNS = (
    "cerebro_resume", "cerebro_vacuum", "cerebro_extend", "cerebro_replay", "cerebro_replay_automl", "cerebro_calibrate",
    "cerebro_ensemble",
)  # fmt: skip


@pytest.mark.parametrize("call", [APART[name] for name in APART if name not in OF_RUNS])
def test_a_table_that_a_temporary_one_hides(hidden, call):
    before = hidden.tables()
    with pytest.raises(errors.UndefinedTable, match="is a temporary table") as caught:
        hidden.fetch(call)
    assert "sessions of its own" in caught.value.diag.message_hint
    assert hidden.tables() == before


def test_an_output_that_a_temporary_table_would_hide(user):
    user.fetch("CREATE TEMP TABLE o_summary (id int)")
    try:
        with pytest.raises(errors.DuplicateTable, match=r"hides own\.o_summary") as caught:
            user.fetch("SELECT cerebro_pack('rows', 'o', 'y', 'x')")
        assert "own.o" in caught.value.diag.message_hint
        with pytest.raises(errors.DuplicateTable, match=r"hides own\.o_summary"):
            user.fetch("SELECT cerebro_fit_multiple('packed', 'o', 'c', 1)")
        user.fetch("SELECT cerebro_pack('rows', 'own.o', 'y', 'x')")
        user.fetch("DROP TABLE own.o, own.o_summary")
        user.fetch("SET search_path = own, cerebro, pg_temp")  # nothing is hidden then
        user.fetch("SELECT cerebro_pack('rows', 'o', 'y', 'x')")
        user.fetch("DROP TABLE own.o, own.o_summary")
    finally:
        user.fetch("SET search_path = own, public, cerebro; DISCARD TEMP")


def test_pg_temp_has_its_own_hint(user):
    for call in (
        "SELECT cerebro_pack('rows', 'pg_temp.o', 'y', 'x')",
        "SELECT cerebro_pack('pg_temp.rows', 'o', 'y', 'x')",
        "SELECT cerebro_predict('out', 'rows', 'id', 'x', 'pg_temp.o', 'response')",
        "SELECT cerebro_fit_multiple('packed', 'pg_temp.o', 'c', 1)",
    ):
        with pytest.raises(errors.UndefinedTable) as caught:
            user.fetch(call)
        assert "temporary tables" in caught.value.diag.message_hint
    user.fetch("CREATE TEMP TABLE passing (i int); SET search_path = pg_temp, own, cerebro")
    try:
        with pytest.raises(errors.UndefinedTable) as caught:
            user.fetch("SELECT cerebro_pack('rows', 'o', 'y', 'x')")
        assert "temporary tables" in caught.value.diag.message_hint
    finally:
        user.fetch("SET search_path = own, public, cerebro; DISCARD TEMP")


# -- names ---------------------------------------------------------------------------------------
def test_names_that_are_shown_are_taken(user, net):
    user.fetch(
        'CREATE TABLE twin AS TABLE rows; CREATE TABLE "Twin" AS SELECT * FROM rows WHERE id < 9'
    )
    user.notices()
    user.fetch("""SELECT cerebro_pack('"Twin"', '"order"', 'y', 'x', num_partitions := 2)""")
    assert 'into own."order"' in user.notices()
    source, output = user.fetch('SELECT source_table, output_table FROM "order_summary"')[0]
    assert (source, output) == ('own."Twin"', 'own."order"')
    user.fetch("SELECT cerebro_pack(%s, 'o', 'y', 'x')", (source,))
    assert user.value("SELECT num_rows FROM o_summary") == 8
    user.fetch("""SELECT cerebro_load_model('"M s"', %s)""", (net,))
    user.fetch(
        """SELECT cerebro_load_configs('"M s"', '"C"', ARRAY[1], ARRAY[%s], ARRAY['batch_size=8'])""",
        (COMPILE,),
    )
    run_id = user.value(
        """SELECT cerebro_fit_multiple('"order"', '"Out"', '"C"', 1, validation_table := '"order"')"""
    )
    shown = user.fetch(
        "SELECT source_table, validation_table, model_output_table, model_selection_table "
        "FROM cerebro.runs WHERE run_id = %s",
        (run_id,),
    )[0]
    assert shown == ('own."order"', 'own."order"', 'own."Out"', 'own."C"')
    told = user.fetch('SELECT source_table, model, model_arch_table FROM "Out_summary"')[0]
    assert told == ('own."order"', 'own."Out"', 'own."M s"')
    user.fetch("SELECT cerebro_evaluate(%s, %s, 'scores')", (shown[2], shown[0]))
    user.fetch("SELECT cerebro_register_model(%s, 1, 'named')", (run_id,))
    lineage = user.value("SELECT lineage FROM cerebro.registered_versions WHERE name = 'named'")
    assert lineage["training"]["table"] == 'own."order"'
    assert lineage["run"]["model_output_table"] == 'own."Out"'
    with pytest.raises(errors.WrongObjectType, match=r'own\."Twin"'):
        user.fetch("SELECT cerebro_evaluate('\"Twin\"', 'packed', 's')")
    user.fetch('CREATE TABLE z AS SELECT 1 AS "Zip code", 2 AS a')
    with pytest.raises(errors.UndefinedColumn, match='are: "Zip code", a') as caught:
        user.fetch("SELECT cerebro_pack('z', 's', 'Zip cod', 'a')")
    assert '"Zip code"' in caught.value.diag.message_hint


def test_names_are_quoted_as_the_server_does(db):
    from cerebro_db.postgres.names import shown_identifier

    odd = ["Twin", "a b", 'say "x"', "_a1", "1a", "ä", "a$b", "per%cent", "plain"]
    words = [row[0] for row in db.fetch("SELECT word FROM pg_get_keywords()")] + odd
    for word in words:
        told = db.value("SELECT quote_ident(%s)", (word,))
        assert shown_identifier(word) in (told, f'"{word}"')
        assert told == word or shown_identifier(word) == told


@contextmanager
def of_another_session(user):
    """A second session of the same role."""
    role = user.value("SELECT current_user")
    other = type(user)(user.dsn, connected(user.dsn, user=role))
    other.fetch("SET search_path = own, public, cerebro")
    yield other
    other.connection.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_numbers_that_were_given_away_meanwhile(user, net, level, has_segments):
    taken = "REPEATABLE READ" if has_segments else level  # Greenplum knows no stricter one
    drawn = "SELECT cerebro_generate_configs('m', 'drawn', ARRAY[1], %s, %s)"
    grid = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD']}]}"
    user.fetch(drawn, (grid, "{'batch_size': [4]}"))
    for call in (
        ("SELECT cerebro_load_model('m', %s)", (net,)),
        (drawn, (grid, "{'batch_size': [8]}")),
    ):
        with of_another_session(user) as other, transaction(user, f"BEGIN ISOLATION LEVEL {level}"):
            user.fetch("SELECT count(*) FROM m, drawn")
            other.fetch(*call)
            told = f"another session has changed .* since the transaction began, which is {taken}: "
            with pytest.raises(errors.SerializationFailure, match=told) as refused:
                user.fetch(*call)
            assert "try again" in refused.value.diag.message_hint
        user.fetch(*call)
    user.fetch("SELECT cerebro_drop_outputs('drawn')")


def test_what_triggers_tell_is_shown_as_the_caller_wants(user, net):
    user.fetch(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE NOTICE 'a model came'; RAISE WARNING 'be careful'; RETURN NEW; END$$;"
        "CREATE TRIGGER tells BEFORE INSERT ON m FOR EACH ROW EXECUTE PROCEDURE tell()"
    )
    call = "SELECT cerebro_load_model('m', %s)"
    try:
        for level, told in (("notice", 2), ("warning", 1), ("error", 0)):
            user.notices()
            with transaction(user):
                user.fetch(f"SET LOCAL client_min_messages = {level}")
                user.fetch(call, (net,))
                assert len(user.connection.notices) == told
                assert user.value("SHOW client_min_messages") == level
    finally:
        user.fetch("DROP TRIGGER tells ON m; DROP FUNCTION tell()")


def test_settings_of_the_caller_do_not_show_in_what_is_reported(user):
    with transaction(user):
        user.fetch("SET LOCAL quote_all_identifiers = on; SET LOCAL array_nulls = off")
        user.fetch("SELECT cerebro_train_test_split('rows', 'parts', 0.5, seed := 3)")
        assert '"' not in user.notices()
        assert user.value("SHOW quote_all_identifiers") == "on"
