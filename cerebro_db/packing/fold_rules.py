"""Rules by which the rows of a table are in folds: what a request to pack says, and the number that each row gets.

A number holds for any count of folds: which rows are in a fold follows from the numbers when a run begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cerebro_db.core.folds import FOLD_KINDS, GROUP, STRATIFIED, TIME
from cerebro_db.errors import InvalidArgument, InvalidData, NotSupported, WrongObjectType
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.segments.packing import SegmentPacking
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation, column, listed_columns
from cerebro_db.requests.packing import PackingRequest

_ROLE = "fold_column"
_NO_ORDER = "42883"


class FoldRule(NamedTuple):
    """A column by whose values rows are in folds.

    Attributes:
        kind: of ``FOLD_KINDS``.
        column: name of it in the source.
    """

    kind: str
    column: str


def fold_rule(
    session: Session, dialect: PostgreSQL, request: PackingRequest, source: Relation
) -> FoldRule | None:
    """The rule of a request; None where it has none.

    Raises:
        InvalidArgument: a column is given without a kind, or the other way round.
        NotSupported: rows lie on segments.
        WrongObjectType: values of the column have no order.
    """
    kind, text = request.fold_kind, request.fold_column
    if kind is None:
        if text is not None:
            allowed = ", ".join(map(repr, FOLD_KINDS))
            raise InvalidArgument(
                f"fold_kind: got NULL beside a {_ROLE}; allowed: {allowed}",
                hint=f"leave {_ROLE} out for folds that are chosen by chance",
            )
        return None
    if isinstance(dialect.packing, SegmentPacking):
        raise NotSupported(
            f"fold_kind: got {kind!r} on a server with segments; allowed: NULL there",
            hint="folds by chance need no numbers; or pack each part as a table of its own",
        )
    if text is None:
        if kind != STRATIFIED:
            raise InvalidArgument(
                f"{_ROLE}: got NULL with fold_kind := {kind!r}; allowed: a column"
            )
        text = request.dependent_varname
        found = listed_columns(source, text or "", "dependent_varname")[0]
    else:
        found = column(source, text, _ROLE)
    try:
        session.run(f"SELECT s.{quote(found.name)} FROM {source.name.sql} s ORDER BY 1 LIMIT 0")
    except StatementFailed as error:
        if error.sqlstate != _NO_ORDER:
            raise
        raise WrongObjectType(
            f"{_ROLE}: the column {found.name!r} is of type {found.type}; allowed: types whose values have an order",
            hint="cast it to text in a view",
        ) from None
    return FoldRule(kind, found.name)


def check_known(rule: FoldRule, missing: int) -> None:
    """Refuse rows without a time.

    Raises:
        InvalidData: there are some.
    """
    if rule.kind == TIME and missing:
        raise InvalidData(
            f"{_ROLE}: column {rule.column!r} is NULL in {missing} rows; allowed: a time in each",
            hint="leave such rows out in a view, or put a time there",
        )


def numbers_of(
    kind: str, values: NDArray[np.int64], order: NDArray[np.intp] | None
) -> NDArray[np.int64]:
    """The fold number of each row, from 0.

    Args:
        kind: ``stratified`` numbers the rows value by value, those of each in the order of the shuffle; ``group``
            the values, the most frequent first; ``time`` the rows by their value, equal ones alike.
        values: the rank of the value of each row among all values, from 0.
        order: the shuffle; None for rows that keep their order.
    """
    if kind == STRATIFIED:
        places = np.arange(len(values)) if order is None else np.argsort(order)
        return np.argsort(np.lexsort((places, values)))
    counts = np.bincount(values)
    if kind == GROUP:
        return np.argsort(np.argsort(-counts, kind="stable"))[values]
    return (np.cumsum(counts) - counts)[values]
