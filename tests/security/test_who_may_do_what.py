"""Every function, view, table and sequence of the schema, tried by those who must not."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import psycopg2.extensions
import pytest
from reasons import NO_SUCH_SQL

from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.direct.board import DirectBoard, DirectRow, revoke
from cerebro_db.postgres.direct.session import DirectSession
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.protocol import HandedBack
from cerebro_db.wire import encode
from tests.security.conftest import (
    ADAM,
    NET,
    NO_RUN,
    TABLES,
    Person,
    added,
    paused_run,
    run_with_states,
)
from tests.security.test_writers import WRITERS

DENIED = "42501"
UNDEFINED_RUN = "42704"

TRIGGERS = ("_note_role",)  # they cannot be called
FUNCTIONS = """
SELECT p.proname, pg_get_function_identity_arguments(p.oid), p.oid::regprocedure::text,
       ARRAY(SELECT format('NULL::%s', a::regtype) FROM unnest(p.proargtypes) a)
  FROM pg_proc p WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') ORDER BY 3
"""
RELATIONS = """
SELECT c.relname, c.relkind FROM pg_class c
 WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND c.relkind IN ('r', 'v', 'S', 'm', 'p', 'f')
 ORDER BY 1
"""


def functions(root: Person) -> list[tuple[str, str]]:
    """Every function: its signature, and a call of it with NULLs."""
    return [
        (signature, f"SELECT cerebro.{name}({', '.join(nulls)})")
        for name, _, signature, nulls in root.rows(FUNCTIONS)
        if name not in TRIGGERS
    ]


def relations(root: Person, *kinds: str) -> list[str]:
    """The names of the schema's relations of some kinds."""
    return [name for name, kind in root.rows(RELATIONS) if kind in kinds]


def of_runs(root: Person, *kinds: str) -> list[str]:
    """Those of them that have rows of runs: all but settings, jobs, drift and the registry of models."""
    others = re.compile(
        "_?settings|.*migrations|catalog_functions|.*models?(_.*)?|registered_.*|_usable_.*"
        "|(catalog)?_?(jobs|job_events|job_log|queue|schedules|drift)|_old_runs|catalog_roles|_known_roles|_restored"
    )
    return [name for name in relations(root, *kinds) if not others.fullmatch(name)]


# -- those who are no member -----------------------------------------------------------------


def test_the_schema_is_closed(carol: Person, root: Person) -> None:
    for _, call in functions(root):
        assert carol.refused(call).pgcode == DENIED
    for name in relations(root, "r", "v"):
        assert carol.refused(f"SELECT * FROM cerebro.{name}").pgcode == DENIED


def test_everything_in_it_is_closed_too(carol: Person, root: Person) -> None:
    root.rows(f"GRANT USAGE ON SCHEMA cerebro, cerebro_states TO {carol.sql_name}")
    try:
        for signature, call in functions(root):
            error = carol.refused(call)
            assert error.pgcode == DENIED, signature
            assert "permission denied for function" in str(error) or "aggregate" in str(error)
        for name in relations(root, "r", "v", "S"):
            assert carol.refused(f"SELECT * FROM cerebro.{name}").pgcode == DENIED, name
        assert carol.refused("CREATE TABLE cerebro_states.x ()").pgcode == DENIED
    finally:
        root.rows(f"REVOKE USAGE ON SCHEMA cerebro, cerebro_states FROM {carol.sql_name}")


# -- another user: functions -----------------------------------------------------------------

