"""Tables that a call makes: their names, and the earlier ones that give way to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cerebro_db.errors import (
    DependentObjects,
    DuplicateTable,
    InvalidArgument,
    NotPermitted,
    ObjectInUse,
    UndefinedTable,
    WrongObjectType,
)
from cerebro_db.postgres.names import QualifiedName, quote, shown_literal
from cerebro_db.postgres.sessions.errors import LOCK_TIMEOUT, StatementFailed
from cerebro_db.postgres.sessions.locks import (
    END_HOLDER,
    holder_of,
    lock_key,
    transaction,
    try_lock_here,
)
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import GIVEN, GRANTS, KINDS, MODELS, PACKINGS, TABLES, Kind
from cerebro_db.postgres.tables.leftovers import packing_key
from cerebro_db.postgres.tables.relations import KINDS as RELATION_KINDS
from cerebro_db.postgres.tables.relations import (
    Use,
    check_not_hidden,
    exists_already,
    find_if_there,
    new_name,
    own_columns,
    possible_names,
    require_text,
)

_DEPENDENT = "2BP01"
_TRIAL = "SET LOCAL lock_timeout = '3s'"


class Table(NamedTuple):
    """A table that is there under the name of an output.

    Attributes:
        suffix: what its name ends in.
        kind: of the relation, as the server has it.
        is_own: whether it belongs to the calling role itself, or to one that this is a member of.
        is_usable: whether that has the rights of the owner.
    """

    suffix: str
    name: QualifiedName
    oid: int
    kind: str
    comment: str | None
    owner: str
    is_own: bool
    is_usable: bool
    columns: list[str]


@dataclass(frozen=True)
class Outputs:
    """Tables to be made.

    Attributes:
        name: of the tables, without what it ends in.
        text, role: as the caller has named them, and the name of that argument.
        kind: of the tables.
        suffixes: of those that are made.
        replace: whether tables of that kind that are there give way.
        by: the argument that says so.
        inputs: oids of tables that the call reads.
    """

    name: QualifiedName
    text: str
    role: str
    kind: Kind
    suffixes: tuple[str, ...] = ("",)
    replace: bool = False
    by: str = "replace"
    inputs: Sequence[int] = field(default=(), compare=False)

    def table(self, suffix: str = "") -> QualifiedName:
        """Name of one of the tables."""
        return self.name.suffixed(suffix)

    def draft(self, suffix: str = "") -> QualifiedName:
        """Name under which a table is written that takes long: the one that is there is read until the end."""
        return self.unfinished(suffix) if self.replace else self.table(suffix)

    def unfinished(self, suffix: str = "") -> QualifiedName:
        """The name of a table that others see before it is complete."""
        name = self.table(suffix)
        digest = hashlib.sha256(str(name).encode()).hexdigest()[:24]
        return QualifiedName(name.schema, f"cerebro_draft_{digest}")


def new_outputs(
    session: Session,
    text: str | None,
    role: str,
    kind: Kind,
    *,
    suffixes: Sequence[str] | None = None,
    replace: bool | None = False,
    inputs: Sequence[int] = (),
) -> Outputs:
    """The names of tables to be made, checked: they are free, or what is there may give way.

    Args:
        session: knows the caller's search path; one of our own is in no transaction.
        text: identifier syntax is read as such, anything else is taken exactly.
        role: the name of the argument, for messages.
        kind: of the tables.
        suffixes: of those that are made; all of the kind by default.
        replace: whether earlier ones give way.
        inputs: oids of tables that the call reads.

    Raises:
        DuplicateTable: a name is taken by something that does not give way.
        DependentObjects: something depends on what would give way.
        ObjectInUse: a run, or another transaction, uses it.
    """
    name = new_name(session, text, role)
    made = kind.suffixes if suffixes is None else tuple(suffixes)
    outputs = Outputs(name, str(text), role, kind, made, bool(replace), inputs=tuple(inputs))
    for suffix in made:
        name.suffixed(suffix)  # long names are refused
    check(session, outputs)
    return outputs


def check(session: Session, outputs: Outputs) -> None:
    """Check that the names are free, or that earlier tables would give way if all were done by now.

    Raises:
        DuplicateTable, DependentObjects, ObjectInUse: as above.
    """
    earlier = _earlier(session, outputs)
    made = [outputs.table(suffix) for suffix in outputs.suffixes]
    check_not_hidden(session, outputs.text, outputs.role, made)
    if not earlier:
        return
    with session.rehearsal():
        session.run(_TRIAL)
        _drop(session, outputs, earlier)


@contextmanager
def replaced(session: Session, outputs: Outputs) -> Iterator[None]:
    """Within a transaction: earlier tables are dropped, and those made inside get their grants.

    Raises:
        DuplicateTable, DependentObjects, ObjectInUse: as above.
    """
    earlier = _earlier(session, outputs)
    grants = {
        table.suffix: session.run(GRANTS, (table.oid, table.oid))
        for table in earlier
        if table.suffix in outputs.suffixes
    }
    if earlier:
        _drop(session, outputs, earlier)
    yield
    if grants:
        _grant(session, outputs, grants)
    _give(session, outputs, earlier)


def _give(session: Session, outputs: Outputs, earlier: Sequence[Table]) -> None:
    """The tables belong to whom the earlier ones belonged to, of which the caller is a member."""
    there = _tables(session, outputs.name, outputs.suffixes)
    owners = {table.suffix: table.owner for table in earlier}
    first = next(iter(owners.values()), None)
    for suffix, table in there.items():
        owner = owners.get(suffix, first)
        if owner is not None and owner != table.owner:
            session.run(f"ALTER TABLE {table.name.sql} OWNER TO {quote(owner)}")


def publish(session: Session, outputs: Outputs) -> None:
    """Within a transaction: what was drafted gets its names, those of earlier tables.

    Raises:
        DuplicateTable, DependentObjects, ObjectInUse: as above.
    """
    if not outputs.replace:  # it has them
        return
    with replaced(session, outputs):
        for suffix in outputs.suffixes:
            draft, name = outputs.draft(suffix), outputs.table(suffix)
            session.run(f"ALTER TABLE {draft.sql} RENAME TO {quote(name.name)}")


def drop_outputs(session: Session, text: str | None) -> list[str]:
    """Drop an output table and what is beside it, within a transaction; returns their names.

    Args:
        session: knows the caller's search path.
        text: the name that the function was given which made them.

    Raises:
        UndefinedTable: there is none.
        WrongObjectType: it was not made by Cerebro-DB, or lies beside another one.
        NotPermitted: it belongs to another role.
        ObjectInUse: a run uses it.
    """
    role = "output_table"
    outputs, tables = _outputs_of(session, require_text(text, role), role)
    for table in tables:
        if not table.is_usable:
            raise NotPermitted(
                f"{role}: got {text!r}; {table.name} belongs to {table.owner}; allowed: your own",
                hint="its owner can drop it",
            )
    _check_unused(session, outputs, tables)
    _drop_same(session, outputs, tables)
    return [str(table.name) for table in tables]


# -- what is there -----------------------------------------------------------------------------
def _tables(session: Session, name: QualifiedName, suffixes: Sequence[str]) -> dict[str, Table]:
    names = {name.name + suffix: suffix for suffix in suffixes}
    rows = session.run(TABLES, (name.schema, list(names)))
    tables = (
        Table(names[found], QualifiedName(name.schema, found), *facts) for found, *facts in rows
    )
    return {table.suffix: table for table in tables}


def _is_of(kind: Kind, table: Table, beside: dict[str, Table]) -> bool:
    """True if a table was made as one of that kind."""
    if table.kind != "r":
        return False
    if table.comment == kind.text(table.suffix):
        return True
    wanted = kind.columns.get(table.suffix)
    if table.comment is not None or not wanted or not wanted.issubset(table.columns):
        return False
    # A copy of a table of models has its columns; what is beside it tells.
    return table.suffix != "" or ("_summary" in beside and _is_of(kind, beside["_summary"], {}))


def _earlier(session: Session, outputs: Outputs) -> list[Table]:
    """The tables that give way.

    Raises:
        DuplicateTable: a name is taken by something that does not.
        DependentObjects: a user has given something to one that a new one would lack.
    """
    suffixes = outputs.kind.suffixes if outputs.replace else outputs.suffixes
    there = _tables(session, outputs.name, suffixes)
    earlier = []
    for suffix, table in there.items():
        if not outputs.replace:
            raise exists_already(outputs.text, outputs.role, table.name)
        if _is_of(outputs.kind, table, there):
            _check_own(session, outputs, table)
            _check_given(session, outputs, table)
            earlier.append(table)
        elif suffix in outputs.suffixes:
            raise DuplicateTable(
                f"{outputs.role}: got {outputs.text!r}; {_what(table)} is there; {outputs.by} := "
                f"true replaces {outputs.kind.what} only",
                hint="choose another name, or drop it yourself",
            )
    return earlier


def _what(table: Table) -> str:
    """Description of a table by its comment."""
    kind = RELATION_KINDS.get(table.kind, "relation")
    detail = next(
        (kind.what for kind in KINDS if table.suffix in kind.comments and _is_of(kind, table, {})),
        None,
    )
    return f"the {kind} {table.name}" + (f" with {detail}" if detail else "")


# Whether a table can be given to its owner once it was made anew. Parameters: the owner, the schema.
_CAN_GIVE = """
SELECT r.rolname = current_user
       OR pg_catalog.has_schema_privilege(r.oid, %s, 'CREATE')
          AND CASE WHEN pg_catalog.current_setting('server_version_num')::integer < 160000 THEN true
                   ELSE pg_catalog.pg_has_role(r.oid, 'SET') END
  FROM pg_catalog.pg_roles r WHERE r.rolname = %s
