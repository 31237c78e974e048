"""Updates of shared weights: whose gradients come in which order, how stale they are, what momentum that brings.

Trainers of a round and simulations use the same; nothing here computes a gradient.

Mitliagkas et al.: Asynchrony begets Momentum, with an Application to Deep Learning, arXiv 1605.09774.
Hadjis et al.: Omnivore: An Optimizer for Multi-device Deep Learning on CPUs and GPUs, arXiv 1606.04487.
"""

from __future__ import annotations

import array
import math
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cerebro_db.errors import InvalidState

# The grid of Omnivore; learning rates are factors of that of the configuration.
MOMENTA = (0.0, 0.3, 0.6, 0.9)
FACTORS = (1.0, 0.1)
# Fewer groups are preferred to more that would be faster by less than that.
_SATURATED = 0.95
_MOST_BYTES = 2**31 - 1


def groups_of(ranks: int, groups: int) -> tuple[int, ...]:
    """The group of each rank; their sizes differ by one at most.

    Raises:
        ValueError: there are more groups than ranks, or none.
    """
    if not 1 <= groups <= ranks:
        raise ValueError(f"groups: got {groups}; allowed: 1 to {ranks}")
    return tuple(rank * groups // ranks for rank in range(ranks))


def implicit_momentum(groups: int) -> float:
    """Momentum that so many asynchronous groups bring, where their updates come in random order."""
    return 1 - 1 / groups


def explicit_momentum(wanted: float, groups: int) -> float:
    """Momentum for the optimizer, so that with the implicit one it makes what is wanted; it may be negative."""
    return wanted - implicit_momentum(groups)


@dataclass
class Staleness:
    """Updates of one group, and how many of others each of its gradients had not seen.

    Attributes:
        updates: how many were made.
        total, most: of all of them, and of the stalest.
    """

    updates: int = 0
    total: int = 0
    most: int = 0

    @property
    def mean(self) -> float:
        """Over its updates."""
        return self.total / max(self.updates, 1)

    def add(self, staleness: int) -> None:
        """Take note of an update."""
        self.updates += 1
        self.total += staleness
        self.most = max(self.most, staleness)


class Updates:
    """Order of the updates of shared weights by groups, synchronous inside and asynchronous between.

    A group is ready when all of its ranks have pushed a gradient for its next update; then its mean is
    applied, and its ranks read the weights that come of it. So each gradient of a group was computed
    with the weights that its update before has left: the order of the groups tells everything.

    Args:
        groups: the group of each rank.
        steps: updates that each group makes in all.
        order: groups of a recorded order, which is followed; None for the order in which they are ready.

    Attributes:
        order: groups of the updates that were made.
        staleness: by group.

    Raises:
        InvalidState: the recorded order has other numbers of updates.
    """

    def __init__(
        self, groups: Sequence[int], steps: Sequence[int], order: Sequence[int] | None = None
    ) -> None:
        self._groups, self._left, self._given = groups, list(steps), order
        self._members = [groups.count(group) for group in range(len(steps))]
        self._missing = list(self._members)
        self._pushed = [False] * len(groups)
        self._read = [0] * len(steps)
        self._ready: dict[int, None] = {}  # in the order in which they became so
        self.order: list[int] = []
        self.staleness = [Staleness() for _ in steps]
        if order is not None and [order.count(group) for group in range(len(steps))] != self._left:
            raise InvalidState(
                f"got an order of {len(order)} updates; the round makes {self._left} by its groups"
            )

    @property
    def is_done(self) -> bool:
        """True if all updates were made."""
        return not any(self._left)

    def ranks(self, group: int) -> list[int]:
        """The ranks of a group."""
        return [rank for rank, of in enumerate(self._groups) if of == group]

    def awaits(self, rank: int) -> bool:
        """True if a rank is still to push a gradient for the next update of its group."""
        return self._left[self._groups[rank]] > 0 and not self._pushed[rank]

    def pushed(self, rank: int) -> None:
        """A rank has pushed its gradient."""
        group = self._groups[rank]
        self._pushed[rank] = True
        self._missing[group] -= 1
        if not self._missing[group]:
            self._ready[group] = None

    def next(self) -> int | None:
        """The group whose update is made now; None where gradients are missing."""
        if self._given is None:
            return next(iter(self._ready), None)
        if self.is_done or self._given[len(self.order)] not in self._ready:
            return None
        return self._given[len(self.order)]

    def applied(self, group: int) -> int:
        """The update of a group was made, and it has read the weights; returns its staleness."""
        made = len(self.order)
        staleness = made - self._read[group]
        self.staleness[group].add(staleness)
        self.order.append(group)
        self._read[group] = made + 1
        self._left[group] -= 1
        del self._ready[group]
        self._missing[group] = self._members[group]
        for rank in self.ranks(group):
            self._pushed[rank] = False
        return staleness


def to_bytes(order: Sequence[int]) -> bytes:
    """An order of updates as it is stored."""
    return zlib.compress(array.array("I", order).tobytes())


def from_bytes(data: bytes, updates: int) -> list[int]:
    """An order of so many updates as it was stored.

    Raises:
        InvalidState: it is none, or of another number.
    """
    size = array.array("I").itemsize
    unpacked = zlib.decompressobj()
    try:
        found = unpacked.decompress(data, min(updates * size + 1, _MOST_BYTES))
    except zlib.error:
        raise InvalidState("got an order of updates that was not stored by a run") from None
    if len(found) != updates * size:
        raise InvalidState(
            f"got an order of {len(found) // size} updates; the round makes {updates}"
        )
    return list(array.array("I", found))


# -- how fast groups are -------------------------------------------------------------------------
@dataclass(frozen=True)
class GroupModel:
    """Seconds of an update as a function of the number of groups: the hardware model of Omnivore.

    One group computes its gradients side by side, and hands them to the server, which applies one update
    after another. With more groups the server works while others compute, until it is always at
    work; on a host whose workers share their processors, these are always at work at some time, too.

    Attributes:
        ranks: workers.
        cores: processors that they and the server share.
        gradient: seconds of a worker that computes one, while others do so on all other processors.
        update: seconds of the server for an update, whatever its size.
        push: seconds that each gradient of an update takes beside that.
    """

    ranks: int
    cores: int
    gradient: float
    update: float
    push: float

    @classmethod
    def of_one_group(
        cls,
        ranks: int,
        cores: int,
        computing: int,
        updates: int,
        working: float,
        updating: float,
        waiting: float,
    ) -> GroupModel:
        """The model by what was measured while all workers were one group.

        Gradients are computed side by side then, on processors that there may be too few of: the slowest has
        waited for all others, or all have taken turns. A mean would depend on which.

        Args:
            ranks, cores: as in the model.
            computing: ranks that have rows.
            updates: how many were made.
            working: seconds that the server was at work.
            updating: seconds of that in which the optimizer was.
            waiting: seconds of the slowest gradient, summed over the updates.
        """
        waves = math.ceil(computing / cores)
        push = (working - updating) / (updates * ranks)
        return cls(ranks, cores, waiting / updates / waves, updating / updates, push)

    def seconds(self, groups: int) -> float:
        """Seconds of one update by so many groups."""
        size = self.ranks / groups
        serial = self.update + size * self.push
        waves = math.ceil(math.ceil(size) / self.cores)  # of a group that has the host for itself
        alone = waves * self.gradient + serial
        busy = (size * self.gradient + serial) / self.cores
        return max(serial, alone / groups, busy)

    def throughput(self, groups: int) -> float:
        """Gradients a second."""
        return self.ranks / groups / self.seconds(groups)

    @property
    def saturating(self) -> int:
        """The fewest groups, halved from as many as there are workers, that are nearly as fast as any."""
        found = list(halved(self.ranks))
        best = max(map(self.throughput, found))
        return min(one for one in found if self.throughput(one) >= _SATURATED * best)


def halved(groups: int) -> Iterator[int]:
    """A number of groups, half of that, and so on until 1."""
    while groups > 1:
        yield groups
        groups //= 2
    yield 1


# -- which groups --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Setting:
    """Number of groups, and the momentum and learning rate of the optimizer.

    Attributes:
        factor: of the learning rate that was asked for.
    """

    groups: int
    momentum: float
    factor: float = 1.0


@dataclass(frozen=True)
class Probe:
    """A few steps with a setting, and the loss at their end."""

    setting: Setting
    loss: float


def choose(begins: int, asked: float) -> Generator[Setting, float, tuple[Setting, list[Probe]]]:
    """The optimizer of Omnivore, which asks for probes: yields settings, is sent the loss of each.

    Momentum and learning rate are searched for on a grid. Where no momentum is best, the
    asynchrony brings more than is good, and half as many groups are tried.

    Args:
        begins: the number of groups to begin with.
        asked: the momentum that was asked for, which is kept where no probe has a loss that is a number.

    Returns:
        The setting, and all probes.
    """
    probes: list[Probe] = []
    for groups in halved(begins):
        found: list[Probe] = []
        for factor in FACTORS:
            for momentum in MOMENTA:
                setting = Setting(groups, momentum, factor)
                loss = yield setting
                found.append(Probe(setting, loss if math.isfinite(loss) else math.inf))
        probes += found
        best = min(found, key=lambda one: one.loss)
        if math.isfinite(best.loss) and (best.setting.momentum > 0 or groups == 1):
            return best.setting, probes
    return Setting(1, asked), probes


def described(probes: Sequence[Probe]) -> list[Mapping[str, float | None]]:
    """Probes as they are recorded; no loss where it was no number."""
    return [
        {
            "groups": one.setting.groups,
            "momentum": one.setting.momentum,
            "factor": one.setting.factor,
            "loss": one.loss if math.isfinite(one.loss) else None,
        }
        for one in probes
    ]
