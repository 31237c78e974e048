"""The parser takes what MADlib's grammar allows and refuses all else with one kind of error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_db.configs.grammar import (
    MAX_LENGTH,
    Call,
    parse_call,
    parse_dict,
    parse_keywords,
)
from cerebro_db.errors import InvalidArgument


def test_grid() -> None:
    text = """
        {'loss': ['categorical_crossentropy'],
         'optimizer_params_list': [ {'optimizer': ['Adam', 'SGD'], 'lr': [0.001, -1e-2]} ],
         'metrics': ['accuracy'], 'shuffle': [True, None], 'x': (1, 2)}
    """
    assert parse_dict(text, "grid") == {
        "loss": ["categorical_crossentropy"],
        "optimizer_params_list": [{"optimizer": ["Adam", "SGD"], "lr": [0.001, -0.01]}],
        "metrics": ["accuracy"],
        "shuffle": [True, None],
        "x": (1, 2),
    }


def test_keywords() -> None:
    text = " loss='mse', optimizer='Adam(lr=0.1)',\n metrics=['accuracy'], o=keras.SGD(lr=.1) "
    assert parse_keywords(text, "compile_params") == {
        "loss": "mse",
        "optimizer": "Adam(lr=0.1)",
        "metrics": ["accuracy"],
        "o": Call("keras.SGD", (("lr", 0.1),)),
    }
    assert parse_keywords("", "fit_params") == {}
    assert parse_keywords("class_weight={0: 1.5, 1: 2}", "f") == {"class_weight": {0: 1.5, 1: 2}}


def test_call() -> None:
    assert parse_call("Adam", "optimizer") == Call("Adam")
    assert parse_call("SGD()", "optimizer") == Call("SGD")
    assert parse_call(" keras.optimizers.Adam( lr = 0.1 )", "optimizer") == Call(
        "keras.optimizers.Adam", (("lr", 0.1),)
    )


HOSTILE = [
    "",
    "\0",
    "__import__('os').system('true')",
    "{'a': __import__('os').getcwd()}",
    "{'a': [x for x in (1,)]}",
    "{'a': lambda: 1}",
    "{**{'a': 1}}",
    "{'a': 1, 'a': 2}",
    "{'a': 1} or {'a': 2}",
    "{'a': f'{1}'}",
    "{'a': b'x'}",
    "{'a': 1j}",
    "{'a': ...}",
    "{'a': 1e999}",
    "{'a': -'x'}",
    "{'a': 1 + 1}",
    "{'a': not 1}",
    "{'a': 'x\\n'}",
    "{'a': x[0]}",
    "{[1]: 2}",
    "{1: 2}",
    "{'a'}",
    "[1]",
    "{'a': " + "9" * 5000 + "}",
    "[" * 200 + "]" * 200,
    "[" * 30_000,
    "-" * 60_000 + "1",
    "- " * 30_000 + "1",
    "{'a': " + "x." * 20_000 + "x}",
    "{'a': " + "1+" * 20_000 + "1}",
    "{'a': f" + "()" * 20_000 + "}",
    "a" * (MAX_LENGTH + 1),
    "{'a': 1}  # comment",
    "{'a': 'unclosed}",
    "{'a': \u00e4}",
    "\ud800",
    "a=1)(b=2",
    "a=1)(b",
    "*a",
    "**a",
    "a=1, a=2",
    "a=1, 2",
    "a=1\nb=2",
    "(a:=1)",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_dict(text, "grid")
    if text:
        with pytest.raises(InvalidArgument):
            parse_keywords(text, "params")
    if not text.startswith("__import__"):
        with pytest.raises(InvalidArgument):
            parse_call(text if not text.startswith("a" * 9) else text + "()", "optimizer")


@pytest.mark.parametrize("value", [None, 1, ["a"], b"a=1"])
def test_not_a_text(value: object) -> None:
    with pytest.raises(InvalidArgument, match="must be a text"):
        parse_keywords(value, "fit_params")  # type: ignore[arg-type]


def test_message_says_what_was_got_and_allowed() -> None:
    with pytest.raises(InvalidArgument, match=r"fit_params: got 1 \+ 1; allowed are numbers"):
        parse_keywords("a=1+1", "fit_params")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab01'\"()[]{}=,.:- +*#\\\n\0\u00e9fj_", max_size=60))
def test_never_crashes(text: str) -> None:
    for parse in (parse_dict, parse_keywords, parse_call):
        with contextlib.suppress(InvalidArgument):
            parse(text, "text")


_leaf = st.none() | st.booleans() | st.integers(-(2**62), 2**62)
_leaf |= st.floats(allow_nan=False, allow_infinity=False) | st.text("abc xyz_", max_size=8)


@given(st.dictionaries(st.text("abc", min_size=1), st.lists(_leaf | st.lists(_leaf))))
def test_round_trip(grid: dict[str, object]) -> None:
    assert parse_dict(repr(grid), "grid") == grid
