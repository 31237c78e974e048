"""Errors of all kinds tell users nothing of where on the server files lie."""

from __future__ import annotations

import os
import sys
from contextlib import closing

import psycopg2
import pytest

from cerebro_db.install.script import Script, dollar_quoted
from cerebro_db.trainers.child import described
from tests.security.conftest import Person

PLACE = f"{sys.prefix}/lib/secret"
# What a driver is asked for is no function of the package: a defect, whose message has that name.
BODY = f"""{Script().prelude()}
name = {f"settings.{PLACE}"!r}
return relay.driver(name)
"""


def test_an_unexpected_error() -> None:
    """A defect is told in one line; its traceback is for the server's log, which no client can ask for."""
    try:
        os.listdir(PLACE)
    except FileNotFoundError as error:
        told = described(error)
    assert told["sqlstate"] == "38000"
    assert "unexpected error" in told["message"]
    assert "FileNotFoundError" in told["message"]
    assert sys.prefix not in told["message"] + told["hint"]
    assert "Traceback" in told["log"]


def test_an_unexpected_error_of_a_driver(root: Person, alice: Person) -> None:
    function = f"{alice.sql_name}.planted()"
    root.rows(
        f"CREATE FUNCTION {function} RETURNS text LANGUAGE plpython3u AS {dollar_quoted(BODY)}"
    )
    home = root.value("SHOW data_directory")
    # A connection of the other tests takes such an error for what it is.
    options = "-c client_min_messages=log"
    with (
        closing(psycopg2.connect(alice.connection.dsn, options=options)) as plain,
        plain.cursor() as cursor,
        pytest.raises(psycopg2.Error) as raised,
    ):
        cursor.execute(f"SELECT {function}")
    root.rows(f"DROP FUNCTION {function}")
    diagnostics, message = raised.value.diag, raised.value.diag.message_primary or ""
    assert raised.value.pgcode == "38000"
    assert "unexpected error" in message
    assert "AttributeError" in message
    assert "lib/secret" in message
    assert "under the number" in (diagnostics.message_hint or "")
    told = f"{raised.value}{diagnostics.message_detail}{diagnostics.context}{plain.notices}"
    for place in (home, sys.prefix, sys.base_prefix, "site-packages", 'File "'):
        assert place not in told
