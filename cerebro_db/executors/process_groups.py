"""Process groups: the trainers that make a round together, and whether those of several hosts reach each other.

Before the first round all trainers look whether they can reach each other, so that a way that is closed is an
error of the run and not of a configuration. If not all can, they look once more, with other sessions.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.core.spec import TRAINING
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Failure, Participate, Result
from cerebro_db.errors import PeersApart, TrainerLost
from cerebro_db.executors.hop_orders import OrderWriter
from cerebro_db.executors.workers import RunResources, Worker

_MOST_COMPLAINTS = 3
# Looks whether trainers of several hosts reach each other, and what one of them may end with.
_LOOKS = 2
_PASSING = (TrainerLost.sqlstate, PeersApart.sqlstate)


@dataclass
class ProcessGroup:
    """The trainers that make a round together.

    Attributes:
        waited: seconds that the workers that have joined had nothing to do, by rank.
        recorded: number of the round in its epoch, where its course is to be recorded.
    """

    name: str = field(default_factory=lambda: f"cerebro-{secrets.token_hex(16)}")
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    waited: dict[int, float] = field(default_factory=dict)
    recorded: int | None = None


class ProcessGroups:
    """The process groups of a run, and the addresses of its trainers.

    Args:
        resources: of the run.
        workers: all of them.
        orders: tell which rows a hop trains on.

    Attributes:
        under_way: of the rounds that are made, by configuration.
    """

    def __init__(
        self, resources: RunResources, workers: Sequence[Worker], orders: OrderWriter
    ) -> None:
        self._resources, self._workers, self._orders = resources, workers, orders
        self.under_way: dict[int, ProcessGroup] = {}
        # Looks so far, and what the last one has found, by the rank that cannot be reached.
        self._looks, self._is_reached = 0, False
        self._apart: list[tuple[int, str]] = []

    def complain(self, reasons: Sequence[Sequence[tuple[int, str]]]) -> None:
        """Take note of what trainers cannot reach: ranks and reasons."""
        self._apart += [(rank, reason) for some in reasons for rank, reason in some]

    def are_waited_for(self) -> bool:
        """True if no round can begin yet, as trainers get ready, or look whether they reach each other."""
        if any(worker.is_busy and worker.task is None for worker in self._workers):
            return True
        if self._is_reached:
            return False
        self._try_peers()
        return True

    def _try_peers(self) -> None:
        """Have all trainers look whether they can reach each other, before any hop."""
        self._looks, self._apart = self._looks + 1, []
        group = ProcessGroup()
        keys = sorted(self._resources.hosts)
        for rank, key in enumerate(keys):
            worker = self._worker_of(key)
            look = self._address_of(group, keys) | {"rank": rank, "is_root": False, "bits": 32}
            worker.is_busy = worker.is_trying = True
            sql = self._resources.dialect.training.call(
                self._resources.tables[TRAINING],
                worker.partition_keys,
                "cerebro._try_peers(%s)",
                [json.dumps(look)],
            )
            worker.session.send(*sql)

    def reached(self, result: Result | None) -> Result | None:
        """Take the result of a trainer's look; after a look in which not all were reached, all look once more.

        A trainer that was lost or late meanwhile is another one then.

        Raises:
            PeersApart: from where to where there is no way.
        """
        if isinstance(result, Failure):
            if result.sqlstate not in _PASSING:
                return result
            self._apart.append((-1, result.message))
        if any(worker.is_trying for worker in self._workers):
            return None
        if not self._apart:
            self._is_reached = True
        elif self._looks < _LOOKS:
            for worker in self._workers:
                worker.unprepared = True
        else:
            raise _apart(self._apart)
        return None

    def _address_of(self, group: ProcessGroup, keys: Sequence[int]) -> dict[str, Any]:
        """Where the trainers of some partitions find each other, by rank."""
        found = {"name": group.name, "secret": group.secret, "size": len(keys)}
        if len({self._resources.hosts.get(key) for key in keys}) == 1:
            return found
        return found | {"addresses": [self._worker_of(key).address for key in keys]}

    def _worker_of(self, partition_key: int) -> Worker:
        return next(one for one in self._workers if partition_key in one.partition_keys)

    def description(
        self, state: RunState, task: Participate, group: ProcessGroup
    ) -> dict[str, Any]:
        """Description of the process group for one of its trainers, as JSON."""
        size = state.tracks[task.own.mst_key].configuration.fit_params.batch_size
        shares = state.spec.strategy.shares(size, len(task.hops))
        steps = [
            math.ceil((stop - start) / share)
            for share, (start, stop) in zip(
                shares, (self._orders.rows_of(state, hop) for hop in task.hops), strict=True
            )
        ]
        return {
            **self._address_of(group, [hop.partition_key for hop in task.hops]),
            "is_root": task.is_root,
            "steps": max(steps),
            "batch_size": shares[task.rank],
            "bits": state.spec.strategy.bits,
            "is_pipelined": state.spec.strategy.is_pipelined(task.own.epoch),
            **self._served(state, task, steps),
        }

    def _served(self, state: RunState, task: Participate, steps: Sequence[int]) -> dict[str, Any]:
        """Parameters of a round for its trainers, where one of them holds the weights."""
        spec, configuration = state.spec, state.tracks[task.own.mst_key].configuration
        if not spec.strategy.has_weight_server:
            return {}
        passes, rounds = configuration.fit_params.epochs, self._resources.rounds
        parameters = rounds.parameters(spec, configuration, task.own)
        return {"served": {"steps": list(steps), "passes": passes, **parameters}}


def _apart(complaints: Sequence[tuple[int, str]]) -> PeersApart:
    """Error of trainers that cannot be reached: first those that were lost, then the rank that most complain of."""
    count = Counter(rank for rank, _ in complaints)
    in_order = sorted(complaints, key=lambda one: (one[0] >= 0, -count[one[0]], one))
    ordered = list(dict.fromkeys(reason for _, reason in in_order))
    more = (
        f"; and {len(ordered) - _MOST_COMPLAINTS} more" if len(ordered) > _MOST_COMPLAINTS else ""
    )
    return PeersApart(f"trainers of several hosts: {'; '.join(ordered[:_MOST_COMPLAINTS])}{more}")
