"""Rows of cerebro.decisions: what changed the set of configurations of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from cerebro_db.configs.plain_texts import plain_text
from cerebro_db.postgres.catalog import Catalog, ConfigurationRow
from cerebro_db.postgres.ends import EndRow, record_ends

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
        """What a search knows of it."""
        found = json.loads(self.detail)
        return found if isinstance(found, dict) else {}


_NAMES = [field.name for field in fields(DecisionRow)]
_JSON = ("detail", "heard")


def add_decision(
    catalog: Catalog,
    run_id: int,
    rows: Sequence[DecisionRow],
    configurations: Sequence[ConfigurationRow] = (),
    answer: tuple[int, str] | None = None,
) -> None:
    """Store a decision, and the configurations that it adds, within a transaction.

    Args:
        catalog: of the driver.
        run_id: which run.
        rows: of the decision.
        configurations: that it adds.
        answer: to a request that it follows, by its id.
    """
    catalog.lock("configurations", "decisions", *(("requests",) if answer else ()))
    if answer is not None:
        catalog.answer(*answer)
    if configurations:
        catalog.add_configurations(run_id, configurations, "training")
    row_sql = f"(%s{', %s' * len(_NAMES)})"
    catalog.execute(
        f"INSERT INTO cerebro._decisions (run_id, {', '.join(_NAMES)}) "
        f"VALUES {', '.join([row_sql] * len(rows))}",
        [value for row in rows for value in (run_id, *vars(_plain(row)).values())],
    )
    for row in rows:
        if row.action == PROMOTE:
            catalog.execute(
                "UPDATE cerebro._configurations SET budget = %s WHERE run_id = %s AND mst_key = %s",
                (row.epochs, run_id, row.mst_key),
            )
        elif row.action == STOP and not row.epochs:
            catalog.configuration_ended(run_id, row.mst_key, "cancelled", row.reason)
        elif row.action == STOP:
            record_ends(catalog, run_id, {row.mst_key: EndRow(row.epochs, None, row.epochs)})


def _plain(row: DecisionRow) -> DecisionRow:
    """A decision with a reason that the catalog takes."""
    return replace(row, reason=plain_text(row.reason, _MAX_REASON) or "")


def decisions_of(catalog: Catalog, run_id: int) -> list[DecisionRow]:
    """The decisions of a run, in their order."""
    names = [f"{name}::text" if name in _JSON else name for name in _NAMES]
    rows = catalog.execute(
        f"SELECT {', '.join(names)} FROM cerebro._decisions WHERE run_id = %s "
        "ORDER BY number, mst_key",
        (run_id,),
    )
    return [DecisionRow(*row) for row in rows]
