"""Expressions: which texts are some, and that nothing of them is run."""

from __future__ import annotations

import sys
import time

import pytest
from pace import stretched

from cerebro_db.configs.functions.expressions import (
    DEEPEST,
    LONGEST,
    MOST_NODES,
    Apply,
    Expression,
    Name,
    Number,
    names_in,
    parse_expression,
)
from cerebro_db.errors import InvalidArgument

OF_MADLIB = '''
def rmse(y_true, y_pred):
    """Of MADlib's documentation."""
    import tensorflow.keras.backend as K
    return K.sqrt(K.mean(K.square(y_pred - y_true), axis=-1))
'''
ALLOWED = {
    "square(y_true - y_pred)": ("square", "subtract"),
    "K.square(y_pred - y_true)": ("square", "subtract"),
    "  return K.mean(K.abs(y_true - y_pred), axis=-1)": ("mean", "abs", "subtract"),
    OF_MADLIB: ("sqrt", "mean", "square", "subtract"),
    "d = y_true - y_pred\nwhere(abs(d) < 1.0, 0.5 * d**2, abs(d) - 0.5)": None,
    "d = y_true - y_pred\nd = d * d\nreturn d": None,
    "tf.reduce_sum(tf.math.log(y_pred + K.epsilon()) * y_true, axis=[1])": None,
    "keras.ops.mean(y_pred[:, 0] - y_true[..., 0:1][:, 0])": None,
    "K.binary_crossentropy(y_true, y_pred) + 0.1 * tf.square(y_pred)": None,
    "K.cast(K.equal(K.argmax(y_true), K.argmax(y_pred)), K.float32)": None,
    "einsum('bi,bi->b', y_true, y_pred)": ("einsum",),
    "concatenate([y_true, y_pred], axis=-1)": ("concatenate",),
    "x * sigmoid(1.702 * x)": None,
    "x / (1 + abs(x))": None,
    "(x > 0) & (x < 1) | ~(x == 2)": None,
    "pi * x": None,
}


@pytest.mark.parametrize("text", ALLOWED)
def test_allowed(text: str) -> None:
    found = parse_expression(text)
    assert found.text == text
    assert found.places == (1 if "x " in text or " x" in text else 2)
    wanted = ALLOWED[text]
    if wanted is not None:
        assert tuple(names_in(found)) == wanted


def test_numbers_are_computed_as_python_does() -> None:
    found = parse_expression("x * (1 / 3 + 2**10 - -1)")
    ((_, node),) = found.steps
    assert node == Apply("multiply", (Name("x"), Number(1 / 3 + 1024 + 1)))


def test_parameters_of_a_function_have_any_names() -> None:
    found = parse_expression("def ours(a, b):\n    return a * b")
    assert found.parameters == ("a", "b")
    assert parse_expression("def ours(a):\n    return a * 2").places == 1


def test_imports_tell_what_a_module_is_called() -> None:
    text = (
        "from tensorflow.keras import backend as B\nimport tensorflow as T\n"
        "B.mean(T.math.squared_difference(y_true, y_pred))"
    )
    assert tuple(names_in(parse_expression(text))) == ("mean", "squared_difference")


