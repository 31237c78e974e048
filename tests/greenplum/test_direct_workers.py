"""Workers of other machines are refused where states lie on segments."""

from __future__ import annotations

from contextlib import closing

import pytest

from cerebro_db.errors import NotSupported
from cerebro_db.postgres.direct_session import DirectSession


def test_a_direct_worker_is_refused(segments_dsn: str) -> None:
    with closing(DirectSession(segments_dsn)) as session:
        session.check_version()
        with pytest.raises(
            NotSupported, match="got a server with segments; allowed: PostgreSQL"
        ) as caught:
            session.find(1)
    assert caught.value.hint
