"""What callbacks have decided of the configurations of a run, always read from the catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cerebro_db.database.catalog import Catalog
from cerebro_db.database.histories import EndRow, histories, record_ends
from cerebro_db.driver.fit_setup import Configuration
from cerebro_db.planning.callbacks import NOTHING, Verdict, decide, watches


class Verdicts:
    """The verdicts on configurations that have callbacks which monitor something.

    They follow from what is in the catalog, so that whoever goes on with a run decides the same.

    Args:
        catalog: of the driver.
        run_id: which run.
        configurations: of the run.
    """

    def __init__(
        self, catalog: Catalog, run_id: int, configurations: Iterable[Configuration]
    ) -> None:
        self._catalog, self._run_id = catalog, run_id
        self._watched = {c.mst_key: c for c in configurations if watches(c.fit_params)}
        self._verdicts: dict[int, Verdict] = {}

    def update(self, mst_keys: Collection[int]) -> Mapping[int, tuple[Verdict, Verdict]]:
        """Decide anew from all that was measured; what has changed, before and after."""
        wanted = [key for key in mst_keys if key in self._watched]
        if not wanted:
            return {}
        changed = {}
        for mst_key, history in histories(self._catalog, self._run_id, wanted).items():
            configuration = self._watched[mst_key]
            after = decide(configuration.monitored, configuration.fit_params, history)
            before = self.of(mst_key)
            if after != before:
                changed[mst_key] = before, after
                self._verdicts[mst_key] = after
        ends = {key: end_of(after, after.stopped_epoch) for key, (_, after) in changed.items()}
        record_ends(self._catalog, self._run_id, ends)
        return changed

    def watches(self, mst_key: int) -> bool:
        """Whether a configuration must be measured before it goes on."""
        return mst_key in self._watched

    def of(self, mst_key: int) -> Verdict:
        """The verdict on a configuration."""
        return self._verdicts.get(mst_key, NOTHING)

    def stopped(self) -> set[int]:
        """Configurations that are not trained any more."""
        return {key for key, verdict in self._verdicts.items() if verdict.stopped_epoch is not None}

    def restored(self) -> dict[int, int]:
        """The epoch whose state would be the result, where that may not be the last one."""
        found = {key: verdict.restored_epoch for key, verdict in self._verdicts.items()}
        return {key: epoch for key, epoch in found.items() if epoch is not None}

    def end(self, mst_key: int, last: int) -> EndRow:
        """Where a configuration has ended that has not failed; ``last`` is the run's last epoch."""
        verdict = self.of(mst_key)
        return end_of(verdict, verdict.stopped_epoch or last)


def end_of(verdict: Verdict, last: int | None) -> EndRow:
    """Where a configuration ends, whose last epoch is known or not."""
    model_epoch = None if last is None else verdict.restored_epoch or last
    return EndRow(verdict.stopped_epoch, verdict.best_epoch, model_epoch)