HOSTILE = [
    "", " ", "y_true", "1", "y_true; y_pred", "x + y_true", "print(x)", "open('x')", "__import__('os')",
    "__import__('os').system('x') + x", "x.__class__", "x.__class__.__bases__[0](x)", "x.numpy()",
    "().__class__ + x", "exec('x') + x", "eval('x') + x", "getattr(x, 'a')", "K.__dict__['x'](x)",
    "[x for _ in (1,)]", "[x]", "(x, x)", "{x: x}", "{x}", "lambda: x", "(lambda y: y)(x)", "f'{x}'",
    "x if x else x", "x and x", "not x", "x in x", "x is x", "0 < x < 1", "x // 2", "x % 2", "x << 2",
    "x ^ 2", "(y := x)", "await x", "yield x", "*x", "x = 1", "x += 1\nx", "y: int = 1\nx", "del x",
    "import os\nx", "import os.path as K\nK.join(x)", "from os import system\nsystem(x)",
    "from keras import utils\nutils.get_file(x)", "import keras.utils as K\nK.get_file(x)",
    "keras.models.load_model(x)", "keras.utils.get_file(x)", "tf.io.read_file(x)", "tf.py_function(x)",
    "tf.numpy_function(x)", "K.function(x)", "ops.map(x, x)", "ops.vectorized_map(x, x)",
    "ops.while_loop(x)", "ops.custom_gradient(x)", "np.load(x)", "os.system(x)", "mean(x, out=x)",
    "mean(*x)", "mean(**x)", "mean(x, axis=x)", "mean(x, axis='a')", "mean(x, axis=1.5)",
    "mean(x, keepdims=1)", "mean(x, 1, True, 2)", "mean(x, x=x)", "mean()", "cast(x, 'string')",
    "cast(x, 'object')", "einsum('a;b', x)", "x[x]", "x['a']", "x[1.5]", "x[::x]", "x[True]",
    "concatenate(x)", "concatenate([])", "'text' * x", "b'x' * x", "1j * x", "True * x", "None + x",
    "1e999 * x", "9**999 * x", "9**9**9 * x", "1 / 0 * x", "(-8) ** 0.5 * x", "x\\\n+ x", "x\0", "x\x07",
    "def f(y_true):\n    return y_true\nf", "def f(x, y, z):\n    return x", "def f(*x):\n    return x",
    "def f(x=1):\n    return x", "@os\ndef f(x):\n    return x", "def f(x):\n    for y in x: pass\n    return x",
    "def f(x):\n    def g(y):\n        return y\n    return g(x)", "def f(x):\n    pass", "def f(x):\n    return",
    "class A: pass", "while x: pass", "with x: pass", "try:\n    x\nfinally: x", "global x\nx", "raise x",
    "assert x", "async def f(x):\n    return x", "__builtins__", "x.T", "K", "K.pi * x", "epsilon * x",
    "def f(a, b):\n    return a", "y_true * 2", "return", "x y", "x +", "mean(x", "'", "y_true..mean()",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^expression: got ") as refused:
        parse_expression(text)
    assert 10 < len(refused.value.message) < 1000
    assert "\0" not in refused.value.message


def test_a_wrong_name_is_reported_with_the_nearest_right_one() -> None:
    with pytest.raises(InvalidArgument, match=r"'K\.sqare'") as refused:
        parse_expression("K.sqare(x)")
    assert "Did you mean 'square'?" in (refused.value.hint or "")


LARGE = [
    "x" + "+x" * LONGEST, "x" + " + x" * MOST_NODES, "(" * 3000 + "x", "-" * 3000 + "x", "~" * 3000 + "x",
    "x" + ".a" * 1900, "x" + "[0]" * 1300, "x" + "**x" * 1300, "abs(" * 900 + "x" + ")" * 900,
    "not " * 990 + "x", "x if x else " * 300 + "x", "lambda:" * 500 + "x", "x" + "()" * 1900,
    "y = x\n" * 600 + "y", "[" * 90 + "x" + "]" * 90, "f'" + "{" * 100, "- - " * 900 + "x",
    "abs(" * (DEEPEST + 1) + "x" + ")" * (DEEPEST + 1), "1" + "+1" * 1900 + "+x", "9" * 3990 + "*x",
]  # fmt: skip


@pytest.mark.parametrize("text", LARGE, ids=range(len(LARGE)))
def test_large_ones_are_refused_at_once(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(InvalidArgument):
        parse_expression(text)
    assert time.monotonic() - started < stretched(5)


def test_nothing_is_run_or_imported() -> None:
    seen: list[str] = []
    parse_expression("x")
    before = set(sys.modules)
    sys.addaudithook(lambda event, _: seen.append(event) if watching else None)
    watching = True
    for text in [*HOSTILE, *ALLOWED]:
        try:
            found: Expression | None = parse_expression(text)
        except InvalidArgument:
            found = None
        assert found is None or text in ALLOWED
    watching = False
    # Python's parser is called compile; nothing that it makes is executed.
    assert [event for event in seen if event != "compile"] == []
    assert set(sys.modules) == before
