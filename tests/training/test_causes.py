"""Causes of failed models: first, and in one line, whatever Keras and TensorFlow put around them."""

from __future__ import annotations

import pytest

from cerebro_db.errors import InvalidData
from cerebro_db.training.causes import cause, of_the_model, short

GRAPH = """Graph execution error:

Detected at node net/embedding/GatherV2 defined at (most recent call last):
  File "/opt/python/site-packages/keras/src/trainer.py", line 399, in fit

  File "/opt/python/site-packages/keras/src/trainer.py", line 241, in function

indices[0,0] = 5 is not in [0, 2)
\t [[{{node net/embedding/GatherV2}}]] [Op:__inference_loop_1]"""
CALL = (
    "Exception encountered when calling Sequential.call().\n\n\x1b[1mInput 0 of layer 'dense' is "
    "incompatible with the layer\x1b[0m\n\nArguments received by Sequential.call():\n  • training=True"
)
USER = (
    'in user code:\n\n    File "/home/x/package/visit.py", line 26, in bad  *\n        return matmul(x)\n\n'
    "    ValueError: Dimensions must be equal, but are 4 and 2\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GRAPH, "indices[0,0] = 5 is not in [0, 2)"),
        (CALL, "Input 0 of layer 'dense' is incompatible with the layer"),
        (USER, "ValueError: Dimensions must be equal, but are 4 and 2"),
        ("Exception encountered: outer. Exception encountered: inner", "inner"),
        ("no file /var/lib/postgresql/data/x.so; 1/2 of a/b/c", "no file x.so; 1/2 of a/b/c"),
        ("", "ValueError"),
        ("x" * 5000, "x" * 500),
    ],
)
def test_the_cause_is_one_line(text: str, told: str) -> None:
    assert short(ValueError(text)) == told
    assert cause(ValueError(text)) in (told, f"{told} (ValueError)")


def test_an_error_of_ours_is_as_it_was_raised() -> None:
    error = InvalidData("x: got NaN", hint="mend it")
    assert of_the_model(error) is error
    assert cause(error) == "x: got NaN"


def test_the_detail_tells_where_without_paths() -> None:
    def fails() -> None:
        raise KeyError("a")

    try:
        fails()
    except KeyError as error:
        failure = of_the_model(error)
    assert failure.message == "'a' (KeyError)"
    assert (failure.detail or "").startswith("raised in test_causes.py:")
    assert "/" not in (failure.detail or "")
    assert " fails, called by test_causes.py:" in (failure.detail or "")
