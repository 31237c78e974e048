"""The SQL of an installation: the same statements are executed by install and shown by print."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import jinja2

import cerebro_db
from cerebro_db.configs.messages import check_choice
from cerebro_db.configs.settings import OF_SUPERUSERS, described
from cerebro_db.errors import InvalidArgument
from cerebro_db.install import queries, sources
from cerebro_db.postgres.dialects.choice import DIALECTS, IDENTITY, PostgreSQL
from cerebro_db.requests import sql as declared

# A database, or a role, may have others. Each is set where the server has it, and the role may.
_VALUES: Mapping[str, str] = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "array_nulls": "on",
    "backslash_quote": "safe_encoding",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_min_messages": "warning",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "quote_all_identifiers": "off",
    "row_security": "on",
    "session_replication_role": "origin",
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "transform_null_equals": "off",
}


def pinned(how: str) -> str:
    """A statement that gives all of these settings their values.

    Args:
        how: ``SET``, or ``SET LOCAL`` for the transaction.
    """
    values = ",\n        ".join(f"('{name}', '{value}')" for name, value in _VALUES.items())
    return f"""DO $$
DECLARE
    pin record;
BEGIN
    FOR pin IN SELECT p.name, p.value FROM (VALUES
        {values}) AS p (name, value)
          JOIN pg_catalog.pg_settings s ON s.name OPERATOR(pg_catalog.=) p.name
         WHERE s.context OPERATOR(pg_catalog.=) 'user'
            OR pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on'
    LOOP
        EXECUTE pg_catalog.format('{how} %s = %L', pin.name, pin.value);
    END LOOP;
END
$$;"""


# Executed at the first call in a session; later ones compare one dictionary. The relay is loaded from
# its own folder: the server's Python finds nothing else of the package, or of what that needs.
_PRELUDE = """\
_told = {told}
relay = GD.get("cerebro.relay")
if relay is None or relay.told != _told:
    import importlib.util as _util, sys as _sys
    _folder = _told["package"] + "/relay"
    for _name in [_name for _name in _sys.modules if _name.partition(".")[0] == "cerebro_relay"]:
        del _sys.modules[_name]
    _spec = _util.spec_from_file_location(
        "cerebro_relay", _folder + "/__init__.py", submodule_search_locations=[_folder])
    _module = _sys.modules["cerebro_relay"] = _util.module_from_spec(_spec)
    try:
        _spec.loader.exec_module(_module)
    except OSError as _error:
        plpy.error("Cerebro-DB: the package cannot be read on the server: {{}}".format(_error.strerror))
    relay = GD["cerebro.relay"] = _module.Relay(plpy, _told)
