"""Whatever is handed in as a model or as parameters is accepted or told to be wrong, no more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fuzz import grammar_texts, mutations
from fuzz.harness import attempt, share, watch
from hypothesis import given
from hypothesis import strategies as st

from cerebro_db.configs.architectures.architecture import (
    check_architecture,
    fingerprint,
    with_dropout,
)
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.grids.grid import parse_compile_grid, parse_fit_grid
from cerebro_db.configs.grids.model_selection import combine, generate
from cerebro_db.configs.grids.parameters import changed, parse_compile_params, parse_fit_params
from cerebro_db.core.search_texts import (
    monitors_of_aims,
    parse_early_stopping,
    parse_objectives,
)
from cerebro_db.decide.search.methods import METHODS, parse_method, parse_more
from cerebro_db.scoring.prediction import prediction_type

COMPILE = grammar_texts.spelled() | grammar_texts.changed(grammar_texts.COMPILE)
FIT = grammar_texts.changed(grammar_texts.FIT)
COMPILE_GRID = grammar_texts.changed(grammar_texts.COMPILE_GRIDS)
FIT_GRID = grammar_texts.changed(grammar_texts.FIT_GRIDS)


@pytest.mark.parametrize("name", mutations.MODELS)
def test_what_is_changed_is_allowed_before(name: str) -> None:
    assert attempt("unchanged", check_architecture, json.dumps(mutations.MODELS[name])) is not None


def test_what_is_forbidden_is_seen() -> None:
    with pytest.raises(AssertionError, match="a check ran, imported or opened"):
        attempt("forbidden", exec, "open('/dev/null')")
    with watch.on() as seen:
        __import__("this_module_is_not_there", fromlist=["x"]) if seen else None
        open("/dev/null").close()
    assert seen == ["open"]


@share(0.45)
@given(mutations.architectures())
def test_architectures(text: str) -> None:
    config = attempt("architectures", check_architecture, text)
    if config is not None:
        assert len(attempt("architectures, fingerprints", fingerprint, config)) == 64
        attempt("architectures, dropout", with_dropout, config, 0.5)


@share(0.05)
@given(st.text(max_size=200) | st.sampled_from(mutations.JSON_PIECES) | st.binary(max_size=20))
def test_texts_that_are_no_architectures(text: Any) -> None:
    assert attempt("other texts", check_architecture, text) is None


@share(0.02)
@given(mutations.values)
def test_facts(value: Any) -> None:
    known = ArchitectureFacts(1, 2, True, False, 3, ((4,),), ((None, 5),))
    attempt("facts", ArchitectureFacts.from_json, json.dumps(value))
    for key in vars(known):
        text = json.dumps({**json.loads(known.to_json()), key: value})
        read = attempt("facts", ArchitectureFacts.from_json, text)
        assert read is None or json.loads(read.to_json()) == json.loads(text)


@share(0.15)
@given(COMPILE)
def test_compile_params(text: str) -> None:
    parsed = attempt("compile_params", parse_compile_params, text)
    assert parsed is None or hash(parsed) == hash(parse_compile_params(text))


@share(0.1)
@given(grammar_texts.changed(grammar_texts.EXPRESSIONS))
def test_expressions(text: str) -> None:
    parsed = attempt("expressions", parse_expression, text)
    assert parsed is None or parsed.places in (1, 2)


@share(0.1)
@given(FIT)
def test_fit_params(text: str) -> None:
    parsed = attempt("fit_params", parse_fit_params, text)
    assert parsed is None or hash(parsed) == hash(parse_fit_params(text))


@share(0.1)
@given(COMPILE_GRID, FIT_GRID)
def test_grids(compile_grid: str, fit_grid: str) -> None:
    first = attempt("grids", parse_compile_grid, compile_grid)
    second = attempt("grids", parse_fit_grid, fit_grid)
    if first is not None:
        _search(compile_grid, grammar_texts.FIT_GRIDS[0])
    if second is not None:
        _search(grammar_texts.COMPILE_GRIDS[1], fit_grid)


def _search(compile_grid: str, fit_grid: str) -> None:
    """What a search finds can be read again."""
    rows = attempt("grids, searched", generate, [1], compile_grid, fit_grid, "random", 3, 0) or []
    rows += attempt("grids, searched", generate, [1], compile_grid, fit_grid) or []
    for row in rows[:50]:
        parse_compile_params(row.compile_params)
        parse_fit_params(row.fit_params)


@share(0.03)
@given(
    st.sampled_from([*METHODS, "hyperopt", "SHA"]) | st.text(max_size=20) | st.none(),
    grammar_texts.changed(grammar_texts.AUTOML_PARAMS) | st.none(),
)
def test_methods_of_searches(method: Any, params: Any) -> None:
    found = attempt("automl_params", parse_method, method, params)
    if found is not None:
        name, values = found
        assert set(values) == {one.name for one in METHODS[name].parameters}
        attempt("automl_params, more", parse_more, name, values, params)


@share(0.02)
@given(
    grammar_texts.changed(grammar_texts.OBJECTIVES),
    grammar_texts.changed(grammar_texts.EARLY_STOPPING),
)
def test_aims_of_searches(objective: str, early_stopping: str) -> None:
    aims = attempt("objective", parse_objectives, objective)
    if aims:
        metrics = {"accuracy": "accuracy", "auc": "AUC"}
        attempt("objective, resolved", resolved, aims, metrics)
    attempt("early_stopping", parse_early_stopping, early_stopping)


def resolved(aims: Any, metrics: Any) -> Any:
    """The series of values that aims are."""
    return monitors_of_aims(aims, metrics, validated=True)


@share(0.02)
@given(grammar_texts.changed(grammar_texts.CHANGES))
def test_changes_of_configurations(text: str) -> None:
    found = attempt("changes", changed, grammar_texts.COMPILE[0], grammar_texts.FIT[0], text)
    if found is not None:
        parse_compile_params(found[0])
        parse_fit_params(found[1])


@share(0.03)
@given(st.lists(COMPILE | st.none(), max_size=3), st.lists(FIT | st.none(), max_size=3))
def test_lists(compiles: list[Any], fits: list[Any]) -> None:
    attempt("lists", combine, [1, 2], compiles, fits)


@share(0.03)
@given(st.text(max_size=20) | st.floats() | st.sampled_from(grammar_texts.PIECES))
def test_prediction_types(given: Any) -> None:
    attempt("pred_type", prediction_type, given)
