"""How layers of a functional Keras 2 model are called, in the form of Keras 3.

Keras 2 writes a tensor as ``[layer, call, output]``, and a call as a list of tensors, of which each
has the named arguments of the call as a fourth element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from cerebro_db.configs.architecture_limits import refuse
from cerebro_db.configs.messages import shown

Starts = Mapping[str, int]


def calls(value: Any, starts: Starts, place: str, *, recurrent: bool) -> list[dict[str, Any]]:
    """The calls of a layer.

    Args:
        value: ``inbound_nodes``.
        starts: number of the first call of each layer.
        place: for messages.
        recurrent: whether further tensors are states to begin with.
    """
    if not isinstance(value, list):
        _refuse(place, value)
    found = [_call(node, starts, place) for node in value]
    return [_with_states(call) for call in found] if recurrent else found


def _with_states(call: dict[str, Any]) -> dict[str, Any]:
    (inputs,) = call["args"]
    if not isinstance(inputs, list):
        return call
    return {"args": [inputs[0]], "kwargs": {**call["kwargs"], "initial_state": inputs[1:]}}


def ends(value: Any, starts: Starts, place: str) -> Any:
    """Inputs or outputs of a model: one tensor, or a list of several."""
    if _is_reference(value):
        return _history(value, starts)
    if not isinstance(value, list) or not value or not all(map(_is_reference, value)):
        _refuse(place, value)
    found = [_history(reference, starts) for reference in value]
    return found[0] if len(found) == 1 else found


def _call(node: Any, starts: Starts, place: str) -> dict[str, Any]:
    references = [node] if _is_reference(node) else node
    if not isinstance(references, list) or not references:
        _refuse(place, node)
    for reference in references:
        if not _is_reference(reference):
            _refuse(place, reference)
    tensors = [_tensor(reference, starts) for reference in references]
    named = references[-1][3] if len(references[-1]) == 4 else {}
    return {
        "args": [tensors[0] if len(tensors) == 1 else tensors],
        "kwargs": {key: _argument(value, starts, place) for key, value in named.items()},
    }


def _argument(value: Any, starts: Starts, place: str) -> Any:
    if _is_reference(value):
        return _tensor(value, starts)
    if isinstance(value, list):
        return [_argument(element, starts, place) for element in value]
    if value is not None and not isinstance(value, bool | int | float):
        _refuse(place, value)
    return value


def _tensor(reference: list[Any], starts: Starts) -> dict[str, Any]:
    # Keras looks at where it comes from only, and takes shape and type from there.
    history = _history(reference, starts)
    config = {"shape": [], "dtype": "float32", "keras_history": history}
    return {"class_name": "__keras_tensor__", "config": config}


def _history(reference: list[Any], starts: Starts) -> list[Any]:
    name, call, output = reference[:3]
    return [name, max(call - starts.get(name, 0), 0), output]


def _is_reference(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (3, 4):
        return False
    whole = all(type(number) is int and number >= 0 for number in value[1:3])
    return isinstance(value[0], str) and whole and (len(value) == 3 or isinstance(value[3], dict))


def _refuse(place: str, value: Any) -> NoReturn:
    refuse(
        f"the JSON of Keras 2 cannot be converted: {place}: got {shown(value)}; allowed are tensors "
        "as [layer, call, output], numbers and null"
    )
