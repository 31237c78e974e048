"""Entries of the aggregates that train, and that join a state out of its chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_db.configs.frameworks import named
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import (
    InvalidArgument,
    InvalidState,
    OutOfMemory,
    is_infrastructure_failure,
)
from cerebro_db.protocol import HopFailed, StateReport
from cerebro_db.server.computing import Tick, as_ours, compute, computing
from cerebro_db.server.entry import entry
from cerebro_db.server.joined import join_state as join_state
from cerebro_db.server.joined import take_joined
from cerebro_db.server.memory import (
    WorkerMemory,
    network_known,
    open_listener,
    peers_allowed,
    recall,
    remember,
)
from cerebro_db.server.settings import settings_of
from cerebro_db.training import state as states
from cerebro_db.training.buffers import decode_features, decode_targets
from cerebro_db.training.causes import of_the_model
from cerebro_db.training.environment import configure, configured, configured_threads
from cerebro_db.training.fields import Fields
from cerebro_db.training.state import WEIGHTS, Part
from cerebro_db.wire import encode

MAX_THREADS = 1024
MAX_PLACE = 2**31 - 1
_PREPARED = "cerebro.prepared"
_KNOW_FUNCTIONS = """SELECT cerebro._with_functions('{"functions": true}')"""
# More than any machine has: a partition is given memory when its rows come, not before.
MAX_CACHE_BYTES = 2**51
PREPARE, BEGIN, STATE = -1, 0, 1  # kinds of rows; the others are buffers
FAILED = -1  # number of the chunk that a failed hop leaves


def checked(name: str, value: int | None, low: int, high: int) -> int:
    """A number that must be there, within bounds."""
    if value is None or not low <= value <= high:
        got = "NULL" if value is None else value
        raise InvalidArgument(f"{name}: got {got}; allowed: {low} to {high}")
    return value


@dataclass
class _Opening:
    """A hop whose state is still coming in, chunk by chunk."""

    task: str
    weights: bytes | None
    chunks: list[bytes] = field(default_factory=list)

    def state(self) -> bytes | None:
        """The whole state, or None where there is none."""
        if len(self.chunks) == 1:
            return self.chunks[0]
        return b"".join(self.chunks) if self.chunks else None


@entry
def prepare(
    plpy: Any,
    gd: dict[str, Any],
    threads: int | None,
    use_gpus: bool | None,
    cache_bytes: int | None,
    run_id: int | None,
    place: int | None = None,
    frameworks: str | None = None,
) -> str:
    """Import the frameworks of a run, the default one where none are given, and get ready for it."""
    threads = checked("threads", threads, 1, MAX_THREADS)
    cache_bytes = checked("cache_bytes", cache_bytes, 0, MAX_CACHE_BYTES)
    run_id = checked("run_id", run_id, 0, 2**63 - 1)
    if place is not None:
        place = checked("place", place, 0, MAX_PLACE)
    names = named(frameworks)
    settings = settings_of(plpy)
    plpy.execute(_KNOW_FUNCTIONS)

    def work(tick: Tick) -> str:
        facts = configure(threads, bool(use_gpus), place, names)
        remember(gd, run_id, cache_bytes, settings)
        return json.dumps(facts)

    return compute(plpy, work)


def prepared(plpy: Any, gd: dict[str, Any], text: str, tick: Tick) -> WorkerMemory:
    """Get ready in a session that only statements of a run reach, unless that was done for it.

    Args:
        plpy: the server's interface.
        gd: what the process keeps.
        text: JSON of what ``prepare`` gets elsewhere, and of the settings.
        tick: called while waiting; raises to end that.
    """
    if not plpy.asks_nothing:
        raise InvalidArgument(
            f"kind: got {PREPARE}; allowed where sessions are set up once: from 0"
        )
    given = Fields.parse(text)
    has_peers = given.flag("peers", False)
    is_prepared = gd.get(_PREPARED) == text
    # A task can be anybody's: the catalog is asked before this process gets the filter of those with peers.
    if has_peers and not (is_prepared and recall(gd).listener is not None):
        peers_allowed(gd)
    memory = recall(gd) if is_prepared else _made_ready(plpy, gd, given, has_peers)
    gd[_PREPARED] = text
    if has_peers:
        open_listener(gd, memory, tick)
    return memory


def _made_ready(plpy: Any, gd: dict[str, Any], given: Fields, has_peers: bool) -> WorkerMemory:
    threads = configured_threads() or 1
    if given.raw("threads") is not None:
        threads = given.integer("threads", 1, MAX_THREADS)
    cache_bytes = given.integer("cache_bytes", 0, MAX_CACHE_BYTES)
    run_id = given.integer("run_id", 0)
    # A task can be anybody's: whether there is a network the catalog says.
    known = network_known(gd).trainer_network
    settings = replace(Settings.of(given.texts("settings")), trainer_network=known)
    names = named(given.text("frameworks") if given.has("frameworks") else None)
    configure(threads, given.flag("use_gpus"), _place(given, plpy.segment), names)
    memory = remember(gd, run_id, cache_bytes, settings, has_peers=has_peers)
    memory.frameworks = names
    memory.keeps_errors = given.flag("keeps_errors", False)
    return memory


def _place(given: Fields, number: int | None) -> int | None:
    """The place of a segment among those that share the GPUs of the host."""
    segment = str(number)
    if given.has("places") and given.object("places").has(segment):
        return given.object("places").integer(segment, 0, MAX_PLACE)
    return None


@entry
def prepare_process(plpy: Any, gd: dict[str, Any], task: str | None) -> str:
    """Prepare the trainer of a server process that cannot be asked by SQL.

    Returns:
        JSON of what belongs in the manifest of the run, and where trainers of other hosts come in.
    """
    memory = compute(plpy, lambda tick: prepared(plpy, gd, task or "", tick))
    listener = {} if memory.listener is None else {"address": memory.listener.address._asdict()}
    return json.dumps(configured(memory.frameworks) | listener)


@entry
@computing
def try_peers(tick: Tick, gd: dict[str, Any], task: str | None) -> str:
    """Go to the trainers of other hosts, which look for this one at the same time.

    Returns:
        JSON of places that cannot be reached, with why.
    """
    from cerebro_db.training.peers.network_peers import unreached
    from cerebro_db.training.tasks import process_group_of

    listener = recall(gd).listener
    if listener is None:
        raise InvalidArgument(
            "task: got peers to look for in a trainer that has none; allowed: in one that was prepared to have them"
        )
    return json.dumps(unreached(process_group_of(task or "", listener), tick))


@entry
def train_step(
    plpy: Any,
    gd: dict[str, Any],
    token: int | None,
    kind: int | None,
    task: str | None,
    state: bytes | None,
    weights: bytes | None,
    subepoch: int | None,
    buffer_id: int | None,
    x: bytes | None,
    x_shape: list[int] | None,
    y: bytes | None,
    y_shape: list[int] | None,
) -> int:
    """Begin a hop, take a chunk of its state, or feed it with a buffer."""
    if kind == PREPARE:
        return compute(plpy, lambda tick: prepared(plpy, gd, task or "", tick).token)
    memory = recall(gd)
    if kind == BEGIN:
        return memory.begin(_Opening(task or "", weights))
    if kind == STATE:
        memory.current(token, _Opening).chunks.append(state or b"")
        return memory.token

    def feed(tick: Tick) -> None:
        hop = _opened(tick, memory, token)
        hop.feed(
            checked("subepoch", subepoch, 0, 2**31 - 1),
            checked("buffer_id", buffer_id, 0, 2**31 - 1),
            decode_features(x, x_shape, hop.inputs),
            decode_targets(y, y_shape, hop.targets),
        )

    compute(plpy, lambda tick: _unless_failed(memory, token, lambda: feed(tick)))
    return memory.token


def _unless_failed(memory: WorkerMemory, token: int | None, work: Callable[[], None]) -> None:
    """Do a part of a hop, unless an earlier one failed.

    Where one statement trains several configurations, on other segments, an error that is one
    configuration's own is kept: raised, it would take away what the others have done.
    """
    if memory.error is not None and token == memory.token:
        return
    try:
        work()
    except Exception as error:
        failure = of_the_model(as_ours(error))
        spoiled = isinstance(failure, OutOfMemory)
        if not memory.keeps_errors or is_infrastructure_failure(failure.sqlstate) or spoiled:
            raise failure from None
        memory.under_way = None
        memory.error = encode(
            HopFailed(sqlstate=failure.sqlstate, message=failure.message, hint=failure.hint)
        )


def _opened(tick: Tick, memory: WorkerMemory, token: int | None) -> Any:
    """The hop under way, made from its task and state when both are there."""
    from cerebro_db.training.hop import Hop
    from cerebro_db.training.peers.group import GroupHop, ParameterServerHop
    from cerebro_db.training.tasks import hop_of

    work = memory.current(token)
    if isinstance(work, _Opening):
        task = hop_of(work.task, memory.run_id, memory.architectures, memory.listener)
        kind = Hop
        if task.part is not None and task.part.process_group is not None:
            kind = GroupHop if task.part.served is None else ParameterServerHop
        work = kind(
            task,
            work.state(),
            work.weights,
            memory.programs,
            memory.cache,
            tick,
        )
        memory.under_way = work
    if not isinstance(work, Hop):
        raise InvalidState("got a buffer of a hop in a worker that is at something else")
    return work


@entry
@computing
def train_final(tick: Tick, gd: dict[str, Any], token: int | None) -> int:
    """End a hop; the state that it leaves, and its report, wait for ``saved_state``."""
    memory = recall(gd)

    def finish() -> None:
        hop = _opened(tick, memory, token)
        memory.under_way = None
        memory.saved, hops = hop.finish()
        memory.report = encode(
            StateReport(hops=hops, kept=memory.kept(), trained_at=time.time(), round=hop.course)
        )

    _unless_failed(memory, token, finish)
    return memory.token


@entry
def saved_state(
    plpy: Any, gd: dict[str, Any], token: int | None
) -> list[tuple[int, bytes, str | None]]:
    """The state that the hop of ``token`` left: number and bytes of every chunk, and the report.

    A hop that shares in a round leaves no bytes, one that failed by itself a number that no chunk has.
    """
    memory = recall(gd)
    if memory.error is not None and token == memory.token:
        return [(FAILED, b"", memory.error)]
    state, memory.saved = memory.saved, b""
    report, memory.report = memory.report, None
    if token != memory.token or not (state or report):
        raise InvalidState(f"got the token {token}; there is no saved state of that token")
    return [
        (number, chunk, None if number else report)
        for number, chunk in _chunks(state, memory.chunk_bytes)
    ]


def _chunks(state: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    if len(state) <= size:
        yield 0, state
        return
    view = memoryview(state)
    for number, start in enumerate(range(0, len(state), size)):
        yield number, bytes(view[start : start + size])


# The largest value of the server, less a little for its header.
_MAX_VALUE_BYTES = 2**30 - 2**10


@entry
def state_weights(plpy: Any, gd: dict[str, Any], token: int | None) -> bytes | None:
    """The weights of a state as float32; None where no value of the server can hold them."""
    data = take_joined(gd, token)
    model = states.of_model({part.name: part for part in states.parts_of(data)})
    weights = [part for name, part in model.items() if name.startswith(WEIGHTS)]
    if 4 * sum(part.size for part in weights) > _MAX_VALUE_BYTES:
        return None
    return b"".join(_as_float32(data, part) for part in weights)


def _as_float32(data: bytes, part: Part) -> bytes | memoryview:
    if part.dtype == "float32":
        return memoryview(data)[part.start : part.end]
    return states.array_of(data, part).astype("float32").tobytes()
