"""What TensorBoard shall show of a run: which epochs are to be written where."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from cerebro_db.configs.callbacks import TENSORBOARD
from cerebro_db.configs.parameters import FitParams
from cerebro_db.database.catalog import Catalog
from cerebro_db.database.histories import histories
from cerebro_db.database.sessions import Session, Tick
from cerebro_db.driver.fit_setup import Configuration

WRITE = "SELECT cerebro._write_events(%s)"


def log_dir_of(fit: FitParams) -> str | None:
    """Where the events of a configuration go, None where it has no TensorBoard."""
    found = [callback for callback in fit.callbacks if callback.name == TENSORBOARD]
    return str(found[0].all_arguments()["log_dir"]) if found else None


def check_events(session: Session, configurations: Iterable[Configuration], tick: Tick) -> None:
    """Whether there is a directory for what configurations want to be written.

    Raises:
        InvalidArgument: an administrator has named none, or it cannot be used.
    """
    if any(log_dir_of(c.fit_params) is not None for c in configurations):
        session.run(WRITE, (json.dumps({"run_id": 0, "configurations": []}),), tick)


class Events:
    """The configurations of a run that have TensorBoard, and what is to be written of them.

    An epoch is a file of its own, and one that is there is not written again: so all that was
    measured can be asked for when a run goes on.

    Args:
        catalog: of the driver.
        run_id: which run.
        configurations: of the run.
    """

    def __init__(
        self, catalog: Catalog, run_id: int, configurations: Iterable[Configuration]
    ) -> None:
        self._catalog, self._run_id = catalog, run_id
        named = {c.mst_key: log_dir_of(c.fit_params) for c in configurations}
        self._folders = {key: folder for key, folder in named.items() if folder is not None}
        self._waiting = set(self._folders)
        # The last epoch that was asked for; only to ask for less.
        self._asked: dict[int, int] = {}

    @property
    def done(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._waiting

    def measured(self, mst_keys: Collection[int]) -> None:
        """These have results of one more epoch."""
        self._waiting.update(key for key in mst_keys if key in self._folders)

    def next(self) -> str | None:
        """A task that writes all that waits; None where there is nothing."""
        keys, self._waiting = sorted(self._waiting), set()
        found = histories(self._catalog, self._run_id, keys) if keys else {}
        tasks: list[dict[str, Any]] = []
        for key, history in found.items():
            epochs = [pair for pair in history if pair[0] > self._asked.get(key, 0)]
            if epochs:
                self._asked[key] = epochs[-1][0]
                tasks.append({"mst_key": key, "log_dir": self._folders[key], "epochs": epochs})
        return json.dumps({"run_id": self._run_id, "configurations": tasks}) if tasks else None
