"""A client process: one connection that reports its server process, and then runs statements.

    python client.py DSN STATEMENT...

It is run by its path, so it imports nothing of this package.
"""

from __future__ import annotations

import sys

import psycopg2


def main(dsn: str, *statements: str) -> None:
    """Run statements, one after another; an error ends this process."""
    connection = psycopg2.connect(dsn, application_name="chaos client")
    connection.autocommit = True
    sys.stdout.write(f"{connection.info.backend_pid}\n")
    sys.stdout.flush()
    for statement in statements:
        connection.cursor().execute(statement)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except psycopg2.Error as error:
        sys.exit(f"{error.pgcode}: {error}")
