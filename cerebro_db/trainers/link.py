"""The end of a connection that a driver or a trainer has: messages are read while it computes."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cerebro_db.relay.wire import Closed, exactly, received, send

# Rows that wait: the server's process reads ahead so far while the trainer computes.
_MOST_BYTES = 64 * 2**20


class CallerGone(BaseException):
    """Nobody waits for this work any more. No ``Exception``, which much would catch."""


class Link:
    """Messages to and from a server process.

    Args:
        sock: connected socket; closed with the link.
        gone: makes what is raised where nobody is there any more.
    """

    def __init__(self, sock: socket.socket, gone: Callable[[], BaseException] = CallerGone) -> None:
        self._gone = gone
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
        """The caller's request to end the call; it is told once.

        Raises:
            CallerGone: nobody waits for it.
        """
        if self._ended or self._poller.poll(0):
            raise self._gone()
        cancel, self._cancel = self._cancel, None
        return cancel

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
            return exactly(count, self._socket.recv_into)

        message: dict[str, Any] = received(receive)
        if "cancel" in message:
            self._cancel = message["cancel"]
            return
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._bytes <= _MOST_BYTES)
            self._messages.append((message, size))
            self._bytes += size
            self._changed.notify_all()
