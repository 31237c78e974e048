"""Objects that the owner of a database plants: what statements call unqualified is taken from these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg2

SCHEMA = "planted"
WORD = "planted"

# Types of which an argument of any type may be; a call with one of these fits better than the server's.
CONCRETE = ("text", "name", "integer", "oid", "text[]", "name[]", "oid[]")
_POLYMORPHIC = {
    "any",
    "anyelement",
    "anyarray",
    "anynonarray",
    "anycompatible",
    "anycompatiblearray",
}
# An operator for types of which the server has none takes a cast elsewhere.
MIXED = [("name", "text"), ("text", "name"), ("oid", "integer"), ("oid", "regclass"), ("regclass", "oid"),
         ("oid", "bigint"), ("bigint", "integer"), ('"char"', "text"), ("name", "name")]  # fmt: skip
TYPES = (
    "text",
    "name",
    "oid",
    "regclass",
    "regprocedure",
    "json",
    "bytea",
    "int4",
    "bool",
    "timestamptz",
)

_FUNCTIONS = """
SELECT p.proname::text, p.proretset,
       pg_catalog.pg_get_function_arguments(p.oid), pg_catalog.pg_get_function_result(p.oid),
       ARRAY(SELECT t.typname::text FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS a(type, n)
               JOIN pg_catalog.pg_type t ON t.oid = a.type ORDER BY n),
       ARRAY(SELECT t.typname::text FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS a(type, n)
               JOIN pg_catalog.pg_type t ON t.oid = a.type WHERE t.typtype = 'p' ORDER BY n),
       p.provariadic <> 0
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_type r ON r.oid = p.prorettype
 WHERE p.pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog') AND p.proname = ANY (%s)
   AND (r.typtype <> 'p' OR r.typname IN ('record', 'void', 'anyelement', 'anyarray',
                                          'anycompatible', 'anycompatiblearray'))
"""
_OPERATORS = """
SELECT oprname::text, pg_catalog.format_type(oprleft, NULL), pg_catalog.format_type(oprright, NULL),
       pg_catalog.format_type(oprresult, NULL)
  FROM pg_catalog.pg_operator
 WHERE oprnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog') AND oprname = ANY (%s)
"""
_RELATIONS = """
SELECT relname::text FROM pg_catalog.pg_class
 WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog') AND relkind IN ('r', 'v') AND relname = ANY (%s)
