"""The catalog where each segment has a copy: what drivers write, and who may."""

from __future__ import annotations

import psycopg2
import pytest

from cerebro_db.core.spec import Hop
from cerebro_db.core.tasks import Measures
from cerebro_db.postgres.catalog.runs import ArchitectureRow, Catalog, ConfigurationRow, RunRow
from cerebro_db.postgres.names import QualifiedName
from conftest import Sql

COPIES = "SELECT count(*) FROM gp_dist_random('cerebro.catalog_{}') WHERE run_id = %s"


def _row(number: int) -> RunRow:
    return RunRow(
        name="a run", description=None, source_table="p", validation_table=None,
        model_output_table="o", model_selection_table="s", model_arch_table="m",
        num_iterations=2, metrics_compute_frequency=2, warm_start=False, seed=0,
        num_partitions=3, num_workers=3, threads=1, use_gpus=False, use_caching=True,
        durability="hop", output_schema="public", output_name="o", source_oid=1,
        source_print="", validation_oid=None, validation_print=None,
        states=f"run_{number:032x}", lock_key=2 * number, cerebro_version="0",
        schedule="hopper", replaces=False,
    )  # fmt: skip


def new_run(catalog: Catalog, number: int) -> int:
    configurations = [
        ConfigurationRow(key, 1, "c", "f", 0.5, 7, False, 3, "min", 2) for key in (1, 2)
    ]
    models = [ArchitectureRow(1, "{}", "{}", False)]
    return catalog.new_run(_row(number), configurations, models, QualifiedName("public", "m"))


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
    assert [status for _, status, _ in catalog.configurations(run_id)] == ["training", "failed"]
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
            segments.run("INSERT INTO cerebro._plan VALUES (%s, 1, 1, 0, 0)", (run_id,))
        assert failure.value.pgcode == "44000"
    finally:
        segments.run("RESET ROLE; DROP ROLE other")