"""
_DEFINITION = re.compile(
    r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|AGGREGATE)\s+cerebro\.(\w+)", re.I | re.M
)
# Another installation in the same database is waited for so long.
LOCK_SECONDS = 60
HEADER = """\
-- Cerebro-DB {version}. Apply as a superuser, in one transaction:
--     psql -X -1 -d <database> -f <this file>
\\set ON_ERROR_STOP on
-- Fails outside of a transaction, before anything is done: add -1.
SAVEPOINT all_or_nothing;
RELEASE SAVEPOINT all_or_nothing;
"""


class Step(NamedTuple):
    """A part of the script that is executed at once."""

    name: str
    sql: str


@dataclass(frozen=True)
class Script:
    """Renders the SQL of an installation.

    Args:
        python: program of the virtual environment on the server's machine.
        package: folder of the package there.
        keeper_directory: folder there in which keepers make theirs.
        files_root: directory there for files outside of the database; None to leave the setting as it is.
        dialect: of the server.
        madlib: whether schema madlib has MADlib's names of the functions.
    """

    python: str = sys.executable
    package: str = field(default_factory=sources.package_directory)
    keeper_directory: str = "/tmp"
    files_root: str | None = None
    dialect: str = PostgreSQL.name
    madlib: bool = False

    def __post_init__(self) -> None:
        check_choice("dialect", self.dialect, tuple(DIALECTS))
        for name in ("python", "package", "keeper_directory", "files_root"):
            path = getattr(self, name)
            if path and (not path.startswith("/") or "\n" in path):
                raise InvalidArgument(
                    f"{name}: got {path!r}; allowed: an absolute path of the server's machine"
                )

    def steps(self) -> Iterator[Step]:
        """All steps, in their order."""
        yield from self._folder("prepare")
        yield from self._migrations()
        yield from self._folder("objects")
        yield from self._folder("finish")
        if self.files_root is not None:
            call = f"SELECT cerebro.cerebro_set('files_root', {sql_string(self.files_root)});"
            yield Step("the root of files", call)

    def text(self) -> str:
        """The whole script, for psql."""
        parts = [HEADER.format(version=cerebro_db.__version__)]
        parts += [f"-- {step.name}\n{step.sql.rstrip()}\n" for step in self.steps()]
        return "\n".join(parts)

    def functions(self) -> tuple[str, ...]:
        """The names of the SQL functions and aggregates that an installation has."""
        found = (_DEFINITION.findall(step.sql) for step in self._folder("objects"))
        return tuple(sorted({name for names in found for name in names}))

    def body(self, file: str) -> str:
        """PL/Python body of the SQL folder, which has the facts of the installation as ``TOLD``."""
        told = f"TOLD = {self._told!a}\n"
        return dollar_quoted(told + _text(sources.sql_directory() / file))

    def relayed(self, file: str) -> str:
        """A PL/Python body of the SQL folder that calls the relay."""
        return dollar_quoted(self.prelude() + _text(sources.sql_directory() / file))

    def udf(self, name: str) -> str:
        """The body of the SQL function ``name``: loads the relay, then does what udfs/ says."""
        return self.plpython(_text(sources.udfs_directory() / f"{name}.py"))

    def plpython(self, text: str) -> str:
        """A body that loads the relay, and then does what some Python says."""
        return dollar_quoted(self.prelude() + text)

    def function(self, name: str) -> str:
        """The statements that make the functions of a name, as they are declared in ``requests/``."""
        return declared.created(name, self.plpython)

    def prelude(self) -> str:
        """Python that loads the relay in a server process."""
        return _PRELUDE.format(told=ascii(self._told))

    @property
    def _told(self) -> dict[str, str]:
        """Arguments of the relay's ``Installation``."""
        return {
            "interpreter": self.python,
            "package": self.package,
            "directory": self.keeper_directory,
            "version": cerebro_db.__version__,
        }

    def render(self, template: str, **values: object) -> str:
        """Fills a template of the SQL folder."""
        return self._environment.get_template(template).render(**values)

    def _folder(self, folder: str) -> Iterator[Step]:
        for file in self._files(folder):
            name = f"{folder}/{file}"
            if sql := self.render(name).strip():
                yield Step(name, sql)

    def _migrations(self) -> Iterator[Step]:
        for path in _migrations():
            values = {
                "name": path.stem,
                "checksum": hashlib.sha256(path.read_bytes()).hexdigest(),
                "statements": self.render(f"migrations/{path.name}"),
            }
            yield Step(f"migrations/{path.name}", self.render("migration.sql", **values))

    def _files(self, folder: str) -> list[str]:
        """The names of the files of a folder, in their order; the dialect may have replaced some, and added others."""
        return sorted(
            {path.name for base in self._folders for path in (base / folder).glob("*.sql")}
        )

    @property
    def _folders(self) -> list[Path]:
        own = DIALECTS[self.dialect].sql
        return [*([own] if own else []), sources.sql_directory()]

    @cached_property
    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(self._folders),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
        )
        environment.globals.update(
            udf=self.udf,
            plpython=self.plpython,
            function=self.function,
            head=declared.head,
            variants=declared.variants,
            comment=declared.comment,
            body=self.body,
            relayed=self.relayed,
            package_version=cerebro_db.__version__,
            settings=described(),
            dialect=DIALECTS[self.dialect],
            identity=IDENTITY,
            of_superusers=sorted(OF_SUPERUSERS),
            search_path=queries,
            madlib=self.madlib,
            madlib_comment=queries.MADLIB_COMMENT,
            lock_seconds=LOCK_SECONDS,
            pinned=pinned,
            migration_names=[path.stem for path in _migrations()],
        )
        filters: dict[str, Callable[..., str]] = {
            "dollar_quoted": dollar_quoted,
            "sql_array": sql_array,
            "sql_string": sql_string,
        }
        environment.filters.update(filters)
        return environment


def dollar_quoted(text: str) -> str:
    """Quotes ``text`` with a tag that does not occur in it."""
    tag, number = "$cerebro$", 0
    while tag in text:
        number += 1
        tag = f"$cerebro{number}$"
    return f"{tag}\n{text.rstrip()}\n{tag}"


def sql_string(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def sql_array(texts: list[str]) -> str:
    """An array of strings, also where there are none."""
    return f"ARRAY[{', '.join(map(sql_string, texts))}]::text[]"


def _migrations() -> list[Path]:
    return sorted((sources.sql_directory() / "migrations").glob("*.sql"))


def _text(path: Path) -> str:
    return path.read_text("utf-8")
