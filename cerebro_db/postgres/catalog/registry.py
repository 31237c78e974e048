"""Statements of the model registry: read through views of what is the caller's, written by functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import MODEL_PREFIX, ModelReference
from cerebro_db.errors import InvalidArgument, UndefinedModel
from cerebro_db.postgres.sessions.session import Session

# A list of names that is longer is no help.
_MOST_NAMES = 200


class NewVersion(NamedTuple):
    """Values of a new version, but for its number and its state.

    Attributes:
        tags: JSON, None for none.
        facts: JSON of what predictions need to know beside the architecture.
        lineage: JSON of where it comes from.
    """

    description: str | None
    tags: str | None
    run_id: int
    mst_key: int
    model_arch: str
    compile_params: str
    fit_params: str
    facts: str
    lineage: str


class UsableVersion(NamedTuple):
    """A version that the caller may use.

    Attributes:
        key: its mst_key in the views, which is its number in the whole database.
        owner: the role that the model belongs to.
        run_key: its mst_key in the run that trained it.
        facts: JSON.
    """

    key: int
    version: int
    owner: str
    run_key: int
    facts: str


class Registry:
    """Reads and writes of one call.

    Args:
        session: nothing else uses it meanwhile.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def kept(self, reference: ModelReference, *, by_administrator: bool = False) -> int:
        """The model_id of a model that the caller keeps, or may remove as an administrator.

        Raises:
            UndefinedModel: there is none, or it is someone else's.
        """
        rule = "" if by_administrator else "AND pg_catalog.pg_has_role(m.owner, 'USAGE')"
        found = self._find("_models", reference, rule)
        if found is None:
            raise self._undefined("_models", reference, "you have no model of that name")
        return found

    def made(self, reference: ModelReference) -> int:
        """The model_id of a model of the caller, which is made where there is none."""
        self._call("_lock_catalog", ["models"])
        found = self._find("_models", reference)
        if found is None:
            self._call("_mark_role")
            found = int(self._call("_add_model", reference.name))
        return found

    def usable(self, reference: ModelReference) -> UsableVersion:
        """The version that a user names and may use.

        Raises:
            UndefinedModel: there is none, or the caller may not use it.
        """
        model_id = self._find("_usable_models", reference)
        if model_id is None:
            raise self._undefined(
                "_usable_models", reference, "you have no model of that name, nor were granted one"
            )
        version = reference.version
        if reference.alias is not None:
            version = self._aliased(model_id, reference)
        return self._version(model_id, reference, version)

    def add_version(self, model_id: int, new: NewVersion) -> int:
        """Add a version, whose number was never used before; returns that."""
        return int(self._call("_add_version", model_id, *new))

    def add_chunk(self, model_id: int, version: int, chunk: int, state: bytes) -> None:
        """Add a chunk of the state of a version.

        No query of a table is a part of the call, as it could run what belongs to others with its rights.
        """
        self._call("_add_model_state", model_id, version, chunk, state)

    def describe(
        self, model_id: int, version: int | None, description: str | None, tags: str | None
    ) -> None:
        """Set the description and the tags of a model, or of a version; None leaves what is there."""
        self._call("_describe_model", model_id, version, description, tags)

    def report(self, model_id: int, version: int, report: str) -> None:
        """Keep what the report of a version has, as JSON."""
        self._call("_report_version", model_id, version, report)

    def check_version(self, model_id: int, reference: ModelReference, version: int) -> None:
        """Refuse a version that a model of the caller's does not have."""
        sql = "SELECT version FROM cerebro._model_versions WHERE model_id = %s ORDER BY 1"
        versions = [row[0] for row in self._run(sql, [model_id])]
        if version not in versions:
            raise _no_version(reference, version, versions)

    def alias(self, model_id: int, alias: str) -> tuple[int, int | None, int | None] | None:
        """The last change of an alias: its id, the version, and what a rollback goes back to."""
        rows = self._run(
            "SELECT change_id, version, previous FROM cerebro._model_aliases "
            "WHERE model_id = %s AND alias = %s ORDER BY change_id DESC LIMIT 1",
            [model_id, alias],
        )
        return rows[0] if rows else None

    def alias_change(self, change_id: int) -> tuple[int | None, int | None]:
        """An earlier change of an alias: the version, and what came before."""
        rows = self._run(
            "SELECT version, previous FROM cerebro._model_aliases WHERE change_id = %s", [change_id]
        )
        return rows[0] if rows else (None, None)

    def set_alias(
        self, model_id: int, alias: str, version: int | None, previous: int | None
    ) -> None:
        """Record a change of an alias."""
        self._call("_change_alias", model_id, alias, version, previous)

    def aliases_of(self, model_id: int, version: int) -> list[str]:
        """The aliases that a version has."""
        rows = self._run(
            "SELECT a.alias FROM (SELECT DISTINCT ON (alias) alias, version "
            "FROM cerebro._model_aliases WHERE model_id = %s ORDER BY alias, change_id DESC) a "
            "WHERE a.version = %s ORDER BY 1",
            [model_id, version],
        )
        return [row[0] for row in rows]

    def role(self, name: str | None) -> int:
        """The oid of a role of exactly this name."""
        rows = self._run("SELECT oid::bigint FROM pg_catalog.pg_roles WHERE rolname = %s", [name])
        if not rows:
            got = "NULL" if name is None else shown(name)
            known = self._run("SELECT rolname FROM pg_catalog.pg_roles LIMIT %s", [_MOST_NAMES])
            raise InvalidArgument(
                f"role: got {got}; allowed: the name of a role of this server, exactly",
                hint=nearest((name or "")[:63], [row[0] for row in known]),
            )
        return int(rows[0][0])

    def grant(self, model_id: int, role: int) -> None:
        """Let a role use a model."""
        self._call("_grant_model", model_id, role)

    def revoke(self, model_id: int, role: int) -> bool:
        """Take the grant back; whether there was one."""
        return bool(self._call("_revoke_model", model_id, role))

    def drop_version(self, model_id: int, version: int) -> None:
        """Remove a version and its state."""
        self._call("_drop_model", model_id, version)

    def drop(self, model_id: int) -> None:
        """Remove a model with all that belongs to it."""
        self._call("_drop_model", model_id, None)

    def lock(self, model_id: int) -> None:
        """Be the only one who changes a model until the transaction ends."""
        self._call("_lock_model", model_id)

    # -- inside ------------------------------------------------------------------
    def _find(self, view: str, reference: ModelReference, rule: str = "") -> int | None:
        rows = self._run(
            f"SELECT m.model_id FROM cerebro.{view} m WHERE {_OF_OWNER} AND m.name = %s {rule}",
            [reference.owner, reference.owner, reference.name],
        )
        return int(rows[0][0]) if rows else None

    def _aliased(self, model_id: int, reference: ModelReference) -> int:
        sql = "SELECT alias, version FROM cerebro._usable_aliases WHERE model_id = %s"
        aliases = dict(self._run(sql, [model_id]))
        if reference.alias not in aliases:
            hint = nearest(reference.alias or "", aliases) if aliases else "it has none"
            raise UndefinedModel(f"got {reference}; the model has no such alias", hint=hint)
        return int(aliases[reference.alias])

    def _version(
        self, model_id: int, reference: ModelReference, version: int | None
    ) -> UsableVersion:
        rows = self._run(
            "SELECT v.mst_key, v.version, pg_catalog.pg_get_userbyid(m.owner)::text, v.run_key, "
            "v.facts::text FROM cerebro._usable_versions v "
            "JOIN cerebro._usable_models m ON m.model_id = v.model_id "
            "WHERE v.model_id = %s AND (v.version = %s OR %s IS NULL) "
            "ORDER BY v.version DESC LIMIT 1",
            [model_id, version, version],
        )
        if not rows:
            sql = "SELECT version FROM cerebro._usable_versions WHERE model_id = %s ORDER BY 1"
            known = [row[0] for row in self._run(sql, [model_id])]
            raise _no_version(reference, version, known)
        return UsableVersion(*rows[0])

    def _undefined(self, view: str, reference: ModelReference, why: str) -> UndefinedModel:
        rows = self._run(
            f"SELECT m.name FROM cerebro.{view} m WHERE {_OF_OWNER} ORDER BY 1 LIMIT %s",
            [reference.owner, reference.owner, _MOST_NAMES],
        )
        hint = "cerebro.registered_models shows your models and those that you may use"
        if reference.owner is None and (owner := self._granted_by(reference.name)):
            hint = f"you were granted {MODEL_PREFIX}{owner}.{reference.name}; {hint}"
        elif rows:
            hint = f"{nearest(reference.name, [row[0] for row in rows])} {hint}"
        return UndefinedModel(f"got {reference}; {why}", hint=hint)

    def _granted_by(self, name: str) -> str | None:
        """An owner whose model of a name the caller may use."""
        rows = self._run(
            "SELECT pg_catalog.pg_get_userbyid(m.owner)::text FROM cerebro._usable_models m "
            "WHERE m.name = %s ORDER BY 1 LIMIT 1",
            [name],
        )
        return str(rows[0][0]) if rows else None

    def _call(self, function: str, *values: Any) -> Any:
        return self._session.write(function, *values)

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._session.run(sql, parameters)


# Twice a role's name; NULL stands for the caller. A role that was dropped is "unknown (OID=...)".
_OF_OWNER = (
    "CASE WHEN %s::text IS NULL THEN m.owner = cerebro._role() "
    "ELSE pg_catalog.pg_get_userbyid(m.owner) = %s END"
)


def _no_version(
    reference: ModelReference, version: int | None, known: Sequence[int]
) -> UndefinedModel:
    listed = ", ".join(map(str, known[-20:])) or "none"
    got = "no version" if version is None else f"version {version}"
    return UndefinedModel(
        f"got {got} of {reference}; the model has the versions: {listed}",
        hint="cerebro.registered_versions shows them; cerebro.cerebro_register_model adds one",
    )
