"""A database in which everything was executed that the documentation shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from servers import Server, connected, drop_database, make_database

from tests.docs.pages import Block, in_order, statements

# What cannot be executed, by how it begins, and why. It is parsed all the same.
NOT_RUN = {
    "SELECT cron.": "needs the extension pg_cron",
    "CREATE TABLE segments_to_use": "needs a server with segments, and hosts with GPUs",
    "SELECT cerebro_pack('plants_train', 'plants_packed', 'kind', 'leaf', distribution": "the same",
}
# Pages whose Python needs a package that the tests can do without; other tests execute them where it is installed.
ELSEWHERE = ("pytorch.md",)
# Roles that the pages grant rights to.
ROLES = ("alice",)


@dataclass(frozen=True)
class Documented:
    """The database, and what its statements have answered.

    Attributes:
        sql: a light session on it.
        answers: page, statement and rows, in the order of execution.
    """

    sql: Any
    answers: list[tuple[str, str, list[dict[str, Any]]]]

    def shown(self, page: str, beginning: str) -> list[list[dict[str, Any]]]:
        """The rows of each statement of a page that begins so."""
        return [
            rows
            for place, statement, rows in self.answers
            if place == page and statement.startswith(beginning)
        ]


@pytest.fixture(scope="session")
def documented(cluster: Server, administrator: Any, template: str) -> Iterator[Documented]:
    """Everything was executed in one session: TensorFlow was imported once."""
    from tests.conftest import Sql

    dsn = cluster.dsn("documented")
    with _roles(administrator):
        make_database(administrator, "documented", template)
        try:
            administrator.run(
                'ALTER DATABASE documented SET search_path = "$user", public, cerebro'
            )
            with closing(connected(dsn)) as connection:
                answers = _execute_all(connection, dsn)
            # With that session those went that it worked through; this one opens none.
            with closing(connected(dsn)) as connection:
                yield Documented(Sql(connection, dsn), answers)
        finally:  # also where a statement has failed: a cluster with segments stays
            drop_database(administrator, "documented")


@contextmanager
def _roles(administrator: Any) -> Iterator[None]:
    """Those of the pages, for as long as they are needed."""
    for role in ROLES:
        administrator.run(f"CREATE ROLE {role}")
    try:
        yield
    finally:
        for role in ROLES:
            administrator.run(f"DROP ROLE {role}")


def _execute_all(connection: Any, dsn: str) -> list[tuple[str, str, list[dict[str, Any]]]]:
    answers: list[tuple[str, str, list[dict[str, Any]]]] = []
    of_pages: dict[Path, dict[str, Any]] = {}  # blocks of a page go on from one another
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "DSN", dsn)
        for block in in_order():
            if block.language == "python" and block.page.name not in ELSEWHERE:
                names = of_pages.setdefault(block.page, {"__name__": "__main__"})
                exec(compile(block.text, block.place, "exec"), names)
            if block.language == "sql":
                # One by one: each statement sees what the one before has committed.
                for statement in statements(block.text):
                    rows = _execute(connection, block, statement)
                    answers.append((block.page.name, statement, rows))
    return answers


def _execute(connection: Any, block: Block, statement: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        try:
            if statement.startswith(tuple(NOT_RUN)):
                # A function's body is parsed before it is run, and this one ends before.
                cursor.execute(f"DO $parse$ BEGIN RETURN; {statement}; END $parse$")
            else:
                cursor.execute(statement)
        except psycopg2.Error as error:
            pytest.fail(f"{block.place}: {statement}\n{error}")
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