# Tried in test_registry.py.
OF_REGISTRY = {
    "cerebro_calibrate", "cerebro_describe_model", "cerebro_drop_model", "cerebro_grant_model",
    "cerebro_register_model", "cerebro_replay_automl", "cerebro_revoke_model", "cerebro_rollback_alias",
    "cerebro_set_alias",
}  # fmt: skip
NAMES = {"adam": ADAM, "net": NET, "none": NO_RUN}
SPACE = (
    "$${'loss': ['sparse_categorical_crossentropy'], 'optimizer_params_list': [{'optimizer': ['SGD']}]}$$, "
    "$${'batch_size': [8]}$$, 'random', 'num_configs=1'"
)
# What bob tries with each function. "A." is alice's schema; his own needs no name.
ATTACKS: dict[str, list[str]] = {
    "cerebro_pack": [
        "'A.rows', 'stolen', 'y', 'x'",
        "'rows', 'A.planted', 'y', 'x'",
        "'rows', 'A.packed', 'y', 'x', replace := true",
    ],
    "cerebro_pack_validation": [
        "'A.rows', 'stolen', 'y', 'x', 'packed'",
        "'rows', 'stolen', 'y', 'x', 'A.packed'",
        "'rows', 'A.planted', 'y', 'x', 'packed'",
    ],
    "cerebro_pack_columns": [
        "'A.rows', 'stolen', 'y', 'id'",
        "'rows', 'A.planted', 'y', 'id'",
    ],
    "cerebro_pack_images": [
        "'A.images', 'stolen', 'y', 'x', ARRAY[2], 'raw'",
        "'images', 'A.planted', 'y', 'x', ARRAY[2], 'raw'",
    ],
    "cerebro_encode": [
        "'A.rows', 'columns', 'stolen', 'id'",
        "'rows', 'A.packed', 'stolen', 'id'",
        "'rows', 'columns', 'A.planted', 'id'",
    ],
    "cerebro_create_encoder": [
        "'A.rows', 'columns', 'stolen'",
        "'rows', 'A.packed', 'stolen'",
        "'rows', 'columns', 'A.planted'",
    ],
    "cerebro_train_test_split": [
        "'A.rows', 'stolen', 0.5",
        "'rows', 'A.planted', 0.5",
    ],
    "cerebro_load_model": [
        "'A.models', %(net)s",
        "'A.planted', %(net)s",
        "'stolen', cerebro_mlp(), packed_table := 'A.packed'",
        "'stolen', 'LeNet5', packed_table := 'A.packed'",
    ],
    "cerebro_tabular": ["'A.packed'"],
    "cerebro_image": ["'A.packed'"],
    "cerebro_delete_model": ["'A.models', 1"],
    "cerebro_load_configs": [
        "'A.models', 'stolen', ARRAY[1], ARRAY[%(adam)s], ARRAY['batch_size=8']",
        "'models', 'A.configs', ARRAY[1], ARRAY[%(adam)s], ARRAY['batch_size=9']",
        "'models', 'A.planted', ARRAY[1], ARRAY[%(adam)s], ARRAY['batch_size=9']",
        "'models', 'stolen', ARRAY[1], ARRAY[%(adam)s], ARRAY['batch_size=9'], 'A.objects'",
    ],
    "cerebro_generate_configs": [
        "'A.models', 'stolen', ARRAY[1], $${'loss': ['mse'], 'optimizer_params_list': "
        "[{'optimizer': ['SGD']}]}$$, $${'batch_size': [8]}$$",
        "'models', 'A.configs', ARRAY[1], $${'loss': ['mse'], 'optimizer_params_list': "
        "[{'optimizer': ['SGD']}]}$$, $${'batch_size': [8]}$$",
    ],
    "cerebro_load_custom_function": ["'A.planted', 'x', 'evil'"],
    "cerebro_load_top_k_accuracy_function": ["'A.planted', 4", "'A.objects', 4"],
    "cerebro_delete_custom_function": ["'A.objects', 1", "'A.objects', 'top_3_accuracy'"],
    "cerebro_fit_multiple": [
        "'A.packed', 'stolen', 'configs', 1",
        "'packed', 'A.planted', 'configs', 1",
        "'packed', 'stolen', 'A.configs', 1",
        "'packed', 'A.out', 'configs', 1, warm_start := true",
        "'packed', 'stolen', 'configs', 1, validation_table := 'A.packed'",
    ],
    "cerebro_search": [
        f"'A.packed', 'stolen', 'models', NULL, ARRAY[1], {SPACE}",
        f"'packed', 'A.planted', 'models', NULL, ARRAY[1], {SPACE}",
        f"'packed', 'stolen', 'A.models', NULL, ARRAY[1], {SPACE}",
        f"'packed', 'stolen', 'models', 'A.planted', ARRAY[1], {SPACE}",
        f"'packed', 'stolen', 'models', NULL, ARRAY[1], {SPACE}, validation_table := 'A.packed'",
    ],
    "cerebro_automl": [
        "'A.rows', 'stolen', 'y'",
        "'rows', 'stolen', 'y', output_table := 'A.planted'",
    ],
    "cerebro_hyperband_schedule": ["'A.planted', 9"],
    "cerebro_fit": [
        f"'A.packed', 'stolen', 'models', 1, $${ADAM}$$, 'batch_size=2', 1",
        f"'packed', 'A.planted', 'models', 1, $${ADAM}$$, 'batch_size=2', 1",
        f"'packed', 'stolen', 'A.models', 1, $${ADAM}$$, 'batch_size=2', 1",
        f"'packed', 'A.out', 'models', 1, $${ADAM}$$, 'batch_size=2', 1, warm_start := true",
        f"'packed', 'stolen', 'models', 1, $${ADAM}$$, 'batch_size=2', 1, validation_table := 'A.packed'",
    ],
    "cerebro_evaluate": [
        "'A.out', 'packed', 'stolen'",
        "'out', 'A.packed', 'stolen'",
        "'out', 'packed', 'A.planted'",
    ],
    "cerebro_confusion_matrix": [
        "'A.out', 'packed', 'stolen'",
        "'out', 'A.packed', 'stolen'",
        "'out', 'packed', 'A.planted'",
    ],
    "cerebro_explain": [
        "'A.out', 'packed', 'stolen'",
        "'out', 'A.packed', 'stolen'",
        "'out', 'packed', 'A.planted'",
    ],
    "cerebro_contributions": [
        "'A.out', 'rows', 'id', 'x', 'stolen'",
        "'out', 'A.rows', 'id', 'x', 'stolen'",
        "'out', 'rows', 'id', 'x', 'A.planted'",
        "'out', 'rows', 'id', 'x', 'stolen', background_table := 'A.rows'",
    ],
    "cerebro_dependence": [
        "'A.out', 'packed', 'stolen'",
        "'out', 'A.packed', 'stolen'",
        "'out', 'packed', 'A.planted'",
    ],
    "cerebro_reliability": [
        "'A.out', 'packed', 'stolen'",
        "'out', 'A.packed', 'stolen'",
        "'out', 'packed', 'A.planted'",
    ],
    "cerebro_threshold": [
        "'A.out', 'packed', 'stolen'",
        "'out', 'A.packed', 'stolen'",
        "'out', 'packed', 'A.planted'",
    ],
    "_curves": [
        "'A.out', 'packed', 1",
        "'out', 'A.packed', 1",
    ],
    "cerebro_predict": [
        "'A.out', 'rows', 'id', 'x', 'stolen'",
        "'out', 'A.rows', 'id', 'x', 'stolen'",
        "'out', 'rows', 'id', 'x', 'A.planted'",
        "'A.out', 'rows', 'id', 'x', 'stolen', 1.0::double precision",
    ],
    "cerebro_predict_folds": ["'A.out', 'stolen'"],
    "cerebro_predict_byom": [
        "'A.models', 1, 'rows', 'id', 'x', 'stolen'",
        "'A.models', 1, 'rows', 'id', 'x', 'stolen', 1.0::double precision",
    ],
    "cerebro_predict_outputs": ["'A.out', '[[1, 2]]'", "'A.out', '[[1, 2]]', 1"],
    "_predict_row": [
        "'A.out', ARRAY[1, 2]::bigint[], 1, true",
        "'A.out', ARRAY[1, 2]::float8[], 1, false",
    ],
    "cerebro_predict_row": ["'A.out', ARRAY[1, 2]", "'A.out', ARRAY[1, 2], 1"],
    "cerebro_export": ["'A.out'", "'A.out', 1, 'npz'"],
    "cerebro_load_model_file": ["'A.models', cerebro_export('out')", "'A.planted', 'x'"],
    "cerebro_gpu_configuration": ["'A.planted'"],
    "cerebro_drop_outputs": ["'A.packed'", "'A.out'", "'A.models'"],
    "cerebro_set": ["'cache_mb', '1'", "'worker_dsn', 'host=/tmp'", "'peer_network', '0.0.0.0/0'"],
    "cerebro_register_function": ["'evil', 'keras.losses:log_cosh'", "'evil', 'os:system'"],
    "cerebro_register_expression": ["'evil', 'x * x'", "'evil', 'open(x)'"],
    "cerebro_unregister_function": ["'evil'"],
    "_know_network": ["'{}'", """'{"peer_network": "0.0.0.0/0"}'"""],
    "_know_functions": ["'{}'", """'{"evil": ["os:system", "os", "1"]}'"""],
}
# These take the number of a run: alice's must look like one that is not there.
OF_RUNS = {
    "cerebro_resume": ["%(run)s", "%(run)s, num_workers := 1, any_version := true"],
    "cerebro_cancel": ["%(run)s", "%(run)s, 1"],
    "cerebro_pause": ["%(run)s"],
    "cerebro_drop_run": ["%(run)s"],
    "cerebro_add_configs": ["%(run)s, ARRAY[1], ARRAY['loss=mse,optimizer=SGD'], ARRAY['']"],
    "cerebro_stop_config": ["%(run)s, 1"],
    "cerebro_clone": ["%(run)s, 1", "%(run)s, 1, 'lr=1'"],
    "cerebro_narrow": ["%(run)s, ARRAY[1]"],
    "cerebro_finish": ["%(run)s"],
    "cerebro_extend": ["%(run)s", "%(run)s, 'R=9'"],
    "cerebro_replay": ["%(run)s, 'stolen'"],
    "cerebro_best": ["%(run)s", "%(run)s, 1, 'stolen'"],
    "cerebro_importance": ["%(run)s"],
    "cerebro_wait": ["%(run)s", "%(run)s, '1 s'"],
    "cerebro_promote_if_better": ["%(run)s, 'model:stolen@champion'"],
    "cerebro_ensemble": ["%(run)s, 'stolen'"],
}
# These reach nothing but what the caller's own session was given, or the caller's own.
OF_OWN_SESSION = {
    "_average_final", "_average_step", "cerebro_average",
    "_begin_prediction", "_catalog_differences", "_combine_measures", "_cores",
    "_export_model", "_lock_catalog", "_seen_rows", "_do_as_seen", "_is_seen", "_asks_session_user",
    "_extend_prediction", "_gpus", "_image_array", "_image_fault", "_inspect_model", "_named_model",
    "_join_state", "_joined_bytes", "_loopback", "_measure_final", "_memory_mb", "_measure_step", "_pack_arrays", "_pack_labels", "_pack_weights",
    "_predict_batch", "_predict_buffer", "_predict_spread", "_prepare_process", "_prepare_worker", "_read_model_file",
    "_role", "_saved_state", "_state_weights", "_train_final", "_train_step", "_try_peers", "_try_scores", "_write_events", "cerebro_joined_state",
    "_with_functions", "cerebro_convert_bytea_to_integer_array", "cerebro_convert_bytea_to_real_array",
    "cerebro_image_array", "cerebro_mlp", "cerebro_measure", "cerebro_train", "cerebro_version",
}  # fmt: skip
# Tried in test_jobs.py.
OF_JOBS = {
    "_writer", "_check_priority", "_add_job", "_tell_of_job", "_add_schedule", "_set_due", "_drop_schedule", "_most_waiting_jobs", "_held_locks", "_job_ends", "_job_failed", "_lock_number", "_may_start", "_nth_start", "_open_jobs", "_start_job",
    "_start_jobs", "_tell_change", "_wait_for", "cerebro_cancel_job", "cerebro_schedule",
    "cerebro_start_schedule", "cerebro_submit", "cerebro_unschedule", "cerebro_wait_job", "cerebro_work",
}  # fmt: skip
# Tried in test_roles.py.
OF_ROLES = {
    "_adopt", "_free_number", "_is_told_of", "_know_mark", "_know_role", "_mark_role", "_move_role", "_note_role", "_relation", "_role_columns",
    "_role_name", "cerebro_reassign_owned",
}  # fmt: skip
VACUUM = {"_vacuum", "cerebro_vacuum"}
ON_SEGMENTS = {"_next_number"}  # by defaults


