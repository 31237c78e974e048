"""What a worker keeps in GD between statements: programs, scorers, decoded partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import RunFailed

if TYPE_CHECKING:  # TensorFlow is imported when a worker is made ready, not before
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.prediction import Prediction
    from cerebro_db.training.scan import Scan, Scorers
    from cerebro_db.training.tasks import Architectures
    from cerebro_db.training.visit import Programs, Visit

    Work = Visit | Scan | Prediction

_KEY = "cerebro.worker"


@dataclass
class WorkerMemory:
    """One worker's memory; what is under way is known by its token only."""

    run_id: int
    cache: PartitionCache
    programs: Programs
    scorers: Scorers
    architectures: Architectures
    token: int = 0
    under_way: Work | None = None

    def begin(self, work: Work) -> int:
        """Remember what is under way, in place of anything that a cancelled statement left."""
        self.token += 1
        self.under_way = work
        return self.token

    def current(self, token: int | None) -> Any:
        """What is under way, checked: never the leftover of another statement."""
        if token is None or token != self.token or self.under_way is None:
            raise RunFailed(
                f"got the token {token} in a worker whose work has the token {self.token}"
            )
        return self.under_way

    def end(self, token: int | None) -> Any:
        """Take out what is under way."""
        work = self.current(token)
        self.under_way = None
        return work

    def kept(self) -> list[str]:
        """Names of the decoded partitions, such as ``training/3``."""
        return [f"{dataset}/{partition_key}" for _, dataset, partition_key in self.cache.names()]

    def release(self) -> None:
        """Drop what only this run needs."""
        self.under_way = None
        self.cache.clear()


def remember(gd: dict[str, Any], run_id: int, cache_bytes: int) -> WorkerMemory:
    """The memory for a run: programs stay from the last one, decoded partitions do not."""
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.scan import Scorers
    from cerebro_db.training.tasks import Architectures
    from cerebro_db.training.visit import Programs

    memory = gd.get(_KEY)
    if memory is None:
        cache = PartitionCache(cache_bytes)
        memory = WorkerMemory(run_id, cache, Programs(), Scorers(), Architectures())
        gd[_KEY] = memory
    memory.run_id = run_id
    memory.release()
    memory.cache.limit = cache_bytes
    return memory


def recall(gd: dict[str, Any]) -> WorkerMemory:
    """The memory of this session."""
    memory: WorkerMemory | None = gd.get(_KEY)
    if memory is None:
        raise RunFailed("this session is no worker of a run; cerebro_fit_multiple starts them")
    return memory