"""


def _check_own(session: Session, outputs: Outputs, table: Table) -> None:
    what = f"{outputs.role}: got {outputs.text!r}"
    if not table.is_own:
        raise NotPermitted(
            f"{what}; {table.name} belongs to {table.owner}; {outputs.by} := true replaces your own, and "
            "those of roles that you are a member of",
            hint="choose another name, or call this as its owner",
        )
    if not session.run(_CAN_GIVE, (table.name.schema, table.owner))[0][0]:
        raise NotPermitted(
            f"{what}; {table.name} belongs to {table.owner}, who may not make tables in schema "
            f"{table.name.schema}, or as whom you may not act: a new table could not belong to that role",
            hint="GRANT CREATE ON SCHEMA to that role, or choose another name",
        )
    if table.oid in outputs.inputs:
        raise InvalidArgument(
            f"{what}, which this call reads; allowed: {outputs.by} := true for another table",
            hint="choose another name",
        )


def _check_given(session: Session, outputs: Outputs, table: Table) -> None:
    if given := session.run(GIVEN, (table.oid,) * 3):
        listed = ", ".join(sorted(row[0] for row in given))
        raise DependentObjects(
            f"{outputs.role}: got {outputs.text!r}; {table.name} has {listed}, which a new table "
            "would not have",
            hint="drop that first, or choose another name",
        )


def _outputs_of(session: Session, text: str, role: str) -> tuple[Outputs, list[Table]]:
    """Kind of outputs, and the tables that are there, of a name that a function was given."""
    found = find_if_there(session, text, role, Use.NAME)
    for name in [found.name] if found else possible_names(session, text):
        for kind in KINDS:
            there = _tables(session, name, kind.suffixes)
            ours = [table for table in there.values() if _is_of(kind, table, there)]
            # A table of the very name decides what that means, if calls of the kind make one.
            if ours and (
                found is None or "" not in kind.comments or any(not one.suffix for one in ours)
            ):
                return Outputs(name, text, role, kind), ours
    if found is None:
        raise UndefinedTable(f"{role}: got {text!r}; no table of that name exists")
    raise _not_ours(session, found.name, text, role)


def _not_ours(session: Session, name: QualifiedName, text: str, role: str) -> WrongObjectType:
    for kind in KINDS:
        for suffix in kind.suffixes:
            if suffix and name.name.endswith(suffix):
                first = QualifiedName(name.schema, name.name.removesuffix(suffix))
                there = _tables(session, first, kind.suffixes) if first.name else {}
                if suffix in there and _is_of(kind, there[suffix], there):
                    return WrongObjectType(
                        f"{role}: got {text!r}, which is beside {first}; allowed: the name that was "
                        "given to the function that made both",
                        hint=f"SELECT cerebro.cerebro_drop_outputs({shown_literal(str(first))}) "
                        "drops all of them",
                    )
    return WrongObjectType(
        f"{role}: got {text!r}, which is no output of Cerebro-DB",
        hint="DROP TABLE drops tables of your own; outputs are known by their comment (\\dt+)",
    )


# -- giving way --------------------------------------------------------------------------------
def table_key(oid: int) -> int:
    """The advisory lock of a table that a run reads, shared by all such runs."""
    return lock_key(f"table {oid}")


def output_key(name: QualifiedName) -> int:
    """The advisory lock of the output tables of a run."""
    return lock_key(f"output {name}")


def _check_unused(session: Session, outputs: Outputs, tables: Sequence[Table]) -> None:
    keys = [table_key(table.oid) for table in tables]
    if outputs.kind is MODELS:
        keys.append(output_key(outputs.name))
    if outputs.kind is PACKINGS:
        keys.append(packing_key(outputs.name))
    for key in keys:
        if not try_lock_here(session, key):
            raise ObjectInUse(
                f"{outputs.role}: got {outputs.text!r}; a run that goes on uses {outputs.name}: "
                f"{holder_of(session, key)}",
                hint="choose another name, or wait for that run, which cerebro.progress shows if it "
                f"is yours; {END_HOLDER}",
            )


def _drop_same(session: Session, outputs: Outputs, tables: Sequence[Table]) -> None:
    """Drop the tables that were looked at, and none that others have given their names to since.

    Raises:
        ObjectInUse: a name means another table by now.
    """
    names = ", ".join(table.name.sql for table in tables)
    try:  # what is locked keeps its name; it may be another's by now, which was waited for
        session.run(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
    except StatementFailed as error:
        if error.sqlstate == UndefinedTable.sqlstate:
            raise _changed(outputs, tables) from None
        raise
    for table in tables:
        found = session.run("SELECT pg_catalog.to_regclass(%s)::oid::bigint", (table.name.text,))
        if found != [(table.oid,)]:
            raise _changed(outputs, [table])
    session.run(f"DROP TABLE {names}")


def _changed(outputs: Outputs, tables: Sequence[Table]) -> ObjectInUse:
    listed = ", ".join(str(table.name) for table in tables)
    return ObjectInUse(
        f"{outputs.role}: got {outputs.text!r}; {listed} was replaced or dropped by another session "
        "meanwhile",
        hint="call this again",
    )


def _drop(session: Session, outputs: Outputs, tables: Sequence[Table]) -> None:
    _check_unused(session, outputs, tables)
    what = f"{outputs.role}: got {outputs.text!r}, which {outputs.by} := true replaces"
    try:
        _drop_same(session, outputs, tables)
    except StatementFailed as error:
        if error.sqlstate == LOCK_TIMEOUT:
            raise ObjectInUse(
                f"{what}; a transaction that goes on uses it",
                hint="end that transaction first; it may be the one of this very call",
            ) from None
        if error.sqlstate == _DEPENDENT:
            depends = "; ".join((error.detail or error.message).splitlines())
            raise DependentObjects(f"{what}; {depends}") from None
        raise


def _grant(session: Session, outputs: Outputs, grants: dict[str, list[tuple[Any, ...]]]) -> None:
    """Grant the tables the rights that the earlier ones had, and no others."""
    there = _tables(session, outputs.name, list(grants))
    for suffix, rows in grants.items():
        table = there[suffix]
        first = session.run(GRANTS, (table.oid, table.oid))  # by default privileges
        for role in sorted({role for _, _, role, _ in first}):
            session.run(f"REVOKE ALL ON TABLE {table.name.sql} FROM {_doubled(role)}")
        for privilege, column, grantee, is_grantable in rows:
            if column is None or column in table.columns:
                listed = "" if column is None else f" ({quote(str(column))})"
                option = " WITH GRANT OPTION" if is_grantable else ""
                session.run(
                    f"GRANT {privilege}{listed} ON TABLE {table.name.sql} "
                    f"TO {_doubled(grantee)}{option}"
                )


def _doubled(identifier: str) -> str:
    """An identifier that the server has quoted, for a statement with parameters."""
    return identifier.replace("%", "%%")


# The table of models and its summary make a run's output what it is. Who has dropped both drops a
# model as MADlib's users do, whose module has fewer tables; the others of ours are of no use then.
_WHOLE = "_summary"
_LEFT = {
    suffix: columns for suffix, columns in MODELS.columns.items() if suffix not in ("", _WHOLE)
}


def new_output(session: Session, text: str | None, role: str) -> QualifiedName:
    """The name of output tables to be made, which do not exist, but for what is left of others.

    Raises:
        DuplicateTable: one exists.
    """
    return _found(session, text, role)[0]


def cleared_output(
    session: Session, text: str | None, role: str, notify: Callable[[str], None]
) -> None:
    """Check the output once more, and drop what is left of it, all or none.

    Raises:
        DuplicateTable: one of the others exists.
        StatementFailed: something depends on what is left.
    """
    _, left = _found(session, text, role)
    if not left:
        return
    with transaction(session):
        for table in left:
            session.run(f"DROP TABLE {table.sql}")
    names = " and ".join(map(str, left))
    notify(f"dropped {names}, left of a table of models that is gone")


def _found(
    session: Session, text: str | None, role: str
) -> tuple[QualifiedName, list[QualifiedName]]:
    """The name, and tables of the caller that a run has made beside another one of that name."""
    output = new_name(session, text, role)
    wanted: dict[QualifiedName, frozenset[str] | None] = {
        output: None,
        output.suffixed(_WHOLE): None,
    }
    wanted |= {output.suffixed(suffix): columns for suffix, columns in _LEFT.items()}
    there = own_columns(session, output.schema, [table.name for table in wanted])
    left = []
    for table, columns in wanted.items():
        if table.name in there:
            if columns is None or not columns <= there[table.name]:
                raise exists_already(text, role, table)
            left.append(table)
    check_not_hidden(session, text, role, list(wanted))
    return output, left
