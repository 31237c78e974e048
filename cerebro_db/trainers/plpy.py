"""The module plpy for functions that run beside the server: each of its calls is a message to the server process."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cerebro_db.errors import RunInterrupted
from cerebro_db.relay.wire import Closed, exactly, received, send

# Rows that wait: the server's process reads ahead so far while the trainer computes.
_MOST_BYTES = 64 * 2**20


class CallerGone(BaseException):
    """The server process of this call has gone. No ``Exception``, which much would catch."""


class Link:
    """Messages to and from a server process.

    Args:
        sock: connected socket; closed with the link.
        gone: makes what is raised where nobody is there any more.
        alone: tells the keeper that this process goes on without its caller.
    """

    def __init__(
        self,
        sock: socket.socket,
        gone: Callable[[], BaseException] = CallerGone,
        alone: Callable[[], None] | None = None,
    ) -> None:
        self._gone, self._alone = gone, alone
        sock.setblocking(True)
        self._socket = sock
        self._messages: deque[tuple[dict[str, Any], int]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._ended = False
        self._cancel: dict[str, Any] | None = None
        self._poller = select.poll()
        self._poller.register(sock, select.POLLRDHUP)
        threading.Thread(target=self._read, name="messages", daemon=True).start()

    def receive(self) -> dict[str, Any]:
        """The next message.

        Raises:
            CallerGone: there is none, and nobody to send one.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._ended)
            if not self._messages:
                raise self._gone()
            message, size = self._messages.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return message

    def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises:
            CallerGone: nobody is there.
        """
        try:
            send(self._socket, message)
        except OSError:
            raise self._gone() from None

    def cancelled(self) -> dict[str, Any] | None:
        """The caller's request to end the call; returned once.

        Raises:
            CallerGone: nobody waits for it.
        """
        if self._ended or self._poller.poll(0):
            raise self._gone()
        cancel, self._cancel = self._cancel, None
        return cancel

    def leave(self, answer: dict[str, Any]) -> None:
        """Give the answer, and go on without whoever gets it."""
        assert self._alone is not None
        self._alone()
        self.send(answer)
        self.close()

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._changed:
            self._ended = True
            self._messages.clear()
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            while not self._ended:
                self._take()
        except (Closed, OSError):
            pass
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self) -> None:
        size = 0

        def receive(count: int) -> bytes:
            nonlocal size
            size += count
            return _exactly(self._socket, count)

        message: dict[str, Any] = received(receive)
        if "cancel" in message:
            self._cancel = message["cancel"]
            return
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._bytes <= _MOST_BYTES)
            self._messages.append((message, size))
            self._bytes += size
            self._changed.notify_all()


def _exactly(sock: socket.socket, count: int) -> bytes:
    """So many bytes; where they come at once, without a copy of them.

    Raises:
        Closed: the other side is gone.
    """
    data = sock.recv(count, socket.MSG_WAITALL) if count else b""
    return data if len(data) == count else data + exactly(count - len(data), sock.recv_into)


class ServerError(Exception):
    """An error of the server, in a statement or because the call was cancelled.

    Args:
        failure: sqlstate, message, detail, hint, and the number by which the server process knows it.
    """

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(failure["message"])
        self.sqlstate: str = failure["sqlstate"]
        self.message: str = failure["message"]
        self.detail: str | None = failure["detail"]
        self.hint: str | None = failure["hint"]
        self.number: int = failure["number"]


@dataclass(frozen=True)
class Plan:
    """A statement with the types of its parameters; the server process prepares it once."""

    query: str
    types: tuple[str, ...]


class Rows(list[dict[str, Any]]):
    """Rows of a statement, by the names of their columns."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._names: list[str] = found["names"]
        super().__init__(dict(zip(self._names, row, strict=True)) for row in found["rows"])

    def colnames(self) -> list[str]:
        """Names of the columns."""
        return self._names


class Plpy:
    """Statements, notices and subtransactions in the transaction of the call.

    Args:
        link: to the server process.
        pid: of the server process.
        segment: number of the segment that it serves, if it does.
        asks_nothing: whether statements of its session may fail in ways that end it.
    """

    Error = SPIError = ServerError

    def __init__(self, link: Link, pid: int, segment: int | None, asks_nothing: bool) -> None:
        self._link, self.pid = link, pid
        self.segment, self.asks_nothing = segment, asks_nothing

    def execute(self, query: str | Plan, values: Sequence[Any] = ()) -> Rows:
        """Run a statement.

        Raises:
            ServerError: it failed, or the call was cancelled.
        """
        plan = query if isinstance(query, Plan) else Plan(query, ())
        return Rows(self._asked({"execute": [plan.query, plan.types, list(values)]}))

    def write(self, query: str | Plan, values: Sequence[Any] = ()) -> Rows:
        """Call a function that writes the catalog, as the role of the call; a value of it may be no query.

        Raises:
            ServerError: it failed, or the call was cancelled.
        """
        plan = query if isinstance(query, Plan) else Plan(query, ())
        return Rows(self._asked({"write": [plan.query, plan.types, list(values)]}))

    def prepare(self, query: str, types: Sequence[str] = ()) -> Plan:
        """A statement with parameters."""
        return Plan(query, tuple(types))

    def notice(self, text: str) -> None:
        """Send the caller a NOTICE."""
        self._link.send({"notice": text})

    def go_on_by(self, name: str, *arguments: Any) -> None:
        """Leave word which call goes on with this one, should this process end.

        Args:
            name: module and function, such as ``fitting.go_on``.
            arguments: of the function.
        """
        self._link.send({"again": [name, arguments]})

    def go_alone(self, result: Any) -> None:
        """Return a result to the caller, and go on without its session."""
        self._link.leave({"result": result})

    @contextmanager
    def subtransaction(self) -> Iterator[None]:
        """Take back what is run inside if it raises."""
        self._asked({"subtransaction": "enter"})
        try:
            yield
        except BaseException as error:
            if not isinstance(error, CallerGone | RunInterrupted):
                self._asked({"subtransaction": "undo"})
            raise
        self._asked({"subtransaction": "keep"})

    def quote_literal(self, text: str) -> str:
        """A text as a literal of SQL."""
        quoted = str(text).replace("'", "''")
        if "\\" in quoted:
            return " E'" + quoted.replace("\\", "\\\\") + "'"
        return f"'{quoted}'"

    def facts(self) -> dict[str, str] | None:
        """Facts of the session, read from the server process, where it must not be asked by SQL; None elsewhere."""
        found: dict[str, str] | None = self._asked({"facts": True})["facts"]
        return found

    def session_settings(self, names: Sequence[str]) -> dict[str, str]:
        """Values of settings of the caller's session, and of all that have a prefix (``app.tenant``)."""
        return dict(self._asked({"settings": list(names)})["settings"])

    def statement_began(self) -> int:
        """Time at which the client's statement began; another number for each of them."""
        return int(self._asked({"facts": True})["statement"])

    def listen(self) -> None:
        """Look whether the call shall end.

        Raises:
            ServerError: the caller, a timeout or an administrator has cancelled it.
            RunInterrupted: its client has gone.
            CallerGone: its session has ended.
        """
        cancel = self._link.cancelled()
        if cancel is None:
            return
        if cancel["sqlstate"] is None:  # the client has gone, and its server process follows
            raise RunInterrupted(cancel["message"])
        raise ServerError(cancel)

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        self._link.send(question)
        answer = self._link.receive()
        if "failed" in answer:
            raise ServerError(answer["failed"])
        return answer
