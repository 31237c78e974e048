"""Writes parameters as text in MADlib's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The order of MADlib's documentation, followed by what is ours.
_COMPILE_ORDER = (
    "optimizer", "metrics", "loss", "loss_weights", "l1", "l2", "dropout", "freeze", "dtype_policy",
)  # fmt: skip
_FIT_ORDER = ("epochs", "batch_size", "shuffle", "class_weight", "callbacks", "verbose")


def optimizer_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns for example ``Adam(lr=0.001)``."""
    return f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"


def compile_text(values: Mapping[str, Any]) -> str:
    """Returns for example ``optimizer='Adam(lr=0.1)',metrics=['accuracy'],loss='mse'``."""
    return _text({**values, "metrics": _metrics(values.get("metrics"))}, _COMPILE_ORDER)


def fit_text(values: Mapping[str, Any]) -> str:
    """Returns for example ``epochs=10,batch_size=64``."""
    return _text(values, _FIT_ORDER)


def _text(values: Mapping[str, Any], order: tuple[str, ...]) -> str:
    known = [key for key in order if values.get(key) is not None]
    others = [key for key in values if key not in order and values[key] is not None]
    return ",".join(f"{key}={values[key]!r}" for key in (*known, *others))


def _metrics(value: object) -> list[Any] | dict[Any, Any] | None:
    """One metric or several make a list; a dictionary tells those of each output."""
    if value is None or isinstance(value, dict):
        return value
    return list(value) if isinstance(value, list | tuple) else [value]
