"""Folds by the values of a column: classes alike, groups together, later than what is trained on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import psycopg2
import pytest
from sklearn.model_selection import TimeSeriesSplit

from cerebro_db.core.folds import Folds
from cerebro_db.executors.fold_rows import fold_of_numbers
from cerebro_db.packing.fold_rules import numbers_of

FOLDS, ROWS = 3, 96
RULES = {
    "stratified": "fold_kind := 'stratified', num_partitions := 1",
    "group": "fold_kind := 'group', fold_column := 'who', num_partitions := 2",
    "time": "fold_kind := 'time', fold_column := 'day', num_partitions := 1",
}


class Visits:
    """Rows of 12 people on 32 days, packed for each kind of folds, and a run with folds over each."""

    def __init__(self, db: Any) -> None:
        self.db = db
        db.run("CREATE TABLE visits (x real[], label text, who int, day date)")
        generator = np.random.default_rng(4)
        self.features = generator.normal(size=(ROWS, 6)).astype(np.float32)
        self.label = generator.choice(list("abbc"), ROWS)
        self.who = generator.choice(12, ROWS, p=np.arange(1, 13) / 78)
        self.day = generator.integers(0, 32, ROWS)
        for x, label, who, day in zip(
            self.features.tolist(), self.label, self.who, self.day, strict=True
        ):
            db.run(
                "INSERT INTO visits VALUES (%s, %s, %s, '2024-01-01'::date + %s)",
                (x, str(label), int(who), int(day)),
            )
        db.run(
            "CREATE TABLE one_config AS SELECT * FROM configs WHERE mst_key = (SELECT min(mst_key) FROM configs)"
        )
        db.run("CREATE TABLE one_config_summary AS SELECT * FROM configs_summary")
        for kind, rule in RULES.items():
            table = f"visits_{kind}"
            db.run(
                f"SELECT cerebro_pack('visits', '{table}', 'label', 'x', buffer_size := 35, {rule})"
            )
            db.run(
                f"SELECT cerebro_fit_multiple('{table}', 'of_{kind}', 'one_config', 1, folds := {FOLDS})"
            )

    def places(self, table: str) -> dict[tuple[int, int, int], int]:
        """The row of the source of each place in a packed table."""
        known = {row.tobytes(): number for number, row in enumerate(self.features)}
        found = {}
        for key, buffer_id, data in self.db.fetch(
            f"SELECT partition_key, buffer_id, x FROM {table}"
        ):
            rows = np.frombuffer(bytes(data), np.float32).reshape(-1, 6)
            for place, row in enumerate(rows, 1):
                found[key, buffer_id, place] = known[row.tobytes()]
        return found

    def folds(self, kind: str) -> dict[int, int]:
        """The fold that holds out a row: the one whose model has made its prediction out of fold."""
        columns = "partition_key, buffer_id, row_number, array_agg(prob ORDER BY class_value)"
        query = f"SELECT {columns} FROM {{}} GROUP BY 1, 2, 3"
        self.db.run(f"SELECT cerebro_predict_folds('of_{kind}', 'unseen_{kind}')")
        found = {row[:3]: row[3] for row in self.db.fetch(query.format(f"unseen_{kind}"))}
        places, folds = self.places(f"visits_{kind}"), {}
        for fold in range(1, FOLDS + 1):
            self.db.run(
                f"SELECT cerebro_predict('of_{kind}', 'visits_{kind}', NULL, NULL, 'of_one', mst_key := {fold}, replace := true)"
            )
            for row in self.db.fetch(query.format("of_one")):
                if found.get(row[:3]) == row[3]:
                    assert folds.setdefault(places[row[:3]], fold) == fold
        assert len(folds) == len(found)
        return folds

    def trained(self, kind: str) -> list[int]:
        """Rows that the training of each fold has seen."""
        found: list[int] = self.db.column(
            "SELECT sum(rows)::int FROM cerebro.hops WHERE run_id = "
            f"(SELECT run_id FROM of_{kind}_summary) GROUP BY mst_key ORDER BY mst_key"
        )
        return found


@pytest.fixture(scope="module")
def visits(bench: Any) -> Visits:
    return Visits(bench)


def test_each_class_is_in_all_folds_alike(visits: Visits) -> None:
    folds = visits.folds("stratified")
    assert sorted(folds) == list(range(ROWS))
    for label in "abc":
        counts = Counter(folds[row] for row in folds if visits.label[row] == label)
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(counts) == FOLDS
    sizes = Counter(folds.values())
    assert visits.trained("stratified") == [ROWS - sizes[fold] for fold in (1, 2, 3)]
    _same_bits(visits, "stratified", 2, {row for row, fold in folds.items() if fold != 2})


def test_rows_of_a_group_are_in_one_fold(visits: Visits) -> None:
    folds = visits.folds("group")
    assert sorted(folds) == list(range(ROWS))
    of_groups = {(int(visits.who[row]), fold) for row, fold in folds.items()}
    assert len(of_groups) == len(set(visits.who.tolist()))
    sizes = Counter(folds.values())
    assert max(sizes.values()) - min(sizes.values()) <= max(Counter(visits.who.tolist()).values())
    assert visits.trained("group") == [ROWS - sizes[fold] for fold in (1, 2, 3)]


def test_rows_are_validated_on_that_are_later(visits: Visits) -> None:
    folds = visits.folds("time")
    days = [
        {int(visits.day[row]) for row, one in folds.items() if one == fold} for fold in (1, 2, 3)
    ]
    first = {int(visits.day[row]) for row in range(ROWS) if row not in folds}
    ordered = [first, *days]
    assert all(max(a) < min(b) for a, b in pairwise(ordered))
    seen = [int(sum(visits.day < min(one))) for one in days]
    assert visits.trained("time") == seen
    _same_bits(visits, "time", 3, {row for row in range(ROWS) if visits.day[row] < min(days[2])})


def _same_bits(visits: Visits, kind: str, fold: int, rows: set[int]) -> None:
    """The training of a fold has the bits of a fit on a packed table of only these rows."""
    db, table, places = visits.db, f"visits_{kind}", visits.places(f"visits_{kind}")
    db.run(f"CREATE TABLE kept_{kind} AS SELECT * FROM {table}")
    db.run(f"CREATE TABLE kept_{kind}_summary AS SELECT * FROM {table}_summary")
    for buffer_id, size, *data in db.fetch(f"SELECT buffer_id, num_rows, x, label FROM {table}"):
        kept = [place for place in range(size) if places[0, buffer_id, place + 1] in rows]
        for name, one in zip(("x", "label"), map(bytes, data), strict=True):
            width = len(one) // size
            left = b"".join(one[place * width : (place + 1) * width] for place in kept)
            db.run(
                f"UPDATE kept_{kind} SET {name} = %s, {name}_shape[1] = %s, num_rows = %s WHERE buffer_id = %s",
                (psycopg2.Binary(left), len(kept), len(kept), buffer_id),
            )
    db.run(
        f"UPDATE kept_{kind}_summary SET num_rows = %s, rows_per_partition = ARRAY[%s]",
        (len(rows), len(rows)),
    )
    db.run(f"SELECT cerebro_fit_multiple('kept_{kind}', 'fit_{kind}', 'one_config', 1)")
    weights = "SELECT model_weights FROM {} WHERE mst_key = %s"
    key = db.value("SELECT mst_key FROM one_config")
    crossed = db.value(weights.format(f"of_{kind}"), (fold,))
    assert bytes(crossed) == bytes(db.value(weights.format(f"fit_{kind}"), (key,)))


def test_all_columns_are_features_but_that_of_the_groups(bench: Any, visits: Visits) -> None:
    """Of a view, whose rows are copied; a number stands for each group, the largest first."""
    bench.run("CREATE VIEW columns AS SELECT x[1] AS first, day, who, label FROM visits")
    rule = "fold_kind := 'group', fold_column := 'who', num_partitions := 1"
    bench.run(f"SELECT cerebro_pack_columns('columns', 'columns_packed', 'label', '*', {rule})")
    listed = "SELECT DISTINCT column_name FROM columns_packed_encoding ORDER BY 1"
    assert bench.column(listed) == ["day", "first"]
    known = "SELECT fold_kind, fold_column FROM columns_packed_summary"
    assert bench.fetch(known) == [("group", "who")]
    data = bytes(bench.value("SELECT fold_numbers FROM columns_packed"))
    sizes = np.bincount(np.frombuffer(data, np.int32)).tolist()
    assert sizes == sorted(Counter(visits.who.tolist()).values(), reverse=True)


WRONG = (
    ("fold_kind := 'groups', fold_column := 'who'", "fold_kind: got 'groups'; allowed: "),
    ("fold_kind := 'group'", "fold_column: got NULL with fold_kind := 'group'; allowed: a column"),
    ("fold_column := 'who'", "fold_kind: got NULL beside a fold_column; allowed: "),
    ("fold_kind := 'time', fold_column := 'dya'", "fold_column: got 'dya'; the columns of"),
    (
        "fold_kind := 'group', fold_column := 'spot'",
        "fold_column: the column 'spot' is of type point; allowed: ",
    ),
)


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_rules_that_cannot_be_are_refused(
    bench: Any, visits: Visits, arguments: str, message: str
) -> None:
    bench.run("CREATE OR REPLACE VIEW spots AS SELECT *, point(1, 2) AS spot FROM visits")
    with pytest.raises(psycopg2.Error) as refused:
        bench.run(f"SELECT cerebro_pack('spots', 'refused', 'label', 'x', {arguments})")
    assert message in str(refused.value)


def test_rows_without_a_time_and_folds_without_rows_are_refused(bench: Any, visits: Visits) -> None:
    bench.run("CREATE VIEW undated AS SELECT x, label, nullif(who, 3) AS who FROM visits")
    with pytest.raises(psycopg2.Error, match=r"fold_column: column 'who' is NULL in .* rows"):
        bench.run(
            "SELECT cerebro_pack('undated', 'refused', 'label', 'x', fold_kind := 'time', fold_column := 'who')"
        )
    with pytest.raises(
        psycopg2.Error, match="folds: got 13, of which fold 12 holds out no row of partition 0"
    ):
        bench.run(
            "SELECT cerebro_fit_multiple('visits_group', 'refused', 'configs', 1, folds := 13)"
        )


def test_folds_are_those_that_scikit_learn_would_have() -> None:
    generator = np.random.default_rng(1)
    times = generator.permutation(40)
    found = fold_of_numbers(numbers_of("time", times, None), Folds(4, (), "time"), 40)
    split = TimeSeriesSplit(4).split(np.arange(40)[:, None])
    for fold, (train, test) in enumerate(split):
        assert sorted(times[found == fold]) == test.tolist()
        assert sorted(times[found < fold]) == train.tolist()
    classes = generator.choice(3, 100, p=(0.8, 0.15, 0.05))
    numbers = numbers_of("stratified", classes, generator.permutation(100))
    found = fold_of_numbers(numbers, Folds(5, (), "stratified"), 100)
    for one in range(3):
        counts = np.bincount(found[classes == one], minlength=5)
        assert counts.max() - counts.min() <= 1
