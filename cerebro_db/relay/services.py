"""The server's interface, lent to processes beside it while one of their calls is under way."""

from . import backend
from .failures import described


class Services:
    """Statements, subtransactions and notices in the transaction of the call.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
    """

    def __init__(self, plpy):
        # type: (object) -> None
        self._plpy = plpy
        self._plans = {}
        self._subtransactions = []

    def serve(self, message):
        # type: (dict) -> object
        """Do what a message asks for; the answer to send, or None where none is awaited."""
        if "notice" in message:
            with backend.held():  # a cancel request is told as one by the next look for it
                self._plpy.notice(message["notice"])
            return None
        if "execute" in message:
            return self._answered(self._execute, message["execute"])
        if "subtransaction" in message:
            return self._answered(self._subtransaction, message["subtransaction"])
        return {"facts": backend.own_facts(), "statement": backend.statement_began()}

    def _answered(self, work, given):
        # type: (object, object) -> dict
        try:
            return work(given)
        except (self._plpy.Error, self._plpy.SPIError) as error:
            return {"failed": described(error)}

    def _execute(self, given):
        # type: (list) -> dict
        query, types, values = given
        if types:
            key = (query, tuple(types))
            if key not in self._plans:
                self._plans[key] = self._plpy.prepare(query, types)
            found = self._plpy.execute(self._plans[key], values)
        else:
            found = self._plpy.execute(query)
        names = found.colnames() if len(found) else []
        return {"names": names, "rows": [[row[name] for name in names] for row in found]}

    def _subtransaction(self, what):
        # type: (str) -> dict
        if what == "enter":
            entered = self._plpy.subtransaction()
            entered.__enter__()
            self._subtransactions.append(entered)
        else:
            error = self._plpy.Error("taken back")
            kept = (None, None, None) if what == "keep" else (type(error), error, None)
            self._subtransactions.pop().__exit__(*kept)
        return {}

    def leave(self):
        # type: () -> None
        """Take back what a process has left open that is gone."""
        while self._subtransactions:
            self._subtransaction("undo")
