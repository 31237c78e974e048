"""The view for psql: the same ranks as the leaderboard, whatever numbers there are, and fast."""

from __future__ import annotations

from typing import Any

import pytest
from servers import as_role

from tests.watching.conftest import EPOCHS, Watched

BOARD = "SELECT * FROM cerebro.dashboard WHERE run_id = %s ORDER BY rank, mst_key"


def test_it_ranks_like_the_leaderboard(watched: Watched) -> None:
    for run_id, count in ((watched.run_id, 4), (watched.large, 1000)):
        ranks = "SELECT mst_key, rank, status FROM cerebro.{} WHERE run_id = %s ORDER BY mst_key"
        ours = watched.sql.fetch(ranks.format("dashboard"), (run_id,))
        assert ours == watched.sql.fetch(ranks.format("leaderboard"), (run_id,))
        assert len(ours) == count


def test_bars_and_curves(watched: Watched) -> None:
    rows = watched.sql.fetch(
        "SELECT epoch, epochs, progress, time_left, curve, measure, result, configuration "
        "FROM cerebro.dashboard WHERE run_id = %s ORDER BY rank",
        (watched.run_id,),
    )
    best = watched.sql.row(
        "SELECT validation_metrics[1] FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank LIMIT 1",
        (watched.run_id,),
    )[0]
    assert rows[0][6] == best
    for epoch, epochs, progress, left, curve, measure, _, configuration in rows:
        assert (epoch, epochs, progress, left) == (EPOCHS, EPOCHS, "█" * 20, None)
        assert len(curve) == EPOCHS
        assert set(curve) <= set("▁▂▃▄▅▆▇█")
        assert measure == "val_accuracy"
        assert configuration.startswith("model ")
        assert "Adam(lr=" in configuration
        assert "batch_size=8" in configuration


@pytest.fixture
def strange(watched: Watched) -> Any:
    """A run that goes on, whose numbers are at the limits of their type."""
    run_id = watched.sql.value(
        "INSERT INTO cerebro.catalog_runs (source_table, model_output_table, num_iterations, "
        "metrics_compute_frequency, warm_start, seed, num_partitions, num_workers, threads, manifest, status, "
        "driver_pid, started) VALUES ('s', 'o', 10, 1, false, 0, 2, 1, 1, '{}', 'running', 1, now()) RETURNING run_id"
    )
    yield run_id
    for table in ("metrics", "hops", "configurations", "runs"):
        watched.sql.run(f"DELETE FROM cerebro.catalog_{table} WHERE run_id = %s", (run_id,))


def test_any_number_can_be_shown(watched: Watched, strange: int) -> None:
    series = {
        1: ["NaN", "1", "0"], 2: ["Infinity", "-Infinity"], 3: ["1e308", "-1e308", "5e-324"],
        4: ["1e-300", "5e-324", "0"], 5: ["1", "1"], 6: [], 7: ["1e289", "-1e289", "1e-320"],
    }  # fmt: skip
    for key, values in series.items():
        watched.sql.run(
            "INSERT INTO cerebro.catalog_configurations VALUES (%s, %s, 1, '', '', 1, 1, false, 1, 'loss', 'training')",
            (strange, key),
        )
        for epoch, value in enumerate(values, 1):
            watched.sql.run(
                "INSERT INTO cerebro.catalog_metrics VALUES (%s, %s, %s, 'training', %s::float8, '{}', '{}', 1)",
                (strange, key, epoch, value),
            )
    rows = {row[2]: row for row in watched.sql.fetch(BOARD, (strange,))}
    curves = {key: row[8] for key, row in rows.items()}
    assert curves == {1: "x█▁", 2: "xx", 3: "xx▄", 4: "▄▄▄", 5: "▄▄", 6: None, 7: "█▁▅"}
    assert rows[1][6] == "." * 20
    assert rows[1][3] == "stopped"  # nobody drives it


def test_who_may_not_see_a_run_sees_none(
    watched: Watched, administrator: Any, connect: Any
) -> None:
    administrator.run("CREATE ROLE onlooker LOGIN IN ROLE cerebro_user")
    try:
        onlooker = connect(as_role(watched.dsn, "onlooker"))
        assert onlooker.value("SELECT count(*) FROM cerebro.dashboard") == 0
        onlooker.close()
    finally:
        administrator.run("DROP ROLE onlooker")


def test_a_large_run_is_shown_at_once(watched: Watched) -> None:
    rows = watched.sql.fetch(BOARD, (watched.large,))
    assert len(rows) == 1000
    assert {len(row[8]) for row in rows} == {20}
    # Whatever the machine does besides: each row of the catalog is passed on a few times, not once a row.
    ((plan,),) = watched.sql.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {BOARD}", (watched.large,))
    stored = 1000 * (1 + 20 * 4 + 20 * 2)
    assert passed_on(plan[0]["Plan"]) < 12 * stored


def passed_on(node: dict[str, Any]) -> int:
    """The rows that all nodes of a plan pass on, or look at in vain."""
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    rows += node.get("Rows Removed by Join Filter", 0)
    return rows * node["Actual Loops"] + sum(map(passed_on, node.get("Plans", [])))
