"""Calls of a server process, done one after another by a driver or a trainer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from cerebro_db.errors import OutOfMemory, RunInterrupted, TrainerBound
from cerebro_db.server.memory import know_functions
from cerebro_db.trainers.failures import described
from cerebro_db.trainers.lent import Plpy
from cerebro_db.trainers.link import CallerGone, Link
from cerebro_db.training.environment import lasting

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
    calls = _Calls(Plpy(link, **session), gd, after)
    try:
        while calls.usable:
            for answer in calls.answered(link.receive()):
                link.send(answer)
    except (CallerGone, RunInterrupted):
        return True
    return False


class _Calls:
    """Calls of one connection, of which some wait for no answer.

    Where such a one fails, those that follow are left out, until one waits: it gets the error.
    """

    def __init__(self, plpy: Plpy, gd: dict[str, Any], after: Callable[[], None]) -> None:
        self._plpy, self._gd, self._after = plpy, gd, after
        self._failed: dict[str, Any] | None = None
        self.usable = True

    def answered(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Do a call; what is to be sent then."""
        if call["begins"]:
            self._failed = None
        if self._failed is None:
            answer, self.usable = _done(self._plpy, self._gd, call)
            self._after()
        else:
            answer = self._failed
        if call["waits"]:
            self._failed = None
            yield answer
        elif self._failed is None and "error" in answer:
            self._failed = answer
            yield {"row_failed": True}


def _done(plpy: Plpy, gd: dict[str, Any], call: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The answer to a call, and whether more can be done here."""
    try:
        if "functions" in call:
            know_functions(gd, call["functions"])
        function = _function(call["call"])
        return {
            "result": function(plpy, gd, *call["arguments"], **call["named"]),
            "like": lasting(),
        }, True
    except Exception as error:
        # TensorFlow may end a process that has no memory left at its next tensor.
        spoiled = isinstance(error, OutOfMemory)
        anew = isinstance(error, TrainerBound)
        answer = {"error": described(error), "like": lasting(), "ends": spoiled, "anew": anew}
        return answer, not (spoiled or anew)


def _function(name: str) -> Callable[..., Any]:
    """An entry of a module of the package's server functions."""
    module, _, name = name.partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    if not getattr(found, "is_entry", False):
        raise LookupError(f"{name} is no entry")
    return found
