"""Nothing that another user makes, and no setting, runs code or changes results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cerebro_db
from tests.security.conftest import ADAM, NET, Person, Recruit, log_in, quoted

# Functions of the server that statements call, with types of arguments that may fit better than
# the server's own: such a function is taken where the search path decides.
TRAPS = {
    "md5(text)": "text",
    "lpad(text, integer, text)": "text",
    "unnest(text[])": "SETOF text",
    "unnest(integer[])": "SETOF integer",
    "unnest(double precision[])": "SETOF double precision",
    "unnest(real[])": "SETOF real",
    "max(text)": "text",
    "concat_ws(text, integer, integer, text, integer)": "text",
    "generate_series(integer, integer)": "SETOF integer",
    "to_regclass(text)": "regclass",
    "pg_has_role(oid, text)": "boolean",
    "pg_has_role(text, text)": "boolean",
    "format_type(oid, integer)": "text",
    "array_send(real[])": "bytea",
    "set_config(text, text, boolean)": "text",
    "current_setting(text)": "text",
    "current_schemas(boolean)": "name[]",
    "pg_try_advisory_lock(bigint)": "boolean",
    "clock_timestamp()": "timestamptz",
}
OPERANDS = [
    "oid, regclass", "oid, integer", "oid, bigint", "name, text", "integer, integer",
    "bigint, integer", "text, text", "name, name", "double precision, numeric",
]  # fmt: skip
TYPES = ["text", "int4", "oid", "name", "bytea", "json", "tid"]


@pytest.fixture(scope="module")
def marks(root: Person, bob: Person) -> Iterator[str]:
    """A table that tells what of bob's has been run; schema public is full of that."""
    root.rows("GRANT CREATE ON SCHEMA public TO PUBLIC")
    bob.rows("CREATE TABLE public.marks (who pg_catalog.name, what pg_catalog.text)")
    bob.rows("GRANT INSERT ON public.marks TO PUBLIC")
    body = "$$BEGIN INSERT INTO public.marks VALUES (current_user, '{}'); RETURN{}; END$$"
    for signature, result in TRAPS.items():
        value = "" if result.startswith("SETOF") else " NULL"
        bob.rows(
            f"CREATE FUNCTION public.{signature} RETURNS {result} LANGUAGE plpgsql AS "
            + body.format(signature, value)
        )
    for operands in OPERANDS:
        left, right = operands.split(", ")
        arguments = f"LEFTARG = {left}, RIGHTARG = {right}, PROCEDURE = public.same"
        bob.rows(
            f"CREATE FUNCTION public.same({operands}) RETURNS boolean LANGUAGE plpgsql AS "
            + body.format(f"= {operands}", " true")
            + "".join(f"; CREATE OPERATOR public.{sign} ({arguments})" for sign in ("=", "<>", "<"))
        )
    for kind in TYPES:
        bob.rows(f"CREATE DOMAIN public.{kind} AS pg_catalog.{kind} CHECK (false)")
    yield "public.marks"
    root.rows("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    drops = [f"DROP DOMAIN public.{kind} CASCADE" for kind in TYPES]
    drops += [f"DROP FUNCTION public.{signature} CASCADE" for signature in TRAPS]
    drops += [f"DROP FUNCTION public.same({operands}) CASCADE" for operands in OPERANDS]
    root.rows("; ".join([*drops, "DROP TABLE public.marks"]))


def results(person: Person, root: Person, schema: str) -> dict[str, Any]:
    """What a user gets from all functions, from packing to predictions; all is made in a schema."""
    # CREATE TABLE AS may spread rows over segments by chance.
    root.rows(
        f"CREATE SCHEMA {schema} AUTHORIZATION {person.sql_name}; "
        f"CREATE TABLE {schema}.rows (id integer, x real[], y integer); "
        f"INSERT INTO {schema}.rows SELECT i, ARRAY[sin(i), cos(i)], i % 2 FROM generate_series(1, 40) i; "
        f"ALTER TABLE {schema}.rows OWNER TO {person.sql_name}"
    )
    for call in (
        "pack('rows', 'packed', 'y', 'x', num_partitions := 2)",
        "pack_validation('rows', 'val', 'y', 'x', 'packed')",
        "load_model('models', %(net)s)",
        "load_configs('models', 'configs', ARRAY[1], ARRAY[%(adam)s], ARRAY['batch_size=8'])",
        "generate_configs('models', 'configs', ARRAY[1], '{''loss'': [''mse''], "
        "''optimizer_params_list'': [{''optimizer'': [''SGD'']}]}', '{''batch_size'': [16]}')",
        "fit_multiple('packed', 'out', 'configs', 1, num_workers := 1, validation_table := 'val')",
        "fit_multiple('packed', 'more', 'configs', 2, num_workers := 1, max_seconds := 0.001)",
        "evaluate('out', 'val', 'scores')",
        "predict('out', 'rows', 'id', 'x', 'answers', mst_key := 1)",
    ):
        person.rows(f"SELECT cerebro.cerebro_{call}", {"net": NET, "adam": ADAM})
    run = root.value("SELECT max(run_id) FROM cerebro.catalog_runs")
    person.rows("SELECT cerebro.cerebro_resume(%s)", (run,))
    queries = {
        "packed": "SELECT * FROM {}.packed ORDER BY partition_key, buffer_id",
        "summary": "SELECT y_class_values, dependent_vartype FROM {}.packed_summary",
        "configurations": "SELECT * FROM {}.configs ORDER BY mst_key",
        "weights": "SELECT mst_key, model_weights FROM {}.out ORDER BY mst_key",
        "more": "SELECT mst_key, model_weights FROM {}.more ORDER BY mst_key",
        "info": "SELECT mst_key, validation_loss, training_metrics FROM {}.out_info ORDER BY 1",
        "scores": "SELECT mst_key, loss, metric FROM {}.scores ORDER BY mst_key",
        "answers": "SELECT * FROM {}.answers ORDER BY id, rank",
    }
    return {
        name: [
            tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
            for row in root.rows(query.format(schema), ())
        ]
        for name, query in queries.items()
    }


SETTINGS = {
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "client_encoding": "LATIN1",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Pacific/Chatham",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "1",
    "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "1",
    "enable_indexscan": "off",
    "enable_hashjoin": "off",
    "enable_sort": "off",
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "work_mem": "64",
    "exit_on_error": "on",
    "synchronous_commit": "off",
    "max_parallel_workers_per_gather": "8",
    "jit": "on",
    "jit_above_cost": "0",
}


@pytest.fixture(scope="module")
def expected(root: Person, alice: Person) -> Iterator[dict[str, Any]]:
    """What someone gets whom nobody disturbs."""
    alice.rows("SET search_path = calm, public, cerebro")
    yield results(alice, root, "calm")
    alice.rows("RESET search_path")


def test_nothing_of_others_is_run_and_no_setting_counts(
    expected: Any, recruit: Recruit, root: Person, security_dsn: str, marks: str
) -> None:
    """One user whose search path is full of traps, and whose role has set all that it can."""
    name = recruit("victim", "cerebro_user").name
    path = "storm, public, pg_catalog"  # what is the server's comes after what others made
    known = {row[0] for row in root.rows("SELECT name FROM pg_settings")}
    for setting, value in {"search_path": path, **SETTINGS}.items():
        if setting not in known:
            continue
        value = value if "," in value else f"'{value}'"
        root.rows(f"ALTER ROLE {quoted(name)} SET {setting} = {value}")
    # Her own session is as she wants it, as long as it can do anything at all.
    able = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
    able += ["default_transaction_read_only", "exit_on_error"]
    victim = log_in(
        security_dsn, name, options=" ".join(f"-c {name}=0" for name in able if name in known)
    )
    ran = f"SELECT what FROM {marks} WHERE who = %s"
    try:
        assert victim.value("SHOW bytea_output") == "escape"
        assert victim.value("SHOW search_path") == path
        # The traps work: in a statement of one's own the path decides.
        victim.rows("SELECT md5('x'::pg_catalog.text)")
        assert root.rows(ran, (name,)) == [("md5(text)",)]
        root.rows(f"DELETE FROM {marks}")
        assert results(victim, root, "storm") == expected
        assert root.rows(f"SELECT * FROM {marks}") == []
    finally:
        victim.connection.close()


@pytest.mark.parametrize(
    "name",
    [
        "dynamic_library_path", "session_preload_libraries", "shared_preload_libraries",
        "session_replication_role", "lo_compat_privileges", "zero_damaged_pages",
    ],
)  # fmt: skip
def test_what_decides_which_code_is_loaded_is_not_for_users(name: str, bob: Person) -> None:
    assert bob.refused(f"SET {name} = 'x'").pgcode in ("42501", "55P02")
    own = bob.refused(f"ALTER ROLE {bob.sql_name} SET {name} = 'x'")
    assert own.pgcode in ("42501", "55P02")


def test_users_make_no_python_functions(bob: Person, dave: Person) -> None:
    for person in (bob, dave):
        error = person.refused("CREATE FUNCTION f() RETURNS int LANGUAGE plpython3u AS 'return 1'")
        assert error.pgcode == "42501"
        assert person.refused("DO LANGUAGE plpython3u 'pass'").pgcode == "42501"


def test_functions_import_from_where_the_installation_says(root: Person) -> None:
    """The paths are part of the bodies; neither a setting nor the environment is asked."""
    for name, body in root.rows(
        "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang "
        "WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND l.lanname = 'plpython3u'"
    ):
        assert "_told = {" in body, name
        for word in ("environ", "current_setting", "eval(", "exec(", "__import__"):
            assert word not in body, name


def test_functions_with_the_rights_of_others_are_no_superusers(root: Person) -> None:
    found = root.rows(
        "SELECT p.proname, r.rolname, r.rolsuper OR r.rolcanlogin OR r.rolcreaterole "
        "OR coalesce((row_to_json(r) ->> 'rolbypassrls')::boolean, false), p.proconfig FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner "
        "WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND p.prosecdef"
    )
    assert found
    for row in found:
        assert row[1:3] == ("cerebro_owner", False), row
        assert row[3][0] == "search_path=pg_catalog, pg_temp", row
        assert all(one.startswith("lock_timeout=") for one in row[3][1:]), row


def test_functions_in_sql_pin_their_search_path(root: Person) -> None:
    """So do all that the server parses when they run, with the path of whoever calls them."""
    open_ones = root.rows(
        "SELECT p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang "
        "WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND l.lanname IN ('sql', 'plpgsql') "
        "AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)"
    )
    # They look their model up on the path of whoever calls them; what they call themselves has its schema.
    assert set(open_ones) == {("cerebro_predict_row",)}
    bodies = root.rows(
        "SELECT prosrc FROM pg_proc WHERE proname = 'cerebro_predict_row' "
        "AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')"
    )
    assert len(bodies) == len(open_ones) == 7
    allowed = {
        ("pg_catalog.", "cardinality"), ("pg_catalog.", "format"), ("pg_catalog.", "unnest"), ("pg_catalog.", "trunc"),
        ("cerebro.", "_predict_row"), ("cerebro.", "cerebro_predict_row"),
        ("", "OPERATOR"),  # with its schema
    }  # fmt: skip
    for (body,) in bodies:
        assert set(re.findall(r"(\w+\.)?(\w+)\(", body)) <= allowed


def test_the_catalog_belongs_to_a_role_that_nobody_can_be(root: Person) -> None:
    owners = root.rows(
        "SELECT DISTINCT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner "
        "WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND c.relkind IN ('r', 'v') "
        "AND c.relname <> 'catalog_migrations'"
    )
    assert owners == [("cerebro_owner",)]
    members = root.rows(
        "SELECT m.rolname FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member "
        "JOIN pg_roles r ON r.oid = a.roleid WHERE r.rolname = 'cerebro_owner'"
    )
    assert members == []


def test_nobody_passes_for_the_owner_of_a_run(bob: Person, alice: Person) -> None:
    """An operator of bob's does not make him another role."""
    bob.rows(
        "CREATE FUNCTION alike(name, name) RETURNS boolean LANGUAGE sql AS "
        "$$SELECT $1::text LIKE 'al''i\"ce%%'$$; "
        "CREATE OPERATOR = (LEFTARG = name, RIGHTARG = name, PROCEDURE = alike)",
        (),
    )
    own = bob.value("SELECT cerebro._role()")
    bob.rows(f"SET search_path = {bob.sql_name}, pg_catalog")
    try:
        assert bob.value("SELECT cerebro._role()") == own
        assert bob.value("SELECT current_user OPERATOR(pg_catalog.=) %s", (bob.name,))
    finally:
        bob.rows("RESET search_path; DROP FUNCTION alike(name, name) CASCADE")


def test_types_of_prepared_statements_name_their_schema() -> None:
    """The caller's search path decides about others."""
    found, calls = [], 0
    for file in Path(cerebro_db.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func).endswith("prepare")):
                continue
            calls += "plpy" in ast.unparse(call.func)
            texts = [node for given in call.args[1:] for node in ast.walk(given)]
            found += [
                f"{file.name}:{call.lineno} {text.value}"
                for text in texts
                if isinstance(text, ast.Constant)
                and isinstance(text.value, str)
                and not text.value.startswith(("pg_catalog.", "["))  # of an array of such a type
            ]
    assert calls > 5
    assert found == []
