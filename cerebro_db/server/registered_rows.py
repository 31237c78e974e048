"""Version that the name of a registered model means now, asked at every call by prepared statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cerebro_db.configs.registry import ModelReference
from cerebro_db.server.caller import TEXT


@dataclass(frozen=True)
class NamedVersion:
    """Version that a name means now.

    Attributes:
        key: the number of the version in the database; what it is of never changes.
        reference: the same version, whatever becomes of aliases.
    """

    key: int
    reference: ModelReference


@dataclass
class Versions:
    """The plans of a session, by the form of the name."""

    plans: dict[str, Any] = field(default_factory=dict)

    def named(self, plpy: Any, reference: ModelReference) -> NamedVersion | None:
        """The version that the role that calls now may use; None where there is none."""
        form, value = _form(reference)
        if form not in self.plans:
            sql = _SQL.format(**_FORMS[form])
            self.plans[form] = plpy.prepare(sql, [TEXT] * 3)
        rows = plpy.execute(self.plans[form], [reference.name, reference.owner, value])
        if not rows:
            return None
        return NamedVersion(int(rows[0]["key"]), reference.at(int(rows[0]["version"])))


def _form(reference: ModelReference) -> tuple[str, str | None]:
    if reference.alias is not None:
        return "alias", reference.alias
    if reference.version is not None:
        return "version", str(reference.version)
    return "latest", None


# A caller's search path could bring in operators of others: every one has its schema.
_SQL = """
SELECT v.mst_key AS key, v.version
  FROM cerebro._usable_models m
  JOIN cerebro._usable_versions v ON v.model_id OPERATOR(pg_catalog.=) m.model_id{join}
 WHERE m.name OPERATOR(pg_catalog.=) $1
   AND CASE WHEN $2 IS NULL THEN m.owner OPERATOR(pg_catalog.=) cerebro._role()
       ELSE pg_catalog.pg_get_userbyid(m.owner)::pg_catalog.text OPERATOR(pg_catalog.=) $2 END
   AND {condition}
 ORDER BY v.version USING OPERATOR(pg_catalog.>) LIMIT 1
"""
_FORMS = {
    "latest": {"join": "", "condition": "$3 IS NULL"},
    "version": {"join": "", "condition": "v.version OPERATOR(pg_catalog.=) $3::pg_catalog.int4"},
    "alias": {
        "join": """
  JOIN cerebro._usable_aliases a ON a.model_id OPERATOR(pg_catalog.=) v.model_id
   AND a.version OPERATOR(pg_catalog.=) v.version""",
        "condition": "a.alias OPERATOR(pg_catalog.=) $3",
    },
}
