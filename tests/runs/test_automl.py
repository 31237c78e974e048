"""Plans of cerebro_automl: what is learnt, from which columns, with which nets and in how many trials."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_db.columns.values import Column
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.requests.searching import SearchRequest
from cerebro_db.runs.automl.design import compile_grid, design_of, fit_grid, search_of
from cerebro_db.runs.automl.features import ColumnFacts, features_of
from cerebro_db.runs.automl.findings import Findings
from cerebro_db.runs.automl.places import Places
from cerebro_db.runs.automl.splits import Split, split_statements
from cerebro_db.runs.automl.statements import Clock
from cerebro_db.runs.automl.tasks import TargetFacts, Task, task_of

TYPES = {
    "integer": (23, "N"), "double precision": (701, "N"), "text": (25, "S"), "boolean": (16, "B"), "date": (1082, "D"),
    "timestamp without time zone": (1114, "D"), "bytea": (17, "U"), "uuid": (2950, "U"),
}  # fmt: skip


def column(name: str, kind: str) -> Column:
    oid, category = TYPES[kind]
    return Column(name, kind, oid, kind, category, None, None)


def target(kind: str = "text", rows: int = 100, **more: Any) -> TargetFacts:
    facts = {"known": rows, "distinct": 2, **more}
    return TargetFacts(column("y", kind), "public.t", rows, **facts)


@pytest.mark.parametrize(
    ("facts", "wanted", "expected"),
    [
        (target("text"), None, ("classes", 2, "val_auc")),
        (target("text", distinct=3), None, ("classes", 3, "val_accuracy")),
        (target("boolean"), None, ("classes", 2, "val_auc")),
        (target("integer", distinct=10), None, ("classes", 10, "val_accuracy")),
        (target("integer", distinct=21), None, ("number", 0, "val_root_mean_squared_error")),
        (target("integer", 40, distinct=10), None, ("number", 0, "val_root_mean_squared_error")),
        (target("integer", distinct=21), "classes", ("classes", 21, "val_accuracy")),
        (target("integer"), "number", ("number", 0, "val_root_mean_squared_error")),
        (target("double precision"), None, ("number", 0, "val_root_mean_squared_error")),
        (target("text", numeric_texts=100), None, ("classes", 2, "val_auc")),
        (target("text", distinct=20, numeric_texts=50), None, ("classes", 20, "val_accuracy")),
    ],
)
def test_a_task_follows_from_type_and_values(
    facts: TargetFacts, wanted: str | None, expected: Any
) -> None:
    task = task_of(facts, wanted, None)
    assert (task.kind, task.classes, task.objective) == expected
    assert task.metrics[0] == task.metric.keras


@pytest.mark.parametrize(
    ("facts", "wanted", "metric", "message"),
    [
        (target(rows=0), None, None, "public.t has no rows; allowed: 20 or more"),
        (target(rows=100, known=19), None, None, "has 19 rows whose 'y' is not NULL"),
        (target(distinct=1), None, None, "the same value in all 100 rows"),
        (target(distinct=100), None, None, "another value in each row"),
        (target(distinct=30, numeric_texts=99), None, None, "numbers in 99 of 100 rows, and other"),
        (target(distinct=30, numeric_texts=100), None, None, "all its 30 values are numbers"),
        (target("integer", distinct=100), "classes", None, "another value in each row"),
        (target("double precision"), "classes", None, "task: got 'classes'"),
        (target("text"), "number", None, "task: got 'number'"),
        (target("date"), None, None, "of type date"),
        (target("bytea"), None, None, "of type bytea"),
        (target("text"), None, "rmse", "metric: got 'rmse'"),
        (target("double precision"), None, "auc", "metric: got 'auc'"),
    ],
)
def test_a_target_of_which_nothing_can_be_learnt(
    facts: TargetFacts, wanted: str | None, metric: str | None, message: str
) -> None:
    with pytest.raises(CerebroError, match=message) as refused:
        task_of(facts, wanted, metric)
    assert refused.value.hint or "allowed" in refused.value.message


def test_the_loss_counts_where_it_is_wanted() -> None:
    task = task_of(target(), None, "loss")
    assert (task.objective, task.metrics) == ("val_loss", ("auc", "accuracy"))


def test_columns_that_tell_nothing_are_left_out() -> None:
    facts = [
        ColumnFacts(column("age", "integer"), 100, 90, 60, 70),
        ColumnFacts(column("id", "integer"), 100, 100, 100, 100),
        ColumnFacts(column("same", "text"), 100, 100, 1),
        ColumnFacts(column("seldom", "text"), 100, 3, 1),
        ColumnFacts(column("none", "text"), 100, 0, 0),
        ColumnFacts(column("note", "text"), 100, 100, 51),
        ColumnFacts(column("town", "text"), 100, 100, 50),
        ColumnFacts(column("scan", "bytea"), 100, 100, 0),
        ColumnFacts(column("day", "date"), 100, 100, 100),
        ColumnFacts(column("shop", "integer"), 100, 100, 5, 5),
    ]
    found = features_of(facts, "day", "shop")
    assert found.names == ["age", "seldom", "town", "day"]
    assert found.encodings == {"day": "cyclic(weekday, month)"}
    assert set(found.left_out) == {"id", "same", "none", "note", "scan", "shop"}
    assert "cerebro.cerebro_image_array" in found.left_out["scan"]


@pytest.mark.parametrize("rows", [50, 5_000, 2_000_000])
@pytest.mark.parametrize("seconds", [5.0, 60.0, 3600.0])
def test_spaces_are_those_of_a_search(rows: int, seconds: float) -> None:
    design = design_of(rows, False, seconds)
    sizes = [net.units * net.depth for net in design.nets]
    assert sizes[0] == min(sizes)
    assert len({net.name for net in design.nets}) == len(design.nets)
    for facts in (target(), target("double precision")):
        task = task_of(facts, None, None)
        found = search_of(design, seconds, 0.1, 2)
        assert 1 <= found.first <= found.epochs <= design.most_epochs
        SearchRequest(
            source_table="p",
            model_output_table="o",
            model_arch_table="n",
            model_selection_table=None,
            model_id_list=list(range(1, len(design.nets) + 1)),
            compile_params_grid=compile_grid(task, design.nets),
            fit_params_grid=fit_grid(task, design.batch_sizes, found.epochs),
            automl_method="asha",
            automl_params=found.params,
            validation_table="v",
            objective=task.objective,
        )


def test_a_search_is_as_long_as_there_is_time() -> None:
    design = design_of(50_000, False, 300.0)
    short, long = (search_of(design, seconds, 2.0, 2) for seconds in (10.0, 290.0))
    assert (short.epochs, short.first) == (1, 1)
    assert long.epochs > short.epochs
    assert long.configs > 1


def test_numbers_go_without_a_little_dropout() -> None:
    rates = [
        {net.dropout for net in design_of(rows, True, 300.0).nets} for rows in (100, 5_000, 50_000)
    ]
    assert all(0.0 in found and min(found - {0.0}) > 0.2 for found in rates)
    assert any(net.dropout == 0.1 for net in design_of(50_000, False, 300.0).nets)


def test_a_search_is_as_long_as_the_caller_wants() -> None:
    design = design_of(50_000, False, 300.0, 2, 3)
    assert (len(design.nets), design.first_epochs, design.most_epochs) == (2, 1, 3)
    assert search_of(design, 290.0, 1.0, 2, 2) == search_of(design, 290.0, 0.01, 2, 2)


def task(kind: str = "classes") -> Task:
    facts = target("text") if kind == "classes" else target("double precision")
    return task_of(facts, None, None)


def test_rows_are_split_by_statements_that_anybody_can_run() -> None:
    places = Places(QualifiedName("public", "Out"))
    drawn = Split(0.2, 7, None, "", "")
    (split,) = split_statements("public.t", places, ["a", "B"], target(), task(), drawn)
    assert "grouping_cols := 'y'" in split
    assert "target_cols := 'a, \"B\", y'" in split
    assert "train_proportion := 0.8" in split
    assert "output_table := 'public.\"Out\"'" in split
    view, split = split_statements("public.t", places, ["a"], target(known=90), task(), drawn)
    assert view.endswith("SELECT s.a, s.y FROM public.t s WHERE s.y IS NOT NULL")
    assert "source_table := 'public.\"Out_rows\"'" in split
    whole = target("integer", distinct=50)
    view, _ = split_statements("public.t", places, ["a"], whole, task("number"), drawn)
    assert "s.y::double precision AS y" in view


def test_a_holdout_is_drawn_first_and_the_rest_is_split() -> None:
    places = Places(QualifiedName("public", "kept"))
    drawn = Split(0.2, 7, None, "", "", 0.2)
    first, second = split_statements("public.t", places, ["a"], target(), task(), drawn)
    assert "source_table := 'public.t', output_table := 'public.kept_holdout'" in first
    assert "source_table := 'public.kept_holdout_train', output_table := 'public.kept'" in second
    assert "train_proportion := 0.8" in first
    assert "train_proportion := 0.75" in second


def test_parts_by_time_have_no_row_in_common() -> None:
    split = Split(0.2, 7, column("day", "date"), "s.day OPERATOR(pg_catalog.>=) '2026-01-01'", "")
    places = Places(QualifiedName("public", "out"))
    train, test = split_statements("public.t", places, ["a"], target(), task(), split)
    assert train == (
        "CREATE VIEW public.out_train AS SELECT s.a, s.y FROM public.t s "
        "WHERE (s.day OPERATOR(pg_catalog.>=) '2026-01-01') IS NOT TRUE"
    )
    assert test == (
        "CREATE VIEW public.out_test AS SELECT s.a, s.y FROM public.t s "
        "WHERE s.day OPERATOR(pg_catalog.>=) '2026-01-01' "
        "AND EXISTS (SELECT 1 FROM public.out_train t WHERE t.y = s.y)"
    )


class Notices:
    """Statements of a call that has no time for any."""

    def __init__(self) -> None:
        self.listed: list[str] = []

    def notice(self, message: str) -> None:
        self.listed.append(message)


def test_a_notice_names_each_part_of_a_report_that_there_is_no_time_for() -> None:
    notices: Any = Notices()
    over = Clock(-10.0)
    found = Findings(notices, Places(QualifiedName("public", "out")), over, "model:m:1")
    assert (found.curves(2), found.threshold(2), found.reliability()) == (None, None, ([], None))
    assert found.importances(3, 100) == ([], "")
    parts = ("curves", "cerebro.cerebro_threshold", "cerebro.cerebro_reliability")
    assert notices.listed[:3] == [f"report: without {part}: no time is left" for part in parts]
    assert "no time for the importance of 3 columns" in notices.listed[3]
    assert (found.curves(0), found.threshold(0)) == (None, None)  # of numbers there are none
    assert len(notices.listed) == 4
