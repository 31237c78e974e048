"""Retention: which states must stay although their configuration has gone on."""

from __future__ import annotations

from collections.abc import Iterable

from cerebro_db.core.state import MOST_STATES, RunState, Track
from cerebro_db.decide.callbacks import watches


def held(state: RunState) -> list[int]:
    """Configurations that must be scored before they go on, of those that have something to do."""
    pending = (key for one in state.pending.values() for key in one.mst_keys)
    return [key for key in sorted({*state.active, *pending}) if is_held(state, state.tracks[key])]


def is_held(state: RunState, track: Track) -> bool:
    """True if a configuration must be scored before it goes on."""
    return track.is_alive and (
        _is_full(state, track) or _is_undecided(state, track) or _has_come(state, track)
    )


def useless(state: RunState, mst_keys: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """States of configurations that nothing needs any more, as mst_key and version."""
    found = []
    for mst_key in mst_keys:
        track = state.tracks[mst_key]
        found += [(mst_key, version) for version in track.states - needed(state, track)]
    return tuple(sorted(found))


def needed(state: RunState, track: Track) -> set[int]:
    """Versions that something needs, whether they are there or not.

    Needed are the newest state of a configuration, those still to be scored, and, where only the
    states at the end of an epoch outlive a crash or a decision may go back to one, the newest of
    these; and that of the best epoch, where it is to be restored.
    """
    hops = state.spec.hops_an_epoch
    if track.ended is not None:
        return {epoch * hops for epoch in track.kept}
    found = {track.done}
    if track.is_alive:  # and what its round has left so far
        found |= {-1 - number for number in track.parts}
    found |= {version for version in track.states if _is_to_score(state, track, version)}
    if not state.spec.every_hop or state.spec.is_open:
        found.add(track.done - track.done % hops)
    if track.verdict.restored_epoch is not None:
        found.add(track.verdict.restored_epoch * hops)
    if track.verdict.stopped_epoch is None:
        found.update(epoch * hops for epoch in track.kept)
    return found


def _is_to_score(state: RunState, track: Track, version: int) -> bool:
    epoch, rest = divmod(version, state.spec.hops_an_epoch)
    if rest or epoch <= 0 or epoch in track.scored:
        return False
    return version <= track.done and state.is_awaited(track, epoch)


def _is_undecided(state: RunState, track: Track) -> bool:
    """True if callbacks wait for the scores of the newest state."""
    return watches(track.configuration.fit_params) and _is_to_score(state, track, track.done)


def _has_come(state: RunState, track: Track) -> bool:
    """True if a search has more to decide before it goes on."""
    after = track.last_allowed
    return after is not None and track.done >= after * state.spec.hops_an_epoch


def _is_full(state: RunState, track: Track) -> bool:
    """True if a configuration would make a state too many."""
    restored = track.verdict.restored_epoch
    epochs = track.kept if restored is None else track.kept | {restored}
    kept = {epoch * state.spec.hops_an_epoch for epoch in epochs}
    whole = {version for version in track.states if version >= 0}
    return len(whole - kept) >= MOST_STATES
