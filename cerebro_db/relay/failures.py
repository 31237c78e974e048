"""Errors of processes beside the server, as exceptions that the server reports."""

from typing import Any, Dict

from . import backend

# What moves the cursor or the text of a terminal, from and to: the same as configs/messages.py has for the program.
_CONTROLS = (
    (0, 8), (0xB, 0x1F), (0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069),
    (0xD800, 0xDFFF),
)  # fmt: skip
# What the server shows before a message that has no colon, which it cannot show alone.
_UNNAMED = "cerebro"


def failure(
    plpy: Any, sqlstate: str, message: str, hint: Any = None, detail: Any = None
) -> BaseException:
    """An exception that the server reports with this SQLSTATE, hint and detail."""
    # The server reports "class: text", with the module before the class unless that is "builtins",
    # and takes the rest from attributes. A class that is named like the first words of the message
    # lets users read the message as it is.
    first, colon, text = visible(message).partition(": ")
    hint, detail = (part and visible(part) for part in (hint, detail))
    if not colon:
        first, text = _UNNAMED, first
    reads_attributes = hasattr(plpy, "commit")  # older servers take them from a tuple of their SPI
    base = plpy.Error if reads_attributes else plpy.SPIError
    error: BaseException = type(first, (base,), {"__module__": "builtins"})(text)
    if reads_attributes:
        vars(error).update(sqlstate=sqlstate, hint=hint, detail=detail)
    else:
        vars(error).update(spidata=(_packed(sqlstate), detail, hint, None, 0))
    return error


def visible(text: str) -> str:
    """A text whose controls are shown as codes: names in messages may have been chosen by others."""
    return "".join(map(_shown, text))


def _shown(letter: str) -> str:
    number = ord(letter)
    if not any(first <= number <= last for first, last in _CONTROLS):
        return letter
    return "\\x%02x" % number if number < 0x100 else "\\u%04x" % number


def described(error: BaseException) -> Dict[str, Any]:
    """An exception of the server, or of this process, for a message."""
    if not hasattr(error, "spidata") and not hasattr(error, "sqlstate"):
        return dict(_interrupted(error), detail=None, hint=None)
    number, detail, hint = 0, None, None
    found = getattr(error, "spidata", None)
    if found:
        number, detail, hint = found[:3]
    sqlstate = _unpacked(number) if found else getattr(error, "sqlstate", None)
    return {
        "sqlstate": sqlstate or "XX000",
        "message": str(error),
        "detail": detail,
        "hint": hint,
    }


def _interrupted(error: BaseException) -> Dict[str, Any]:
    """Reason that a call ends: its client has gone, or the server has interrupted Python."""
    if not isinstance(error, KeyboardInterrupt):
        return {"sqlstate": None, "message": str(error)}
    if backend.is_ending():
        return {
            "sqlstate": "57P01",
            "message": "terminating connection due to administrator command",
        }
    cause = "statement timeout" if backend.timed_out() else "user request"
    return {"sqlstate": "57014", "message": "canceling statement due to " + cause}


def _packed(sqlstate: str) -> int:
    """An SQLSTATE as the server keeps it: six bits a character."""
    return sum(((ord(character) - 48) & 0x3F) << 6 * n for n, character in enumerate(sqlstate))


def _unpacked(number: int) -> str:
    return "".join(chr((number >> 6 * n & 0x3F) + 48) for n in range(5))