def test_no_function_is_forgotten(root: Person, has_segments: bool) -> None:
    tried = {
        *ATTACKS,
        *OF_RUNS,
        *OF_OWN_SESSION,
        *OF_REGISTRY,
        *OF_JOBS,
        *OF_ROLES,
        *WRITERS,
        *VACUUM,
    }
    tried |= ON_SEGMENTS if has_segments else set()
    assert {name for name, *_ in root.rows(FUNCTIONS)} == tried


@pytest.fixture
def untouched(root: Person, alice: Person, stopped: int) -> Any:
    """What alice has is the same before and after a test."""

    def state() -> list[Any]:
        tables = root.rows(
            "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.relowner = (SELECT oid FROM pg_roles WHERE quote_ident(rolname) = %s) AND c.relkind = 'r' "
            "AND n.nspname !~ '^pg_' ORDER BY 1".replace("%I", "%%I"),
            (alice.sql_name,),
        )
        found: list[Any] = []
        for (table,) in tables:
            rows = root.value(
                f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {table} t"
            )
            found.append((table, rows))
        for name in of_runs(root, "r"):
            if name.startswith("catalog_") and name != "catalog_settings":
                found += root.rows(
                    f"SELECT t::text FROM cerebro.{name} t JOIN cerebro.catalog_runs r "
                    "ON r.run_id = t.run_id WHERE r.owner = (SELECT oid FROM pg_roles WHERE quote_ident(rolname) = %s) ORDER BY 1",
                    (alice.sql_name,),
                )
        return found

    before = state()
    assert any(row[0].startswith("cerebro_states.") for row in before)
    yield
    assert state() == before


