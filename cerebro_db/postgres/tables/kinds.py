"""The kinds of tables that Cerebro-DB makes for users, known by their comments."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.errors import WrongObjectType
from cerebro_db.postgres.names import QualifiedName

_BEGINNING = "Cerebro-DB: "
STATES_SUFFIX, HISTORY_SUFFIX = "_states", "_history"


@dataclass(frozen=True)
class Kind:
    """Tables that one call makes.

    Attributes:
        what: they are, for messages.
        comments: of the tables, by what their names end in.
        columns: by which a table that an earlier version made without a comment is known, too.
    """

    what: str
    comments: Mapping[str, str]
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the names of the tables."""
        return tuple(self.comments)

    def text(self, suffix: str = "") -> str:
        """The comment of a table."""
        return _BEGINNING + self.comments[suffix]

    def comment(self, table: QualifiedName, suffix: str = "") -> str:
        """The statement that gives a table its comment."""
        return f"COMMENT ON TABLE {table.sql} IS '{self.text(suffix)}'"


PACKED = Kind(
    "packed tables",
    {
        "": "packed rows",
        "_summary": "what the packed table holds",
        "_encoding": "what the features of a packed table are",
    },
)
PREDICTIONS = Kind("predictions", {"": "predictions"})
SCORES = Kind("scores of models", {"": "scores of models"})
CONFUSION = Kind("confusion matrices", {"": "confusion matrices"})
IMPORTANCES = Kind("importances of columns", {"": "importance of columns"})
DEPENDENCES = Kind("dependences on columns", {"": "dependence on columns"})
RELIABILITIES = Kind("reliability of models", {"": "reliability of models"})
THRESHOLDS = Kind("thresholds of models", {"": "thresholds of models"})
ENCODED = Kind("encoded rows", {"": "encoded rows"})
GPUS = Kind("lists of GPUs", {"": "GPUs of hosts"})
SPLIT = Kind("split rows", {"": "split rows"})
SPLIT_IN_TWO = Kind("split rows", {"_train": "rows to train with", "_test": "rows to test with"})
ARCHITECTURES = Kind("architectures", {"": "architectures of models"})
CONFIGURATIONS = Kind(
    "configurations",
    {"": "configurations of models", "_summary": "what the configurations refer to"},
)
OBJECTS = Kind("custom functions", {"": "names of custom functions"})
SCHEDULES = Kind("schedules of Hyperband", {"": "schedule of Hyperband"})
MODELS = Kind(
    "trained models",
    {
        "": "trained models",
        "_info": "how the models were trained",
        "_summary": "what the models were trained on",
        STATES_SUFFIX: "states of the models",
        HISTORY_SUFFIX: "results of the models",
    },
    {
        "": frozenset({"mst_key", "model_weights", "model_arch"}),
        "_info": frozenset(
            {"mst_key", "model_id", "compile_params", "fit_params", "model_type", "status"}
        ),
        "_summary": frozenset({"run_id", "model", "model_info", "model_selection_table"}),
        STATES_SUFFIX: frozenset({"mst_key", "chunk", "state"}),
        HISTORY_SUFFIX: frozenset({"mst_key", "iteration", "run_id", "epoch", "dataset", "loss"}),
    },
)
# Tables that are not finished: of a packing beside its output, of predictions under a name of their own.
PACKING_SUFFIXES = BUILD_SUFFIX, STAGE_SUFFIX = "_packing", "_staging"
PACKINGS = Kind(
    "a packing that is not finished",
    dict.fromkeys(PACKING_SUFFIXES, "a packing that is not finished"),
)
DRAFTS = Kind("predictions that are not finished", {"": "predictions that are not finished"})
KINDS = (
    PACKED, PREDICTIONS, SCORES, CONFUSION, IMPORTANCES, DEPENDENCES, RELIABILITIES, THRESHOLDS, ENCODED, GPUS, SPLIT, SPLIT_IN_TWO, ARCHITECTURES,
    CONFIGURATIONS, OBJECTS, SCHEDULES, MODELS, PACKINGS,
)  # fmt: skip
# Parameters: schema, names.
TABLES = """
SELECT c.relname::text, c.oid::bigint, c.relkind::text,
       pg_catalog.obj_description(c.oid, 'pg_class'), pg_catalog.pg_get_userbyid(c.relowner)::text,
       c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
       -- A superuser has the rights of all roles, and is a member of those that it was granted.
       OR pg_catalog.pg_has_role(c.relowner, 'USAGE') AND c.relowner = ANY (ARRAY(
           WITH RECURSIVE granted(role) AS (
               SELECT m.roleid FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles r ON r.oid = m.member
                WHERE r.rolname = current_user
                UNION
               SELECT m.roleid FROM granted g JOIN pg_catalog.pg_auth_members m ON m.member = g.role)
           SELECT g.role FROM granted g)),
       pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = ANY (%s::name[])
"""
# What a user has given a table, which a new one would lack. Parameters: oid, three times.
# Columns that only newer servers have are looked at as JSON.
GIVEN = """
SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
  FROM pg_catalog.pg_depend d
 WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = %s
   AND d.deptype = 'a'
   AND d.classid IN ('pg_catalog.pg_trigger'::pg_catalog.regclass,
                     'pg_catalog.pg_rewrite'::pg_catalog.regclass,
                     pg_catalog.to_regclass('pg_catalog.pg_policy'),
                     pg_catalog.to_regclass('pg_catalog.pg_publication_rel'))
UNION ALL
SELECT 'a parent, ' || i.inhparent::pg_catalog.regclass::text
  FROM pg_catalog.pg_inherits i WHERE i.inhrelid = %s
UNION ALL
SELECT 'row level security'
  FROM (SELECT pg_catalog.row_to_json(c) AS facts FROM pg_catalog.pg_class c WHERE c.oid = %s) t
 WHERE 'true' IN (t.facts ->> 'relrowsecurity', t.facts ->> 'relforcerowsecurity')
"""
# What others than the owner may do with a table: privilege, column or NULL, to whom as SQL, with
# the option to grant it. Parameters: oid, oid.
GRANTS = """
SELECT a.privilege_type, NULL::text,
       CASE a.grantee WHEN 0 THEN 'PUBLIC'
            ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END, a.is_grantable
  FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
 WHERE c.oid = %s AND a.grantee <> c.relowner
UNION ALL
SELECT a.privilege_type, t.attname::text,
       CASE a.grantee WHEN 0 THEN 'PUBLIC'
            ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END, a.is_grantable
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped,
       pg_catalog.aclexplode(t.attacl) a
 WHERE c.oid = %s AND a.grantee <> c.relowner
"""
MAX_CLASSES = 1_000_000
MAX_TARGETS = 1_000_000
# As float32, more than a value of the server can hold.
MAX_INPUTS = 2**28
MAX_SIZE = 2**31 - 1
MAX_DIMENSIONS = 32
# Inputs or outputs of a model.
MAX_LISTED = 100
_SHOWN = 60
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """The row of a summary table.

    Attributes:
        role: the name of the argument, for messages.
        table: where the row is from.
        row: its values by column.
        hint: what makes such tables.
    """

    role: str
    table: QualifiedName
    row: Mapping[str, Any]
    hint: str

    def text(self, name: str) -> str:
        """A text."""
        return self._text(name, self.row[name])

    def texts(self, name: str) -> list[str]:
        """Texts, at least one."""
        return [self._text(name, value) for value in self._list(name)]

    def names(self, name: str) -> list[str]:
        """Names of columns, each once."""
        found = self.texts(name)
        if len(found) > MAX_LISTED or len(set(found)) < len(found):
            raise self._wrong(name, f"at most {MAX_LISTED} different names")
        return found

    def choice(self, name: str, value: Any, *allowed: str) -> str:
        """Checked word, one of those allowed."""
        if value not in allowed:
            raise self._wrong(name, " or ".join(allowed))
        return str(value)

    def whole(self, name: str, value: Any, low: int, high: int = MAX_SIZE) -> int:
        """A whole number."""
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(name, f"a whole number from {low} to {high}")
        return value

    def wholes(self, name: str) -> list[int]:
        """Checked whole numbers, at least one of them."""
        return [self.whole(name, value, 0) for value in self._list(name)]

    def count(self, name: str, value: Any) -> int:
        """A number of classes; NULL is 0."""
        return 0 if value is None else self.whole(name, value, 0, MAX_CLASSES)

    def at(self, name: str, index: int) -> Any:
        """An element of an array, or of JSON."""
        found = self._list(name)
        if index >= len(found):
            raise self._wrong(name, "more elements")
        return found[index]

    def divisor(self, name: str) -> float:
        """A finite number that is not 0."""
        value = self.row[name]
        if not isinstance(value, int | float) or not math.isfinite(value) or not value:
            raise self._wrong(name, "a finite number except 0")
        return float(value)

    def shape(self, name: str, value: Any, most: int = MAX_INPUTS) -> Shape:
        """Sizes of dimensions, of at most so many elements together."""
        if not isinstance(value, list | tuple) or len(value) > MAX_DIMENSIONS:
            raise self._wrong(name, f"at most {MAX_DIMENSIONS} whole numbers")
        found = tuple(self.whole(name, size, 1) for size in value)
        if math.prod(found) > most:
            raise self._wrong(name, f"a shape of at most {most} elements")
        return found

    # -- inside ----------------------------------------------------------------
    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def _list(self, name: str) -> list[Any]:
        value = self.row[name]
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        if not isinstance(value, list) or not value:
            raise self._wrong(name, "an array with at least one element")
        return value

    def _wrong(self, name: str, allowed: str) -> WrongObjectType:
        got = repr(self.row[name])
        shown = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}..."
        return WrongObjectType(
            f"{self.role}: {self.table} has {shown} in column {name}; allowed: {allowed}",
            hint=self.hint,
        )
