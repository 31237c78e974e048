"""Records of hops, of decisions and of ends in the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from cerebro_db.configs.messages import plain_text
from cerebro_db.core.statuses import FINISHED, STOPPED
from cerebro_db.postgres.catalog import Catalog, ConfigurationRow, keys_by_value


@dataclass(frozen=True)
class EndRow:
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
        catalog.execute(
            "UPDATE cerebro._configurations SET stopped_epoch = %s, best_epoch = %s, "
            "model_epoch = %s, status = CASE WHEN %s::int IS NULL THEN status ELSE %s END, "
            "error = CASE WHEN %s::int IS NULL THEN error END WHERE run_id = %s AND mst_key = ANY (%s::int[])",
            (
                row.stopped_epoch,
                row.best_epoch,
                row.model_epoch,
                row.stopped_epoch,
                status,
                row.stopped_epoch,
                run_id,
                mst_keys,
            ),
        )


@dataclass(frozen=True)
class HopRow:
    """Record of one hop, as ``cerebro.hops`` has it; times in seconds.

    Statements that insert such rows list their values in this order.
    """

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


_TYPES = {
    "int": "int", "float": "float8", "datetime": "timestamptz", "bool": "boolean",
}  # fmt: skip
_HOP_NAMES = [field.name for field in fields(HopRow)]
HOP_COLUMNS = ", ".join(_HOP_NAMES)
_ARRAYS = ", ".join(f"%s::{_TYPES[str(field.type)]}[]" for field in fields(HopRow))


def add_hops(catalog: Catalog, run_id: int, rows: Sequence[HopRow]) -> None:
    """Store rows of hops, all or none."""
    columns = [[getattr(row, name) for row in rows] for name in _HOP_NAMES]
    catalog.store(
        f"INSERT INTO cerebro._hops (run_id, {HOP_COLUMNS}) "
        f"SELECT %s, t.* FROM unnest({_ARRAYS}) AS t",
        [run_id, *columns],
    )


ADD, CLONE, STOP, PROMOTE = "add", "clone", "stop", "promote"
_MAX_REASON = 1000


@dataclass(frozen=True)
class DecisionRow:
    """A decision about one configuration; those that are added together have the same number.

    Attributes:
        mst_key: 0 where it is about a search as a whole.
        epochs: of add, clone and promote, the budget; of stop, the epoch whose state is the model.
        source, source_epoch: of clone, whose state after which epoch is the start.
        who: has asked for it; empty where nobody has.
        detail: JSON of what a search knows of it.
        heard: JSON of the results on which it is based, in the first row of a decision.
    """

    number: int
    mst_key: int
    action: str
    epochs: int
    source: int | None
    source_epoch: int | None
    reason: str
    who: str = ""
    detail: str = "{}"
    heard: str = "[]"

    @property
    def details(self) -> dict[str, Any]:
        """Details that a search keeps of it."""
        found = json.loads(self.detail)
        return found if isinstance(found, dict) else {}


_DECISION_NAMES = [field.name for field in fields(DecisionRow)]
_JSON = ("detail", "heard")


def add_decision(
    catalog: Catalog,
    run_id: int,
    rows: Sequence[DecisionRow],
    configurations: Sequence[ConfigurationRow] = (),
    answer: tuple[int, str | None] | None = None,
    forgotten: Sequence[tuple[int, int]] = (),
) -> None:
    """Store a decision, and the configurations that it adds, within a transaction.

    Args:
        catalog: of the driver.
        run_id: which run.
        rows: of the decision.
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
    row_sql = f"(%s{', %s' * len(_DECISION_NAMES)})"
    catalog.execute(
        f"INSERT INTO cerebro._decisions (run_id, {', '.join(_DECISION_NAMES)}) "
        f"VALUES {', '.join([row_sql] * len(rows))}",
        [value for row in rows for value in (run_id, *vars(_plain(row)).values())],
    )
    for row in rows:
        if row.action == PROMOTE:
            catalog.execute(
                "UPDATE cerebro._configurations SET budget = %s, status = 'training', "
                "stopped_epoch = NULL, model_epoch = NULL WHERE run_id = %s AND mst_key = %s",
                (row.epochs, run_id, row.mst_key),
            )
        elif row.action == STOP and not row.epochs:
            catalog.configuration_ended(run_id, row.mst_key, "cancelled", row.reason)
        elif row.action == STOP:
            end = EndRow(row.epochs, None, row.epochs)
            record_ends(catalog, run_id, {row.mst_key: end}, STOPPED)


def _plain(row: DecisionRow) -> DecisionRow:
    """A decision with texts that the catalog takes."""
    reason, who = plain_text(row.reason, _MAX_REASON), plain_text(row.who, _MAX_REASON)
    return replace(row, reason=reason or "", who=who or "")


def decisions_of(catalog: Catalog, run_id: int) -> list[DecisionRow]:
    """The decisions of a run, in their order."""
    names = [f"{name}::text" if name in _JSON else name for name in _DECISION_NAMES]
    rows = catalog.execute(
        f"SELECT {', '.join(names)} FROM cerebro._decisions WHERE run_id = %s "
        "ORDER BY number, mst_key",
        (run_id,),
    )
    return [DecisionRow(*row) for row in rows]
