"""Split of the rows of a table into those to train with, to validate with and to hold out, as statements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.columns.values import Column
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.postgres.names import shown_identifier, shown_literal
from cerebro_db.runs.automl.facts import TableFacts, group_hash
from cerebro_db.runs.automl.places import APART, HOLDOUT, REST, ROWS, TEST, TRAIN, Places
from cerebro_db.runs.automl.statements import call_of
from cerebro_db.runs.automl.tasks import CLASSES, NUMBER, TargetFacts, Task

# What is left to train with.
_MOST_HELD_BACK = 0.8


@dataclass(frozen=True)
class Split:
    """A split of rows.

    Attributes:
        share: of the rows, that is for validation.
        seed: of what is drawn.
        column: the time or the group that decides; None where rows are drawn.
        test: SQL of the condition of a row that is not for training; empty where rows are drawn.
        how: in words.
        held: the share of the rows that nothing sees.
        apart: SQL of the condition of such a row among those; empty where rows are drawn, or there are none.
    """

    share: float
    seed: int
    column: Column | None
    test: str
    how: str
    held: float = 0.0
    apart: str = ""


@dataclass(frozen=True)
class Shares:
    """Shares of the rows.

    Attributes:
        validation: of those that models are compared by.
        holdout: of those that nothing sees; 0 for none.
    """

    validation: float
    holdout: float

    @property
    def together(self) -> float:
        """Share of the rows that are not for training."""
        return round(self.validation + self.holdout, 6)


def shares_of(validation: float, holdout: float) -> Shares:
    """The shares that a caller wants.

    Raises:
        InvalidArgument: too few rows would be left to train with.
    """
    shares = Shares(validation, holdout)
    if shares.together > _MOST_HELD_BACK:
        raise InvalidArgument(
            f"holdout_share: got {holdout:g} beside a validation_share of {validation:g}; allowed: at most "
            f"{_MOST_HELD_BACK - validation:.2g}",
            hint="all other rows are trained with",
        )
    return shares


def check_holdout(shares: Shares, rows: int) -> None:
    """Refuse a holdout without rows.

    Args:
        shares: that a caller wants.
        rows: that have a target.

    Raises:
        InvalidArgument: the holdout is less than a row of them.
    """
    least = math.ceil(1000 / rows) / 1000
    if 0 < shares.holdout < least:
        raise InvalidArgument(
            f"holdout_share: got {shares.holdout:g}; allowed: 0, or {least:g} to 0.5",
            hint=f"{rows} rows have a target",
        )


def split_of(
    facts: TableFacts,
    target: Column,
    task: Task,
    shares: Shares,
    seed: int,
    time_column: Column | None,
    group_column: Column | None,
) -> Split:
    """The split of a table by the time, by groups or at random.

    Raises:
        InvalidData, WrongObjectType: it cannot be split so.
    """
    share, held = shares.validation, shares.holdout
    if time_column is not None:
        return _by_time(facts, target, shares, seed, time_column)
    if group_column is not None:
        return _by_group(facts, target, shares, seed, group_column)
    strata = ", of each class the same" if task.kind == CLASSES else ""
    more = f" and {held:.0%} are the holdout" if held else ""
    how = f"{share:.0%} of the rows are for validation{more}{strata}"
    return Split(share, seed, None, "", how, held)


def _by_time(facts: TableFacts, target: Column, shares: Shares, seed: int, column: Column) -> Split:
    def from_on(cut: str) -> str:
        name = f"s.{shown_identifier(column.name)}"
        return f"{name} OPERATOR(pg_catalog.>=) {shown_literal(cut)}::{column.base_type}"

    cut = facts.cut(column, target, shares.together)
    how, apart = f"rows from {column.name} {cut} on are for validation", ""
    if shares.holdout:
        last = facts.cut(column, target, shares.holdout)
        _check_apart(
            cut, last, f"time_column: the last rows have too few different {column.name!r}"
        )
        how, apart = f"{how}, those from {last} on are the holdout", from_on(last)
    return Split(shares.validation, seed, column, from_on(cut), how, shares.holdout, apart)


def _by_group(
    facts: TableFacts, target: Column, shares: Shares, seed: int, column: Column
) -> Split:
    def until(last: str) -> str:
        hashed = group_hash(f"s.{shown_identifier(column.name)}", seed)
        return f"{hashed} OPERATOR(pg_catalog.<=) {shown_literal(last)}"

    last = facts.last_group(column, target, shares.together, seed)
    how, apart = f"whole groups of {column.name} are for validation", ""
    if shares.holdout:
        first = facts.last_group(column, target, shares.holdout, seed)
        _check_apart(first, last, f"group_column: {column.name!r} has too few groups")
        how, apart = f"{how}, others are the holdout", until(first)
    return Split(shares.validation, seed, column, until(last), how, shares.holdout, apart)


def _check_apart(one: str, other: str, what: str) -> None:
    """Refuse a split with no rows between two limits, which would be those for validation."""
    if one == other:
        raise InvalidData(
            f"{what} to keep rows for validation and a holdout apart; allowed: more of them",
            hint="without holdout_share, or with other shares, rows can be split",
        )


def split_statements(
    source: str, places: Places, names: Sequence[str], target: TargetFacts, task: Task, split: Split
) -> list[str]:
    """Statements that make the parts.

    Args:
        source: the table.
        places: of what they make.
        names: of the columns of all parts, but for the target.
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
        strata = label if task.kind == CLASSES else None
        columns = ", ".join([*map(shown_identifier, names), label])
        return [*found, *_draws(rows, places, split, strata, columns)]
    listed = f"{_listed(names)}, s.{label}"
    known = ""
    if task.kind == CLASSES:
        # Nothing can be learnt of a class that no row for training has.
        known = f" AND EXISTS (SELECT 1 FROM {places[TRAIN]} t WHERE t.{label} = s.{label})"
    parts = [(TRAIN, f"({split.test}) IS NOT TRUE"), (TEST, f"{split.test}{known}")]
    if split.apart:
        parts[1] = (TEST, f"{split.test} AND NOT {split.apart}{known}")
        parts.append((HOLDOUT, f"{split.apart}{known}"))
    return found + [
        f"CREATE VIEW {places[suffix]} AS SELECT {listed} FROM {rows} s WHERE {condition}"
        for suffix, condition in parts
    ]


def _draws(rows: str, places: Places, split: Split, strata: str | None, columns: str) -> list[str]:
    """Statements that draw the parts: first the holdout from all rows, then those for validation from the rest."""
    found, share = [], split.share
    if split.held:
        found.append(_drawn(rows, places[APART], split.held, strata, columns, split.seed))
        rows, share = places[REST], share / (1 - split.held)
    return [*found, _drawn(rows, str(places.base), share, strata, columns, split.seed)]


def _drawn(
    source: str, output: str, share: float, strata: str | None, columns: str, seed: int
) -> str:
    call = call_of(
        "cerebro_train_test_split",
        source_table=source,
        output_table=output,
        train_proportion=round(1 - share, 6),
        grouping_cols=strata,
        target_cols=columns,
        separate_output_tables=True,
        seed=seed,
    )
    return f"SELECT {call}"


def _listed(names: Sequence[str] | dict[str, None]) -> str:
    return ", ".join(f"s.{shown_identifier(name)}" for name in names)
