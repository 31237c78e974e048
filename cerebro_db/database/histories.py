"""What was measured of configurations epoch by epoch, and what callbacks have made of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cerebro_db.database.catalog import Catalog, keys_by_value

_OF_VALIDATION = {"training": "", "validation": "val_"}


@dataclass(frozen=True)
class EndRow:
    """Where the training of a configuration ends, as the views show it.

    Attributes:
        stopped_epoch: after which it was stopped early.
        best_epoch: the one that was found best.
        model_epoch: whose state is the model; None while that is open.
    """

    stopped_epoch: int | None
    best_epoch: int | None
    model_epoch: int | None


def histories(
    catalog: Catalog, run_id: int, mst_keys: Collection[int]
) -> dict[int, list[tuple[int, dict[str, float]]]]:
    """Epochs in their order, and loss and metrics after each, as Keras names them in its logs."""
    rows = catalog.execute(
        "SELECT mst_key, epoch, dataset, loss, metric_names, metrics FROM cerebro._metrics "
        # Those of the validation table are last: where names are equal, they count, as in Keras.
        "WHERE run_id = %s AND mst_key = ANY (%s::int[]) ORDER BY epoch, dataset",
        (run_id, list(mst_keys)),
    )
    found: dict[int, dict[int, dict[str, float]]] = {key: {} for key in mst_keys}
    for mst_key, epoch, dataset, loss, names, values in rows:
        logs = found[mst_key].setdefault(epoch, {})
        named = [("loss", loss), *zip(names, values, strict=True)]
        logs.update((_OF_VALIDATION[dataset] + name, value) for name, value in named)
    return {key: list(epochs.items()) for key, epochs in found.items()}


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
