"""Facts about the server process that this code runs in, and its interrupts.

They are read from the process itself where SQL must not be used: in a process of a segment, and where
an error of a segment would jump over the frames of Python.
"""

import ctypes
import os
import select
import signal
from typing import Any, Dict, List

_UTF8 = 6  # the number of that encoding in the server
_STATEMENT_TIMEOUT = 3  # the number of that timeout there, since PostgreSQL 9.3
# Statements of the server itself; what they find does not depend on the search path.
_LISTEN = "SELECT 1"


_program = ctypes.CDLL(None)


def program() -> Any:
    """The server's own program."""
    return _program


def raises_interrupts() -> bool:
    """True if the server raises KeyboardInterrupt in Python when it is to stop.

    A process with that hook must not be asked through its SQL interface.
    """
    return hasattr(program(), "cancel_pending_hook")


def segment() -> Any:
    """The number of the segment that this process serves; None in any other process."""
    try:
        identity = _Identity.in_dll(program(), "GpIdentity")
    except ValueError:
        return None
    return int(identity.segment) if identity.segment >= 0 else None


class _Identity(ctypes.Structure):
    """Identity of a server with segments."""

    _fields_ = (("dbid", ctypes.c_int32), ("segment", ctypes.c_int32))


class _Dispatch(ctypes.Structure):
    """Facts that such a server has of a command that it has given to segments."""

    _fields_ = (
        ("gangs", ctypes.c_void_p),
        ("results", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("largest", ctypes.c_int),
        ("root", ctypes.c_int),
        ("is_destroyed", ctypes.c_bool),
        ("is_of_cursor", ctypes.c_bool),
    )


class _Dispatches(ctypes.Structure):
    """A list of them."""


_Dispatches._fields_ = (
    ("dispatch", ctypes.POINTER(_Dispatch)),
    ("owner", ctypes.c_void_p),
    ("next", ctypes.POINTER(_Dispatches)),
)
_EXECUTE = 2  # the role, in that server, of a process that does a part of a query


def is_within_query() -> bool:
    """True if the server would refuse statements, as this one is a part of a query on segments.

    It refuses them by an error that jumps over the frames of Python: the session's next call of a
    function, whatever it is, may end the server. A query that is read through a cursor is no matter.
    """
    try:
        role = ctypes.c_int.in_dll(program(), "Gp_role").value
        found = ctypes.POINTER(_Dispatches).in_dll(program(), "open_dispatcher_handles")
    except ValueError:
        return False
    while found:
        if not found.contents.dispatch.contents.is_of_cursor:
            return True
        found = found.contents.next
    return bool(role == _EXECUTE)


def owner() -> List[Any]:
    """Server, database and role whose processes this one may use."""
    get_user = program().GetUserId
    get_user.restype = ctypes.c_uint32
    database = ctypes.c_uint32.in_dll(program(), "MyDatabaseId").value
    return [os.getcwd(), int(database), int(get_user())]


def statement_began() -> int:
    """Time at which the client's statement began; another number for each of them."""
    tells = ctypes.PyDLL(None).GetCurrentStatementStartTimestamp
    tells.restype = ctypes.c_int64
    return int(tells())


def own_facts() -> Any:
    """Version, search_path, port, database, role and socket folders; None on servers that are asked by SQL."""
    # Unlike CDLL this one keeps the interpreter's lock.
    server = ctypes.PyDLL(None)
    if not raises_interrupts() or server.GetDatabaseEncoding() != _UTF8:
        return None
    for name in ("GetConfigOptionByName", "GetUserNameFromId", "get_database_name"):
        getattr(server, name).restype = ctypes.c_char_p
    server.GetUserId.restype = ctypes.c_uint32
    database = ctypes.c_uint32.in_dll(server, "MyDatabaseId")

    def setting(name: str) -> Any:
        return server.GetConfigOptionByName(name.encode(), None, False)

    found = {
        "version": setting("server_version_num"),
        "search_path": setting("search_path"),
        "port": setting("port"),
        "dbname": server.get_database_name(database),
        "user": server.GetUserNameFromId(ctypes.c_uint32(server.GetUserId()), False),
        "read_only": setting("transaction_read_only"),
        "directories": ctypes.c_char_p.in_dll(server, "Unix_socket_directories").value,
        "temporary_schema": b"pg_temp_" + (setting("gp_session_id") or b""),
    }
    return {name: (value or b"").decode() for name, value in found.items()}


# The last context in an enumeration that grew by one: a setting that everybody may set in a session.
_USERSET, _CONTEXTS_GREW_IN = 6, 90500
_COUNTED_WITH_THEM_SINCE = 160000


class _Setting(ctypes.Structure):
    """The first fields of a setting of the server, in all versions."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("context", ctypes.c_int),
        ("group", ctypes.c_int),
        ("description", ctypes.c_char_p),
        ("details", ctypes.c_char_p),
        ("flags", ctypes.c_int),
        ("type", ctypes.c_int),
        ("status", ctypes.c_int),
        ("source", ctypes.c_int),
    )

    @property
    def is_untouched(self) -> bool:
        """True if nobody has set this setting of a library: all sessions have the same value."""
        return bool(self.source == _DEFAULT and self.description != _PLACEHOLDER)


_DEFAULT = 0  # the first source of a value in that enumeration
_PLACEHOLDER = b"GUC placeholder variable"  # the server's description of a setting of no library


def session_settings(names: List[str]) -> Dict[str, str]:
    """Values of settings of this session, and of all with a prefix that a session may set and somebody has.

    No view of the server lists the latter, such as ``app.tenant``.

    Args:
        names: of the others; those that this server has not are left out.
    """
    server = ctypes.PyDLL(None)
    server.GetConfigOptionByName.restype = server.GetConfigOption.restype = ctypes.c_char_p
    version = int(server.GetConfigOptionByName(b"server_version_num", None, False))
    userset = _USERSET if version >= _CONTEXTS_GREW_IN else _USERSET - 1
    wanted = [name.encode() for name in names]
    found = {}
    for setting in _settings(server, version):
        if setting.name in wanted:
            value = server.GetConfigOptionByName(setting.name, None, False)
        elif b"." in setting.name and setting.context == userset and not setting.is_untouched:
            value = server.GetConfigOption(setting.name, True, False)
        else:
            continue
        found[_decoded(setting.name)] = _decoded(value or b"")
    return found


def _settings(server: Any, version: int) -> List[Any]:
    known = server.get_guc_variables
    known.restype = ctypes.POINTER(ctypes.POINTER(_Setting))
    if version < _COUNTED_WITH_THEM_SINCE:
        listed, count = known(), server.GetNumConfigOptions()
    else:
        number = ctypes.c_int(0)
        listed = known(ctypes.byref(number))
        count = number.value
    return [listed[place].contents for place in range(count)]


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


class ClientGone(Exception):
    """The client of this server process has closed its connection."""


_postmaster = os.getppid()


def listen(plpy: Any) -> None:
    """Let the server act on a cancel request, a timeout or its own end.

    Raises:
        ClientGone: the client is gone, or the first process of the server. No new one starts while
            this process is there.
    """
    if os.getppid() != _postmaster:
        raise ClientGone("the server has died; this session ends too")
    if raises_interrupts():
        _raise_pending()
    elif ctypes.c_int.in_dll(program(), "InterruptPending").value:
        plpy.execute(_LISTEN)
    if _client_is_gone():
        raise ClientGone("the client is gone; its session ends too")


def _client_is_gone() -> bool:
    """Servers look for themselves only when they read or write, or where
    ``client_connection_check_interval`` is set, which PostgreSQL has since 14.
    """
    port = ctypes.c_void_p.in_dll(program(), "MyProcPort").value
    if port is None:  # a background worker has no client
        return False
    # In all versions the socket is the first field of the structure.
    poller = select.poll()
    poller.register(ctypes.c_int.from_address(port).value, select.POLLRDHUP)
    return bool(poller.poll(0))


class deferred:
    """Interrupts are raised only where they are looked for, on servers that raise them in Python by themselves.

    A timeout is two signals there, and each becomes a KeyboardInterrupt, in whatever Python is at: the
    second one in the middle of what has to be done after the first. So a call takes the server's
    hook away while it runs. An error of a segment may jump over the frames of a call: what that has
    left is known by its statement, which is over.
    """

    _hook = None  # of the server, while it is taken away
    _statement = None  # in which it was
    _is_known = False  # whether the interrupt has been reported already

    def __enter__(self) -> None:
        self._mine = False
        if not raises_interrupts():
            return
        statement, hook = statement_began(), _cancel_hook()
        self._mine = deferred._hook is None or deferred._statement != statement
        if self._mine:
            found = hook.value or deferred._hook
            deferred._hook, deferred._statement, deferred._is_known = found, statement, False
            hook.value = None

    def __exit__(self, *error: Any) -> None:
        if self._mine:
            _cancel_hook().value, deferred._hook = deferred._hook, None


class held:
    """Inside, the server does not act on interrupts by itself, where these are deferred.

    It does so where it sends a message, and what Python gets to know of that is any error.
    """

    def __enter__(self) -> None:
        self._count = None if deferred._hook is None else _holdoff()
        if self._count is not None:
            self._before = self._count.value
            self._count.value = self._before + 1

    def __exit__(self, *error: Any) -> None:
        if self._count is not None:
            self._count.value = self._before  # which an error of the server has set to zero


class undisturbed:
    """Inside, no cancel request and no timeout reaches a server that has segments; it comes afterwards.

    Such a server tells segments of the subtransaction of a statement before PL/Python is ready for an error, and
    of its end when it is so no longer. An error there jumps over the frames of Python, and leaves a broken
    interpreter to the session's next call. That the session shall end is heard all the same.
    """

    def __enter__(self) -> None:
        self._is_needed = raises_interrupts()
        if self._is_needed:
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            cancel = _flag("QueryCancelPending")
            self._came_before = cancel.value
            cancel.value = False

    def __exit__(self, *error: Any) -> None:
        if self._is_needed:
            if self._came_before:
                _flag("QueryCancelPending").value = True
                _flag("InterruptPending").value = True
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _raise_pending() -> None:
    """Raise an interrupt that is there as KeyboardInterrupt: a cancel once, the end of this process always."""
    if deferred._hook is None:
        return
    if is_ending() or (_flag("QueryCancelPending").value and not deferred._is_known):
        deferred._is_known = True
        raise KeyboardInterrupt


def cancel_is_told() -> None:
    """Forget a cancel request that an error of ours reports, so that the server does not raise its own."""
    if raises_interrupts() and not is_ending():
        _flag("QueryCancelPending").value = False
        timed_out(forget=True)


def timed_out(forget: bool = False) -> bool:
    """True if it is a timeout of the statement that cancels it, where the server raises interrupts."""
    asks = ctypes.PyDLL(None).get_timeout_indicator
    asks.argtypes, asks.restype = [ctypes.c_int, ctypes.c_bool], ctypes.c_bool
    return bool(asks(_STATEMENT_TIMEOUT, forget))


def is_ending() -> bool:
    """True if the server has requested the end of this process, not only of its statement."""
    return hasattr(program(), "ProcDiePending") and _flag("ProcDiePending").value


def _flag(name: str) -> Any:
    """A flag of a server with segments."""
    return ctypes.c_bool.in_dll(program(), name)


def _cancel_hook() -> Any:
    return ctypes.c_void_p.in_dll(program(), "cancel_pending_hook")


def _holdoff() -> Any:
    return ctypes.c_int32.in_dll(program(), "InterruptHoldoffCount")