@pytest.mark.parametrize("function", sorted(ATTACKS))
def test_tables_of_another_user(function: str, bob: Person, alice: Person, untouched: None) -> None:
    for arguments in ATTACKS[function]:
        names = alice.sql_name.replace("'", "''").replace("%", "%%")
        call = f"SELECT {function}({arguments.replace('A.', names + '.')})"
        error = bob.refused(call, NAMES)
        assert error.pgcode == DENIED, f"{call}: {error}"
        assert "secret" not in str(error)


@pytest.mark.parametrize("function", sorted(OF_RUNS))
def test_runs_of_another_user_are_like_runs_that_are_not_there(
    function: str, bob: Person, stopped: int, untouched: None
) -> None:
    for arguments in OF_RUNS[function]:
        errors = [
            bob.refused(f"SELECT {function}({arguments})", {"run": run})
            for run in (stopped, NO_RUN)
        ]
        assert [error.pgcode for error in errors] == [UNDEFINED_RUN] * 2
        texts = {
            re.sub(
                rf"\b({stopped}|{NO_RUN})\b", "N", f"{e.diag.message_primary} {e.diag.message_hint}"
            )
            for e in errors
        }
        assert len(texts) == 1


def test_vacuum_is_for_ones_own(bob: Person, untouched: None, root: Person) -> None:
    bob.rows("CREATE TABLE cerebro_states.left_over ()")
    assert bob.rows("SELECT run_id FROM cerebro_vacuum('0')")[-1] == (None,)
    assert root.value("SELECT to_regclass('cerebro_states.left_over')") is None


