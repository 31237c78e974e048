"""The view of jobs of a server with segments gives the places that the other one does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cerebro_db.install.script import Script
from tests.reasons import EMBEDDED_ONLY

ROLES = ("cerebro_owner", "cerebro_user", "cerebro_admin")
# What happened to a job, the last one last.
LIVES = [(), ("queued",), ("queued", "started"), ("queued", "started", "queued"), ("started", "finished"),
         ("cancelled",)]  # fmt: skip


def view_of_segments() -> str:
    """The statement of Greenplum that makes the view, under another name, and without its column of locks."""
    text = Script(dialect="greenplum6").text()
    begin = text.index("CREATE VIEW cerebro.jobs ")
    statement = text[begin : text.index("COMMENT ON VIEW cerebro.jobs ", begin)]
    statement = statement.replace("cerebro.jobs ", "cerebro.jobs_of_segments ", 1)
    assert "gp_segment_id" in statement
    return statement.replace(" AND l.gp_segment_id = -1", "")


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_both_views_of_jobs_give_the_same_places(sql: Any) -> None:
    sql.run(view_of_segments())
    chance = random.Random(3)
    for number in range(60):
        role, life = chance.choice(ROLES), chance.choice(LIVES)
        job_id = sql.value(
            "INSERT INTO cerebro.catalog_jobs (owner, calls, session, priority, lock_key) "
            "VALUES (%s::regrole, '[]', '{}', %s, %s) RETURNING job_id",
            (role, chance.choice((0, 0, 0, -5, 10)), number),
        )
        for action in life:
            sql.run(
                "INSERT INTO cerebro.catalog_job_events (job_id, action) VALUES (%s, %s)",
                (job_id, action),
            )
    # Some go on: of one role more than of others.
    sql.run(
        "SELECT pg_advisory_lock(lock_key) FROM cerebro.catalog_jobs "
        "WHERE NOT ended AND (owner = 'cerebro_user'::regrole AND lock_key % 4 = 0 OR lock_key % 9 = 0)"
    )
    query = "SELECT job_id, owner, status, place FROM {} ORDER BY place, job_id"
    found = sql.fetch(query.format("cerebro.jobs"))
    assert {status for _, _, status, _ in found} >= {"running", "queued", "interrupted", "finished"}
    waiting = [row for row in found if row[3] is not None]
    assert [place for *_, place in waiting] == list(range(1, len(waiting) + 1))
    assert len({owner for _, owner, _, _ in waiting[:6]}) > 1
    assert sql.fetch(query.format("cerebro.jobs_of_segments")) == found