"""


def calls_in(text: str) -> list[str]:
    """The names that may be functions in statements; comments, texts and Python may give more."""
    return sorted(set(re.findall(r"\b([a-z_][a-z0-9_]*)\s*\(", text)))


def operators_in(text: str) -> list[str]:
    """The operators in statements, in the same way."""
    return sorted(set(re.findall(r"[-+*/<>=~!@#%^&|`?]+", text)))


def calls(sql: Any) -> int:
    """Number of them that were run in a database, by whomever: a sequence keeps what is rolled back."""
    ((last, called),) = sql.fetch(f"SELECT last_value, is_called FROM {SCHEMA}.calls")
    return int(last) if called else 0


class Plants:
    """Objects that the owner of a database makes in a schema that comes first on the search path.

    Args:
        owner: a connection of that role, which is no superuser.
    """

    def __init__(self, owner: Any) -> None:
        self._run = owner.run
        self._fetch = owner.fetch
        self._number = 0
        self.planted: set[str] = set()
        self._run(f"CREATE SCHEMA {SCHEMA}; GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC")
        self._run(f"CREATE SEQUENCE {SCHEMA}.calls; GRANT ALL ON {SCHEMA}.calls TO PUBLIC")

    def grow(self, text: str) -> None:
        """Plant every function, operator and relation of the server that a text names, and types."""
        for name, arguments, result in self._functions(calls_in(text)):
            self._function(name, arguments, result)
        for name, left, right, result in self._operators(operators_in(text)):
            self._operator(name, left, right, result)
        names = sorted(set(re.findall(r"\bpg_\w+", text)))
        for (name,) in self._fetch(_RELATIONS, [names]):
            self._make(
                f"CREATE VIEW {SCHEMA}.{name} AS SELECT * FROM pg_catalog.{name} WHERE {self._trap(name)}"
            )
            self.planted.add(name)
        for kind in TYPES:
            self._make(
                f"CREATE DOMAIN {SCHEMA}.{kind} AS pg_catalog.{kind} CHECK ({self._trap(kind)})"
            )

    def _trap(self, what: str) -> str:
        self._number += 1
        function = f"{SCHEMA}.trap_{self._number}"
        self._run(f"CREATE FUNCTION {function}() RETURNS boolean LANGUAGE plpgsql AS {_body(what)}")
        return f"{function}()"

    def _function(self, name: str, arguments: str, result: str) -> None:
        what = f"{name}({arguments})"
        made = self._make(
            f"CREATE FUNCTION {SCHEMA}.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS {_body(what)}"
        )
        if made:
            self.planted.add(name)

    def _operator(self, name: str, left: str, right: str, result: str) -> None:
        self._number += 1
        function = f"{SCHEMA}.operator_{self._number}"
        what = f"{left} {name} {right}"
        sides = [("LEFTARG", left)] * (left != "-") + [("RIGHTARG", right)]
        made = self._make(
            f"CREATE FUNCTION {function}({', '.join(kind for _, kind in sides)}) RETURNS {result} "
            f"LANGUAGE plpgsql AS {_body(what)}"
        ) and self._make(
            f"CREATE OPERATOR {SCHEMA}.{name} (PROCEDURE = {function}, "
            + ", ".join(f"{side} = {kind}" for side, kind in sides)
            + ")"
        )
        if made:
            self.planted.add(name)

    def _functions(self, names: list[str]) -> Iterator[tuple[str, str, str]]:
        for name, is_set, arguments, result, kinds, pseudo, variadic in self._fetch(
            _FUNCTIONS, [names]
        ):
            if not pseudo and not variadic:
                yield name, arguments, result
            elif set(pseudo) <= _POLYMORPHIC:
                for types in _concrete(kinds, variadic):
                    yield name, ", ".join(types), _result(result, types, is_set)
        for name in {"count"} & set(names):
            yield from ((name, kind, "bigint") for kind in CONCRETE)

    def _operators(self, names: list[str]) -> Iterator[tuple[str, str, str, str]]:
        yield from self._fetch(_OPERATORS, [names])
        for name, (left, right) in product(names, MIXED):
            yield name, left, right, "boolean"

    def _make(self, statement: str) -> bool:
        """Tell whether the server takes it; it refuses functions of pseudo-types, and a second one."""
        try:
            self._run(statement)
        except psycopg2.Error:
            return False
        return True


def _body(what: str) -> str:
    told = what.replace("'", "''").replace("%", "%%")
    return (
        f"$plant$BEGIN PERFORM pg_catalog.nextval('{SCHEMA}.calls'); "
        f"RAISE EXCEPTION '{WORD}: {told} was run by %', current_user; END$plant$"
    )


def _concrete(kinds: list[str], variadic: bool) -> Iterator[tuple[str, ...]]:
    """Types for a call with arguments of any type."""
    fixed = [kind for kind in kinds if kind not in _POLYMORPHIC] if variadic else []
    if variadic:
        for count in (1, 2, 3, 4):
            for types in product(CONCRETE[:4], repeat=min(count, 2)):
                yield (*fixed, *types, *[types[-1]] * (count - len(types)))
        return
    for concrete in CONCRETE:
        element = concrete.removesuffix("[]")
        yield tuple(
            kind
            if kind not in _POLYMORPHIC
            else f"{element}[]"
            if "array" in kind and "non" not in kind
            else concrete
            for kind in kinds
        )


def _result(result: str, types: tuple[str, ...], is_set: bool) -> str:
    kind = result.removeprefix("SETOF ")
    if kind.startswith("any"):
        element = types[0].removesuffix("[]")
        kind = f"{element}[]" if kind.endswith("array") else element
    return f"SETOF {kind}" if is_set else kind