def test_what_reaches_the_own_session_tells_nothing_of_others(bob: Person) -> None:
    role = bob.value("SELECT cerebro._role()")
    assert role == bob.value("SELECT oid FROM pg_roles WHERE rolname = current_user")
    assert bob.value("SELECT cerebro._loopback('data_directory')") is None
    assert bob.value("SELECT cerebro._loopback('worker_dsn')") is None


# -- another user: catalog -------------------------------------------------------------------


def runs_of(root: Person, someone: Person) -> set[int]:
    """All runs of a role, those of other tests too."""
    sql = "SELECT run_id FROM cerebro.catalog_runs WHERE owner = (SELECT oid FROM pg_roles WHERE rolname = %s)"
    return {row[0] for row in root.rows(sql, (someone.name,))}


def test_views_show_ones_own_runs_only(
    bob: Person, alice: Person, stopped: int, bobs_run: int, root: Person
) -> None:
    own = runs_of(root, bob)
    assert bobs_run in own
    for name in of_runs(root, "v"):
        runs = {row[0] for row in bob.rows(f"SELECT run_id FROM cerebro.{name}")}
        assert runs <= own, name
        assert stopped not in runs
        assert root.value(f"SELECT count(*) FROM cerebro.{name} WHERE run_id = %s", (stopped,)) or (
            name
            in (
                "_hops",
                "hops",
                "_updates",
                "updates",
                "_metrics",
                "metrics",
                "_requests",
                "_direct_workers",
                "_direct_orders",
                "_direct_answers",
                "direct_workers",
                "_decisions",
                "decisions",
                "trials",
                "searches",
                "folds",
            )
        )
    owners = alice.rows("SELECT DISTINCT owner FROM cerebro.runs")
    assert owners == [(alice.name,)]


