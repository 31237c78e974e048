"""Messages between server processes and the processes beside them."""

from __future__ import annotations

import decimal
import math
import socket
import threading
from typing import Any

import pytest

from cerebro_db.relay.connection import Connection
from cerebro_db.relay.wire import Closed, encoded, received
from cerebro_db.trainers.plpy import CallerGone, Link


def _round(message: Any) -> Any:
    data = memoryview(b"".join(encoded(message)))

    def receive(count: int) -> bytes:
        nonlocal data
        part, data = data[:count], data[count:]
        return bytes(part)

    found = received(receive)
    assert not data
    return found


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"a": [None, True, -1, 2**70, 1.5, math.inf, "größer\0 \ud800 \u2028"]},
        {"bytes": b"", "nested": [{"deep": [b"\x00\xff" * 1000, {"x": b"y"}]}]},
        {"decimal": decimal.Decimal("1.10"), "more": [decimal.Decimal("-1E+400")]},
    ],
)
def test_messages_come_as_they_were_sent(message: Any) -> None:
    assert _round(message) == message


def test_what_is_no_number_stays_so() -> None:
    found = _round([math.nan, decimal.Decimal("NaN")])
    assert math.isnan(found[0])
    assert found[1].is_nan()


def test_types_without_a_form_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold a value of"):
        encoded({"a": object()})


def test_a_stray_message_takes_no_memory() -> None:
    with pytest.raises(Closed):
        received(lambda count: b"\xff" * count)


@pytest.fixture
def ends() -> Any:
    ours, theirs = socket.socketpair()
    return Connection(ours, lambda: None), Link(theirs)


def test_large_messages_go_both_ways(ends: Any) -> None:
    connection, link = ends
    data = bytes(range(256)) * 2**16
    connection.send({"data": data})
    assert link.receive() == {"data": data}
    sender = threading.Thread(target=link.send, args=[{"data": data}])
    sender.start()
    assert connection.receive() == {"data": data}
    sender.join()


def test_a_cancel_arrives_beside_other_messages(ends: Any) -> None:
    connection, link = ends
    connection.send({"row": 1})
    connection.send({"cancel": {"sqlstate": "57014"}})
    connection.send({"row": 2})
    assert [link.receive(), link.receive()] == [{"row": 1}, {"row": 2}]
    assert link.cancelled() == {"sqlstate": "57014"}
    assert link.cancelled() is None


def test_both_ends_notice_that_the_other_is_gone(ends: Any) -> None:
    connection, link = ends
    connection.close()
    for wait in (link.receive, link.cancelled, lambda: link.send({"a": b"1" * 10**7})):
        with pytest.raises(CallerGone):
            wait()
    ours, theirs = socket.socketpair()
    other = Connection(ours, lambda: None)
    theirs.close()
    for call in (other.receive, lambda: other.send({"a": 1})):
        with pytest.raises(Closed):
            call()


def test_an_interrupt_ends_the_waiting() -> None:
    ours, _theirs = socket.socketpair()

    def interrupts() -> None:
        raise KeyboardInterrupt

    connection = Connection(ours, interrupts)
    for call in (connection.receive, lambda: connection.send({"a": b"1" * 10**8})):
        with pytest.raises(KeyboardInterrupt):
            call()
