"""Records of hops, of decisions and of ends in the catalog."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.configs.messages import plain_text
from cerebro_db.core.decisions import NOBODY, PROMOTE, STOP, Change, Decision, Results
from cerebro_db.core.spec import Configuration
from cerebro_db.core.statuses import FINISHED, STOPPED
from cerebro_db.core.tasks import RoundRecord
from cerebro_db.postgres.catalog.rows import rows_json
from cerebro_db.postgres.catalog.runs import Catalog, keys_by_value
from cerebro_db.protocol import RoundReport
from cerebro_db.wire import decode_stored, encode

_T = TypeVar("_T")


class EndRow(NamedTuple):
    """End of the training of a configuration, as the views show it.

    Attributes:
        stopped_epoch: after which it was stopped early.
        best_epoch: the one that was found best.
        model_epoch: whose state is the model; None while that is open.
    """

    stopped_epoch: int | None
    best_epoch: int | None
    model_epoch: int | None


def record_ends(
    catalog: Catalog, run_id: int, ends: Mapping[int, EndRow], status: str = FINISHED
) -> None:
    """Write down where configurations end; those that were stopped early have a status then."""
    # Not all at once, as not every server can join in an update; but most ends are the same.
    for row, mst_keys in keys_by_value(ends).items():
        catalog.call("_set_ends", run_id, mst_keys, *row, status)


class HopRow(NamedTuple):
    """Record of one hop, as ``cerebro.hops`` has it; times in seconds."""

    mst_key: int
    epoch: int
    position: int
    partition_key: int
    worker: int
    pid: int
    started: datetime
    finished: datetime
    waited: float
    read: float
    trained: float
    written: float
    rows: int
    loss: float
    compiled: bool
    cached: bool
    memory_mb: int


def add_hops(catalog: Catalog, run_id: int, rows: Sequence[HopRow]) -> None:
    """Store rows of hops, all or none."""
    catalog.call("_add_hops", run_id, rows_json(HopRow._fields, rows))


_MAX_REASON = 1000


def add_decision(
    catalog: Catalog,
    run_id: int,
    number: int,
    decision: Decision,
    configurations: Sequence[Configuration] = (),
    answer: tuple[int, str | None] | None = None,
    forgotten: Sequence[tuple[int, int]] = (),
) -> None:
    """Store a decision, and the configurations that it adds, within a transaction.

    Args:
        catalog: of the driver.
        run_id: which run.
        number: of the decision, from 1.
        decision: a row for each of its changes, which holds what it is based on if it is the first one.
        configurations: that it adds.
        answer: to a request that it follows, by its id; None where nobody waits for it.
        forgotten: configurations and epochs whose results count no more.
    """
    more = *(["metrics"] if forgotten else []), *(["requests"] if answer else [])
    catalog.lock("configurations", "decisions", *more)
    catalog.forget_metrics(run_id, forgotten)
    if answer is not None:
        request_id, text = answer
        if text is None:
            catalog.forget_request(request_id)
        else:
            catalog.answer(request_id, text)
    if configurations:
        catalog.add_configurations(run_id, configurations, "training")
    rows = _rows(number, decision)
    catalog.call("_add_decisions", run_id, rows_json(_COLUMNS, rows))
    for one in decision.changes:
        if decision.action == PROMOTE:
            catalog.call("_promote", run_id, one.mst_key, one.epochs)
        elif decision.action == STOP and not one.epochs:
            catalog.configuration_ended(run_id, one.mst_key, "cancelled", decision.reason)
        elif decision.action == STOP:
            end = EndRow(one.epochs, None, one.epochs)
            record_ends(catalog, run_id, {one.mst_key: end}, STOPPED)


_COLUMNS = (
    "number", "mst_key", "action", "epochs", "source", "source_epoch", "reason", "who", "detail", "heard",
)  # fmt: skip


def _rows(number: int, decision: Decision) -> list[tuple[Any, ...]]:
    """The rows of a decision; one about the search as a whole has one with no configuration."""
    changes = decision.changes or (Change(NOBODY, 0, detail=decision.detail),)
    results, who = encode(decision.results), plain_text(decision.who, _MAX_REASON) or ""
    return [
        (
            number, one.mst_key, decision.action, one.epochs, one.source, one.source_epoch,
            plain_text(one.reason or decision.reason, _MAX_REASON) or "", who, encode(one.detail),
            "[]" if place else results,
        )
        for place, one in enumerate(changes)
    ]  # fmt: skip


def decisions_of(catalog: Catalog, run_id: int) -> list[Decision]:
    """The decisions of a run, in their order.

    Raises:
        InvalidData: somebody has changed one of them.
    """
    rows = catalog.execute(_DECISIONS, (run_id,))
    return [_decision(list(found)) for _, found in itertools.groupby(rows, lambda row: row[0])]


_DECISIONS = """
SELECT d.number, d.action, d.reason, d.who, d.heard::text, d.mst_key, d.epochs, d.source, d.source_epoch,
       d.detail::text, c.model_id, c.compile_params, c.fit_params
  FROM cerebro._decisions d
  LEFT JOIN cerebro._configurations c
    ON c.run_id = d.run_id AND c.mst_key = d.mst_key AND d.action IN ('add', 'clone')
 WHERE d.run_id = %s ORDER BY d.number, d.mst_key
"""


def _decision(rows: Sequence[tuple[Any, ...]]) -> Decision:
    """The decision that some rows are of."""
    _, action, reason, who, *_ = rows[0]
    changes = tuple(map(_change, rows))
    results = tuple(pair for row in rows for pair in _read(Results, row[4], "heard"))
    if changes[0].mst_key == NOBODY:
        return Decision(action, (), reason, who, results, changes[0].detail)
    return Decision(action, changes, reason, who, results)


def _change(row: tuple[Any, ...]) -> Change:
    _, _, reason, _, _, mst_key, epochs, source, source_epoch, detail, model_id, *texts = row
    text = None if model_id is None else ConfigurationText(model_id, *texts)
    found = _read(dict[str, Any], detail, "detail")
    return Change(mst_key, epochs, text, source, source_epoch, found, reason)


def _read(kind: type[_T], text: str, column: str) -> _T:
    hint = "the row was changed by hand; begin a new run"
    return decode_stored(kind, text, f"cerebro.decisions.{column}", hint)


# Of a row of cerebro._updates, without its run.
_FIELDS = ("mst_key", "epoch", "round", *RoundReport.__struct_fields__)
COLUMNS = ", ".join(_FIELDS)
_values_of = operator.attrgetter(*_FIELDS)


def rounds_of(catalog: Catalog, run_id: int) -> list[RoundRecord]:
    """The recorded rounds of a run."""
    sql = f"SELECT {COLUMNS} FROM cerebro._updates WHERE run_id = %s"
    rows = catalog.execute(sql, (run_id,))
    return [RoundRecord(**dict(zip(_FIELDS, row, strict=True))) for row in rows]


def add_rounds(catalog: Catalog, run_id: int, records: Sequence[RoundRecord]) -> None:
    """Store records of rounds, all or none."""
    catalog.call("_add_updates", run_id, rows_json(_FIELDS, map(_values_of, records)))


def copy_rounds(catalog: Catalog, source: int, run_id: int) -> None:
    """Have a run follow the orders of another one."""
    catalog.call("_copy_updates", run_id, source)
