"""The worker sessions of a run."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.database.sessions import Session, SessionPool, Tick


@dataclass
class Worker:
    """One worker session and what is known of it.

    Attributes:
        number: from 0.
        kept: names of the partitions that it has decoded in memory.
        free_since: when it last had nothing to do.
        job: what it does now.
    """

    number: int
    session: Session
    kept: set[str] = field(default_factory=set)
    free_since: float = field(default_factory=time.monotonic)
    job: Any = None

    def waited(self) -> float:
        """Seconds without work until now."""
        return time.monotonic() - self.free_since

    def kept_partitions(self, dataset: str) -> set[int]:
        """Partition keys of a data set that are in memory."""
        parts = [name.rpartition("/") for name in self.kept]
        return {int(key) for found, _, key in parts if found == dataset}


def take_workers(
    pool: SessionPool, count: int, threads: int, use_gpus: bool, tick: Tick
) -> list[Worker]:
    """Sessions whose TensorFlow is not loaded yet, or is loaded with the same settings."""
    wanted = (threads, use_gpus)

    def fits(session: Session) -> bool:
        return bool(session.facts.get("tensorflow", wanted) == wanted)

    sessions = pool.take(count, fits, tick, prefer=lambda session: "tensorflow" in session.facts)
    for session in sessions:
        session.facts["tensorflow"] = wanted
    return [Worker(number, session) for number, session in enumerate(sessions)]


def start_preparing(worker: Worker, cache_bytes: int, run_id: int) -> None:
    """Send what makes a session a worker."""
    threads, use_gpus = worker.session.facts["tensorflow"]
    worker.session.send(
        "SELECT cerebro._prepare_worker(%s, %s, %s, %s)", (threads, use_gpus, cache_bytes, run_id)
    )


def manifest_of(worker: Worker) -> dict[str, Any]:
    """What a worker that is ready told about itself."""
    facts: dict[str, Any] = json.loads(worker.session.rows()[0][0])
    return facts


def give_back(pool: SessionPool, workers: list[Worker], tick: Tick) -> None:
    """Release the memory of a run and keep the sessions for the next one."""
    for worker in workers:
        if not worker.session.closed and not worker.session.busy:
            worker.session.run("SELECT cerebro._release_worker()", (), tick)
    pool.give(worker.session for worker in workers)
