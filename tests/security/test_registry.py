"""The model registry: versions, aliases, use by name; what others can do with one's models."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import without_segment
from typer.testing import CliRunner

from cerebro_db.cli.app import app
from cerebro_db.postgres.calls.host import Client
from tests.security.conftest import Person, Recruit

DENIED, UNDEFINED, CHECKED = "42501", "42704", "44000"
VIEWS = ("registered_models", "registered_versions")
USABLE = ("_usable_models", "_usable_versions", "_usable_states", "_usable_aliases")
KEPT = ("_models", "_model_versions", "_model_states", "_model_aliases", "_model_grants")


@pytest.fixture(scope="module")
def run(alice: Person) -> int:
    """The finished run of alice."""
    sql = (
        "SELECT run_id FROM cerebro.runs "
        "WHERE status = 'finished' AND model_output_table ~ 'out\\W?$'"
    )
    return int(alice.rows(sql)[0][0])


@pytest.fixture(scope="module")
def digits(alice: Person, run: int) -> Iterator[str]:
    """A model of alice with two versions; the second is the champion."""
    assert alice.value("SELECT cerebro_register_model(%s, 1, 'digits')", (run,)) == 1
    registered = alice.value(
        "SELECT cerebro_register_model(%s, NULL, 'digits', 'the second', %s)",
        (run, '{"task": "halves"}'),
    )
    assert registered == 2
    alice.rows("SELECT cerebro_set_alias('digits', 'champion', 2)")
    yield "digits"
    alice.rows("SELECT cerebro_drop_model('digits')")


@pytest.fixture(scope="module")
def eve(recruit: Recruit, digits: str, alice: Person) -> Person:
    """A user who was granted the use of digits."""
    eve = recruit("eve", "cerebro_user")
    eve.rows(
        "CREATE TABLE rows AS SELECT i AS id, ARRAY[sin(i), cos(i)]::real[] AS x "
        "FROM generate_series(1, 40) i"
    )
    alice.rows("SELECT cerebro_grant_model(%s, %s)", (digits, eve.name))
    return eve


def predicted(person: Person, model: str, output: str = "told") -> list[tuple[Any, ...]]:
    """What a model says about the rows of a person."""
    person.rows(f"DROP TABLE IF EXISTS {output}")
    person.rows("SELECT cerebro_predict(%s, 'rows', 'id', 'x', %s)", (model, output))
    return person.rows(f"SELECT id, class_value, prob FROM {output} ORDER BY id, rank")


# -- what one does with one's own ------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["model:digits", "model:digits@champion", "model:digits:1", " model:digits:2"]
)
def test_a_registered_model_predicts_like_the_table(
    name: str, alice: Person, digits: str, run: int
) -> None:
    assert predicted(alice, name) == predicted(alice, "out")


def test_it_needs_no_other_table(alice: Person, digits: str) -> None:
    expected = predicted(alice, "out")
    for table in (
        "out",
        "out_info",
        "out_summary",
        "out_states",
        "out_history",
        "packed",
        "models",
    ):
        alice.rows(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        assert predicted(alice, "model:digits") == expected
        sql = "SELECT id, p.* FROM rows, cerebro_predict_row('model:digits', x) p ORDER BY id"
        best = [(row, value, prob) for row, value, prob in expected if prob > 0.5]
        for (*told, prob, _), (*wanted, likely) in zip(alice.rows(sql), best, strict=True):
            assert (told, prob) == (wanted, pytest.approx(likely, abs=1e-6))
    finally:
        for table in (
            "out",
            "out_info",
            "out_summary",
            "out_states",
            "out_history",
            "packed",
            "models",
        ):
            alice.rows(f"ALTER TABLE {table}_away RENAME TO {table}")


def test_evaluation(alice: Person, digits: str) -> None:
    for name, test in (("evaluate", "scored"), ("confusion_matrix", "counted")):
        alice.rows(f"SELECT cerebro_{name}('model:digits@champion', 'packed', '{test}')")
        alice.rows(f"SELECT cerebro_{name}('out', 'packed', '{test}_table')")
    key = alice.value("SELECT version_id FROM cerebro.registered_versions WHERE version = 2")
    origin = (f"model:{alice.name}.digits:2", key)
    for test in ("scored", "counted"):
        rows = alice.rows(f"SELECT * FROM {test} ORDER BY 1, 2, 3")
        table = alice.rows(f"SELECT * FROM {test}_table ORDER BY 1, 2, 3")
        assert rows == [(*row, *origin) for row in table]
        alice.rows(f"DROP TABLE {test}, {test}_table")


def test_views_tell_of_it(alice: Person, digits: str, run: int) -> None:
    assert alice.rows(
        "SELECT owner, name, description, latest_version, aliases, is_mine FROM cerebro.registered_models"
    ) == [(alice.name, "digits", None, 2, ["champion:2"], True)]
    first, second = alice.rows(
        "SELECT name, version, aliases, description, tags, run_id, mst_key, registered_by, lineage "
        "FROM cerebro.registered_versions ORDER BY version"
    )
    assert first[:8] == ("digits", 1, [], None, {}, run, 1, alice.name)
    assert second[1:5] == (2, ["champion"], "the second", {"task": "halves"})
    lineage = second[8]
    assert lineage["training"]["rows"] == 40
    assert lineage["training"]["table"].endswith(".packed")
    assert len(lineage["training"]["fingerprint"]) == 64
    assert lineage["validation"] is None
    assert lineage["run"]["owner"] == alice.name
    assert lineage["configuration"]["mst_key"] == 1
    assert "Adam" in lineage["configuration"]["compile_params"]
    assert lineage["manifest"]["tensorflow"].startswith("2.")
    assert set(lineage["results"]["training"]["metrics"]) == {"accuracy"}


def test_aliases_move_and_roll_back(alice: Person, digits: str) -> None:
    def now() -> int | None:
        rows = alice.rows(
            "SELECT version FROM cerebro.registered_versions WHERE 'contender' = ANY (aliases)"
        )
        return rows[0][0] if rows else None

    for version in (1, 2, 2, None, 1):
        alice.rows("SELECT cerebro_set_alias('digits', 'contender', %s)", (version,))
        assert now() == version
    for version in (None, 2, 1):
        rolled = alice.value("SELECT cerebro_rollback_alias('digits', 'contender')")
        assert rolled == now() == version
    error = alice.refused("SELECT cerebro_rollback_alias('digits', 'contender')")
    assert error.pgcode == UNDEFINED
    # A change after rollbacks goes back to what was there when it was made.
    alice.rows("SELECT cerebro_set_alias('model:digits', 'contender', 2)")
    assert alice.value("SELECT cerebro_rollback_alias('digits', 'contender')") == 1
    alice.rows("SELECT cerebro_set_alias('digits', 'contender', NULL)")
    assert (
        alice.refused("SELECT cerebro_set_alias('digits', 'contender', NULL)").pgcode == UNDEFINED
    )


def test_descriptions_and_tags(alice: Person, digits: str) -> None:
    alice.rows("SELECT cerebro_describe_model('digits', 'of halves', '{\"a\": 1}')")
    alice.rows("SELECT cerebro_describe_model('digits', tags := '{\"b\": true}')")
    alice.rows("SELECT cerebro_describe_model('digits:1', 'the first')")
    assert alice.rows("SELECT description, tags FROM cerebro.registered_models") == [
        ("of halves", {"b": True})
    ]
    versions = "SELECT description, tags FROM cerebro.registered_versions ORDER BY version"
    assert alice.rows(versions) == [("the first", {}), ("the second", {"task": "halves"})]
    alice.rows("SELECT cerebro_describe_model('digits', '', '{}')")
    assert alice.rows("SELECT description, tags FROM cerebro.registered_models") == [("", {})]


def test_removing(alice: Person, digits: str, run: int, root: Person) -> None:
    for version in (1, 2):
        alice.rows("SELECT cerebro_register_model(%s, 1, 'gone')", (run,))
        assert alice.value("SELECT max(version) FROM cerebro.registered_versions") == max(
            version, 2
        )
    alice.rows("SELECT cerebro_set_alias('gone', 'x', 2)")
    error = alice.refused("SELECT cerebro_drop_model('gone', 2)")
    assert error.pgcode == "55006"
    assert "aliases: x" in str(error)
    alice.rows("SELECT cerebro_set_alias('gone', 'x', 1)")
    alice.rows("SELECT cerebro_drop_model('gone', 2)")
    assert alice.refused("SELECT cerebro_rollback_alias('gone', 'x')").pgcode == UNDEFINED
    # The number of a version is never used again.
    assert alice.value("SELECT cerebro_register_model(%s, 1, 'gone')", (run,)) == 3
    kept = root.value("SELECT model_id FROM cerebro.catalog_models WHERE name = 'gone'")
    alice.rows("SELECT cerebro_drop_model('gone')")
    for table in ("models", "model_versions", "model_states", "model_aliases", "model_grants"):
        sql = f"SELECT count(*) FROM cerebro.catalog_{table} WHERE model_id = %s"
        assert root.value(sql, (kept,)) == 0
    assert alice.value("SELECT count(*) FROM cerebro.registered_versions") == 2


BAD = {
    "register_model(NULL, 1, 'm')": (UNDEFINED, "run_id: got NULL"),
    "register_model(%(run)s, 9, 'm')": ("22023", "mst_key: got 9"),
    "register_model(%(stopped)s, 1, 'm')": ("55000", "which is paused; allowed: .* finished"),
    "register_model(%(run)s, 1, NULL)": ("22023", "name: got NULL"),
    "register_model(%(run)s, 1, 'a b')": ("22023", "name: got 'a b'"),
    "register_model(%(run)s, 1, 'a:1')": ("22023", "without alias or version"),
    "register_model(%(run)s, 1, 'b.a')": ("22023", "without owner"),
    "register_model(%(run)s, 1, 'm', tags := '[]')": ("22023", r"tags: got '\[\]'"),
    "register_model(%(run)s, 1, 'm', tags := '{\"a\": {}}')": ("22023", "tags: got"),
    "set_alias('digits', 'champion', 7)": (UNDEFINED, "version 7 of .*the versions: 1, 2"),
    "set_alias('digits', 'a b', 1)": ("22023", "alias: got 'a b'"),
    "set_alias('digits', NULL, 1)": ("22023", "alias: got NULL"),
    "set_alias('digit', 'champion', 1)": (UNDEFINED, "model:digit; .*(?s:.*)Did you mean 'digits'"),
    "rollback_alias('digits', 'champion')": (UNDEFINED, "no such alias with an earlier version"),
    "describe_model('digits@champion', 'x')": ("22023", "an alias may move"),
    "describe_model('digits:9', 'x')": (UNDEFINED, "version 9"),
    "grant_model('digits', 'no such role')": ("22023", "role: got 'no such role'"),
    "grant_model('digits', NULL)": ("22023", "role: got NULL"),
    "revoke_model('digits', 'cerebro_owner')": ("22023", "it was not granted model:digits"),
    "drop_model('digits', 9)": (UNDEFINED, "version 9"),
    "drop_model('nope')": (UNDEFINED, "got model:nope"),
    "predict('model:digits', 'rows', 'id', 'x', 'o', mst_key := 5)": ("22023", "model:digits:2 is"),
    "predict('model:digits@champ', 'rows', 'id', 'x', 'o')": (UNDEFINED, "(?s)'champion'"),
    "predict('model:digits:3', 'rows', 'id', 'x', 'o')": (UNDEFINED, "version 3"),
    "predict('model:', 'rows', 'id', 'x', 'o')": ("22023", "model_table: got 'model:'"),
}


@pytest.mark.parametrize("call", BAD)
def test_bad_calls(call: str, alice: Person, digits: str, run: int, stopped: int) -> None:
    code, message = BAD[call]
    before = alice.rows("SELECT * FROM cerebro._model_aliases ORDER BY change_id")
    error = alice.refused(f"SELECT cerebro_{call}", {"run": run, "stopped": stopped})
    assert error.pgcode == code, str(error)
    assert re.search(message, str(error)), str(error)
    assert alice.rows("SELECT name FROM cerebro.registered_models") == [("digits",)]
    assert alice.rows("SELECT * FROM cerebro._model_aliases ORDER BY change_id") == before


def test_a_table_that_another_run_has_made_anew(alice: Person, run: int, root: Person) -> None:
    summary = f"{alice.sql_name}.out_summary".replace("%", "%%")
    root.rows(f"UPDATE {summary} SET run_id = run_id + 1000", ())
    try:
        error = alice.refused("SELECT cerebro_register_model(%s, 1, 'm')", (run,))
        assert error.pgcode == "55000"
        assert f"that of run {run + 1000} by now" in str(error)
    finally:
        root.rows(f"UPDATE {summary} SET run_id = run_id - 1000", ())


# -- files -----------------------------------------------------------------------------------


def test_exported_it_says_the_same_elsewhere(alice: Person, digits: str) -> None:
    """One dense layer with softmax is soon computed by hand."""
    for model in ("out", "model:digits@champion"):
        data = bytes(alice.value("SELECT cerebro_export(%s, format := 'npz')", (model,)))
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            kernel, bias = (arrays[name] for name in arrays.files if name.startswith("weights/"))
            facts = json.loads(str(arrays["facts"]))
        assert facts["class_values"] == ["0", "1"]
        found = {(row_id, value): prob for row_id, value, prob in predicted(alice, model)}
        for row_id in range(1, 41):
            scores = np.exp(np.array([np.sin(row_id), np.cos(row_id)]) @ kernel + bias)
            for place, value in enumerate(facts["class_values"]):
                told = scores[place] / scores.sum()
                assert found[row_id, value] == pytest.approx(told, abs=1e-6)


def test_exported_and_imported_it_is_the_same(
    alice: Person, digits: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    weights = bytes(alice.value("SELECT model_weights FROM out"))
    alice.rows(
        "SELECT cerebro_load_model_file('imported', cerebro_export('model:digits'), 'from a file')"
    )
    assert [(n, bytes(w)) for n, w in alice.rows("SELECT name, model_weights FROM imported")] == [
        ("from a file", weights)
    ]
    dsn = alice.connection.info.dsn_parameters
    monkeypatch.setenv("PGUSER", alice.name)
    monkeypatch.setattr(Client, "of", functools.cache(Client.of))  # TensorFlow is loaded once
    options = ["--dsn", f"host={dsn['host']} port={dsn['port']} dbname={dsn['dbname']}"]
    path = tmp_path / "digits.keras"
    command = ["export", "model:digits:1", "--output", str(path), *options]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert path.read_bytes()[:2] == b"PK"
    told = CliRunner().invoke(app, ["import", str(path), "imported", *options])
    assert told.output == "model_id 2 in imported\n"
    again = alice.value("SELECT model_weights FROM imported WHERE model_id = 2")
    assert bytes(again) == weights
    alice.rows("DROP TABLE imported")


BAD_FILES = {
    "export('model:digits', format := 'kears')": ("22023", "(?s)'kears'; allowed.*'keras'"),
    "export('model:digits', 9)": ("22023", "mst_key: got 9"),
    "export('nope')": ("42P01", "model_table: got 'nope'"),
    "export('packed')": ("42809", "no column mst_key"),
    "export(NULL)": ("22023", "model_table: got NULL"),
    "load_model_file('imported', NULL)": ("22023", "file: got NULL"),
    "load_model_file('imported', 'x')": ("22023", "1 bytes, which are no .keras file"),
    "load_model_file(NULL, 'x')": ("22023", "model_arch_table: got NULL"),
    "load_model_file('packed', 'x')": ("42809", "without the columns"),
}


@pytest.mark.parametrize("call", BAD_FILES)
def test_bad_files(call: str, alice: Person, digits: str) -> None:
    code, message = BAD_FILES[call]
    error = alice.refused(f"SELECT cerebro_{call}")
    assert error.pgcode == code, str(error)
    assert re.search(message, str(error)), str(error)
    assert alice.value("SELECT to_regclass('imported')") is None


# -- what others do --------------------------------------------------------------------------

# "A" is alice's name. What is said of her model must be what is said of one that is not there.
ATTACKS = [
    "SELECT cerebro_predict('model:A.{}', 'rows', 'id', 'x', 'stolen')",
    "SELECT cerebro_predict('model:A.{}:1', 'rows', 'id', 'x', 'stolen')",
    "SELECT cerebro_predict('model:A.{}@champion', 'rows', 'id', 'x', 'stolen')",
    "SELECT cerebro_predict('model:{}', 'rows', 'id', 'x', 'stolen')",
    "SELECT cerebro_evaluate('model:A.{}', 'packed', 'stolen')",
    "SELECT cerebro_export('model:A.{}')",
    "SELECT cerebro_calibrate('model:A.{}', 'packed')",
    "SELECT cerebro_replay_automl('model:A.{}', 'stolen')",
    "SELECT cerebro_set_alias('A.{}', 'champion', 1)",
    "SELECT cerebro_rollback_alias('A.{}', 'champion')",
    "SELECT cerebro_describe_model('A.{}', 'mine')",
    "SELECT cerebro_describe_model('A.{}:1', 'mine')",
    "SELECT cerebro_grant_model('A.{}', current_user)",
    "SELECT cerebro_revoke_model('A.{}', current_user)",
    "SELECT cerebro_drop_model('A.{}')",
    "SELECT cerebro_drop_model('A.{}', 1)",
]


def attempt(person: Person, alice: Person, call: str, name: str) -> str:
    """What an attack is told, the name left out."""
    owner = alice.name.replace("'", "''").replace("%", "%%")
    error = person.refused(call.replace("A.", f"{owner}.").format(name), ())
    assert error.pgcode == UNDEFINED, str(error)
    return str(error).replace(name, "NAME")


@pytest.fixture
def untouched(root: Person, alice: Person, digits: str) -> Iterator[None]:
    """All that the registry holds is the same before and after a test."""

    def state() -> list[Any]:
        tables = [f"catalog{view}" for view in KEPT]
        return [root.rows(f"SELECT t::text FROM cerebro.{table} t ORDER BY 1") for table in tables]

    before = state()
    yield
    assert state() == before


@pytest.mark.parametrize("call", ATTACKS)
def test_a_model_of_someone_else_is_like_one_that_is_not_there(
    call: str, bob: Person, alice: Person, untouched: None
) -> None:
    assert attempt(bob, alice, call, "digits") == attempt(bob, alice, call, "nothing")


def test_the_views_show_nothing_of_others(
    bob: Person, alice: Person, untouched: None, root: Person
) -> None:
    for view in (*VIEWS, *USABLE, *KEPT):
        assert bob.value(f"SELECT count(*) FROM cerebro.{view}") == 0, view
        assert root.value(f"SELECT count(*) FROM cerebro.{view}") > 0 or view == "_model_grants"
    bob.rows(
        "CREATE OR REPLACE FUNCTION peek(anyelement) RETURNS boolean LANGUAGE plpgsql "
        "COST 0.0000001 AS $$BEGIN RAISE NOTICE 'seen %', $1; RETURN true; END$$"
    )
    for view in (*VIEWS, *USABLE, *KEPT):
        column = "name" if view in VIEWS else "mst_key" if view == "_usable_states" else "model_id"
        column = "mst_key" if view == "_usable_versions" else column
        bob.connection.notices.clear()
        bob.rows(f"SELECT count(*) FROM cerebro.{view} WHERE peek({column})")
        assert not bob.connection.notices, view


def test_an_administrator_reads_no_model_but_may_remove_it(
    dave: Person, alice: Person, run: int, untouched: None, root: Person
) -> None:
    assert dave.rows("SELECT owner, name FROM cerebro.registered_models") == [
        (alice.name, "digits")
    ]
    for view in USABLE:
        assert dave.value(f"SELECT count(*) FROM cerebro.{view}") == 0, view
    for columns, view in (("state", "_model_states"), ("model_arch", "_model_versions")):
        assert dave.refused(f"SELECT {columns} FROM cerebro.{view}").pgcode == DENIED
    for call in ATTACKS[:13]:
        attempt(dave, alice, call, "digits")
    alice.rows("SELECT cerebro_register_model(%s, 1, 'unwanted')", (run,))
    owner = alice.name.replace("'", "''").replace("%", "%%")
    dave.rows(f"SELECT cerebro_drop_model('{owner}.unwanted')", ())


def test_statements_of_another_role_are_made_by_nobody(
    root: Person, alice: Person, digits: str, untouched: None
) -> None:
    """A superuser may use every model; what its owner has kept as its steps would have her rights."""
    owner = alice.name.replace("'", "''").replace("%", "%%")
    error = root.refused(
        f"SELECT cerebro.cerebro_replay_automl('model:{owner}.digits', 'stolen')", ()
    )
    assert error.pgcode == DENIED, str(error)
    assert "a version of another role; allowed: your own" in str(error)


def insertions(model_id: int) -> list[str]:
    """What someone may try to put into a model, or to change of it."""
    return [
        f"SELECT cerebro._add_version({model_id}, NULL, NULL, 1, 1, '', '', '', '{{}}', '{{}}')",
        f"SELECT cerebro._add_model_state({model_id}, 1, 0, '')",
        f"SELECT cerebro._change_alias({model_id}, 'x', 1, NULL)",
        f"SELECT cerebro._grant_model({model_id}, cerebro._role())",
        f"SELECT cerebro._revoke_model({model_id}, cerebro._role())",
        f"SELECT cerebro._describe_model({model_id}, NULL, 'x', NULL)",
        f"SELECT cerebro._describe_model({model_id}, 1, 'x', NULL)",
        f"SELECT cerebro._report_version({model_id}, 1, '{{}}')",
    ]


def test_nobody_puts_anything_into_models_of_others(
    bob: Person, dave: Person, eve: Person, alice: Person, untouched: None, root: Person
) -> None:
    theirs = root.value("SELECT model_id FROM cerebro.catalog_models WHERE name = 'digits'")
    for statement in insertions(theirs):  # an administrator removes it, and no more
        assert dave.refused(statement).pgcode == DENIED
    removals = ("SELECT cerebro._drop_model({}, 1)", "SELECT cerebro._lock_model({})")
    for person in (bob, eve):
        of_real = [*insertions(theirs), *(one.format(theirs) for one in removals)]
        of_none = [*insertions(987654), *(one.format(987654) for one in removals)]
        for real, none in zip(of_real, of_none, strict=True):
            told = []
            for statement, number in ((real, theirs), (none, 987654)):
                error = person.refused(statement)
                assert error.pgcode == CHECKED, str(error)
                told.append(without_segment(error.diag.message_primary).replace(str(number), "N"))
            assert told[0] == told[1]


def test_a_grant_gives_use_but_no_change(
    eve: Person, alice: Person, digits: str, untouched: None
) -> None:
    name = f"model:{alice.name}.digits"
    assert predicted(eve, f"{name}@champion") == predicted(alice, "out")
    assert bytes(eve.value("SELECT cerebro_export(%s)", (name,)))[:2] == b"PK"
    assert eve.rows("SELECT owner, name, is_mine, granted_to FROM cerebro.registered_models") == [
        (alice.name, "digits", False, None)
    ]
    assert eve.value("SELECT count(*) FROM cerebro.registered_versions") == 2
    for call in ATTACKS[6:]:
        attempt(eve, alice, call, "digits")
    # A name without an owner is never that of someone else's model.
    error = eve.refused("SELECT cerebro_predict('model:digits', 'rows', 'id', 'x', 'o')")
    assert error.pgcode == UNDEFINED
    assert f"you were granted {name};" in error.diag.message_hint


def test_a_name_is_taken_for_its_owner_only(
    bob: Person, alice: Person, digits: str, run: int, root: Person
) -> None:
    before = predicted(alice, "model:digits")
    bob.rows("SELECT cerebro._add_model('digits')")
    assert predicted(alice, "model:digits") == before
    assert bob.rows("SELECT owner, name FROM cerebro.registered_models") == [(bob.name, "digits")]
    error = bob.refused("SELECT cerebro_predict('model:digits', 'rows', 'id', 'x', 'o')")
    assert "has the versions: none" in str(error)
    bob.rows("SELECT cerebro_drop_model('digits')")


def test_what_an_owner_planted_is_checked_by_who_uses_it(
    eve: Person, alice: Person, run: int, root: Person
) -> None:
    """Facts become part of statements that run with the rights of another role."""
    alice.rows("SELECT cerebro_register_model(%s, 1, 'trap')", (run,))
    alice.rows("SELECT cerebro_grant_model('trap', %s)", (eve.name,))
    good = root.value("SELECT facts::text FROM cerebro.catalog_model_versions LIMIT 1")
    for key, value in {
        "input_shape": ["1; DROP TABLE rows; --"],
        "normalizing_const": "1; DROP TABLE rows; --",
        "class_values": [1],
        "dependent_varname": None,
        "targets": {"kind": "class", "num_classes": "2", "shape": []},
    }.items():
        facts = json.dumps(json.loads(good) | {key: value})
        number = alice.value("SELECT model_id FROM cerebro._models WHERE name = 'trap'")
        alice.rows(
            "SELECT cerebro._add_version(%s, NULL, NULL, 1, 1, '', '', '', %s, '{}')",
            (number, facts),
        )
        sql = "SELECT cerebro_predict(%s, 'rows', 'id', 'x', 'o')"
        error = eve.refused(sql, (f"model:{alice.name}.trap",))
        assert error.pgcode == "22023", str(error)
        assert "facts" in str(error)
    assert eve.value("SELECT count(*) FROM rows") == 40
    alice.rows("SELECT cerebro_drop_model('trap')")


def test_a_grant_can_be_taken_back(eve: Person, alice: Person, digits: str) -> None:
    assert alice.value("SELECT granted_to FROM cerebro.registered_models") == [eve.name]
    alice.rows("SELECT cerebro_grant_model('digits', %s)", (eve.name,))  # again is harmless
    alice.rows("SELECT cerebro_revoke_model('digits', %s)", (eve.name,))
    for call in ATTACKS:
        assert attempt(eve, alice, call, "digits") == attempt(eve, alice, call, "nothing")
    assert eve.value("SELECT count(*) FROM cerebro.registered_models") == 0
