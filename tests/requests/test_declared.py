"""What is declared of each SQL function holds together: one suite over all of them."""

from __future__ import annotations

import importlib
import inspect
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta
from msgspec.structs import replace

from cerebro_db.client.database import Database
from cerebro_db.errors import InvalidArgument
from cerebro_db.requests import FUNCTIONS, Function
from cerebro_db.requests.declared import (
    BigInt,
    Integers,
    Job,
    Json,
    Overload,
    Request,
    Text,
    Workers,
    usage,
)
from cerebro_db.requests.packing import PackColumnsRequest, PackRequest
from cerebro_db.requests.sql import created
from cerebro_db.server.job_calls import STEPS

ALL = [function for found in FUNCTIONS.values() for function in found]


@pytest.fixture(params=ALL, ids=lambda one: f"{one.name}({len(one.arguments)})")
def function(request: pytest.FixtureRequest) -> Function:
    """Each function that is declared."""
    found: Function = request.param
    return found


def test_each_argument_is_explained_once(function: Function) -> None:
    explained = [name for names, _ in function.meanings for name in names]
    assert sorted(explained) == sorted(function.arguments)
    assert all(text and "\n" not in text for _, text in function.meanings)
    assert function.comment


def test_its_entry_is_there(function: Function) -> None:
    if function.entry is None:
        return
    module, _, name = function.entry.partition(".")
    found = getattr(importlib.import_module(f"cerebro_db.server.{module}"), name)
    assert vars(found)["is_entry"]


def test_a_job_names_arguments_and_steps_that_there_are(function: Function) -> None:
    if isinstance(function.job, Job):
        named = {*function.job.reads, *filter(None, [function.job.makes])}
        assert named <= set(function.arguments)
        assert function.job.steps is None or function.job.steps in STEPS


def test_the_client_has_its_arguments(function: Function) -> None:
    method = getattr(Database, function.name.removeprefix("cerebro_"))
    if len(FUNCTIONS[function.name]) == 1 and function.name != "cerebro_load_model":
        names = list(inspect.signature(method).parameters)[1:]
        assert names[: len(function.arguments)] == list(function.arguments)


def test_its_hint_is_how_it_is_called(function: Function) -> None:
    shown = usage(function.name) or ""
    assert (
        f"cerebro.{function.name}({', '.join(a.text for a in function.arguments.values())})"
        in shown
    )


class _Request(Request):
    """Does something; it's an example.

    Attributes:
        name, keys: what and
            which
        workers: how many
    """

    name: Text
    keys: Integers
    number: BigInt
    workers: Workers = None
    how: Literal["fast", "well"] = "fast"
    share: Annotated[int, Meta(ge=0, le=9)] = 3
    table: Json = "{}"


EXAMPLE = Function(
    "cerebro_example", "void", _Request, entry="examples.do", volatility="STABLE",
    overloads=(Overload("number", "text", "The same with a text."),),
)  # fmt: skip
_Request.function = EXAMPLE


def test_a_function_is_made_from_its_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "cerebro_example", (EXAMPLE,))
    rest = (
        "workers integer DEFAULT NULL, how text DEFAULT 'fast', share integer DEFAULT 3, table json DEFAULT '{}')\n"
        'RETURNS void LANGUAGE plpython3u STABLE AS <return relay.driver("examples.do", dict(name=name, keys=keys, '
        "number=number, workers=workers, how=how, share=share, table=table))>;\n"
        "COMMENT ON FUNCTION cerebro.cerebro_example(text, integer[], {}, integer, text, integer, json) IS\n'{}';"
    )
    head = (
        "CREATE OR REPLACE FUNCTION cerebro.cerebro_example(name text, keys integer[], number {}, "
    )
    expected = [
        head.format("bigint")
        + rest.replace("'{}';", "'Does something; it''s an example.';").replace(
            "{}, int", "bigint, int"
        ),
        head.format("text")
        + rest.replace("'{}';", "'The same with a text.';").replace("{}, int", "text, int"),
    ]
    assert created("cerebro_example", lambda text: f"<{text}>") == "\n".join(expected)
    assert EXAMPLE.meanings == [(("name", "keys"), "what and which"), (("workers",), "how many")]


def test_docstrings_without_their_indentation_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.13 keeps them."""
    monkeypatch.setattr(_Request, "__doc__", inspect.cleandoc(_Request.__doc__ or ""))
    found = replace(EXAMPLE)
    assert found.comment == "Does something; it's an example."
    assert found.meanings == [(("name", "keys"), "what and which"), (("workers",), "how many")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers: got 0; allowed: 1 to 256"),
        ({"how": "slow"}, "how: got 'slow'; allowed: 'fast', 'well'"),
        ({"how": None}, "how: got NULL; allowed: 'fast', 'well'"),
        ({"share": None}, "share: got NULL; allowed: 0 to 9"),
        ({"share": 10}, "share: got 10; allowed: 0 to 9"),
    ],
)
def test_values_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    assert _Request("a", [1], 2, workers=None).given()["workers"] is None
    with pytest.raises(InvalidArgument) as caught:
        _Request("a", [1], 2, **given)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "cerebro_example: got []; allowed: an object with its arguments by name"),
        ({"name": "a", "keys": [1]}, "cerebro_example: number is missing"),
        ({"name": 1, "keys": [1], "number": 2}, "cerebro_example: name: got 1; allowed: a text"),
        (
            {"name": "a", "keys": ["b"], "number": 2},
            "cerebro_example: keys: got ['b']; allowed: an array",
        ),
        (
            {"name": "a", "keys": [], "number": True},
            "cerebro_example: number: got true; allowed: a whole number, a text",
        ),
    ],
)
def test_calls_out_of_json_are_checked(given: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        EXAMPLE.checked(given)
    assert caught.value.message == message


def test_an_unknown_argument_is_told_the_nearest_one() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'name'"):
        EXAMPLE.checked({"nam": "a"})


def test_a_statement_has_the_types_of_the_overload_that_fits() -> None:
    given = {"name": "a", "keys": [1], "number": "2", "table": {"a": 1}}
    assert EXAMPLE.statement(given) == (
        "SELECT cerebro.cerebro_example(name := %s::text, keys := %s::integer[], number := %s::text, "
        "table := %s::json)",
        ["a", [1], "2", '{"a": 1}'],
    )
    sql, _ = PackRequest.function.statement({"source_table": "a", "num_classes": "{1}"})
    assert "buffer_size := NULL, normalizing_const := 1.0, num_classes := %s::text" in sql


def test_json_becomes_a_text_in_a_request() -> None:
    given = PackColumnsRequest.function.bound({"encodings": {"a": "onehot"}, "excluded": None})
    assert given == {"encodings": '{"a": "onehot"}', "excluded": None}
