"""A driver that finds its server dead leaves a run that can be resumed, whatever it still reaches."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_db.errors import RunInterrupted
from cerebro_db.postgres.calls.host import Client
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.driver import fit_multiple


def test_the_run_is_interrupted_not_failed(bench: Any) -> None:
    client = Client.of(bench.dsn)
    name = "dead_server"

    def tick() -> None:
        if bench.fetch("SELECT 1 FROM cerebro.runs WHERE name = %s AND status = 'running'", [name]):
            raise RunInterrupted("the server has died")

    request = FitRequest(
        source_table="packed",
        model_output_table=name,
        model_selection_table="configs",
        num_iterations=2,
        name=name,
        num_workers=1,
        search_path=client.search_path,
    )
    client.pool.tick = tick
    with pytest.raises(RunInterrupted, match="the server has died"):
        fit_multiple(client.pool, client.dialect, request)
    client.pool.close()
    run_id, status, error = bench.row(
        "SELECT run_id, status, error FROM cerebro.runs WHERE name = %s", [name]
    )
    assert (status, error) == ("interrupted", "the server has died")
    assert bench.value("SELECT cerebro_pause(%s)", (run_id,)) == "paused"
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
