"""Which configurations are to be scored where: groups of them share the scan of a partition."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TRAINING, VALIDATION = "training", "validation"


@dataclass(frozen=True)
class Scan:
    """One group over one partition of one data set."""

    group: Group
    dataset: str
    partition_key: int

    @property
    def name(self) -> str:
        """As workers name a partition in memory."""
        return f"{self.dataset}/{self.partition_key}"


@dataclass(eq=False)
class Group:
    """Configurations that finished an epoch and are scored together.

    Attributes:
        waiting: data set and partition of the scans that nobody has taken.
        missing: scans that are not finished.
        partials: sums of those that are.
        errors: of configurations that could not be scored.
        combined: data sets whose results are in the catalog.
    """

    epoch: int
    mst_keys: tuple[int, ...]
    waiting: list[tuple[str, int]]
    missing: int
    partials: dict[tuple[str, int], dict[int, Any]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    combined: set[str] = field(default_factory=set)


@dataclass
class _Pending:
    """Configurations that have finished an epoch, and are in no group yet.

    Attributes:
        due: when they are scanned if some worker has nothing else to do.
        late: when they are although each could train.
    """

    mst_keys: set[int] = field(default_factory=set)
    due: float = math.inf
    late: float = math.inf


class ScoreBoard:
    """Forms groups and hands out their scans.

    Where a worker can keep all partitions in memory, a configuration is
    scored soon after it finished its epoch, as scanning again costs little:
    others that finish it within a moment are scored in the same scan.
    Otherwise a group waits for all configurations, so that each partition is
    read once an epoch.

    Args:
        partitions: keys by data set.
        epochs: after which scores are wanted.
        waits: whether a group waits for all configurations.
        scored: (mst_key, epoch) of those that an earlier driver has scored, which nobody waits for.
        patience: seconds of that moment. Where hops are longer, it is a hop long: others make theirs
            meanwhile. But no worker that has nothing else to do waits for these.
        longest: seconds that such a hop may take; for longer ones nobody waits.
    """

    def __init__(
        self,
        partitions: Mapping[str, Sequence[int]],
        epochs: Collection[int],
        *,
        waits: bool,
        scored: Collection[tuple[int, int]] = (),
        patience: float = 0.0,
        longest: float = 0.0,
    ) -> None:
        self._partitions = partitions
        self._epochs = frozenset(epochs)
        self._waits = waits
        self._scored = frozenset(scored)
        self._patience, self._longest = patience, longest
        self._grouped: dict[int, set[int]] = {}
        self._pending: dict[int, _Pending] = {}
        self._open: list[Group] = []

    def wants(self, epoch: int) -> bool:
        """Whether the states after an epoch are scored."""
        return epoch in self._epochs

    def finished(self, mst_key: int, epoch: int, hop_seconds: float = 0.0) -> None:
        """A configuration finished an epoch.

        Args:
            mst_key: which one.
            epoch: which one.
            hop_seconds: that the longest hop takes which a worker may begin now: so long it does
                not scan, then.
        """
        if self.wants(epoch):
            pending = self._pending.setdefault(epoch, _Pending())
            pending.mst_keys.add(mst_key)
            now = time.monotonic()
            due = now if hop_seconds >= self._patience else now + self._patience
            pending.due = min(due, pending.due)
            late = now + hop_seconds if hop_seconds <= self._longest else now
            pending.late = min(max(due, late), pending.late)

    def drop(self, mst_key: int) -> None:
        """A configuration failed: forget what is not grouped yet."""
        for epoch, pending in list(self._pending.items()):
            pending.mst_keys.discard(mst_key)
            if not pending.mst_keys:
                del self._pending[epoch]

    def next(
        self,
        alive: Collection[int],
        kept: Collection[str],
        serves: Callable[[int], bool] = lambda partition: True,
        awaited: Collection[int] | None = None,
        idle: bool = True,
    ) -> Scan | None:
        """A scan for a free worker, one of a partition that it keeps if there is one.

        Args:
            alive: configurations that go on.
            kept: names of the partitions that the worker keeps.
            serves: whether it may have a partition.
            awaited: configurations whose scores are waited for; None for all, as nobody has
                anything else to do.
            idle: whether this worker has nothing else to do.
        """
        self._form(alive, awaited, idle)
        for group in self._open:
            waiting = [(dataset, key) for dataset, key in group.waiting if serves(key)]
            if waiting:
                names = {f"{dataset}/{key}": (dataset, key) for dataset, key in waiting}
                chosen = next((names[n] for n in names if n in kept), waiting[0])
                group.waiting.remove(chosen)
                return Scan(group, *chosen)
        return None

    def next_all(
        self, alive: Collection[int], awaited: Collection[int] | None = None
    ) -> list[Scan]:
        """Scans of all partitions of one data set, for one statement; ``awaited`` as above."""
        self._form(alive, awaited, idle=True)
        for group in self._open:
            if group.waiting:
                dataset = group.waiting[0][0]
                found = [Scan(group, name, key) for name, key in group.waiting if name == dataset]
                group.waiting[:] = [pair for pair in group.waiting if pair[0] != dataset]
                return found
        return []

    def scanned(self, scan: Scan, partials: dict[int, Any], errors: dict[int, str]) -> bool:
        """Take the sums of a scan; true when the group has all of them."""
        group = scan.group
        group.partials[scan.dataset, scan.partition_key] = partials
        group.errors.update(errors)
        group.missing -= 1
        if group.missing == 0:
            self._open.remove(group)
        return group.missing == 0

    @property
    def done(self) -> bool:
        """Whether nothing is left to score."""
        return not self._open and not self._pending

    def _form(self, alive: Collection[int], awaited: Collection[int] | None, idle: bool) -> None:
        for epoch in sorted(self._pending):
            pending = self._pending[epoch]
            grouped = self._grouped.setdefault(epoch, set())
            missing = {key for key in alive if (key, epoch) not in self._scored}
            all_there = missing <= pending.mst_keys | grouped
            if all_there or self._is_due(pending, awaited, idle):
                self._open.append(self._group(epoch, pending.mst_keys))
                grouped |= pending.mst_keys
                del self._pending[epoch]

    def _is_due(self, pending: _Pending, awaited: Collection[int] | None, idle: bool) -> bool:
        """Whether a group is formed although some configurations are not there yet."""
        if self._waits:
            return False
        wanted = awaited is None or not pending.mst_keys.isdisjoint(awaited)
        return wanted or time.monotonic() >= (pending.due if idle else pending.late)

    def _group(self, epoch: int, mst_keys: set[int]) -> Group:
        waiting = [(name, key) for name, keys in self._partitions.items() for key in keys]
        return Group(epoch, tuple(sorted(mst_keys)), waiting, len(waiting))
