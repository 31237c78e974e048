"""The errors that the reference tells of each function: those that a name can cause are tried."""

from __future__ import annotations

import re

import psycopg2
import pytest

from tests.docs.conftest import Documented
from tests.docs.pages import REFERENCE, rows, sections, statements
from tests.docs.test_documentation import functions

MISSING_TABLE, MISSING_OBJECT, TAKEN = "42P01", "42704", "42P07"
# The others take the name of a table or of a model first.
OF_RUNS = {
    "cerebro_resume": "-1",
    "cerebro_cancel": "-1",
    "cerebro_pause": "-1",
    "cerebro_drop_run": "-1",
    "cerebro_register_model": "-1, 1, 'plants'",
    "cerebro_add_configs": "-1, ARRAY[1], ARRAY['loss=mse,optimizer=SGD'], ARRAY['']",
    "cerebro_stop_config": "-1, 1",
    "cerebro_clone": "-1, 1",
    "cerebro_narrow": "-1",
    "cerebro_finish": "-1",
    "cerebro_extend": "-1",
    "cerebro_replay": "-1, 'nobody_made_this'",
    "cerebro_best": "-1",
    "cerebro_importance": "-1",
    "cerebro_replay_automl": "'nobody_made_this', 'again'",
    "cerebro_calibrate": "'model:nobody_made_this', 'plants_val'",
    "cerebro_ensemble": "-1, 'plants'",
    "cerebro_wait": "-1",
    "cerebro_wait_job": "-1",
    "cerebro_cancel_job": "-1",
    "cerebro_promote_if_better": "-1, 'model:plants_nightly@champion'",
    "cerebro_schedule": """'none', '0 3 * * *', '{"cerebro_pack": {"source_table": "nobody_made_this",
        "output_table": "o", "dependent_varname": "y", "independent_varname": "x", "replace": true}}',
        timer := 'daemon'""",
    "cerebro_submit": """'{"cerebro_encode": {"source_table": "nobody_made_this", "training_table": "t",
        "output_table": "o", "id_col": "id"}}'""",
}
# This one gives what is there more rows.
ADDS_ROWS = ("cerebro_generate_configs",)


def told() -> dict[str, set[str]]:
    """The SQLSTATEs of each function."""
    table = rows(sections(REFERENCE)["Errors"], "| function | errors |")
    return {
        name: set(re.findall(r"`(\w+)`", codes))
        for names, codes in table
        for name in re.findall(r"`(\w+)`", names)
    }


def example(name: str) -> str:
    """The first call of a function that the reference shows."""
    calls = re.findall(r"^```sql\n(.*?)^```$", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)
    found = [
        text for call in calls for text in statements(call) if re.search(rf"(?<!\w){name}\(", text)
    ]
    return found[0]


def test_every_function_tells_its_errors() -> None:
    known = {code for code, _ in rows(sections(REFERENCE)["Errors"], "| SQLSTATE | what |")}
    assert told().keys() == functions().keys()
    assert {f"`{code}`" for codes in told().values() for code in codes} <= known


def test_what_is_not_there_gives_what_is_reported(documented: Documented) -> None:
    for name, codes in told().items():
        expected = codes & {MISSING_TABLE, MISSING_OBJECT}
        if expected:
            text = re.sub(rf"({name}\()'[^']*'", r"\1'nobody_made_this'", example(name))
            call = f"SELECT {name}({OF_RUNS[name]})" if name in OF_RUNS else text
            with pytest.raises(psycopg2.Error) as caught:
                documented.sql.fetch(call)
            assert caught.value.pgcode in expected, call


def test_what_is_there_gives_what_is_reported(documented: Documented) -> None:
    tried = [
        name
        for name, codes in told().items()
        if TAKEN in codes and name not in (*OF_RUNS, *ADDS_ROWS)
    ]
    assert len(tried) > 10
    for name in tried:
        with pytest.raises(psycopg2.Error) as caught:
            documented.sql.fetch(example(name))
        assert caught.value.pgcode == TAKEN, name