def test_a_leaky_function_sees_no_other_rows(bob: Person, bobs_run: int, root: Person) -> None:
    """A cheap condition must not be tried on rows that the view hides."""
    bob.rows(
        "CREATE OR REPLACE FUNCTION leak(run_id bigint) RETURNS boolean LANGUAGE plpgsql "
        "COST 0.0000001 AS $$BEGIN RAISE NOTICE 'run %', $1; RETURN true; END$$"
    )
    for name in of_runs(root, "v"):
        bob.connection.notices.clear()
        bob.rows(f"SELECT FROM cerebro.{name} WHERE leak(run_id)")
        seen = {int(run) for run in re.findall(r"run (\d+)", "".join(bob.connection.notices))}
        assert seen <= runs_of(root, bob), name


@pytest.mark.parametrize("action", ["SELECT FROM", "DELETE FROM", "TRUNCATE", "LOCK TABLE"])
def test_tables_of_the_catalog_are_closed(bob: Person, root: Person, action: str) -> None:
    for name in relations(root, "r"):
        error = bob.refused(f"DO $$BEGIN EXECUTE '{action} cerebro.{name}'; END$$")
        assert error.pgcode == DENIED, name
    for name in relations(root, "S"):
        assert bob.refused(f"SELECT setval('cerebro.{name}', 1)").pgcode == DENIED, name


def columns(root: Person, view: str) -> list[str]:
    """The columns of a view of the schema."""
    return [
        row[0]
        for row in root.rows(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0",
            (f"cerebro.{view}",),
        )
    ]


INTERNAL = {
    "_runs", "_configurations", "_architectures", "_architecture_keys", "_plan", "_decisions", "_hops", "_updates", "_metrics",
    "_requests", "_direct_workers", "_direct_orders", "_direct_answers",
    "_statuses", "_worker_times", "_pace", "_hops_of",
}  # fmt: skip


def test_no_internal_view_is_forgotten(root: Person) -> None:
    assert {name for name in of_runs(root, "v") if name.startswith("_")} == INTERNAL


def test_nobody_names_the_states_of_another_run(
    bob: Person, stopped: int, untouched: None, root: Person
) -> None:
    """An administrator who drops bob's run would drop alice's states."""
    states = root.value("SELECT states FROM cerebro.catalog_runs WHERE run_id = %s", (stopped,))
    run = paused_run(bob)
    bob.rows("SELECT cerebro._run_ended(%s, 'finished', NULL, NULL)", (run,))
    for name in (states, f"{states}_1", states[:-1], f'{states}"', states.upper(), ""):
        error = bob.refused("SELECT cerebro._revived(%s, %s)", (run, name))
        assert error.pgcode in ("23505", "23514")
    bob.rows("SELECT cerebro._drop_run(%s)", (run,))


def test_states_of_another_run(bob: Person, stopped: int, untouched: None, root: Person) -> None:
    table = f"cerebro_states.{states_of(root, stopped)[0]}"
    for statement in (
        "SELECT FROM {}",
        "INSERT INTO {} DEFAULT VALUES",
        "DELETE FROM {}",
        "UPDATE {} SET chunk = 0",
        "TRUNCATE {}",
        "DO 'BEGIN LOCK TABLE {} IN ACCESS SHARE MODE; END'",
        "DROP TABLE {}",
        "ALTER TABLE {} ADD x int",
        "CREATE INDEX ON {} (chunk)",
        "CREATE TRIGGER t BEFORE INSERT ON {} EXECUTE PROCEDURE suppress_redundant_updates_trigger()",
        "CREATE TABLE spy () INHERITS ({})",
        "COPY {} TO STDOUT",
    ):
        error = bob.refused(statement.replace("{}", table))
        assert error.pgcode in (DENIED, "42809"), statement
    assert bob.refused(f"CREATE TABLE {table} ()").pgcode == "42P07"


# -- the administrator -----------------------------------------------------------------------


