"""cerebro_predict_row of registered models: the version that the name means at the call, never an older one."""

from __future__ import annotations

import os

import pytest
from psycopg2 import errors

from tests.models.test_predict_row import row_of

X = "ARRAY[1, 2, 3, 4]"


@pytest.fixture(scope="module")
def petals(trained):
    """A registered model: its versions are the two models of flowers."""
    run = trained.value("SELECT run_id FROM flowers_summary")
    for mst_key in (1, 2):
        trained.fetch("SELECT cerebro_register_model(%s, %s, 'petals')", (run, mst_key))
    yield "petals"
    trained.fetch("SELECT cerebro_drop_model('petals')")


@pytest.fixture(scope="module")
def answers(trained):
    """What the two models of flowers say."""
    first, second = (row_of(trained, f"'flowers', {X}, {key}") for key in (1, 2))
    assert first != second
    return {1: first, 2: second}


def test_aliases_and_versions_are_those_of_the_moment(trained, petals, answers, has_segments):
    def now(name):
        return row_of(trained, f"'model:petals{name}', {X}")

    assert now("") == now(":2") == answers[2]
    assert now(":1") == answers[1]
    for version in (1, 2, 1):
        trained.fetch("SELECT cerebro_set_alias('petals', 'champion', %s)", (version,))
        assert now("@champion") == answers[version]
        # Others move aliases while a transaction is open; with segments, what is committed counts.
        trained.fetch("SELECT 1" if has_segments else "BEGIN")
        trained.fetch("SELECT cerebro_set_alias('petals', 'champion', %s)", (3 - version,))
        assert now("@champion") == answers[3 - version]
        trained.fetch("SELECT cerebro_rollback_alias('petals', 'champion')")
        assert now("@champion") == answers[version]
        if not has_segments:
            trained.fetch("COMMIT")
    run = trained.value("SELECT run_id FROM flowers_summary")
    assert trained.value("SELECT cerebro_register_model(%s, 1, 'petals')", (run,)) == 3
    assert now("") == answers[1]
    trained.fetch("SELECT cerebro_drop_model('petals', 3)")
    assert now("") == answers[2]
    with pytest.raises(errors.UndefinedObject, match="got version 3 of model:petals:3"):
        now(":3")
    trained.fetch("SELECT cerebro_set_alias('petals', 'champion', NULL)")
    with pytest.raises(errors.UndefinedObject, match="the model has no such alias"):
        now("@champion")


def test_a_model_of_the_same_name_is_another_one(trained, petals, answers):
    run = trained.value("SELECT run_id FROM flowers_summary")
    for mst_key in (1, 2):
        trained.fetch("SELECT cerebro_register_model(%s, %s, 'weeds')", (run, mst_key))
        assert row_of(trained, f"'model:weeds:1', {X}") == answers[mst_key]
        trained.fetch("SELECT cerebro_drop_model('weeds')")
        with pytest.raises(errors.UndefinedObject, match="model:weeds"):
            row_of(trained, f"'model:weeds:1', {X}")


def test_it_is_for_those_who_were_granted_it(trained, petals, answers, administrator):
    name, owner = f"granted_{os.getpid()}", trained.value("SELECT current_user::text")
    call = f"'model:{owner}.petals:1', {X}"
    administrator.run(f"CREATE ROLE {name} LOGIN IN ROLE cerebro_user")
    try:
        for _ in range(2):
            assert row_of(trained, call) == answers[1]
            trained.fetch(f"SET ROLE {name}")
            with pytest.raises(errors.UndefinedObject):
                row_of(trained, call)
            trained.fetch("RESET ROLE")
            trained.fetch("SELECT cerebro_grant_model('petals', %s)", (name,))
            trained.fetch(f"SET ROLE {name}")
            assert row_of(trained, call) == answers[1]
            with pytest.raises(errors.UndefinedObject):
                row_of(trained, f"'model:petals:1', {X}")
            trained.fetch("RESET ROLE")
            trained.fetch("SELECT cerebro_revoke_model('petals', %s)", (name,))
    finally:
        trained.fetch("RESET ROLE")
        administrator.run(f"DROP ROLE {name}")


def test_operators_of_others_are_not_taken(trained, petals, answers):
    """Names are those of the search path; what compares them never is."""
    trained.fetch(
        "CREATE SCHEMA traps; CREATE FUNCTION traps.no(text, text) RETURNS boolean LANGUAGE sql "
        "AS 'SELECT true'; CREATE FUNCTION traps.no(bigint, bigint) RETURNS boolean LANGUAGE sql "
        "AS 'SELECT false'; CREATE OPERATOR traps.= (PROCEDURE = traps.no, LEFTARG = text, "
        "RIGHTARG = text); CREATE OPERATOR traps.= (PROCEDURE = traps.no, LEFTARG = bigint, "
        "RIGHTARG = bigint); SET search_path = traps, pg_catalog, public, cerebro"
    )
    try:
        assert row_of(trained, f"'model:petals:1', {X}") == answers[1]
        with pytest.raises(errors.UndefinedObject):
            row_of(trained, f"'model:nothing:1', {X}")
    finally:
        trained.fetch("SET search_path = public, cerebro; DROP SCHEMA traps CASCADE")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (f"'model:', {X}", errors.InvalidParameterValue, "model_table: got 'model:'; allowed"),
        (f"'model:petal', {X}", errors.UndefinedObject, "petal; .*Did you mean 'petals'"),
        (f"'model:petals', {X}, 7", errors.InvalidParameterValue, "mst_key: got 7; allowed: NULL"),
        ("'model:petals', ARRAY[1, 2]", errors.InvalidParameterValue, r"shape \(2,\)"),
    ],
)
def test_bad_calls(trained, petals, arguments, kind, message):
    with pytest.raises(kind) as caught:
        row_of(trained, arguments)
    assert caught.match(f"(?s){message}")
