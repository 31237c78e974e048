"""Virtual time: which trial comes to which epoch when."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator

Event = tuple[float, int, int]
"""When, which trial, after which epoch."""


class Timeline:
    """The next result of each trial that runs, in the order in which they come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[Event] = []

    def expect(self, key: int, epoch: int, seconds: float) -> None:
        """A trial comes to an epoch after so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, key, epoch))

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Leave out trials that run no more, as far as they come first."""
        while self._events and is_gone(self._events[0][1]):
            heapq.heappop(self._events)

    def drop(self, keys: Collection[int]) -> None:
        """Remove trials that do not run at present."""
        self._events = [one for one in self._events if one[1] not in keys]
        heapq.heapify(self._events)

    def first(self) -> Iterator[Event]:
        """The next result, if there is any."""
        return iter(self._events[:1])

    def all(self) -> Iterator[Event]:
        """All expected results, in their order."""
        return iter(sorted(self._events))

    def of(self, key: int) -> Event | None:
        """The next result of a trial."""
        return next((one for one in self._events if one[1] == key), None)

    def take(self, event: Event) -> None:
        """A result is there."""
        if self._events[0] == event:
            heapq.heappop(self._events)
        else:
            self._events.remove(event)
            heapq.heapify(self._events)
        self.now = max(self.now, event[0])