def states_of(root: Person, run_id: int) -> list[str]:
    """The tables of states of a run, and what others made to look like them."""
    rows = root.rows(
        "SELECT c.relname FROM pg_class c JOIN cerebro.catalog_runs r ON r.run_id = %s "
        "WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro_states') AND c.relkind = 'r' "
        "AND left(c.relname, length(r.states) + 1) = r.states || '_' ORDER BY c.oid",
        (run_id,),
    )
    return [row[0] for row in rows]


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_tables_that_look_like_the_states_of_another_run(
    bob: Person, alice: Person, root: Person
) -> None:
    """What bob makes beside alice's states is neither read nor in the way; nor is his policy run."""
    run = alice.value(
        "SELECT cerebro_fit_multiple('packed', 'besieged', 'configs', 2, num_workers := 1, "
        "max_seconds := 0.001)"
    )
    states = root.value("SELECT states FROM cerebro.catalog_runs WHERE run_id = %s", (run,))
    bob.rows(
        "CREATE FUNCTION trap(int) RETURNS boolean LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'as %', current_user; END$$"
    )
    planted = [f"{states}_{end}" for end in ("0", "1", "2", "0_passing", "999999999", "x")]
    for name in planted:
        bob.rows(
            f"CREATE TABLE cerebro_states.{name} (mst_key int, version int, chunk int, "
            "partition_key int, state bytea); "
            f"INSERT INTO cerebro_states.{name} VALUES (1, 3, 0, 0, 'planted'); "
            f"ALTER TABLE cerebro_states.{name} ENABLE ROW LEVEL SECURITY; "
            f"CREATE POLICY p ON cerebro_states.{name} USING (trap(mst_key)); "
            f"GRANT SELECT ON cerebro_states.{name} TO PUBLIC"
        )
    assert alice.value("SELECT cerebro_resume(%s)", (run,)) == run
    undisturbed = alice.value(
        "SELECT cerebro_fit_multiple('packed', 'unbesieged', 'configs', 2, num_workers := 1)"
    )
    weights = "SELECT model_weights FROM {}"
    assert undisturbed
    assert bytes(alice.value(weights.format("besieged"))) == bytes(
        alice.value(weights.format("unbesieged"))
    )
    left = root.rows(
        "SELECT relname FROM pg_class WHERE starts_with(relname, %s) AND relkind = 'r'",
        (f"{states}_",),
    )
    assert {row[0] for row in left} == set(planted)
    assert bob.rows("SELECT count(*) FROM cerebro_vacuum('0')") == [(len(planted),)]


def test_an_administrator_sees_and_stops_but_does_not_go_on(
    dave: Person, alice: Person, root: Person
) -> None:
    run, states = run_with_states(alice)
    assert dave.rows("SELECT owner, status FROM cerebro.runs WHERE run_id = %s", (run,)) == [
        (alice.name, "paused")
    ]
    error = dave.refused("SELECT cerebro_resume(%s)", (run,))
    assert error.pgcode == DENIED
    assert "another role" in str(error)
    assert dave.refused(f"SELECT * FROM {states}").pgcode == DENIED
    dave.rows("SELECT cerebro_drop_run(%s)", (run,))
    assert root.value("SELECT to_regclass(%s)", (states,)) is None
    assert alice.refused("SELECT cerebro_resume(%s)", (run,)).pgcode == UNDEFINED_RUN


def test_an_administrator_removes_states_of_others(
    dave: Person, alice: Person, root: Person
) -> None:
    run, table = run_with_states(alice)
    root.rows(
        "UPDATE cerebro.catalog_runs SET created = created - interval '2 hours', finished = NULL WHERE run_id = %s",
        (run,),
    )
    removed = dict(dave.rows("SELECT run_id, bytes FROM cerebro_vacuum('1 hour')"))
    assert removed[run] > 0
    assert root.value("SELECT to_regclass(%s)", (table,)) is None
    assert alice.refused("SELECT cerebro_resume(%s)", (run,)).pgcode == "55000"


