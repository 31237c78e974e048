"""Ends of the training of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cerebro_db.postgres.catalog import Catalog, keys_by_value


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


def record_ends(catalog: Catalog, run_id: int, ends: Mapping[int, EndRow]) -> None:
    """Write down where configurations end; one that was stopped early is finished."""
    # Not all at once, as not every server can join in an update; but most ends are the same.
    for row, mst_keys in keys_by_value(ends).items():
        catalog.execute(
            "UPDATE cerebro._configurations SET stopped_epoch = %s, best_epoch = %s, "
            "model_epoch = %s, status = CASE WHEN %s::int IS NULL THEN status ELSE 'finished' END "
            "WHERE run_id = %s AND mst_key = ANY (%s::int[])",
            (
                row.stopped_epoch,
                row.best_epoch,
                row.model_epoch,
                row.stopped_epoch,
                run_id,
                mst_keys,
            ),
        )
