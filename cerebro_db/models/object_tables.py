"""MADlib's tables of custom functions, as lists of names of functions that are registered here.

MADlib keeps the pickled function in column ``object``. To unpickle is to run code, so that column is never read, and
NULL in the rows that are made here: a row says that a name in the parameters of a call means the function that
``cerebro_register_function`` or ``cerebro_register_expression`` has registered under it. A configuration is stored with
the registered name, ``custom.<name>``, so that it means the same without the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cerebro_db.configs.grammar import renamed
from cerebro_db.configs.grids.parameters import is_taken, is_top_k
from cerebro_db.configs.messages import MAX_DESCRIPTION, check_range, check_text, shown
from cerebro_db.configs.names import PREFIX, check_name
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.locks import lock
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables import libraries
from cerebro_db.postgres.tables.relations import (
    KINDS,
    Relation,
    Use,
    find,
    find_if_there,
    new_table,
)

ROLE = "object_table"
_KEYS = {"loss": "loss", "metrics": "metric"}
_REGISTERED = "SELECT name FROM cerebro.registered_functions ORDER BY 1"
_MOST_PLACES = 999_999_999
_MAKES = "cerebro.cerebro_load_custom_function makes such tables"


@dataclass(frozen=True)
class ObjectTable:
    """The names that an object table has, all of them registered."""

    name: str
    functions: Collection[str]

    def in_params(self, text: str) -> str:
        """A text of compile parameters with the names of registered functions in it."""
        return self._renamed(text, "compile_params")

    def in_grid(self, text: str) -> str:
        """The same of a grid of compile parameters."""
        return self._renamed(text, "compile_params_grid")

    def _renamed(self, text: str, what: str) -> str:
        def rename(key: str, name: str) -> str:
            if is_taken(name) or is_top_k(name):
                return name
            if name not in self.functions:
                raise InvalidArgument(
                    f"{what}: got the {_KEYS[key]} {shown(name)}, which Keras does not have; {self.name} has "
                    f"{', '.join(sorted(self.functions)) or 'nothing'}",
                    "cerebro.cerebro_load_custom_function adds a registered function to an object table.",
                )
            return PREFIX + name

        return renamed(text, what, tuple(_KEYS), rename)


def object_table(session: Session, text: str | None) -> ObjectTable | None:
    """The object table that a user names; None where none is named.

    Raises:
        UndefinedTable, WrongObjectType: there is no such table.
        InvalidArgument: it has a function that is not registered.
    """
    if text is None:
        return None
    found = _with_columns(find(session, text, ROLE))
    rows = session.run(libraries.object_names(found.name))
    names = {str(name) for (name,) in rows if name is not None}
    known = {row[0] for row in session.run(_REGISTERED)}
    for name in sorted(names):
        if not is_top_k(name) and name not in known:
            raise _not_registered(f"{ROLE}: {found.name} has the function {shown(name)}", name)
    return ObjectTable(str(found.name), names)


def load_function(
    session: Session,
    table: str | None,
    pickled: bytes | None,
    name: str | None,
    description: str | None,
) -> tuple[str, ...]:
    """Add a registered function to an object table, which is made if need be; returns notices.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        table, name, description: as given.
        pickled: the function as MADlib wants it, which is not looked at.

    Raises:
        InvalidArgument: no such function is registered, or the table has it already.
        WrongObjectType: the table is of another kind.
    """
    target = _target(session, table)
    if pickled is None:
        raise InvalidArgument(
            "object: got NULL; allowed: the bytes that MADlib gets, which are not looked at here"
        )
    name = check_name(name)
    if is_taken(name):
        raise InvalidArgument(
            f"name: got {name!r}, which Keras has, and which means that in parameters; allowed: another name",
            hint=f"cerebro.cerebro_register_expression('my_{name}', ...) registers one of yours",
        )
    if name not in {row[0] for row in session.run(_REGISTERED)}:
        raise _not_registered(f"name: got {name!r}", name)
    added = _added(session, target, name, description)
    return (
        f"object is not read, and not kept: {name} means the function that is registered as custom.{name}",
        added,
    )


def load_top_k(session: Session, table: str | None, k: int | None) -> str:
    """Add the accuracy among the k best, which needs no function; returns what was done."""
    check_range("k", k, 1, _MOST_PLACES, optional=False)
    name = f"top_{k}_accuracy"
    return _added(session, _target(session, table), name, f"returns {name}")


def delete_function(
    session: Session, table: str | None, number: int | None, name: str | None
) -> str:
    """Delete a function from an object table, and the table with its last one; returns what was done.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        table: as given.
        number, name: its id, or its name.

    Raises:
        InvalidArgument: the table has no such function.
        WrongObjectType: the table is of another kind.
    """
    found = _with_columns(find(session, table, ROLE, Use.WRITE))
    column, value = ("name", name) if number is None else ("id", number)
    got = "NULL" if value is None else shown(value)
    lock(session, f"functions of {found.name}")
    if not session.run(libraries.delete_object(found.name, column), (value,)):
        raise InvalidArgument(
            f"{column}: got {got}, which {found.name} does not have",
            hint=f"SELECT id, name FROM {found.name} shows those there are",
        )
    # A statement of its own: whether one sees what it does itself depends on the server.
    if session.run(libraries.object_names(found.name)):
        return f"{column} {got} deleted from {found.name}"
    session.run(f"DROP TABLE {found.name.sql}")
    return f"{column} {got} deleted; {found.name} had no other, and was dropped"


def _target(session: Session, table: str | None) -> QualifiedName:
    """The name of an object table, which may be there."""
    found = find_if_there(session, table, ROLE, Use.WRITE)
    return new_table(session, table, ROLE, ()) if found is None else _with_columns(found).name


def _added(session: Session, target: QualifiedName, name: str, description: str | None) -> str:
    check_text("description", description, MAX_DESCRIPTION)
    lock(session, f"functions of {target}")
    if find_if_there(session, target.text, ROLE, Use.WRITE) is None:
        session.run(libraries.create_objects(target))
    elif (name,) in session.run(libraries.object_names(target)):
        raise InvalidArgument(
            f"name: got {name!r}, which {target} has already; allowed: another name",
            hint="cerebro.cerebro_delete_custom_function deletes it",
        )
    session.run(libraries.add_object(target), (name, description))
    return f"function {name} added to {target}"


def _with_columns(found: Relation) -> Relation:
    missing = [name for name in libraries.OBJECT_COLUMNS if not found.has(name)]
    if found.kind not in ("r", "p") or missing:
        lacks = f" without the columns {', '.join(missing)}" if missing else ""
        raise WrongObjectType(
            f"{ROLE}: got {found.name}, a {KINDS[found.kind]}{lacks}; allowed: a table with "
            f"{', '.join(libraries.OBJECT_COLUMNS)}, or a name that is free",
            hint=_MAKES,
        )
    return found


def _not_registered(what: str, name: str) -> InvalidArgument:
    return InvalidArgument(
        f"{what}; allowed: a function that is registered as custom.{name}, or top_<k>_accuracy",
        hint=f"an administrator registers it: SELECT cerebro.cerebro_register_expression('{name}', "
        "'<of y_true and y_pred>'), or cerebro.cerebro_register_function with the path of one in a package",
    )
