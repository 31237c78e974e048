"""Split of the rows of a table into those to train with and those to validate with, as statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.columns.values import Column
from cerebro_db.postgres.names import shown_identifier, shown_literal
from cerebro_db.runs.automl.facts import TableFacts, group_hash
from cerebro_db.runs.automl.places import ROWS, TEST, TRAIN, Places
from cerebro_db.runs.automl.statements import call_of
from cerebro_db.runs.automl.tasks import CLASSES, NUMBER, TargetFacts, Task


@dataclass(frozen=True)
class Split:
    """A split of rows.

    Attributes:
        share: of the rows, that is for validation.
        seed: of what is drawn.
        column: the time or the group that decides; None where rows are drawn.
        test: SQL of the condition of a row that is for validation; empty where rows are drawn.
        how: in words.
    """

    share: float
    seed: int
    column: Column | None
    test: str
    how: str


def split_of(
    facts: TableFacts,
    target: Column,
    task: Task,
    share: float,
    seed: int,
    time_column: Column | None,
    group_column: Column | None,
) -> Split:
    """The split of a table by the time, by groups or at random.

    Raises:
        InvalidData, WrongObjectType: it cannot be split so.
    """
    if time_column is not None:
        cut = facts.cut(time_column, target, share)
        value = f"s.{shown_identifier(time_column.name)}"
        test = f"{value} OPERATOR(pg_catalog.>=) {shown_literal(cut)}::{time_column.base_type}"
        how = f"rows from {time_column.name} {cut} on are for validation"
        return Split(share, seed, time_column, test, how)
    if group_column is not None:
        last = facts.last_group(group_column, target, share, seed)
        hashed = group_hash(f"s.{shown_identifier(group_column.name)}", seed)
        test = f"{hashed} OPERATOR(pg_catalog.<=) {shown_literal(last)}"
        how = f"whole groups of {group_column.name} are for validation"
        return Split(share, seed, group_column, test, how)
    strata = ", of each class the same" if task.kind == CLASSES else ""
    return Split(share, seed, None, "", f"{share:.0%} of the rows are for validation{strata}")


def split_statements(
    source: str, places: Places, names: Sequence[str], target: TargetFacts, task: Task, split: Split
) -> list[str]:
    """Statements that make the two parts.

    Args:
        source: the table.
        places: of what they make.
        names: of the columns of both parts, but for the target.
        target, task: what it learns.
        split: how.
    """
    found, rows = [], source
    label = shown_identifier(target.column.name)
    is_cast = task.kind == NUMBER and target.column.is_whole
    if target.known < target.rows or is_cast:
        rows = places[ROWS]
        more = [] if split.column is None else [split.column.name]
        listed = _listed(dict.fromkeys([*names, *more]))
        value = f"s.{label}::double precision AS {label}" if is_cast else f"s.{label}"
        found.append(
            f"CREATE VIEW {rows} AS SELECT {listed}, {value} FROM {source} s WHERE s.{label} IS NOT NULL"
        )
    if split.column is None:
        drawn = call_of(
            "cerebro_train_test_split",
            source_table=rows,
            output_table=str(places.base),
            train_proportion=round(1 - split.share, 6),
            grouping_cols=label if task.kind == CLASSES else None,
            target_cols=", ".join([*map(shown_identifier, names), label]),
            separate_output_tables=True,
            seed=split.seed,
        )
        return [*found, f"SELECT {drawn}"]
    listed = f"{_listed(names)}, s.{label}"
    test = split.test
    if task.kind == CLASSES:
        # Nothing can be learnt of a class that no row for training has.
        test += f" AND EXISTS (SELECT 1 FROM {places[TRAIN]} t WHERE t.{label} = s.{label})"
    parts = ((TRAIN, f"({split.test}) IS NOT TRUE"), (TEST, test))
    return found + [
        f"CREATE VIEW {places[suffix]} AS SELECT {listed} FROM {rows} s WHERE {condition}"
        for suffix, condition in parts
    ]


def rows_left_out(places: Places, rows: int) -> str:
    """SQL of how many rows are in neither part.

    Args:
        places: of the parts.
        rows: of the table, that have a target.
    """
    parts = " - ".join(f"(SELECT count(*) FROM {places[suffix]})" for suffix in (TRAIN, TEST))
    return f"SELECT {rows} - {parts}"


def _listed(names: Sequence[str] | dict[str, None]) -> str:
    return ", ".join(f"s.{shown_identifier(name)}" for name in names)
