"""Published attacks on Keras' deserialisation: refused, and nothing runs while that is found out."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pace import stretched

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.errors import InvalidArchitecture

# Whatever runs leaves this behind; a module of this name lies where Python would find it.
CANARY = "cerebro_canary"


def layer(class_name: Any, module: Any = "keras.layers", **config: Any) -> dict[str, Any]:
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": "it", **config},
        "registered_name": None,
    }


def sequential(*layers: Any, **more: Any) -> dict[str, Any]:
    first = layer("InputLayer", batch_shape=[None, 4])
    return {**layer("Sequential", "keras", layers=[first, *layers]), **more}


def function(module: Any, name: Any) -> dict[str, Any]:
    return {
        "module": module, "class_name": "function", "config": name, "registered_name": name,
    }  # fmt: skip


def node(of: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {**of, "name": "it", "inbound_nodes": [{"args": list(args), "kwargs": kwargs}]}


def functional(*layers: dict[str, Any]) -> dict[str, Any]:
    config = {"name": "net", "layers": list(layers), "input_layers": [], "output_layers": []}
    return layer("Functional", "keras.src.models.functional") | {"config": config}


def dense(**config: Any) -> dict[str, Any]:
    return layer("Dense", units=2, **config)


LOADS = function("keras.models", "load_model")
BYTECODE = {"class_name": "__lambda__", "config": {"value": ["4wAAAA==", None, None]}}
LAMBDA = layer("Lambda", function=BYTECODE, arguments={})
HOST = "http://127.0.0.1:9/vocabulary.txt"

# What the advisories describe, as a model's JSON can hold it.
PUBLISHED = {
    "CVE-2021-37678 YAML": "!!python/object/new:exec [\"open('/tmp/x', 'w')\"]",
    "CVE-2024-3660 bytecode": sequential(LAMBDA),
    "CVE-2024-3660 Keras 2": {
        "class_name": "Sequential", "backend": "tensorflow", "keras_version": "2.12.0",
        "config": {"name": "m", "layers": [{"class_name": "Lambda", "config": {
            "function": ["4wAAAA==", None, None], "function_type": "lambda"}}]},
    },
    "CVE-2024-55459 get_file": sequential(
        layer("Lambda", function=function("keras.utils", "get_file"),
              arguments={"origin": HOST, "extract": True})
    ),
    "CVE-2025-1550 a function as layer": functional(
        node(function(CANARY, "run"), "touch /tmp/x")
    ),
    "CVE-2025-1550 a module": sequential(layer("Popen", "subprocess", args=["touch", "/tmp/x"])),
    "CVE-2025-1550 a class in a parameter": sequential(
        dense(activation=layer("Runs", CANARY))
    ),
    "CVE-2025-8747 get_file": functional(
        node(layer("Lambda", function=function("keras.utils", "get_file"),
                   arguments={"origin": HOST}), fname="x")
    ),
    "CVE-2025-8747 load_model": functional(
        node(layer("Lambda", function=LOADS, arguments={"safe_mode": False}),
             inputs="/tmp/model.keras")
    ),
    "CVE-2025-9905 the legacy format": b"\x89HDF\r\n\x1a\n",
    "CVE-2025-9906 as layer": functional(
        node(function("keras.config", "enable_unsafe_deserialization"))
    ),
    "CVE-2025-9906 the attribute": functional(
        node(layer("Lambda", function=function(
            "keras.src.backend.common.global_state", "set_global_attribute"),
            arguments={"value": False}), inputs="safe_mode_saving")
    ),
    "CVE-2025-12058 a file": sequential(layer("StringLookup", vocabulary=__file__)),
    "CVE-2025-12058 an address": sequential(layer("StringLookup", vocabulary=HOST)),
    "CVE-2025-12058 whole numbers": sequential(layer("IntegerLookup", vocabulary=__file__)),
    "CVE-2025-12058 texts": sequential(layer("TextVectorization", vocabulary=__file__)),
    "CVE-2025-49655 a pickle": sequential(
        layer("TorchModuleWrapper", module={"class_name": "__bytes__", "config": {"value": "gASV"}})
    ),
    "CVE-2026-1462 a SavedModel": sequential(layer("TFSMLayer", filepath="/tmp/saved")),
    "CVE-2026-12481 outside the scope": sequential(layer("TimeDistributed", layer=LAMBDA)),
    "jax": sequential(layer("JaxLayer", call_fn=BYTECODE)),
    "flax": sequential(layer("FlaxLayer", module=BYTECODE)),
    "a type specification": sequential(dense(x={
        "class_name": "__typespec__", "spec_name": "S", "module": CANARY, "registered_name": None,
        "config": [],
    })),
}  # fmt: skip

# The same things where they are not looked for.
HIDDEN = {
    "in TimeDistributed": sequential(layer("TimeDistributed", layer=layer("Identity") | LAMBDA)),
    "in Bidirectional, backwards": sequential(
        layer("Bidirectional", layer=layer("LSTM", units=2), backward_layer=LAMBDA)
    ),
    "in a wrapper in a wrapper": sequential(
        layer("TimeDistributed", layer=layer("SpectralNormalization", layer=LAMBDA))
    ),
    "as a cell": sequential(layer("RNN", cell=LAMBDA)),
    "among cells": sequential(
        layer("RNN", cell=layer("StackedRNNCells", cells=[layer("LSTMCell", units=2), LAMBDA]))
    ),
    "in a nested model": sequential(sequential(functional(node(LAMBDA)))),
    "as an initializer": sequential(dense(kernel_initializer=LAMBDA)),
    "as an initializer's parameter": sequential(
        dense(kernel_initializer=layer("Constant", "keras.initializers", value=LAMBDA))
    ),
    "an initializer of a module": sequential(dense(bias_initializer=layer("Zeros", CANARY))),
    "as a regularizer": sequential(dense(activity_regularizer=layer("L2", CANARY))),
    "as a constraint": sequential(dense(kernel_constraint=function("os", "system"))),
    "as an activation": sequential(dense(activation=function("builtins", "eval"))),
    "an activation by name": sequential(dense(activation="os.system")),
    "an initializer by name": sequential(dense(bias_initializer=f"{CANARY}.run")),
    "as a dtype": sequential(dense(dtype=layer("DTypePolicy", CANARY))),
    "a dtype by name": sequential(dense(dtype=f"{CANARY}.run")),
    "a map of dtypes": sequential(dense(dtype=layer("DTypePolicyMap", "keras.dtype_policies"))),
    "a quantised dtype": sequential(
        dense(dtype=layer("QuantizedDTypePolicy", "keras.dtype_policies", mode="int8"))
    ),
    "in build_config": sequential({**dense(), "build_config": {"input_shape": [LAMBDA]}}),
    "in build_input_shape": {**sequential(), "config": {
        "name": "m", "layers": [], "build_input_shape": LAMBDA}},
    "as a shared object": sequential({**dense(), "shared_object_id": function(CANARY, "run")}),
    "behind a shared object's number": sequential(
        {**dense(), "shared_object_id": 1}, {**LAMBDA, "shared_object_id": 1}
    ),
    "by the registered name": sequential({**dense(), "registered_name": "package>Mine"}),
    "by the registered name of a Lambda": sequential({**dense(), "registered_name": "Lambda"}),
    "a registered name that is no text": sequential({**dense(), "registered_name": ["Dense"]}),
    "a private module of Keras": sequential(layer("Lambda", "keras.src.layers.core.lambda_layer")),
    "a subclass by its file": sequential(layer("Dense", "keras.src.layers.core.dense")),
    "a module below": sequential(layer("Dense", "keras.layers.core")),
    "a module with a blank": sequential(layer("Dense", "keras.layers ")),
    "a module in other letters": sequential(layer("Dense", "keras.lаyers")),
    "a class in other letters": sequential(layer("Lаmbda")),
    "a class below a class": sequential(layer("Dense.__init__")),
    "a dunder": sequential(layer("__class__")),
    "an operation in a Sequential": sequential(layer("Add", "keras.src.ops.numpy")),
    "an operation in a wrapper": sequential(
        layer("TimeDistributed", layer=layer("Relu", "keras.src.ops.nn"))
    ),
    "an operation that calls functions": functional(node(layer("Map", "keras.src.ops.core"))),
    "another class of that module": functional(node(layer("KerasTensor", "keras.src.ops.numpy"))),
    "a function of that module": functional(node(layer("add", "keras.src.ops.numpy"))),
    "a module below operations": functional(node(layer("Add", "keras.src.ops.numpy.os"))),
    "an operation by its registered name": functional(
        node(layer("Add", "keras.src.ops.numpy") | {"registered_name": "package>Mine"})
    ),
    "an object as an operation's argument": functional(
        node(layer("Mean", "keras.src.ops.numpy", axis=LAMBDA))
    ),
    "an object that an operation is called with": functional(
        node(layer("Add", "keras.src.ops.numpy"), LAMBDA)
    ),
    "an object in a slice": functional(
        node(layer("GetItem", "keras.src.ops.numpy"), {
            "class_name": "__slice__", "config": {"start": LAMBDA, "stop": None, "step": None}})
    ),
    "an object in an array": functional(
        node(layer("Add", "keras.src.ops.numpy"), {
            "class_name": "__numpy__", "config": {"value": [LAMBDA], "dtype": "float32"}})
    ),
    "an array of objects": functional(
        node(layer("Add", "keras.src.ops.numpy"), {
            "class_name": "__numpy__", "config": {"value": [1.0], "dtype": "object"}})
    ),
    "an expression that calls": sequential(dense(activation="expression:__import__('os').system(x)")),
    "an expression of a function": sequential(dense(activation=function("os", "expression:open(x)"))),
    "an object as a call's argument": functional(node(dense(), [[LAMBDA]])),
    "an object as a call's named argument": functional(node(dense(), mask={"a": [LAMBDA]})),
    "bytes as a call's argument": functional(
        node(dense(), {"class_name": "__bytes__", "config": {"value": "x"}})
    ),
    "a function as the model": function(CANARY, "run"),
    "a layer as the model": dense(),
    "an unknown key of an object": sequential({**dense(), "__reduce__": LAMBDA}),
}  # fmt: skip

WATCHED = """
import json, sys
from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.errors import CerebroError

