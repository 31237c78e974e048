"""Runs whose output tables take the place of earlier ones, and tables that a run needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg2
import pytest

from tests.fitting.test_progress import Background, until

Fit = Callable[..., tuple[str, int]]


def oids(bench: Any, out: str) -> dict[str, int]:
    return dict(
        bench.fetch(
            "SELECT relname, oid::bigint FROM pg_class WHERE relkind = 'r' AND relname ~ %s",
            (f"^{out}(_info|_summary|_states|_history)?$",),
        )
    )


def test_earlier_tables_stay_until_the_run_ends(bench: Any, fit: Fit) -> None:
    out, first = fit(epochs=1)
    bench.run(f"GRANT SELECT (mst_key), INSERT ON {out} TO cerebro_user")
    before = oids(bench, out)
    assert len(before) == 5
    _, run_id = fit(epochs=3, out=out, replace=True, max_seconds=0.001)
    assert oids(bench, out) == before
    # What is there now is somebody's own.
    bench.run(f"ALTER TABLE {out} RENAME TO {out}_kept; CREATE TABLE {out} (mine integer)")
    with pytest.raises(psycopg2.errors.DuplicateTable, match=f"{out} is there"):
        bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    bench.run(f"DROP TABLE {out}; ALTER TABLE {out}_kept RENAME TO {out}")
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    after = oids(bench, out)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert bench.value(f"SELECT run_id FROM {out}_summary") == run_id != first
    grants = "SELECT has_column_privilege('cerebro_user', %s, 'mst_key', 'SELECT'), "
    grants += "has_table_privilege('cerebro_user', %s, 'SELECT'), "
    grants += "has_table_privilege('cerebro_user', %s, 'INSERT')"
    assert bench.row(grants, (out, out, out)) == (True, False, True)


def test_a_run_that_fails_leaves_what_is_there(bench: Any, fit: Fit) -> None:
    out, _ = fit(epochs=1)
    before = oids(bench, out)
    bench.run(f"CREATE VIEW reads_it AS SELECT * FROM {out}_info")
    with pytest.raises(psycopg2.Error, match="reads_it") as raised:
        fit(epochs=1, out=out, replace=True)
    assert raised.value.pgcode == "2BP01"
    bench.run("DROP VIEW reads_it")
    assert oids(bench, out) == before


def test_what_a_run_needs_stays(bench: Any) -> None:
    going = "SELECT cerebro_fit_multiple('packed', 'going', 'configs', 100000, replace := true, "
    going += "validation_table := 'val')"
    run = Background(bench.dsn, going, ())
    run_id = until(
        bench,
        "SELECT max(run_id) FROM cerebro.hops h JOIN cerebro.runs r USING (run_id) "
        "WHERE r.model_output_table ~ 'going'",
    )
    for call in (
        "cerebro_pack('blobs_train', 'packed', 'label', 'x', replace := true)",
        "cerebro_pack_validation('blobs_test', 'val', 'label', 'x', 'packed', replace := true)",
        "cerebro_drop_outputs('packed')",
        "cerebro_drop_outputs('val')",
    ):
        with pytest.raises(psycopg2.Error, match="a run that goes on uses") as raised:
            bench.run(f"SELECT {call}")
        assert raised.value.pgcode == "55006"
    with pytest.raises(psycopg2.Error, match="another run is making"):
        bench.run(going)
    bench.run("SELECT pg_cancel_backend(%s)", (run.pid,))
    run.join()
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    assert oids(bench, "going") == {}
