"""Cross-validation as one run: each configuration once for each fold, to the bits of fits without its rows."""

from __future__ import annotations

import statistics
from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM, select
from tests.fitting.sizes import PARTITIONS, ROWS_TRAINED

FOLDS = 3
SINGLE = "'label', 'x', num_partitions := 1, buffer_size := 1000"
HELD_OUT = f"(row_number - 1 + buffer_id + partition_key) %% {FOLDS} = %s - 1"


@pytest.fixture(scope="module")
def crossed(bench: Any) -> int:
    """A run of four configurations with three folds."""
    return int(
        bench.value(
            f"SELECT cerebro_fit_multiple('packed', 'crossed', 'configs', 2, folds := {FOLDS}, "
            "metrics_compute_frequency := 1, num_workers := 2)"
        )
    )


def test_each_configuration_has_a_training_for_each_fold(bench: Any, crossed: int) -> None:
    rows = bench.fetch(
        "SELECT mst_key, configuration, fold, status, validation_loss_final IS NOT NULL FROM crossed_info ORDER BY 1"
    )
    keys = bench.column("SELECT mst_key FROM configs ORDER BY 1")
    assert rows == [
        (place * FOLDS + fold, key, fold, "finished", True)
        for place, key in enumerate(keys)
        for fold in range(1, FOLDS + 1)
    ]
    # Each training visits each partition, and no row of its fold.
    hops = bench.fetch(
        "SELECT mst_key, epoch, count(*), sum(rows)::int FROM cerebro.hops WHERE run_id = %s GROUP BY 1, 2",
        (crossed,),
    )
    assert len(hops) == 2 * FOLDS * len(keys)
    assert {count for _, _, count, _ in hops} == {PARTITIONS}
    seen = {key: rows for key, _, _, rows in hops}
    assert sum(ROWS_TRAINED - seen[fold] for fold in range(1, FOLDS + 1)) == ROWS_TRAINED
    assert bench.value("SELECT validation_table FROM crossed_summary") is None
    # The trainings of a configuration begin with the same weights.
    seeds = bench.column(
        "SELECT count(DISTINCT initial_seed) FROM cerebro._configurations WHERE run_id = %s GROUP BY (mst_key - 1) / %s",
        (crossed, FOLDS),
    )
    assert seeds == [1] * len(keys)


def test_the_view_has_mean_and_deviation(bench: Any, crossed: int) -> None:
    found = bench.fetch(
        "SELECT rank, mst_key, metric, folds, mean, deviation, least, most, training_mean FROM cerebro.folds "
        "WHERE run_id = %s ORDER BY mst_key, metric",
        (crossed,),
    )
    assert [row[2] for row in found] == ["accuracy", "loss"] * 4
    assert sorted(row[0] for row in found if row[2] == "loss")[0] == 1
    for _, key, metric, folds, mean, deviation, least, most, training in found:
        name = "metrics" if metric == "accuracy" else "loss"
        values, seen = zip(
            *bench.fetch(
                f"SELECT validation_{name}_final, training_{name}_final FROM crossed_info WHERE configuration = %s",
                (key,),
            ),
            strict=True,
        )
        assert folds == FOLDS
        assert (mean, training) == pytest.approx((statistics.mean(values), statistics.mean(seen)))
        assert deviation == pytest.approx(statistics.stdev(values))
        assert (least, most) == (min(values), max(values))
    best = bench.value(
        "SELECT mst_key FROM cerebro.folds WHERE run_id = %s AND rank = 1 LIMIT 1", (crossed,)
    )
    means = {row[1]: row[4] for row in found if row[2] == "accuracy"}
    assert means[best] == max(means.values())


def test_predictions_out_of_fold_are_those_of_the_models_that_have_not_seen_a_row(
    bench: Any, crossed: int
) -> None:
    key = bench.value("SELECT min(mst_key) FROM configs")
    with pytest.raises(
        psycopg2.Error, match=r"mst_key: got NULL; allowed: a configuration of the run: "
    ):
        bench.run("SELECT cerebro_predict_folds('crossed', 'unseen')")
    bench.run("SELECT cerebro_predict_folds('crossed', 'unseen', mst_key := %s)", (key,))
    wanted: list[Any] = []
    columns = "partition_key, buffer_id, row_number, class_value, prob, rank"
    for fold in range(1, FOLDS + 1):
        bench.run(
            "SELECT cerebro_predict('crossed', 'packed', NULL, NULL, 'of_one', mst_key := %s, replace := true)",
            (fold,),
        )
        wanted += bench.fetch(f"SELECT {columns} FROM of_one WHERE {HELD_OUT}", (fold,))
    found = bench.fetch(f"SELECT {columns} FROM unseen ORDER BY 1, 2, 3, 6")
    assert found == sorted(wanted, key=lambda row: (*row[:3], row[5]))
    assert len(found) == 3 * ROWS_TRAINED
    # Their accuracy is the mean of the folds, each with its number of rows.
    assert (
        bench.value("SELECT count(DISTINCT (partition_key, buffer_id, row_number)) FROM unseen")
        == ROWS_TRAINED
    )


def test_a_training_has_the_bits_of_a_fit_on_the_same_rows(bench: Any) -> None:
    """Of one partition, as the order of partitions is a matter of all configurations together."""
    bench.run(f"SELECT cerebro_pack('blobs_train', 'single', {SINGLE})")
    bench.run(
        f"SELECT cerebro_fit_multiple('single', 'single_folds', 'configs', 3, folds := {FOLDS})"
    )
    rows = bench.value("SELECT num_rows FROM single")
    keys = bench.column("SELECT mst_key FROM configs ORDER BY 1")
    for fold in range(1, FOLDS + 1):
        _keep(bench, [place for place in range(rows) if place % FOLDS != fold - 1])
        bench.run(
            "SELECT cerebro_fit_multiple('single_kept', 'single_fit', 'configs', 3, replace := true)"
        )
        fitted = dict(bench.fetch("SELECT mst_key, model_weights FROM single_fit"))
        for place, key in enumerate(keys):
            crossed = bench.value(
                "SELECT model_weights FROM single_folds WHERE mst_key = %s", (place * FOLDS + fold,)
            )
            assert bytes(crossed) == bytes(fitted[key]), (fold, key)


