"""Which states must stay although their configuration has gone on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from cerebro_db.database.dialects.postgresql_training import StateTables

# The states of a configuration at any time, the one that is being written included, but for that
# of the epoch that is to be restored.
MOST_STATES = 3


class Retention:
    """The states that are there, and those of them that something still needs.

    Needed are the newest state of a configuration, those still to be scored, and, where only
    the states at the end of an epoch outlive a crash, the newest of these; and that of the best epoch,
    where it is to be restored.

    Args:
        states: of the run.
        epochs: after which configurations are scored.
        versions: (mst_key, version) of the states that are there.
        done: hops that each configuration has done.
        scored: (mst_key, epoch) of those that have their results.
        restored: the epochs whose states are to be restored, by mst_key.
    """

    def __init__(
        self,
        states: StateTables,
        epochs: Collection[int],
        versions: Iterable[tuple[int, int]] = (),
        done: Iterable[tuple[int, int]] = (),
        scored: Iterable[tuple[int, int]] = (),
        restored: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._states = states
        self._to_score = {epoch * states.hops_an_epoch for epoch in epochs}
        self._there: dict[int, set[int]] = {}
        for mst_key, version in versions:
            self._there.setdefault(mst_key, set()).add(version)
        self._done = dict(done)
        self._scored = {(key, epoch * states.hops_an_epoch) for key, epoch in scored}
        self._kept: dict[int, int] = {}
        for mst_key, epoch in restored.items():
            self.keep(mst_key, epoch)

    def hop_done(self, mst_key: int, version: int) -> None:
        """A hop made a version."""
        self._there.setdefault(mst_key, set()).add(version)
        self._done[mst_key] = version

    def scored(self, mst_key: int, version: int) -> None:
        """A version has been scored."""
        self._scored.add((mst_key, version))

    def keep(self, mst_key: int, epoch: int) -> None:
        """The state of an epoch is to be restored, and none that was so before."""
        self._kept[mst_key] = epoch * self._states.hops_an_epoch

    def is_due(self, mst_key: int) -> bool:
        """Whether the newest state of a configuration is still to be scored."""
        done = self._done.get(mst_key, 0)
        return done in self._to_score and (mst_key, done) not in self._scored

    def is_scored(self, mst_key: int, version: int) -> bool:
        """Whether a version has been scored."""
        return (mst_key, version) in self._scored

    def drop(self, mst_key: int) -> None:
        """All states of a configuration are gone."""
        self._there.pop(mst_key, None)

    def full(self, mst_key: int) -> bool:
        """Whether a configuration must be scored before it makes another state."""
        there = self._there.get(mst_key, set())
        return len(there - {self._kept.get(mst_key)}) >= MOST_STATES

    def useless(self) -> list[tuple[int, int]]:
        """Take out the states that nothing needs any more."""
        found = []
        for mst_key, there in self._there.items():
            extra = there - self._needed(mst_key, self._done.get(mst_key, 0))
            there -= extra
            found += [(mst_key, version) for version in extra]
        return sorted(found)

    def _needed(self, mst_key: int, done: int) -> set[int]:
        needed = {done, self._kept.get(mst_key, done)}
        needed |= {
            version
            for version in self._there.get(mst_key, ())
            if version in self._to_score
            and version <= done
            and (mst_key, version) not in self._scored
        }
        if not self._states.every_hop:
            needed.add(done - done % self._states.hops_an_epoch)
        return needed
