"""The plan of a run, which is stored before anything of it is handed out."""

from __future__ import annotations

from cerebro_db.driver.fit_setup import RunSetup
from cerebro_db.driver.workers import RunContext
from cerebro_db.planning.orders import Visit, plan_epoch

_AHEAD = 20_000  # hops that are planned by one statement, where epochs are small


class Plan:
    """Epochs that are planned, and those that follow.

    Args:
        setup: what is trained.
        context: what the run works with.
        planned: so many epochs are planned already.
    """

    def __init__(self, setup: RunSetup, context: RunContext, planned: int) -> None:
        self._catalog, self._run_id = context.catalog, context.run_id
        self._costs = {c.mst_key: c.hop_seconds for c in setup.configurations}
        self._partitions = [p.partition_key for p in setup.packed.partitions]
        self._seed = setup.request.seed or 0
        self._epochs, self._planned = setup.request.num_iterations or 1, planned

    @property
    def complete(self) -> bool:
        """Whether all epochs are planned."""
        return self._planned == self._epochs

    def until(self, epoch: int) -> list[Visit]:
        """Plan and store epochs up to this one, and perhaps more; returns what is new."""
        if epoch <= self._planned or self.complete:
            return []
        visits_an_epoch = len(self._costs) * len(self._partitions)
        ahead = max(epoch, self._planned + _AHEAD // visits_an_epoch)
        last = min(ahead, self._epochs)
        visits: list[Visit] = []
        for number in range(self._planned + 1, last + 1):
            visits += plan_epoch(self._costs, self._partitions, self._seed, number)
        self._catalog.add_plan(self._run_id, visits)
        self._planned = last
        return visits
