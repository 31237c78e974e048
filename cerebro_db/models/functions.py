"""Registered functions that the configurations of a run use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.custom import PREFIX, bare_name, is_custom
from cerebro_db.core.spec import Configuration
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.sessions import Session

_KNOWN = "SELECT name, path, package, version, places FROM cerebro.registered_functions"
_PLACES = 2


def functions_of(
    session: Session, configurations: Iterable[Configuration]
) -> dict[str, dict[str, Any]]:
    """Path, package and version of what configurations use, by name: a part of the manifest.

    Raises:
        InvalidArgument: a function is not registered, or takes too few arguments.
    """
    used = [(c.mst_key, *pair) for c in configurations for pair in _used(c)]
    if not used:
        return {}
    known = {row[0]: row[1:] for row in session.run(_KNOWN)}
    for mst_key, name, as_schedule in used:
        what = f"configuration {mst_key}: got {PREFIX}{name}"
        if name not in known:
            hint = (
                nearest(name, known) if known else "cerebro.cerebro_register_function registers one"
            )
            raise InvalidArgument(f"{what}; allowed: a function that is registered", hint=hint)
        if not as_schedule and known[name][3] < _PLACES:
            raise InvalidArgument(
                f"{what}, a function of one argument; allowed for a loss or metric: (y_true, y_pred)"
            )
    return {
        name: dict(zip(("path", "package", "version"), known[name][:3], strict=True))
        for name in sorted({name for _, name, _ in used})
    }


def _used(configuration: Configuration) -> Iterator[tuple[str, bool]]:
    """Names, and whether each is a schedule."""
    for output in configuration.outputs:
        for name in (output.loss.name, *(metric.name for metric in output.metrics)):
            if is_custom(name):
                yield bare_name(name), False
    for callback in configuration.fit_params.callbacks:
        if callback.schedule is not None and is_custom(callback.schedule.name):
            yield bare_name(callback.schedule.name), True
