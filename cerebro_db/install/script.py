"""The SQL of an installation: the same statements are executed by install and shown by print."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import jinja2

import cerebro_db
from cerebro_db.configs.settings import OF_SUPERUSERS, described
from cerebro_db.database.dialects.capabilities import HAS_SEGMENTS
from cerebro_db.database.dialects.greenplum_install import (
    CATALOG_DIFFERENCES,
    CHECK_MODEL,
    CHECK_RUN,
    HELD_LOCKS,
    LOCK_CATALOG,
    OWN_NUMBERS,
    REPLICATE_CATALOG,
)
from cerebro_db.errors import InvalidArgument
from cerebro_db.install import search_path, sources
from cerebro_db.install.pins import pinned

# Executed at the first call in a session; later ones compare one tuple. What is found through
# the baked-in paths, and through their .pth files, comes before what the system has.
_PRELUDE = """\
_paths = {paths}
if GD.get("cerebro_db.paths") != _paths:
    import site as _site, sys as _sys
    _before = [_path for _path in _sys.path if _path not in _paths]
    _sys.path[:] = _before
    for _path in _paths:
        _site.addsitedir(_path)
    _sys.path.sort(key=_before.__contains__)
    GD["cerebro_db.paths"] = _paths
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


@dataclass(frozen=True)
class Step:
    """A part of the script that is executed at once."""

    name: str
    sql: str


@dataclass(frozen=True)
class Script:
    """Renders the SQL of an installation for a server that imports from ``python_paths``."""

    python_paths: tuple[str, ...] = field(default_factory=sources.default_python_paths)

    def __post_init__(self) -> None:
        for path in self.python_paths:
            if not path.startswith("/") or "\n" in path:
                raise InvalidArgument(
                    f"got the Python path {path!r}, allowed are absolute paths"
                    " of the server's machine"
                )

    def steps(self) -> Iterator[Step]:
        """All steps, in their order."""
        yield from self._folder("prepare")
        yield from self._migrations()
        yield from self._folder("objects")
        yield from self._folder("finish")

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
        """A PL/Python body of the SQL folder, which may use three constants of this script."""
        constants = {
            "PYTHON_PATHS": self.python_paths,
            "PYTHON_VERSION": sources.python_version_of(self.python_paths),
            "PACKAGE_VERSION": cerebro_db.__version__,
        }
        lines = "".join(f"{name} = {value!a}\n" for name, value in constants.items())
        return dollar_quoted(lines + _text(sources.sql_directory() / file))

    def udf(self, name: str) -> str:
        """The body of the SQL function ``name``: finds the package, then does what udfs/ says."""
        return dollar_quoted(self.prelude() + _text(sources.udfs_directory() / f"{name}.py"))

    def prelude(self) -> str:
        """Python that puts the package on the path of a backend."""
        return _PRELUDE.format(paths=ascii(self.python_paths))

    def render(self, template: str, **values: object) -> str:
        """Fills a template of the SQL folder."""
        return self._environment.get_template(template).render(**values)

    def _folder(self, folder: str) -> Iterator[Step]:
        for path in _files(folder):
            name = f"{folder}/{path.name}"
            yield Step(name, self.render(name))

    def _migrations(self) -> Iterator[Step]:
        for path in _files("migrations"):
            values = {
                "name": path.stem,
                "checksum": hashlib.sha256(path.read_bytes()).hexdigest(),
                "statements": self.render(f"migrations/{path.name}"),
            }
            yield Step(f"migrations/{path.name}", self.render("migration.sql", **values))

    @cached_property
    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(sources.sql_directory()),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
        )
        environment.globals.update(
            udf=self.udf,
            body=self.body,
            package_version=cerebro_db.__version__,
            settings=described(),
            catalog_differences=CATALOG_DIFFERENCES,
            check_model=CHECK_MODEL,
            check_run=CHECK_RUN,
            has_segments=HAS_SEGMENTS,
            held_locks=HELD_LOCKS,
            lock_catalog=LOCK_CATALOG,
            of_superusers=sorted(OF_SUPERUSERS),
            own_numbers=OWN_NUMBERS,
            replicate_catalog=REPLICATE_CATALOG,
            search_path=search_path,
            lock_seconds=LOCK_SECONDS,
            pinned=pinned,
            migration_names=[path.stem for path in _files("migrations")],
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


def _files(folder: str) -> list[Path]:
    return sorted((sources.sql_directory() / folder).glob("*.sql"))


def _text(path: Path) -> str:
    return path.read_text("utf-8")
