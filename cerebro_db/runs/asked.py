"""Requests as they are in the catalog: whoever owns a run may have written anything there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.core.decisions import NOBODY, Asked
from cerebro_db.errors import InvalidArgument
from cerebro_db.requests.searching import space_of

_MOST = 2**31 - 1


def asked_of(request_id: int, action: str, mst_key: int | None, who: str, detail: str) -> Asked:
    """A request, all of whose parts are of their types; others are left out.

    Args:
        request_id, action, mst_key, who: as the catalog has them.
        detail: JSON.

    Raises:
        InvalidArgument: it is no request.
    """
    parts = _PARTS.get(action)
    if parts is None:
        raise InvalidArgument(
            f"action: got {action!r} of a configuration; allowed: {', '.join(_PARTS)}"
        )
    given = _read(detail)
    found = {}
    for name, (words, fits) in parts.items():
        value = given.get(name)
        if not fits(value):
            raise InvalidArgument(f"{action}: got {name} {shown(value)}; allowed: {words}")
        if value is not None:
            found[name] = value
    if action == "narrow":
        space_of(found["model_ids"], found["compile_params_grid"], found["fit_params_grid"])
    return Asked(request_id, action, mst_key or NOBODY, who, found)


def _read(detail: str) -> Mapping[str, Any]:
    try:
        given = json.loads(detail)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists
        given = None
    if not isinstance(given, dict):
        raise InvalidArgument(f"detail: got {shown(detail)}; allowed: an object of JSON")
    return given


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST


def _is_count(value: Any) -> bool:
    return value is None or (_is_whole(value) and value >= 1)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_row(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and _is_whole(value[0])
        and isinstance(value[1], str)
        and isinstance(value[2], str)
        and _is_count(value[3])
    )


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_row, value))


def _are_models(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_whole, value))


def _are_counts(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict)
        and all(_is_count(one) and one is not None for one in value.values())
    )


def _are_seconds(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    )


_COUNT = "a whole number from 1, or null", _is_count
_TEXT = "a text, or null", _is_text
_GRID = "a text", lambda value: isinstance(value, str)
_Part = tuple[str, Callable[[Any], bool]]
_PARTS: Mapping[str, Mapping[str, _Part]] = MappingProxyType(
    {
        "cancel": {},
        "stop": {},
        "add": {"rows": ("lists of model_id, compile_params, fit_params and epochs", _are_rows)},
        "clone": {"compile_params": _TEXT, "fit_params": _TEXT, "epochs": _COUNT},
        "narrow": {
            "model_ids": ("whole numbers", _are_models),
            "compile_params_grid": _GRID,
            "fit_params_grid": _GRID,
        },
        "extend": {
            "params": ("whole numbers from 1 by name", _are_counts),
            "max_seconds": ("a number above 0", _are_seconds),
            "max_epochs": _COUNT,
            "max_configurations": _COUNT,
        },
    }
)
