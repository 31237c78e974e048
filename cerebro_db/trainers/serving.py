"""Calls of a server process, done one after another by a driver or a trainer."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from cerebro_db.errors import OutOfMemory
from cerebro_db.server.memory import know_functions
from cerebro_db.trainers.failures import described
from cerebro_db.trainers.lent import Plpy
from cerebro_db.trainers.link import CallerGone, Link

_PACKAGE = "cerebro_db.server"


def serve(
    link: Link, session: dict[str, Any], gd: dict[str, Any], after: Callable[[], None]
) -> bool:
    """Do what comes, until nobody is there any more.

    Args:
        link: to the server process.
        session: facts about that process.
        gd: what this process keeps from call to call.
        after: called after each call, before its answer.

    Returns:
        Whether this process can go on to work for others.
    """
    plpy = Plpy(link, **session)
    failed: dict[str, Any] | None = None
    try:
        while True:
            call = link.receive()
            if call["begins"]:
                failed = None
            if failed is not None:
                if call["waits"]:
                    link.send({"error": failed})
                    failed = None
                continue
            answer, usable = _done(plpy, gd, call)
            after()
            if call["waits"]:
                link.send(answer)
            elif "error" in answer:
                failed = answer["error"]
                link.send({"row_failed": True})
            if not usable:
                return False
    except CallerGone:
        return True


def _done(plpy: Plpy, gd: dict[str, Any], call: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The answer to a call, and whether more can be done here."""
    try:
        if "functions" in call:
            know_functions(gd, call["functions"])
        function = _function(call["call"])
        return {"result": function(plpy, gd, *call["arguments"], **call["named"])}, True
    except Exception as error:
        # TensorFlow may end a process that has no memory left at its next tensor.
        spoiled = isinstance(error, OutOfMemory)
        return {"error": described(error), "ends": spoiled}, not spoiled


def _function(name: str) -> Callable[..., Any]:
    """An entry of a module of the package's server functions."""
    module, _, name = name.partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    if not getattr(found, "is_entry", False):
        raise LookupError(f"{name} is no entry")
    return found
