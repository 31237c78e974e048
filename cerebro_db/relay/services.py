"""Services of the server process for a driver or trainer while one of its calls is under way: statements, subtransactions, notices."""

from typing import Any, Dict, List

from . import backend
from .connection import Connection
from .failures import described, failure, visible

CANCELLED = "57014"
_MOST_PLANS = 64
_WITHIN = "got a call in a query that segments work for; allowed: one that reads no other table and makes none"
_WITHIN_HINT = (
    "take values out of tables by queries in parentheses: SELECT f((SELECT x FROM t WHERE id = 1)); "
    "for many rows, DO $$DECLARE r record; BEGIN FOR r IN SELECT x FROM t LOOP PERFORM f(r.x); END LOOP; END$$"
)


class Services:
    """Statements, subtransactions and notices in the transaction of the call.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
        plans: prepared statements of this server process, which later calls use again.

    Attributes:
        errors: of the server that a process has been sent.
        interrupts: of the driver that is served; None for a trainer, which has none of its own.
    """

    # Role, by its number, for which a function writes the catalog at this moment, and in which statement; None for nobody.
    # An error of a segment may jump over what takes it back.
    writer: Any = None

    def __init__(self, plpy: Any, plans: Dict[Any, Any]) -> None:
        self._plpy, self._plans = plpy, plans
        self.errors: List[BaseException] = []
        self._subtransactions: List[Any] = []
        self.interrupts: Any = None

    def serve(self, message: Dict[str, Any], process: Connection) -> None:
        """Do what a message of a process asks for, and answer where an answer is awaited."""
        if "notice" in message:
            try:
                with backend.held():  # the next look for a cancel request finds it
                    self._plpy.notice(visible(message["notice"]))
            except (self._plpy.Error, self._plpy.SPIError) as error:
                # Elsewhere the server acts on one while it sends.
                if self.interrupts is None:
                    process.send({"cancel": self.described(error)})
                else:
                    self.interrupts.came(error)
        elif "execute" in message:
            process.send(self._answered(self._execute, message["execute"]))
        elif "write" in message:
            process.send(self._answered(self._write, message["write"]))
        elif "subtransaction" in message:
            process.send(self._answered(self._subtransaction, message["subtransaction"]))
        elif "settings" in message:
            process.send({"settings": backend.session_settings(message["settings"])})
        else:
            began = backend.statement_began()
            process.send({"facts": backend.own_facts(), "statement": began})

    def _answered(self, work: Any, given: Any) -> Dict[str, Any]:
        try:
            if backend.is_within_query():
                raise failure(self._plpy, "0A000", _WITHIN, _WITHIN_HINT)
            with backend.undisturbed():
                answer: Dict[str, Any] = work(given)
            return answer
        except (self._plpy.Error, self._plpy.SPIError) as error:
            failed = self.described(error)
            if self.interrupts is not None and failed["sqlstate"] == CANCELLED:
                self.interrupts.is_known(failed)
            return {"failed": failed}

    def described(self, error: BaseException) -> Dict[str, Any]:
        """Describe an error of the server for a message, with a number by which it can be raised here."""
        self.errors.append(error)
        return dict(described(error), number=len(self.errors) - 1)

    def _execute(self, given: List[Any]) -> Dict[str, Any]:
        query, types, values = given
        if types:
            found = self._plpy.execute(self._plan(query, types), values)
        else:
            found = self._plpy.execute(query)
        names = found.colnames() if len(found) else []
        return {"names": names, "rows": [[row[name] for name in names] for row in found]}

    def _write(self, given: List[Any]) -> Dict[str, Any]:
        """Call a function that writes the catalog, as the role that has called ours: nothing but that call is run meanwhile."""
        role = self._plpy.execute("SELECT cerebro._role()::pg_catalog.text AS role")[0]["role"]
        before, Services.writer = Services.writer, (role, backend.statement_began())
        try:
            return self._execute(given)
        finally:
            Services.writer = before

    @staticmethod
    def writing_role() -> Any:
        """Number of the role for which a function writes the catalog at this moment, as text; None for none."""
        role, statement = Services.writer or (None, None)
        return role if statement == backend.statement_began() else None

    def _plan(self, query: str, types: List[str]) -> Any:
        key = (query, tuple(types))
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._plpy.prepare(query, types)
        return self._plans[key]

    def _subtransaction(self, what: str) -> Dict[str, Any]:
        if what == "enter":
            entered = self._plpy.subtransaction()
            entered.__enter__()
            self._subtransactions.append(entered)
        else:
            error = self._plpy.Error("taken back")
            kept = (None, None, None) if what == "keep" else (type(error), error, None)
            self._subtransactions.pop().__exit__(*kept)
        return {}

    def leave(self) -> None:
        """Take back what a process has left open that is gone."""
        with backend.undisturbed():
            while self._subtransactions:
                self._subtransaction("undo")
