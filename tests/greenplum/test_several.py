"""Models of several inputs and outputs on segments: what they give is what PostgreSQL gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import Sql
from tests.fitting.test_several import make_several

pytestmark = pytest.mark.slow

PACKED = "several_packed", "several_val"
COLUMNS = 'grid, size, "Kind", amount, pair'


@pytest.fixture
def both(segments: Sql, database: str, connect: Callable[[str], Sql]) -> Iterator[tuple[Sql, Sql]]:
    """The cluster and a server without segments, with the same buffers of several columns."""
    plain = connect(database)
    partitions = segments.value(
        "SELECT count(*)::int FROM gp_segment_configuration WHERE role = 'p' AND content >= 0"
    )
    for sql in (segments, plain):
        sql.run("SET extra_float_digits = 3")
        make_several(sql, partitions)
    # The rows lie elsewhere, so the shuffle differs: the same bytes are trained on.
    columns = COLUMNS.split(", ")
    updated = ", ".join(f"{name} = %s" for name in columns)
    for table in PACKED:
        rows = segments.fetch(f"SELECT {COLUMNS}, partition_key, buffer_id FROM {table}")
        for row in rows:
            plain.run(
                f"UPDATE {table} SET {updated} WHERE partition_key = %s AND buffer_id = %s", row
            )
        assert plain.value(f"SELECT count(*) FROM {table}") == len(rows)
    yield segments, plain
    made = segments.column(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'several%'"
    )
    segments.run(f"DROP TABLE {', '.join(made)} CASCADE")


def _read(sql: Sql, query: str) -> list[Any]:
    return [
        tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
        for row in sql.fetch(query)
    ]


def test_both_schedules_train_and_predict_what_postgresql_does(both: tuple[Sql, Sql]) -> None:
    cluster, plain = both
    fit = (
        "SELECT cerebro_fit_multiple('several_packed', '{}', 'several_configs', 2, "
        "validation_table := 'several_val', seed := 4{})"
    )
    cluster.run(fit.format("several_out", ""))
    cluster.run(fit.format("several_turned", ", schedule := 'rotation'"))
    plain.run(fit.format("several_out", ""))
    for query in (
        "SELECT mst_key, model_weights FROM {} ORDER BY 1",
        "SELECT mst_key, chunk, state FROM {}_states ORDER BY 1, 2",
        "SELECT mst_key, training_loss, training_metrics, validation_loss, validation_metrics, "
        "metrics_type FROM {}_info ORDER BY 1",
    ):
        wanted = _read(plain, query.format("several_out"))
        assert len(wanted) == 2
        assert _read(cluster, query.format("several_out")) == wanted
        assert _read(cluster, query.format("several_turned")) == wanted
    for sql in both:
        sql.run("SELECT cerebro_evaluate('several_out', 'several_val', 'several_scores')")
        sql.run("SELECT cerebro_confusion_matrix('several_out', 'several_val', 'several_matrix')")
        for given, out in (
            ("'several_test', 'id', 'grid, size'", "several_said"),
            ("'several_val', NULL, NULL", "several_packed_said"),
        ):
            sql.run(f"SELECT cerebro_predict('several_out', {given}, '{out}', mst_key := 2)")
        # Of classes only those above; of values all.
        sql.run(
            "SELECT cerebro_predict('several_out', 'several_test', 'id', 'grid, size', "
            "'several_above', '0.4', mst_key := 2)"
        )
    for query in (
        "SELECT mst_key, loss, metric, metrics, metrics_type FROM several_scores ORDER BY 1",
        "SELECT t::text FROM several_matrix t ORDER BY 1",
        # Batches are the buffers, here as there.
        "SELECT * FROM several_packed_said ORDER BY partition_key, buffer_id, row_number, "
        "class_name, rank",
        "SELECT * FROM cerebro_predict_outputs('several_out', '[[[1, 2], [3, 4]], [5]]', 1)",
    ):
        wanted = _read(plain, query)
        assert len(wanted) >= 2
        assert _read(cluster, query) == wanted
    for table, least in (("several_said", 30 * 6), ("several_above", 30 * 2 + 1)):
        query = (
            "SELECT id, class_name, class_value, rank, prob, estimated "
            f"FROM {table} ORDER BY id, class_name, rank"
        )
        ours, theirs = _read(cluster, query), _read(plain, query)
        assert len(ours) == len(theirs) >= least
        for got, wanted in zip(ours, theirs, strict=True):
            # Batches are of the rows of a segment, and so the last bits may differ.
            assert got[:4] == wanted[:4]
            assert got[4:] == tuple(one and pytest.approx(one, 1e-5, 1e-6) for one in wanted[4:])