def test_an_owner_joins_and_answers(
    alice: Person, security_dsn: str, stopped: int, has_segments: bool
) -> None:
    """With the rights of an ordinary user: what a worker and its driver do with each other."""
    dialect = dialect_of(
        alice.connection.server_version, "greenplum6" if has_segments else "postgresql"
    )
    dsn = psycopg2.extensions.make_dsn(security_dsn, user=alice.name)
    driver = Session(dsn, "test")
    with closing(DirectSession(dsn)) as worker, closing(driver):
        driver.settle()
        run = worker.find(stopped)
        worker.act_as(run.owner)
        worker_id = worker.join(stopped, "somewhere")
        board = DirectBoard(driver, stopped, dialect.held_locks)
        ((pid,),) = worker.run("SELECT pg_catalog.pg_backend_pid()")
        assert board.workers() == [DirectRow(worker_id, "somewhere", False, False, True, pid)]
        board.admit(worker_id, 1, "{}")
        worker.wait(30)
        worker.is_ready("{}")
        assert board.workers() == [DirectRow(worker_id, "somewhere", True, True, True, pid)]
        given = [board.give(worker_id, "{}") for _ in range(2)]
        order = worker.order()
        assert order is not None
        answer = HandedBack(error="why", hint=None, is_of_the_model=False)
        worker.hand_back(order, answer)
        first = next(one for one in given if one.order_id == order.order_id)
        assert not board.take_back(first)
        assert board.answers() == {order.order_id: encode(answer)}
        left = worker.order()
        assert left is not None
        assert left.order_id != order.order_id
        revoke(driver, stopped)
        assert worker.order() is None
        assert board.answers() == {}
        standing = worker.standing()
        assert standing is not None
        assert not standing.is_ready
        shown = (
            "SELECT status, address IS NULL, login FROM cerebro.direct_workers WHERE run_id = %s"
        )
        local = alice.value("SELECT inet_client_addr() IS NULL")
        assert alice.rows(shown, (stopped,)) == [("joining", local, alice.name)]
        worker.leave("done")
        assert board.workers() == []


def test_an_administrator_tells_no_process_what_to_import(dave: Person) -> None:
    for function in ("_know_functions", "_know_network"):
        assert dave.refused(f"SELECT {function}('{{}}')").pgcode == DENIED


def test_an_administrator_reads_no_tables(dave: Person, alice: Person) -> None:
    for table in TABLES:
        error = dave.refused(f"SELECT * FROM {alice.sql_name}.{table}".replace("%", "%%"), ())
        assert error.pgcode == DENIED
    names = alice.sql_name.replace("'", "''").replace("%", "%%")
    call = f"SELECT cerebro_predict('{names}.out', '{names}.rows', 'id', 'x', 'stolen')"
    assert dave.refused(call, ()).pgcode == DENIED


def test_an_administrator_reads_no_models(
    dave: Person, alice: Person, stopped: int, root: Person
) -> None:
    query = "SELECT count(*) FROM cerebro.{} WHERE run_id = %s"
    assert alice.value(query.format("_architectures"), (stopped,)) == 1
    assert dave.value(query.format("_architectures"), (stopped,)) == 0
    assert dave.value(query.format("_architecture_keys"), (stopped,)) == 1
    run = paused_run(alice)
    alice.rows("SELECT cerebro._add_architecture(%s, 1, 'x', 'x', NULL)", (run,))
    dave.rows("SELECT cerebro_drop_run(%s)", (run,))
    count = "SELECT count(*) FROM cerebro.catalog_architectures WHERE run_id = %s"
    assert root.value(count, (run,)) == 0


def test_numbers_of_one_user_do_not_stand_in_the_way_of_others(bob: Person, dave: Person) -> None:
    run = paused_run(bob, num_iterations=2**31 - 1, num_partitions=2**31 - 1)
    bob.rows("SELECT cerebro._started(%s, '{}')", (run,))
    for key in range(1, 5):
        bob.rows("SELECT cerebro._add_configurations(%s, %s)", (run, added("configurations", mst_key=key)))  # fmt: skip
    largest = {"started": "2000-01-01 12:00+00", "finished": "2999-12-30 12:00+00", "rows": 10**15}
    hop = "SELECT cerebro._add_hops(%s, %s)"
    bob.rows(hop, (run, added("hops", **largest)))
    for bad in (
        {"started": "4713-01-01 BC"},
        {"finished": "infinity"},
        {"rows": 2**63 - 1},
        {"rows": -1},
    ):
        assert bob.refused(hop, (run, added("hops", position=1, **bad))).pgcode == "23514"
    assert dave.rows("SELECT * FROM cerebro.progress WHERE run_id = %s", (run,))
    assert dave.rows("SELECT * FROM cerebro.leaderboard WHERE run_id = %s", (run,))
    bob.rows("SELECT cerebro_drop_run(%s)", (run,))
