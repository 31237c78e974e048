"""A cancel request that comes while a function that drives others sends a message."""

from __future__ import annotations

from collections.abc import Callable

import psycopg2.errors
import pytest
from conftest import Sql

_TELL = """
CREATE FUNCTION tell_and_look(held boolean) RETURNS text LANGUAGE plpython3u AS $$
import contextlib, os, signal
from cerebro_db.database.dialects import interrupts
with interrupts.restored():
    interrupts.put_off()
    os.kill(os.getpid(), signal.SIGINT)
    with interrupts.held() if held else contextlib.nullcontext():
        plpy.notice("told")
    try:
        interrupts.raise_pending()
    except KeyboardInterrupt:
        with interrupts.held():
            plpy.notice("heard")
        raise
    return "nothing"
$$
"""


@pytest.fixture
def caller(segments: Sql, connect: Callable[[str], Sql]) -> Sql:
    """A session that knows where the package is."""
    segments.run(_TELL)
    sql = connect(segments.dsn)
    sql.fetch("SELECT cerebro_version()")
    return sql


def test_a_message_is_sent_and_the_cancel_request_is_heard_after_it(
    caller: Sql, segments: Sql
) -> None:
    with pytest.raises(psycopg2.errors.QueryCanceled):
        caller.fetch("SELECT tell_and_look(true)")
    assert [line.split()[-1] for line in caller.notices[-2:]] == ["told", "heard"]
    assert caller.fetch("SELECT 1") == [(1,)]  # it holds nothing back any more
    # Otherwise the server takes the message for what has failed.
    with pytest.raises(psycopg2.errors.InternalError, match="canceling statement"):
        caller.fetch("SELECT tell_and_look(false)")
    segments.run("DROP FUNCTION tell_and_look(boolean)")
