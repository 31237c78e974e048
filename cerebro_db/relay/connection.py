"""Connection of a server process to a process beside it."""

import select
import time
from typing import Any, Dict

from .wire import Closed, encoded, exactly, received

LISTEN_SECONDS = 0.05


class Connection:
    """Sends and receives whole messages; while it waits, it looks whether the server shall stop.

    Args:
        sock: connected socket.
        listen: called now and then while waiting; an exception of it ends the waiting.

    Attributes:
        is_sending: whether a part of a message is sent, and nothing else may be.
    """

    def __init__(self, sock: Any, listen: Any) -> None:
        sock.setblocking(False)
        self._socket, self.listen = sock, listen
        self.is_sending = False

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            Closed: the other side is gone.
        """
        parts = encoded(message)
        self.is_sending = True
        for part in parts:
            self._send_part(memoryview(part))
        self.is_sending = False

    def _send_part(self, view: memoryview) -> None:
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, InterruptedError):
                self._wait(select.POLLOUT)
            except OSError:
                raise Closed("the other side is gone")

    def receive(self) -> Dict[str, Any]:
        """The next message.

        Raises:
            Closed: the other side is gone.
        """
        message: Dict[str, Any] = received(lambda count: exactly(count, self._read_into))
        return message

    @property
    def has_message(self) -> bool:
        """True if something has come, or the other side is gone."""
        return bool(self._poller(select.POLLIN).poll(0))

    def close(self) -> None:
        """End the connection; whatever the other side does for it is stopped."""
        self._socket.close()

    def _read_into(self, view: memoryview) -> int:
        while True:
            try:
                return int(self._socket.recv_into(view))
            except (BlockingIOError, InterruptedError):
                self._wait(select.POLLIN)
            except OSError:
                raise Closed("the other side is gone")

    def _wait(self, event: int) -> None:
        poller = self._poller(event)
        while not poller.poll(LISTEN_SECONDS * 1000):
            self.listen()

    def _poller(self, event: int) -> Any:
        poller = select.poll()
        poller.register(self._socket, event)
        return poller


def until(what: Any, seconds: float, listen: Any) -> bool:
    """Wait for something to become true; whether it did within so many seconds."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        listen()
        time.sleep(LISTEN_SECONDS / 5)
    return True
