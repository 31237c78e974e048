"""Calls of SQL functions, handed to processes beside the server."""

import json
import os
import sys
import time
from array import array
from typing import Any, Dict, List, Tuple

from . import backend, machine, surroundings
from .failures import failure
from .keepers import (
    DRIVER_SECONDS,
    CannotStart,
    Installation,
    Process,
    connected,
    end_by_force,
    postmortem,
)
from .services import CANCELLED, Services
from .wire import DRIVER, TRAINER, Closed

PREPARE = -1  # kind of a row that makes a trainer ready
LOST, NO_KEEPER = "YC001", "YC002"
SESSION_LOST = "57P02"  # as the server says it, where it can
_LOST_HINT = "call the function again; the log of its keeper may tell more"
_MOST_DRIVERS = 100  # for one call, of which each one was lost
# Bytes of what becomes an array in the server's own process.
MOST_NUMBERS_BYTES = 16 * 2**20
_MOST_TRAINERS = 1000  # for one call, of which each one was idle and has limits that hold no longer


class Relay:
    """Calls of this server process.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
        installation: arguments of ``Installation``, by name.
    """

    def __init__(self, plpy: Any, installation: Dict[str, Any]) -> None:
        self._plpy = plpy
        self.told = dict(installation)
        self._installation = Installation(**installation)
        self._trainers: Dict[Any, Process] = {}  # by the owner of the trainer
        self._rows: List[Tuple[Any, Any]] = []  # names and data, until a batch of them is there
        self._plans: Dict[Any, Any] = {}  # of the server, by text and types
        # JSON of the registered functions, and of settings for peers, as the catalog has them.
        self._functions = self._network = None

    # -- calls -------------------------------------------------------------------
    def driver(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Have a process of its own do the work of a function that users call.

        After a cancel it ends its work in order, within some seconds; then it is ended by force. One
        that is lost is replaced, if it has left word how to go on.

        Args:
            name: module and function, such as ``fitting.fit``.
            arguments, named: of the function.
        """
        again = None
        with backend.deferred():
            for _ in range(_MOST_DRIVERS):
                process = self._connected(DRIVER, {})
                process.again = again
                try:
                    process.send(_call(name, arguments, named))
                    return self._result(self._answer(process))
                except Closed:
                    if process.again is None:
                        raise self._lost(process)
                    again = process.again
                    (name, arguments), named = again, {}
                finally:
                    process.close()
            raise self._lost(process)

    def trainer(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Have the trainer of this process do something, and wait for what comes of it.

        A call that is cancelled ends the connection, and a trainer that does not notice that soon.

        Args:
            name: module and function, such as ``training.prepare``.
            arguments, named: of the function.
            like: settings that a trainer makes once in its life; any trainer will do where none are given.
        """
        with backend.deferred():
            return self._ask(_call(name, arguments, named), named.pop("like", None))

    def step(self, name: str, token: Any, waits: bool, *arguments: Any, **options: Any) -> Any:
        """Hand a row of an aggregate to the trainer.

        Args:
            name: of the function.
            token: of the work under way, None before it begins.
            waits: whether to wait for the answer. Otherwise the trainer may still be at earlier
                rows; an error of it comes with a later one, or with the end of the aggregate. Where
                the statement ends before, nobody is notified.
            arguments: of the row.
            like: as above.

        Returns:
            The answer, or the token where nothing is waited for.
        """
        call = _call(name, (token,) + arguments, {}, begins=token is None)
        with backend.deferred():
            if waits:
                if token is None:
                    machine.keep_freed_memory()
                return self._ask(call, **options)
            trainer = self._trainers.get(tuple(backend.owner()))
            if trainer is None:
                raise failure(self._plpy, LOST, "the trainer of this session is gone", _LOST_HINT)
            if trainer.has_message:  # nothing comes unasked but that a row failed, or the end
                return self._ask(call)
            self._exchange(trainer, dict(call, waits=False))
            return token

    def waits_for_more(self, most: Any, name: Any, data: Any) -> bool:
        """Keep a row until a batch is full; whether it is not yet.

        Args:
            most: rows of a batch.
            name, data: of the row; one without any of these goes to the trainer, which refuses it.
        """
        if most is None or name is None or data is None:
            return False
        self._rows.append((name, data))
        return bool(len(self._rows) < most)

    def kept_rows(self) -> Tuple[List[Any], List[int], bytes]:
        """Names, sizes and data of the rows that were kept, which begin anew."""
        rows, self._rows = self._rows, []
        datas = [data for _, data in rows]
        return [name for name, _ in rows], [len(data) for data in datas], b"".join(datas)

    @staticmethod
    def like(kind: Any, task: Any) -> Any:
        """Settings that a trainer makes once in its life, of a task that prepares it; None of others."""
        if kind != PREPARE:
            return None
        try:
            given = dict(json.loads(task or "{}"))
        except (TypeError, ValueError, RecursionError):  # the trainer refuses it
            return None
        threads = given.get("threads")
        return None if threads is None else [threads, bool(given.get("use_gpus"))]

    def know(self, functions: Any) -> None:
        """Remember what is registered, as JSON, for the trainers of this process."""
        self._functions = functions

    def know_network(self, settings: Any) -> None:
        """Remember the network that trainers of this process have, as JSON of settings."""
        self._network = settings

    def surroundings(self) -> List[Tuple[str, str, Any]]:
        """Limits of this machine: name, value, and a warning or None."""
        return surroundings.found(self._installation)

    def numbers(self, data: Any, code: str) -> Any:
        """The numbers of four bytes each that a column of a packed table holds; None of NULL.

        Args:
            data: little-endian.
            code: ``f`` for float32, ``i`` for int32.
        """
        if data is None:
            return None
        if len(data) > MOST_NUMBERS_BYTES:
            raise failure(
                self._plpy,
                "22023",
                "data: got {} bytes; allowed: up to {}, as an array of them takes 25 times as much memory".format(
                    len(data), MOST_NUMBERS_BYTES
                ),
                "take a part: substring(data FROM 1 FOR {})".format(MOST_NUMBERS_BYTES),
            )
        if len(data) % 4:
            raise failure(
                self._plpy,
                "22023",
                "data: got {} bytes; allowed: four for each number".format(len(data)),
                "give a bytea column of a packed table",
            )
        found = array(code, data)
        if sys.byteorder == "big":
            found.byteswap()
        return found.tolist()

    cores = staticmethod(machine.cores)
    memory_mb = staticmethod(machine.memory_mb)
    writing_role = staticmethod(Services.writing_role)

    # -- inside ------------------------------------------------------------------
    def _ask(self, call: Dict[str, Any], like: Any = None) -> Any:
        for _ in range(_MOST_TRAINERS):
            trainer = self._own_trainer(like)
            known = {"functions": self._functions, "network": self._network}
            if trainer.knows != known:
                trainer.knows = known
                call.update(known)
            answer = self._exchange(trainer, call)
            if not answer.get("anew"):
                break
        return self._result(answer)

    def _exchange(self, trainer: Process, call: Dict[str, Any]) -> Any:
        """Send a call, and wait for the answer if there is to be one; an interrupted one ends the trainer."""
        statement = backend.statement_began()
        # The error of a row that waited for no answer is raised in its own statement, or never.
        call["begins"] = call["begins"] or statement != trainer.last_asked_in
        trainer.asked_in = trainer.last_asked_in = statement
        try:
            trainer.send(call)
            answer = self._answer(trainer) if call["waits"] else None
        except Closed:
            self._drop(trainer)
            raise self._lost(trainer)
        except BaseException:
            self._drop(trainer)
            raise
        trainer.asked_in = None
        if answer is not None:
            trainer.like = answer["like"]
            if answer.get("ends") or answer.get("anew"):
                self._drop(trainer)
        return answer

    def _own_trainer(self, like: Any) -> Process:
        """The trainer of the role whose rights count now."""
        owner = tuple(backend.owner())
        trainer = self._trainers.get(owner)
        if trainer is not None and like is not None and trainer.like not in (None, like):
            self._drop(trainer)
            trainer = None
        if trainer is not None and trainer.asked_in is not None:
            # An error of a segment jumps over the frames that would have ended the call; in the same
            # statement it is still under way, and this one is part of what the trainer has asked for.
            if trainer.asked_in != backend.statement_began():
                self._drop(trainer)
            trainer = None
        if trainer is None:
            trainer = self._trainers[owner] = self._connected(TRAINER, {"like": like})
        return trainer

    def _connected(self, kind: str, wanted: Dict[str, Any]) -> Process:
        session = {
            "pid": os.getpid(),
            "segment": backend.segment(),
            "asks_nothing": backend.raises_interrupts(),
        }
        hello = dict(wanted, owner=backend.owner(), session=session)
        try:
            return connected(self._installation, kind, hello, self._listen)
        except CannotStart as error:
            raise failure(self._plpy, NO_KEEPER, error.message, error.hint)

    def _drop(self, trainer: Process) -> None:
        trainer.close()
        self._trainers = {
            owner: known for owner, known in self._trainers.items() if known is not trainer
        }

    def _lost(self, process: Process) -> BaseException:
        found = postmortem(self._installation, process.kind, process.pid, self._listen)
        return failure(
            self._plpy, LOST, "the {} {}".format(process.kind, found or "has ended"), _LOST_HINT
        )

    def _listen(self) -> None:
        """Look for interrupts; whoever leads this session, if somebody does, hears that it is lost.

        A process of a segment tells the coordinator so, when the segment has died.
        """
        try:
            backend.listen(self._plpy)
        except backend.ClientGone as error:
            raise failure(self._plpy, SESSION_LOST, str(error), "connect again")

    def _answer(self, process: Process) -> Dict[str, Any]:
        """The answer to a call; until it comes, what the process asks for is done."""
        services = Services(self._plpy, self._plans)
        if process.kind == DRIVER:
            process.listen = services.interrupts = _Interrupts(
                process, lambda: backend.listen(self._plpy), services, self._end_driver
            )
        try:
            while True:
                message = process.receive()
                if "result" in message or "error" in message:
                    _raise_again(message, services)
                    return message
                if "again" in message:
                    process.again = message["again"]
                elif "row_failed" not in message:
                    services.serve(message, process)
                if process.kind == DRIVER:  # one that never lets this process wait is heard too
                    process.listen()
        finally:
            process.listen = self._listen
            services.leave()

    def _end_driver(self, driver: Process, cause: Dict[str, Any]) -> None:
        """End a driver that has not ended its work after an interrupt, and the call with it."""
        end_by_force(self._installation, DRIVER, driver.pid)
        sqlstate = cause["sqlstate"] or SESSION_LOST
        if sqlstate == CANCELLED:
            backend.cancel_is_told()
        message = "{}: the driver did not end within {} s and was ended by force".format(
            cause["message"], DRIVER_SECONDS
        )
        raise failure(self._plpy, sqlstate, message, _left_by(driver))

    def _result(self, answer: Dict[str, Any]) -> Any:
        if "error" not in answer:
            return answer["result"]
        error = answer["error"]
        if error["log"]:  # the standard error of a server process is the server's log
            sys.stderr.write(error["log"])
            sys.stderr.flush()
        if error["sqlstate"] == CANCELLED:
            backend.cancel_is_told()
        raise failure(
            self._plpy, error["sqlstate"], error["message"], error["hint"], error["detail"]
        )


class _Interrupts(object):
    """Interrupts of a call while its driver works.

    The driver is notified of the first one and answers within some seconds, or is ended by force. An
    interrupt that ends this process itself is acted on at once.

    Args:
        driver: connection to it.
        listen: raises an interrupt that is there.
        services: keep the errors that the driver is notified of.
        end: ends the driver and raises the error of the call, which is described.
    """

    def __init__(self, driver: Process, listen: Any, services: Services, end: Any) -> None:
        self._driver, self._listen, self._services, self._end = driver, listen, services, end
        self._first: Any = None
        self._is_sent = False
        self._deadline = 0.0

    def __call__(self) -> None:
        """Look for interrupts, and whether the driver has had its time."""
        try:
            self._listen()
        except BaseException as error:
            if backend.is_ending():
                raise
            self.came(error)
        if self._first is not None and time.monotonic() > self._deadline:
            self._end(self._driver, self._first)
        self._send()

    def came(self, error: BaseException) -> None:
        """Handle an interrupt: the driver is notified, unless it knows of one already."""
        if self._first is None:
            self._begin(self._services.described(error))
            self._send()

    def is_known(self, described: Dict[str, Any]) -> None:
        """An interrupt has come that ends what the driver waits for, so that it knows of it."""
        if self._first is None:
            self._is_sent = True
            self._begin(described)

    def _begin(self, described: Dict[str, Any]) -> None:
        self._first, self._deadline = described, time.monotonic() + DRIVER_SECONDS

    def _send(self) -> None:
        if self._first is not None and not (self._is_sent or self._driver.is_sending):
            self._is_sent = True
            self._driver.send({"cancel": self._first})


def _left_by(driver: Process) -> str:
    """Hint on what a driver has left that was ended by force."""
    if driver.again is None:
        return "what it has left is dropped by the next call that makes the same table"
    run_id = driver.again[1][0]
    return "the run goes on where it was: SELECT cerebro.cerebro_resume({})".format(run_id)


def _raise_again(answer: Dict[str, Any], services: Services) -> None:
    """Raise the very error of the server that has ended a call."""
    number = answer.get("error", {}).get("number")
    if number is not None:
        raise services.errors[number]


def _call(
    name: str, arguments: Tuple[Any, ...], named: Dict[str, Any], begins: bool = False
) -> Dict[str, Any]:
    return {
        "call": name, "arguments": arguments, "named": named, "waits": True, "begins": begins,
    }  # fmt: skip
