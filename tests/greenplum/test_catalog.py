"""The catalog where each segment has a copy: what drivers write, and who may."""

from __future__ import annotations

from dataclasses import replace

import psycopg2
import pytest
from run_states import configuration

from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import Architecture, Hop
from cerebro_db.core.tasks import Measures
from cerebro_db.decide.strategies import parse_strategy
from cerebro_db.postgres.catalog.runs import Catalog, PackedMark, RunTables
from cerebro_db.postgres.names import QualifiedName
from conftest import Sql

COPIES = "SELECT count(*) FROM gp_dist_random('cerebro.catalog_{}') WHERE run_id = %s"


def new_run(catalog: Catalog, number: int) -> int:
    facts = ArchitectureFacts(1, 1, False, False, 8, ((1,),), ((1,),))
    model = Architecture(1, "", "{}", facts, False)
    spec = RunSpec(2, 0, 2, {"training": (0, 1, 2)}, parse_strategy("hopper", None))
    output = QualifiedName("public", "o")
    tables = RunTables(output, False, PackedMark(1, ""), None, f"run_{number:032x}")
    configurations = [replace(configuration(key), architecture=model) for key in (1, 2)]
    return catalog.new_run(spec, tables, 2 * number, configurations, [model], "public.m")


def test_a_run_from_its_beginning_to_its_end(catalog: Catalog, segments: Sql) -> None:
    run_id = new_run(catalog, 1)
    assert catalog.run(run_id).status == "interrupted"  # nobody holds its lock
    catalog.driven(run_id)
    catalog.started(run_id, {"tensorflow": "x"})
    catalog.add_plan(run_id, [Hop(1, 1, 0, 2), Hop(1, 2, 0, 1, 2)], {(1, 2): "why"})
    measures = Measures(1, 1, "training", 0.5, ["a"], [0.25], 1.0)
    catalog.add_metrics(run_id, [measures])
    catalog.configuration_ended(run_id, 2, "failed", "why")
    request = catalog.add_request(run_id, "pause", None)
    assert [found[0] for found in catalog.requests(run_id)] == [request]
    catalog.forget_requests(run_id)
    catalog.forget_hops(run_id, {1: 0}, 3)
    assert len(catalog.plan(run_id, 1)) == 2
    assert catalog.metrics(run_id) == [measures]
    assert catalog.planned(run_id) == {1: 2}
    assert [one.status for one in catalog.configurations(run_id)] == ["training", "failed"]
    catalog.forget_metrics(run_id, [(1, 1)])
    catalog.configurations_ended(run_id, [1], "finished")
    catalog.run_ended(run_id, "finished")
    found = catalog.run(run_id)
    assert (found.status, found.is_mine, found.manifest) == ("finished", True, {"tensorflow": "x"})
    # The same on every segment, times as well.
    rows = segments.fetch(
        "SELECT DISTINCT started, finished FROM gp_dist_random('cerebro.catalog_runs') "
        "WHERE run_id = %s",
        (run_id,),
    )
    assert len(rows) == 1
    catalog.drop_run(run_id)
    for table in ("runs", "configurations", "plan", "architectures"):
        assert segments.value(COPIES.format(table), (run_id,)) == 0


def test_a_run_is_its_owners(catalog: Catalog, segments: Sql) -> None:
    run_id = new_run(catalog, 2)
    segments.run("CREATE ROLE other; GRANT cerebro_user TO other; SET ROLE other")
    try:
        assert segments.fetch("SELECT * FROM cerebro.runs") == []
        with pytest.raises(psycopg2.Error) as failure:
            segments.run("SELECT cerebro._add_plan(%s, '[]')", (run_id,))
        assert failure.value.pgcode == "44000"
    finally:
        segments.run("RESET ROLE; DROP ROLE other")
