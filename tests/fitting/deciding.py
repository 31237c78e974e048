"""A run whose configurations come and go by a script; it may kill itself on the way.

    python -m fitting.deciding DSN NAME WORKERS [RUN_ID] [KILL]

KILL is ``before N``: when decision N was made, and is not stored; or ``after N``: when it was stored.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from cerebro_db.core.decisions import Add, Candidate, Clone, Decision, Promote, Stop
from cerebro_db.core.state import RunState
from cerebro_db.postgres.client import Client
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.driver import fit_multiple, resume
from cerebro_db.runs.limits import Limits

COMPILE = "loss='sparse_categorical_crossentropy',optimizer='{}',metrics=['accuracy']"
ADDED = (
    Candidate(10, 1, COMPILE.format("SGD(lr=0.05,momentum=0.9)"), "batch_size=16", 2),
    Candidate(11, 2, COMPILE.format("Adam(lr=0.02)"), "batch_size=8", 1),
)
CLONE = Candidate(20, 2, COMPILE.format("Adam(lr=0.001)"), "batch_size=8", 1)
# Each is made when an epoch of a configuration has been scored, and those before it were made.
SCRIPT: tuple[tuple[int, int, Decision], ...] = (
    (5, 1, Stop(5, 1, "hopeless")),  # it waits for what its callback makes of its scores
    (1, 2, Add(ADDED, "another bracket")),
    (3, 2, Promote(3, 4, "best of its rung")),
    (4, 2, Clone(4, 2, CLONE, "exploit")),
    (10, 2, Stop(10, 2)),
    (20, 1, Promote(20, 3, "it goes well")),
    (11, 1, Clone(11, 1, Candidate(21, 2, COMPILE.format("Adam(lr=0.01)"), "", 1))),
)


class Scripted:
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
            "packed", name, "searched", 2, name=name, validation_table="val",
            metrics_compute_frequency=1, num_workers=int(workers),
            search_path=client.search_path, cores=client.cores,
        )  # fmt: skip
        fit_multiple(client.pool, client.dialect, request, decider=decider)
    client.pool.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