def test_balanced_classes_are_those_of_the_rows_that_are_seen(bench: Any) -> None:
    bench.run(f"SELECT cerebro_pack('blobs_train', 'balancing', {SINGLE})")
    select(bench, "balanced", [1], [ADAM], ["batch_size=8,class_weight='balanced'"])
    bench.run(
        f"SELECT cerebro_fit_multiple('balancing', 'balanced_folds', 'balanced', 1, folds := {FOLDS})"
    )
    rows = bench.value("SELECT num_rows FROM balancing")
    _keep(bench, [place for place in range(rows) if place % FOLDS != 1], "balancing")
    bench.run("SELECT cerebro_fit_multiple('balancing_kept', 'balanced_fit', 'balanced', 1)")
    weights = "SELECT model_weights FROM {} WHERE mst_key = %s"
    crossed = bench.value(weights.format("balanced_folds"), (2,))
    assert bytes(crossed) == bytes(bench.value(weights.format("balanced_fit"), (1,)))


def _keep(bench: Any, places: list[int], table: str = "single") -> None:
    """Make the packed table once more, with some rows of its only buffer."""
    bench.run(f"DROP TABLE IF EXISTS {table}_kept, {table}_kept_summary")
    bench.run(f"CREATE TABLE {table}_kept AS SELECT * FROM {table}")
    bench.run(f"CREATE TABLE {table}_kept_summary AS SELECT * FROM {table}_summary")
    rows, count = bench.value(f"SELECT num_rows FROM {table}"), len(places)
    for name in ("x", "label"):
        data = bytes(bench.value(f"SELECT {name} FROM {table}"))
        size = len(data) // rows
        left = b"".join(data[place * size : (place + 1) * size] for place in places)
        bench.run(f"UPDATE {table}_kept SET {name} = %s", (psycopg2.Binary(left),))
        bench.run(f"UPDATE {table}_kept SET {name}_shape[1] = %s, num_rows = %s", (count, count))
    bench.run(
        f"UPDATE {table}_kept_summary SET num_rows = %s, rows_per_partition = ARRAY[%s], buffer_size = %s",
        (count, count, count),
    )


def test_a_run_with_folds_goes_on_after_a_pause(bench: Any, crossed: int) -> None:
    run_id = bench.value(
        f"SELECT cerebro_fit_multiple('packed', 'rested_folds', 'configs', 2, folds := {FOLDS}, "
        "metrics_compute_frequency := 1, max_seconds := 0.05, num_workers := 1)"
    )
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    bench.run("SELECT cerebro.cerebro_resume(%s)", (run_id,))
    weights = "SELECT mst_key, model_weights FROM {} ORDER BY 1"
    assert bench.fetch(weights.format("rested_folds")) == bench.fetch(weights.format("crossed"))
    scores = "SELECT mst_key, dataset, epoch, loss, metrics FROM cerebro.metrics WHERE run_id = %s ORDER BY 1, 2, 3"
    assert bench.fetch(scores, (run_id,)) == bench.fetch(scores, (crossed,))


WRONG = (
    ("folds := 1", "folds: got 1; allowed: 2 to 100"),
    ("folds := 101", "folds: got 101; allowed: 2 to 100"),
    (
        "folds := 3, validation_table := 'val'",
        "validation_table: got 'val' with folds := 3; allowed: NULL",
    ),
    ("folds := 3, warm_start := true", "warm_start: got true with folds := 3; allowed: false"),
    ("folds := 3, strategy := 'averaging'", "strategy: got 'averaging' with folds := 3; allowed: "),
    ("folds := 3, strategy := 'auto'", "strategy: got 'auto' with folds := 3; allowed: "),
    ("folds := 12", "folds: got 12; allowed for public.packed: 2 to "),
)


@pytest.mark.parametrize(("arguments", "told"), WRONG)
def test_what_cannot_be_is_refused_before_any_work(bench: Any, arguments: str, told: str) -> None:
    before = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error) as refused:
        bench.run(f"SELECT cerebro_fit_multiple('packed', 'refused', 'configs', 1, {arguments})")
    assert told in str(refused.value)
    assert refused.value.pgcode == "22023"
    assert bench.value("SELECT count(*) FROM cerebro.runs") == before


def test_predictions_out_of_fold_need_a_run_with_folds(bench: Any, crossed: int) -> None:
    with pytest.raises(
        psycopg2.Error, match=r"mst_key: got 77; allowed: a configuration of the run"
    ):
        bench.run("SELECT cerebro_predict_folds('crossed', 'unseen_too', mst_key := 77)")
    bench.run("SELECT cerebro_fit_multiple('packed', 'whole', 'configs', 1)")
    with pytest.raises(psycopg2.Error, match=r"got public\.whole, whose models are of no folds"):
        bench.run("SELECT cerebro_predict_folds('whole', 'unseen_too')")


def test_the_report_and_the_client_have_the_same_call_again(bench: Any, crossed: int) -> None:
    from cerebro_db import connect
    from cerebro_db.watching.statements import statement_of

    with connect(bench.dsn) as db:
        run = db.run(crossed)
        assert run.facts.folds == FOLDS
        assert f"folds := {FOLDS}" in statement_of(run.connections, run.facts)