seen, outcomes = [], []
texts = json.load(sys.stdin)
try:
    check_architecture("{}")  # what is imported once, is imported now
except CerebroError:
    pass
before = set(sys.modules)
sys.addaudithook(lambda event, arguments: seen.append(event))
for text in texts:
    try:
        check_architecture(text)
        outcomes.append("")
    except CerebroError as error:
        outcomes.append(error.message)
checked = list(seen)
seen.clear()
exec("open('/dev/null')")
sys.stdout.write(json.dumps(
    [outcomes, checked, list(seen), sorted(set(sys.modules) - before)]
))
"""


def test_nothing_runs_is_imported_or_read_while_attacks_are_refused(tmp_path: Path) -> None:
    """Python's own audit events tell; the last two show that they would have been seen."""
    (tmp_path / f"{CANARY}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    attacks = {**PUBLISHED, **HIDDEN}
    texts = [
        one if isinstance(one, str) else json.dumps(one, default=str) for one in attacks.values()
    ]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    outcomes, checked, control, modules = json.loads(done.stdout)
    assert [name for name, message in zip(attacks, outcomes, strict=True) if not message] == []
    assert set(checked) <= {
        "compile"
    }  # Python's parser, of expressions; nothing of them is executed
    assert {"compile", "exec", "open"} <= set(control)
    assert modules == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("attack", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published(attack: Any) -> None:
    with pytest.raises(InvalidArchitecture):
        check_architecture(attack if isinstance(attack, str | bytes) else json.dumps(attack))


@pytest.mark.parametrize("attack", HIDDEN.values(), ids=HIDDEN.keys())
def test_hidden(attack: Any) -> None:
    with pytest.raises(InvalidArchitecture):
        check_architecture(json.dumps(attack))


def test_the_allowed_form_of_each_passes() -> None:
    """So that what refuses the attacks is not something else in them."""
    harmless = sequential(
        layer("TimeDistributed", layer=dense()),
        dense(kernel_initializer=layer("Constant", "keras.initializers", value=1.0)),
        sequential(dense(dtype=layer("DTypePolicy", "keras") | {"config": {"name": "float32"}})),
        {**dense(), "shared_object_id": 1, "registered_name": "Dense"},
    )
    check_architecture(json.dumps(harmless))
    check_architecture(json.dumps(functional(node(dense(), mask=None))))
    check_architecture(json.dumps(functional(node(layer("Add", "keras.src.ops.numpy"), 1, 2))))
    check_architecture(json.dumps(sequential(dense(activation="expression:x * sigmoid(x)"))))


def with_text(text: str) -> str:
    """A model's JSON with something in it that ``json.dumps`` would not write."""
    return json.dumps(sequential(dense(extra="@"))).replace('"@"', text)


TEXTS = {
    "a key twice, harmless first": ('{"class_name": "Dense", "class_name": "Lambda"}', "given twice"),
    "NaN": ("NaN", "NaN is not a number"),
    "Infinity": ("-Infinity", "Infinity is not a number"),
    "beyond a float": ("1e400", "too large"),
    "a huge whole number": ("1" + "0" * 4000, "at most 2147483647"),
    "more digits than Python reads": ("1" * 5000, "not allowed JSON"),
    "half a surrogate pair": ('"\\ud800"', "not Unicode"),
    "the other half as a key": ('{"\\udc00": 1}', "not Unicode"),
    "NUL": ('"\\u0000"', "NUL"),
    "a long text": (json.dumps("x" * 1001), "1001 characters"),
    "a long key": (json.dumps({"k" * 10_000: 1}), "10000 characters"),
    "deep lists": ("[" * 99 + "]" * 99, "deeper than the 100"),
    "deeper lists": ("[" * 50_000 + "]" * 50_000, "nested too deeply|deeper than"),
    "deep objects": ('{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply|deeper than"),
    "not JSON after it": ("1}}}]]", "not allowed JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS.keys())
def test_texts(text: str, message: str) -> None:
    with pytest.raises(InvalidArchitecture, match=message) as caught:
        check_architecture(with_text(text))
    told = caught.value.message
    assert len(told) <= 4100
    assert told.encode("utf-8").isascii()
    assert "\0" not in told


LARGE = {
    "many lists": "[" + "[]," * 1_000_000 + "[]]",
    "many keys": json.dumps({str(number): 0 for number in range(200_000)}),
    "many objects": json.dumps([dense()] * 15_000),
    "names that are nearly right": json.dumps([dense(activation="relu" * 200)] * 3_000),
    "wrappers in wrappers": json.dumps([layer("TimeDistributed", layer=dense())] * 10_000),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_the_time_is_bounded(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(InvalidArchitecture):
        check_architecture(with_text(text) + " ", ArchitectureLimits(layers=1))
    with pytest.raises(InvalidArchitecture):
        check_architecture(with_text(text) + "!")
    assert time.monotonic() - started < stretched(30)


def test_every_call_of_a_shared_layer_counts() -> None:
    shared = {**node(dense()), "inbound_nodes": [{"args": [], "kwargs": {}}] * 11}
    text = json.dumps(functional(shared))
    check_architecture(text, ArchitectureLimits(layers=12))
    with pytest.raises(InvalidArchitecture, match="more than the 11 layers"):
        check_architecture(text, ArchitectureLimits(layers=11))


def test_python_loops_of_a_layer_are_bounded() -> None:
    wrapped = layer("SpectralNormalization", layer=dense(), power_iterations=1001)
    with pytest.raises(InvalidArchitecture, match="got 1001; at most 1000"):
        check_architecture(json.dumps(sequential(wrapped)))


@pytest.mark.parametrize("name", ["pool_size", "strides"])
def test_windows_are_bounded(name: str) -> None:
    """Native code counts in 32 bits; a pool of 2**31 - 1 with the padding 'same' ends the process."""
    for value in (2**31 - 1, [2, 2**15 + 1]):
        pool = layer("MaxPooling2D", padding="same", **{name: value})
        with pytest.raises(
            InvalidArchitecture, match=rf"{name}: got \d+; at most 32768 is allowed"
        ):
            check_architecture(json.dumps(sequential(pool)))
