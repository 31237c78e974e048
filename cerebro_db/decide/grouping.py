"""Groups: how many workers train a configuration together, where the run chooses that.

A choice holds for an epoch of a configuration. It follows from static costs, from what the run was begun
with, the speeds of the machine among it, and from which configurations were still there two epochs before:
never from how fast anything of the run itself was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cerebro_db.core.spec import Configuration, Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.strategies import Speeds
from cerebro_db.decide.callbacks import watches
from cerebro_db.decide.cost import joined_step_seconds, step_seconds

# An epoch is planned while the one before it is trained, and by then that one is not measured.
_EPOCHS_BEFORE = 2
# Estimates are no better than that, and further trainers have to start.
_MARGIN = 1.15
_LEAST_SECONDS = 2.0
# Rows of a worker's share where layers take statistics of it.
_LEAST_ROWS = 32
_OF_BATCHES = '"BatchNormalization"'


@dataclass(frozen=True)
class Rule:
    """Everything beside the configurations that a choice follows from.

    Attributes:
        partitions: of the training table.
        processors: trainers that compute at the same time.
        largest: hops that may be made together.
        epochs: of the run.
        neighbours: partitions of one host, where gradients go from one to another; 0 where there is one host.
        speeds: of the machine.
    """

    partitions: int
    processors: int
    largest: int
    epochs: int
    neighbours: int = 0
    speeds: Speeds = field(default_factory=Speeds)

    @property
    def possible(self) -> list[int]:
        """Sizes of groups: an epoch has whole rounds of them."""
        most = min(self.largest, self.partitions)
        return [size for size in range(2, most + 1) if self.partitions % size == 0]

    def speed(self, one: Configuration) -> float:
        """Speed at which a configuration is trained, as a multiple of that of the static costs."""
        return self.speeds.of(one.architecture.facts.has_convolution)

    def step(self, one: Configuration) -> float:
        """Estimated seconds of a step of a configuration by one worker."""
        facts, batch = one.architecture.facts, one.fit_params.batch_size
        return step_seconds(facts, batch, self.speed(one))


@dataclass(frozen=True)
class Choice:
    """Number of workers that train each of some configurations together.

    Attributes:
        sizes: by mst_key.
        alone, seconds: estimates of an epoch of all of them, by a worker each and by this choice.
    """

    sizes: Mapping[int, int]
    alone: float
    seconds: float

    @property
    def largest(self) -> int:
        """The largest group."""
        return max(self.sizes.values(), default=1)


def choose(rule: Rule, configurations: Sequence[Configuration]) -> Choice:
    """The sizes by which an epoch of all configurations takes the shortest time, by estimate.

    All that gain by a group have groups of one size. Where that gains little, each has one worker: with as
    many configurations as processors nothing is faster.
    """
    every = {one.mst_key: 1 for one in configurations}
    alone = _seconds(rule, configurations, every)
    best = Choice(every, alone, alone)
    for size in rule.possible:
        sizes = {one.mst_key: size if gains(rule, one, size) else 1 for one in configurations}
        seconds = _seconds(rule, configurations, sizes)
        saved = (alone - seconds) * rule.epochs
        if seconds * _MARGIN <= alone and saved >= _LEAST_SECONDS and seconds < best.seconds:
            best = Choice(sizes, alone, seconds)
    return best


def gains(rule: Rule, one: Configuration, size: int) -> bool:
    """True if the steps of a configuration are shorter by a group, which can do the same."""
    batch = one.fit_params.batch_size
    least = _LEAST_ROWS if _OF_BATCHES in one.architecture.text else 1
    return batch >= least * size and share_of_time(rule, one, size) * _MARGIN <= 1


def share_of_time(rule: Rule, one: Configuration, size: int) -> float:
    """Estimated time of a step by a group, over that by one worker."""
    facts, batch = one.architecture.facts, one.fit_params.batch_size
    together = joined_step_seconds(
        facts, batch, size, rule.processors, rule.neighbours, rule.speed(one)
    )
    return together / rule.step(one)


def _seconds(
    rule: Rule, configurations: Iterable[Configuration], sizes: Mapping[int, int]
) -> float:
    """Estimated seconds of an epoch: of the longest configuration, or of all processors together."""
    longest, work = 0.0, 0.0
    for one in configurations:
        size = sizes[one.mst_key]
        share = share_of_time(rule, one, size) if size > 1 else 1.0
        own = one.hop_seconds / rule.speed(one) * rule.partitions * share
        longest = max(longest, own)
        work += own * min(size, rule.processors)
    return max(longest, work / min(rule.processors, rule.partitions))


def largest_of(rule: Rule, configurations: Sequence[Configuration]) -> int:
    """The largest group that a run may come to, whichever of its configurations end early."""
    found = [choose(rule, configurations), *(choose(rule, [one]) for one in configurations)]
    return max((one.largest for one in found), default=1)


class Choices:
    """Choices of the epochs of a run, as it stands; each is made once.

    Args:
        state: of the run.
        rule: that choices follow from.
    """

    def __init__(self, state: RunState, rule: Rule) -> None:
        self._state, self._rule = state, rule
        self._made: dict[int, Choice | None] = {}

    def size(self, track: Track, epoch: int) -> int | None:
        """Size of the group of a configuration in an epoch; None where it is not known yet."""
        rule, one = self._rule, track.configuration
        if not any(gains(rule, one, size) for size in rule.possible):
            return 1
        if epoch not in self._made:
            going = _going(self._state, epoch - _EPOCHS_BEFORE)
            self._made[epoch] = None if going is None else choose(rule, going)
        made = self._made[epoch]
        return None if made is None else made.sizes[one.mst_key]


def _going(state: RunState, epoch: int) -> list[Configuration] | None:
    """Configurations that have gone beyond an epoch, or do; None where some have not come there."""
    found = []
    for track in state.tracks.values():
        is_going = epoch < 1 or _goes_beyond(state, track, epoch)
        if is_going is None:
            return None
        if is_going:
            found.append(track.configuration)
    return found


def _goes_beyond(state: RunState, track: Track, epoch: int) -> bool | None:
    has_done = track.done >= epoch * state.spec.hops_an_epoch
    stopped = track.verdict.stopped_epoch
    if stopped is not None and stopped <= epoch:
        return False
    if track.ended is not None:
        return has_done
    if not has_done:
        return None
    is_judged = watches(track.configuration.fit_params) and state.is_awaited(track, epoch)
    return None if is_judged and epoch not in track.scored else True


def explained(state: RunState, hops: Iterable[Hop], rule: Rule) -> dict[tuple[int, int], str]:
    """Reasons of the plan, by mst_key and epoch: of an epoch in which they are new.

    Args:
        state: before these hops are planned.
        hops: that are to be planned.
        rule: that their groups follow from.
    """
    before = {key: track.group for key, track in state.tracks.items()}
    changed: dict[int, list[Hop]] = {}
    for hop in sorted(hop for hop in hops if hop.position == 0):
        if before[hop.mst_key] != hop.group:
            changed.setdefault(hop.epoch, []).append(hop)
        before[hop.mst_key] = hop.group
    return {
        (begun[0].mst_key, epoch): _reason(state, begun, rule) for epoch, begun in changed.items()
    }


def _reason(state: RunState, hops: Sequence[Hop], rule: Rule) -> str:
    by_size: dict[int, list[Configuration]] = {}
    for hop in hops:
        by_size.setdefault(hop.group, []).append(state.tracks[hop.mst_key].configuration)
    parts = [_reason_of_size(rule, size, members) for size, members in sorted(by_size.items())]
    parts.append(_figures(rule.speeds, [one for members in by_size.values() for one in members]))
    return f"from epoch {hops[0].epoch}: {'; '.join(parts)}"


def _figures(speeds: Speeds, members: Iterable[Configuration]) -> str:
    """Description of the figures that the estimates of some configurations are made from."""
    kinds = sorted({one.architecture.facts.has_convolution for one in members}, reverse=True)
    found = {kind: speeds.convolution if kind else speeds.other for kind in kinds}
    known = [
        f"{_KINDS[kind]} {speed:g} times as fast as by the built-in figures"
        for kind, speed in found.items()
        if speed is not None
    ]
    if not known:
        return "estimated by the built-in figures"
    hops = speeds.measured_hops
    who = f"as measured by {hops} hops of earlier runs" if hops else "as strategy_params say"
    rest = [f"{_KINDS[kind]} by the built-in figures" for kind in kinds if found[kind] is None]
    return "; ".join([f"estimated with steps of {' and '.join(known)}, {who}", *rest])


_KINDS = {True: "nets with convolutions", False: "nets without convolutions"}


def _reason_of_size(rule: Rule, size: int, members: Sequence[Configuration]) -> str:
    one, batch = members[0], members[0].fit_params.batch_size
    who = ", ".join(str(member.mst_key) for member in members[:_MOST_NAMED])
    who += ", ..." if len(members) > _MOST_NAMED else ""
    alone = rule.step(one)
    reason = f"{size} workers together" if size > 1 else "one worker at a time"
    reason += f" for configuration{'s' if len(members) > 1 else ''} {who}"
    reason += f" (by estimate a step of {batch} rows takes one of them {1e3 * alone:.2g} ms"
    other = (
        size
        if size > 1
        else min(rule.possible, key=lambda n: share_of_time(rule, one, n), default=1)
    )
    if other > 1:
        together = alone * share_of_time(rule, one, other)
        reason += f", {other} together {1e3 * together:.2g} ms, with {rule.processors} processors"
        reason += " and a network of 1 Gbit/s" if rule.neighbours else ""
    if size == 1 and any(gains(rule, one, other) for other in rule.possible):
        reason += "; all configurations together keep the processors busy, or have little to do"
    return f"{reason})"


_MOST_NAMED = 10
