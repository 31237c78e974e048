"""Messages on a local socket: JSON, and behind it the byte strings that it refers to.

    uint32    bytes of the JSON
    uint32    number of byte strings
    uint64    bytes of each of them
    JSON      {"$bytes": n} stands for byte string n
    the byte strings, one after another

All numbers are little-endian.
"""

import decimal
import json
import os
import socket
import struct
from typing import Any, Dict, List

DRIVER, TRAINER = "driver", "trainer"  # kinds of processes beside the server
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_HEAD = struct.Struct("<II")
_BYTES, _DECIMAL = "$bytes", "$decimal"
# Of a message that no side ever sends, so that a stray one does not take memory.
_MOST_TEXT, _MOST_STRINGS = 2**30, 2**16


class Closed(Exception):
    """The other side of a connection is gone."""


def is_ours(sock: socket.socket) -> bool:
    """True if the other end of a local socket is a process of this very user."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(peer)[1] == os.geteuid())


def send(sock: socket.socket, message: Any) -> None:
    """Send a message through a socket that blocks."""
    for part in encoded(message):
        sock.sendall(part)


def exactly(count: int, read_into: Any) -> bytes:
    """So many bytes.

    Args:
        count: how many.
        read_into: puts some into a memoryview and returns how many, as ``socket.recv_into`` does.

    Raises:
        Closed: the other side is gone.
    """
    data, got = bytearray(count), 0
    with memoryview(data) as view:
        while got < count:
            size = read_into(view[got:])
            if not size:
                raise Closed("the other side is gone")
            got += size
    return bytes(data)


def encoded(message: Any) -> List[Any]:
    """The parts of a message, to be sent one after another."""
    strings = []

    def other(value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            strings.append(value)
            return {_BYTES: len(strings) - 1}
        if isinstance(value, decimal.Decimal):
            return {_DECIMAL: str(value)}
        raise TypeError(f"a message cannot hold a value of {type(value)}")

    text = json.dumps(message, default=other).encode("ascii")
    sizes = [len(string) for string in strings]
    head = _HEAD.pack(len(text), len(strings)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    return [head + text] + strings


def received(receive: Any) -> Any:
    """The next message.

    Args:
        receive: returns as many bytes of the connection as are wanted.

    Raises:
        Closed: the other side is gone.
    """
    length, count = _HEAD.unpack(receive(_HEAD.size))
    if length > _MOST_TEXT or count > _MOST_STRINGS:
        raise Closed("got a message that none of ours can be")
    sizes = struct.unpack(f"<{count}Q", receive(8 * count)) if count else ()
    text = receive(length)
    strings = [receive(size) for size in sizes]

    def known(found: Dict[str, Any]) -> Any:
        if len(found) == 1:
            if _BYTES in found:
                return strings[found[_BYTES]]
            if _DECIMAL in found:
                return decimal.Decimal(found[_DECIMAL])
        return found

    return json.loads(text.decode("ascii"), object_hook=known if b'"$' in text else None)
