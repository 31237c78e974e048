"""Epochs of a run that are to be written for TensorBoard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from cerebro_db.configs.functions.callbacks import TENSORBOARD
from cerebro_db.configs.grids.parameters import FitParams
from cerebro_db.core.spec import Configuration
from cerebro_db.core.state import RunState
from cerebro_db.errors import InvalidArgument
from cerebro_db.executors.sessions import WRITE_EVENTS
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.training.events import EventsTask, LoggedConfiguration, LoggedEpoch, value_of
from cerebro_db.wire import encode


def log_dir_of(fit: FitParams) -> str | None:
    """Folder of the events of a configuration, None where it has no TensorBoard."""
    found = [callback for callback in fit.callbacks if callback.name == TENSORBOARD]
    return str(found[0].all_arguments()["log_dir"]) if found else None


def check_events(session: Session, configurations: Iterable[Configuration]) -> None:
    """Check that there is a directory for what configurations want to be written.

    Raises:
        InvalidArgument: an administrator has named none, or it cannot be used.
    """
    if any(log_dir_of(c.fit_params) is not None for c in configurations):
        try:
            session.run(WRITE_EVENTS, (encode(EventsTask(0)),))
        except StatementFailed as error:
            if error.sqlstate != InvalidArgument.sqlstate:
                raise
            raise InvalidArgument(error.message, hint=error.hint) from None


class EventFiles:
    """The configurations of a run that have TensorBoard, and what is to be written of them.

    An epoch of a data set is a file of its own, and one that is there is not written again: so all that
    was measured can be asked for when a run goes on.

    Args:
        run_id: which run.
        state: of the run.
    """

    def __init__(self, run_id: int, state: RunState) -> None:
        self._run_id, self._state = run_id, state
        self._waiting: set[int] = set()
        # Data sets of each epoch that were asked for: scans end in any order.
        self._asked: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.measured(state.tracks)

    @property
    def done(self) -> bool:
        """True if nothing waits to be written."""
        return not self._waiting

    def measured(self, mst_keys: Collection[int]) -> None:
        """Note that configurations have results of one more epoch."""
        self._waiting.update(key for key in mst_keys if self._folder(key) is not None)

    def next(self) -> str | None:
        """A task that writes all that waits; None where there is nothing."""
        keys, self._waiting = sorted(self._waiting), set()
        found: list[LoggedConfiguration] = []
        for key in keys:
            track, asked = self._state.tracks[key], self._asked[key]
            sets = {epoch: len(found) for epoch, found in track.measured.items()}
            epochs = tuple(
                LoggedEpoch(epoch, {name: value_of(one) for name, one in logs.items()})
                for epoch, logs in track.history
                if sets[epoch] > asked.get(epoch, 0)
            )
            if epochs:
                asked.update(sets)
                found.append(LoggedConfiguration(key, str(self._folder(key)), epochs))
        return encode(EventsTask(self._run_id, tuple(found))) if found else None

    def _folder(self, mst_key: int) -> str | None:
        return log_dir_of(self._state.tracks[mst_key].configuration.fit_params)
