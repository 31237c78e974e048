"""Memory of a trainer between statements: programs, scorers, decoded partitions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.settings import PEER_NETWORK_HINT, Settings
from cerebro_db.errors import PeersApart, RunFailed
from cerebro_db.server import network
from cerebro_db.server.limits import bind
from cerebro_db.training.environment import configured
from cerebro_db.training.functions import Function, know
from cerebro_db.training.peers.listeners import Listener, Tick

if TYPE_CHECKING:
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs, Scorers
    from cerebro_db.training.tasks import Architectures

_KEY, _NETWORK = "cerebro.worker", "cerebro.network"
DEFAULT_SECONDS = float(Settings().idle_seconds)


@dataclass
class WorkerMemory:
    """Memory of one worker: the aggregates under way, by token.

    Attributes:
        under_way: a hop, a scan or a prediction.
        saved: the state that the last hop left, until it is stored.
        report: JSON of what the last hop did, until it is stored.
        error: JSON of why the last hop failed, where the others of its statement shall go on.
        keeps_errors: whether that is so in this run.
        listener: where trainers of other hosts come in, while there are any.
        chunk_bytes: most bytes of a state that one row may have.
        idle_seconds: for which the process is kept without a caller.
        frameworks: of the run.
    """

    run_id: int
    cache: PartitionCache
    programs: Programs
    scorers: Scorers
    architectures: Architectures
    token: int = 0
    under_way: Any = None
    saved: bytes = b""
    report: str | None = None
    error: str | None = None
    keeps_errors: bool = False
    listener: Listener | None = None
    chunk_bytes: int = 2**28
    idle_seconds: float = DEFAULT_SECONDS
    frameworks: tuple[str, ...] = ()

    def begin(self, work: Any) -> int:
        """Remember what is under way, in place of anything that a cancelled statement left."""
        self.token += 1
        self.under_way, self.saved = work, b""
        self.report = self.error = None
        return self.token

    def current(self, token: int | None, kind: type[Any] = object) -> Any:
        """Work under way, checked: never the leftover of another statement."""
        if token is None or token != self.token or self.under_way is None:
            raise RunFailed(
                f"got the token {token} in a worker whose work has the token {self.token}"
            )
        if not isinstance(self.under_way, kind):
            raise RunFailed(f"got the token {token} of a worker that is at something else")
        return self.under_way

    def end(self, token: int | None, kind: type[Any] = object) -> Any:
        """Take out what is under way."""
        work = self.current(token, kind)
        self.under_way = None
        return work

    def kept(self) -> list[str]:
        """Names of the decoded partitions, such as ``training/3``."""
        return [f"{dataset}/{partition_key}" for _, dataset, partition_key in self.cache.names()]

    def forget(self) -> None:
        """Drop what was compiled."""
        from cerebro_db.training.programs import Programs, Scorers

        self.programs, self.scorers = Programs(), Scorers()

    def release(self) -> None:
        """Drop what only this run needs."""
        self.under_way, self.saved = None, b""
        self.report = self.error = None
        self.cache.clear()
        if self.listener is not None:
            self.listener.close()
            self.listener = None


def remember(
    gd: dict[str, Any],
    run_id: int,
    cache_bytes: int,
    settings: Settings,
    *,
    has_peers: bool = False,
) -> WorkerMemory:
    """The memory for a run: programs stay from the last one, decoded partitions do not."""
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs, Scorers
    from cerebro_db.training.tasks import Architectures

    memory = gd.get(_KEY)
    if memory is None:
        cache = PartitionCache(cache_bytes)
        memory = WorkerMemory(run_id, cache, Programs(), Scorers(), Architectures())
        gd[_KEY] = memory
    memory.run_id = run_id
    memory.release()
    memory.cache.limit = cache_bytes
    memory.keeps_errors = False
    memory.idle_seconds = settings.idle_seconds
    memory.chunk_bytes = settings.state_chunk_kb * 1024
    memory.architectures.limit(ArchitectureLimits.of(settings), bind(settings, has_peers=has_peers))
    return memory


def know_functions(gd: dict[str, Any], functions: str | None) -> None:
    """Remember the registered functions, as JSON; nothing for None."""
    found = json.loads(functions or "{}")
    changed = know({name: Function(*facts) for name, facts in found.items()})
    memory: WorkerMemory | None = gd.get(_KEY)
    if changed and memory is not None:  # programs may hold what a name meant before
        memory.forget()


def know_network(gd: dict[str, Any], settings: str | None) -> None:
    """Remember the network settings of a trainer, as JSON; nothing for None."""
    gd[_NETWORK] = settings


def network_known(gd: dict[str, Any]) -> Settings:
    """Network settings, as the catalog has them."""
    return Settings.of(json.loads(gd.get(_NETWORK) or "{}"))


def peers_allowed(gd: dict[str, Any]) -> Settings:
    """Settings by which trainers of other hosts are found, as the catalog has them.

    Raises:
        PeersApart: it allows none.
    """
    known = network_known(gd)
    if not known.peer_network:
        raise PeersApart(
            "peers: got trainers of several hosts; allowed: those of one, as the setting peer_network is empty",
            hint=PEER_NETWORK_HINT,
        )
    return known


def open_listener(gd: dict[str, Any], memory: WorkerMemory, tick: Tick) -> Listener:
    """The listener for trainers of other hosts.

    Raises:
        PeersApart: the catalog allows none, or there is none on this host.
    """
    if memory.listener is None:
        known = peers_allowed(gd)
        network.require(only_tcp=True)
        memory.listener = Listener(known.peer_network, known.peer_ports, tick)
    return memory.listener


def recall(gd: dict[str, Any]) -> WorkerMemory:
    """The memory of this process."""
    memory: WorkerMemory | None = gd.get(_KEY)
    if memory is None:
        raise RunFailed(
            "this session is no worker of a run; cerebro.cerebro_fit_multiple starts them"
        )
    return memory


def release_memory(gd: dict[str, Any]) -> None:
    """Drop what only the last run needs; a process that has not worked has nothing of it."""
    memory: WorkerMemory | None = gd.get(_KEY)
    if memory is not None:
        memory.release()


def idle_seconds(gd: dict[str, Any]) -> float:
    """Seconds for which the process is kept without a caller; 0 where another one is to begin anew."""
    if configured().get("use_gpus"):  # only the end of a process gives back the memory of a GPU
        return 0.0
    memory: WorkerMemory | None = gd.get(_KEY)
    return DEFAULT_SECONDS if memory is None else memory.idle_seconds
