"""A run whose configurations come and go by a script; it may kill itself on the way.

    python -m fitting.deciding DSN NAME WORKERS [RUN_ID] [KILL]

KILL is ``before N``: when decision N was made, and is not stored; or ``after N``: when it was stored.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import Change, Decision, add, clone, promote, stop
from cerebro_db.core.ports import NoDecider
from cerebro_db.core.state import RunState
from cerebro_db.postgres.calls.host import Client
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import fit_multiple, resume

COMPILE = "loss='sparse_categorical_crossentropy',optimizer='{}',metrics=['accuracy']"


def _change(mst_key: int, model_id: int, optimizer: str, fit_params: str, epochs: int) -> Change:
    row = ConfigurationText(model_id, COMPILE.format(optimizer), fit_params)
    return Change(mst_key, epochs, row)


ADDED = (
    _change(10, 1, "SGD(lr=0.05,momentum=0.9)", "batch_size=16", 2),
    _change(11, 2, "Adam(lr=0.02)", "batch_size=8", 1),
)
# Each is made when an epoch of a configuration has been scored, and those before it were made.
SCRIPT: tuple[tuple[int, int, Decision], ...] = (
    (5, 1, stop(5, 1, "hopeless")),  # it waits for what its callback makes of its scores
    (1, 2, add(ADDED, "another bracket")),
    (3, 2, promote(3, 4, "best of its rung")),
    (4, 2, clone(_change(20, 2, "Adam(lr=0.001)", "batch_size=8", 1), (4, 2), "exploit")),
    (10, 2, stop(10, 2)),
    (20, 1, promote(20, 3, "it goes well")),
    (11, 1, clone(_change(21, 2, "Adam(lr=0.01)", "", 1), (11, 1))),
)


class Scripted(NoDecider):
    """Decides by the script.

    Args:
        kill: when the process ends.
    """

    is_open = True

    def __init__(self, kill: tuple[str, int] | None = None) -> None:
        self._kill = kill

    def decide(self, state: RunState) -> Sequence[Decision]:
        """The next line of the script, when its time has come."""
        number = state.decisions
        self._die("after", number - 1)
        if number == len(SCRIPT):
            return ()
        mst_key, epoch, decision = SCRIPT[number]
        if epoch not in state.tracks[mst_key].scored:
            return ()
        self._die("before", number)
        return [decision]

    def _die(self, when: str, number: int) -> None:
        if self._kill == (when, number):
            os.kill(os.getpid(), signal.SIGKILL)


def main(
    dsn: str, name: str, workers: str, run_id: str = "", when: str = "", at: str = "0"
) -> None:
    """Begin the run, or go on with it."""
    client = Client.of(dsn)
    decider = Scripted((when, int(at)) if when else None)
    if run_id:
        limits = Limits(num_workers=int(workers))
        resume(client.pool, client.dialect, int(run_id), limits, decider=decider)
    else:
        request = FitRequest(
            source_table="packed", model_output_table=name, model_selection_table="searched", num_iterations=2, name=name, validation_table="val",
            metrics_compute_frequency=1, num_workers=int(workers),
            search_path=client.search_path, cores=client.cores,
        )  # fmt: skip
        fit_multiple(client.pool, client.dialect, request, decider=decider)
    client.pool.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
