"""Errors of all kinds tell users nothing of where on the server files lie."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

from tests.security.conftest import Person

PLANTED = """
CREATE FUNCTION {}.planted() RETURNS void LANGUAGE plpython3u AS $$
from cerebro_db.server.entry import entry
import os
def broken(plpy):
    open(os.path.join(os.getcwd(), "of", "nobody"))
entry(broken)(plpy)
$$
"""


def test_an_unexpected_error_of_the_server(root: Person, alice: Person) -> None:
    root.rows(PLANTED.format(alice.sql_name))
    home = root.value("SHOW data_directory")
    # A connection of the other tests takes such an error for what it is.
    with (
        closing(
            psycopg2.connect(alice.connection.dsn, options="-c client_min_messages=log")
        ) as plain,
        plain.cursor() as cursor,
    ):
        cursor.execute("SELECT cerebro.cerebro_version()")  # puts the package on the path
        with pytest.raises(psycopg2.Error) as raised:
            cursor.execute(f"SELECT {alice.sql_name}.planted()")
    message = raised.value.diag.message_primary or ""
    assert raised.value.pgcode == "38000"
    assert "unexpected error" in message
    assert "FileNotFoundError" in message
    told = f"{raised.value}{plain.notices}"
    assert home not in told
    assert "site-packages" not in told
