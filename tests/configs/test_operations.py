"""Operations between layers: which are allowed, with which arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
from cerebro_db.configs.architectures.freezing import with_frozen, with_policy
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.grids.outputs import output_names
from cerebro_db.errors import InvalidArchitecture
from tests.networks import layer, tensor

NUMPY, NN, CORE = "keras.src.ops.numpy", "keras.src.ops.nn", "keras.src.ops.core"


def operation(kind: str, module: str = NUMPY, args: Any = None, **config: Any) -> dict[str, Any]:
    """A model of one operation between its input and a layer."""
    given = [tensor("rows", 4)] if args is None else args
    middle = {
        "module": module, "class_name": kind, "config": config, "registered_name": kind, "name": "op",
        "inbound_nodes": [{"args": given, "kwargs": {}}],
    }  # fmt: skip
    return model(
        middle, layer("Dense", "last", [{"args": [tensor("op", 4)], "kwargs": {}}], units=2)
    )


def model(*layers: dict[str, Any], **ends: Any) -> dict[str, Any]:
    rows = layer("InputLayer", "rows", [], batch_shape=[None, 4], dtype="float32")
    config = {
        "name": "net", "layers": [rows, *layers], "input_layers": [["rows", 0, 0]],
        "output_layers": [["last", 0, 0]],
    } | ends  # fmt: skip
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": config,
        "registered_name": "Functional",
    }


def check(given: dict[str, Any], **limits: int) -> dict[str, Any]:
    return check_architecture(json.dumps(given), ArchitectureLimits(**limits))


def part(start: Any = None, stop: Any = None, step: Any = None) -> dict[str, Any]:
    return {"class_name": "__slice__", "config": {"start": start, "stop": stop, "step": step}}


def array(value: Any, kind: str = "__numpy__", dtype: str = "float32") -> dict[str, Any]:
    return {"class_name": kind, "config": {"value": value, "dtype": dtype}}


ROWS = tensor("rows", 4)
DOTS = {"class_name": "__ellipsis__", "config": {}}
ALLOWED = [
    operation("Add", args=[ROWS, 3.0]),
    operation("Subtract", args=[1, ROWS]),
    operation("Multiply", args=[ROWS, array([1.0, 2.0, 3.0, 4.0])]),
    operation("Multiply", args=[ROWS, array([[1, 2, 3, 4]], "__tensor__")]),
    operation("GetItem", args=[ROWS, [part(), part(0, 2), None, DOTS]]),
    operation("GetItem", args=[ROWS, [part(), 0]]),
    operation("Mean", axis=[1, 2], keepdims=True),
    operation("Mean", axis=None, keepdims=False, name="mean"),
    operation("Einsum", args=[ROWS, ROWS], subscripts="bi,bj->bij"),
    operation("Concatenate", args=[[ROWS, ROWS]], axis=-1),
    operation("Reshape", newshape=[-1, 2, 2]),
    operation("Clip", x_min=-1.0, x_max=1),
    operation("Pad", pad_width=[[0, 0], [1, 1]], mode="constant"),
    operation("Split", indices_or_sections=2, axis=1),
    operation("Split", indices_or_sections=[1, 3], axis=1),
    operation("Tensordot", args=[ROWS, ROWS], axes=[[1], [1]]),
    operation("Gelu", NN, approximate=False),
    operation("OneHot", NN, num_classes=3, axis=-1, dtype="float32", sparse=False),
    operation("Cast", CORE, dtype="float16"),
    operation("ReLU", "keras.src.activations.activations", negative_slope=0.1, max_value=None, threshold=0.0),
    operation("Norm", "keras.src.ops.linalg", ord=None, axis=-1, keepdims=True),
]  # fmt: skip


@pytest.mark.parametrize("given", ALLOWED, ids=lambda one: one["config"]["layers"][1]["class_name"])
def test_allowed(given: dict[str, Any]) -> None:
    assert fingerprint(check(given)) == fingerprint(check(given))


REFUSED = [
    (operation("Add", args=[ROWS, "text"]), "got the text 'text'"),
    (operation("Add", args=[ROWS, part()]), "in an index of a tensor only"),
    (operation("Add", args=[ROWS, 2**40]), "at most 2147483647"),
    (operation("Add", args=[ROWS, array("os.system")]), "other things than numbers"),
    (operation("Add", args=[ROWS, array([[1.0], "a"])]), "other things than numbers"),
    (operation("Add", args=[ROWS, array([1.0], dtype="object")]), "dtype 'object'"),
    (operation("Add", args=[ROWS, {**array([1.0]), "module": "os"}]), "an array that"),
    (operation("Add", other=1), r"argument 'other' of Add; allowed: name"),
    (operation("GetItem", args=[ROWS, [part("0")]]), "as a slice"),
    (operation("GetItem", args=[ROWS, [part(True)]]), "as a slice"),
    (operation("GetItem", args=[ROWS, [{**part(), "module": "os"}]]), "as a slice"),
    (
        operation("GetItem", args=[ROWS, [{"class_name": "__ellipsis__", "config": {"a": 1}}]]),
        "slice",
    ),
    (operation("Mean", axis="1"), "an axis, a list of axes or null"),
    (operation("Mean", axis=[1] * 33), "an axis, a list of axes or null"),
    (operation("Mean", axis=2**31), "an axis, a list of axes or null"),
    (operation("Mean", keepdims=1), "True or False"),
    (operation("Mean", name=3), "argument 'name'"),
    (operation("Einsum", subscripts="bi;bj"), "subscripts such as"),
    (operation("Einsum", subscripts="b" * 201), "subscripts such as"),
    (operation("Reshape", newshape=[-2]), "from -1"),
    (operation("Reshape", newshape=[None, 2]), "from -1"),
    (operation("Repeat", repeats=0), "from 1"),
    (operation("Pad", pad_width=[-1, 1]), "from 0"),
    (operation("Pad", pad_width=1, mode="wrap"), "one of"),
    (operation("Split", indices_or_sections=1001), "up to 1000"),
    (operation("Unstack", CORE, num=1001), "to 1000"),
    (operation("OneHot", NN, num_classes=3, sparse=True), "must be false"),
    (operation("Cast", CORE, dtype="string"), "one of"),
    (operation("Cast", CORE, dtype="mixed_float16"), "one of"),
    (operation("Norm", "keras.src.ops.linalg", ord=2), "one of 'fro'"),
    (operation("Map", CORE), "operation 'Map' of the module"),
    (operation("WhileLoop", CORE), "operation 'WhileLoop'"),
    (operation("VectorizedMap", CORE), "operation 'VectorizedMap'"),
    (operation("Adds"), "operation 'Adds'"),
    (operation("Add", "keras.src.ops.nn"), "operation 'Add' of the module 'keras.src.ops.nn'"),
    (operation("Add", "keras.src.ops.numpy.x"), "which is not allowed"),
    (operation("Operation", "keras.src.ops.operation"), "which is not allowed"),
    (operation("Sequential", "keras.src.activations.activations"), "which is not allowed"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArchitecture, match=message) as refused:
        check(given)
    assert len(refused.value.message) < 1000


def test_custom_operations_are_refused() -> None:
    given = operation("Add", args=[ROWS, 1])
    given["config"]["layers"][1]["registered_name"] = "package>Add"
    with pytest.raises(InvalidArchitecture, match="custom objects"):
        check(given)
    given["config"]["layers"][1] |= {"registered_name": "Add", "config": [1]}
    with pytest.raises(InvalidArchitecture, match="must be a JSON object"):
        check(given)


def test_calls_of_operations_count_as_layers() -> None:
    given = operation("Add", args=[ROWS, 1])
    given["config"]["layers"][1]["inbound_nodes"] *= 5
    check(given, layers=8)  # the model, its input, a layer, and five
    with pytest.raises(InvalidArchitecture, match="more than the 7 layers"):
        check(given, layers=7)


def test_operations_share_names_with_layers_but_are_none() -> None:
    """``Add`` of keras.ops takes no dtype and has nothing to freeze."""
    given = check(operation("Add", args=[ROWS, 1.0]))
    for changed in (with_policy(given, "mixed_float16"), with_frozen(given, ("*",))):
        assert changed["config"]["layers"][1] == given["config"]["layers"][1]
    assert with_policy(given, "mixed_float16")["config"]["layers"][2]["config"]["dtype"]


def several(inputs: Any, outputs: Any) -> dict[str, Any]:
    other = layer("InputLayer", "other", [], batch_shape=[None, 4], dtype="float32")
    heads = [
        layer("Dense", name, [{"args": [tensor(of, 4)], "kwargs": {}}], units=2)
        for name, of in (("last", "rows"), ("first", "other"))
    ]
    return model(other, *heads, input_layers=inputs, output_layers=outputs)


ENDS = ["rows", 0, 0], ["other", 0, 0], ["last", 0, 0], ["first", 0, 0]


def test_dictionaries_of_inputs_and_outputs_are_lists_in_the_order_of_their_names() -> None:
    rows, other, last, first = ENDS
    given = check(several({"z": rows, "a": other}, {"y": last, "b": first}))
    assert given["config"]["input_layers"] == [other, rows]
    assert output_names(given) == ("first", "last")
    assert fingerprint(given) == fingerprint(check(several([other, rows], [first, last])))


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"a": [ENDS[0], ENDS[1]], "b": ENDS[1]}, [ENDS[2]]),
        ([[ENDS[0], ENDS[1]]], [ENDS[2]]),
        ([ENDS[0], {"a": ENDS[1]}], [ENDS[2]]),
        ([ENDS[0], ENDS[1]], {"a": {"b": ENDS[2]}}),
        ([ENDS[0], ENDS[1]], [[ENDS[2], ENDS[3]]]),
    ],
)
def test_nested_inputs_and_outputs_are_refused(inputs: Any, outputs: Any) -> None:
    with pytest.raises(InvalidArchitecture, match=r"are nested; allowed: one") as refused:
        check(several(inputs, outputs))
    assert "keras.Model" in (refused.value.hint or "")
