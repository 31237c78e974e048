"""What the aggregate cerebro_train calls in a worker."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from cerebro_db.server.host import entry
from cerebro_db.server.memory import recall, remember
from cerebro_db.training.buffers import decode
from cerebro_db.training.environment import configure

BEGIN = 0  # the kind of the first row; the others are buffers


@entry
def prepare(
    plpy: Any, gd: dict[str, Any], threads: int, use_gpus: bool, cache_bytes: int, run_id: int
) -> str:
    """Import TensorFlow and get ready for a run."""
    facts = configure(threads, use_gpus)
    remember(gd, run_id, cache_bytes)
    return json.dumps(facts)


@entry
def train_step(
    plpy: Any,
    gd: dict[str, Any],
    token: int | None,
    kind: int,
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
    """Begin a visit, or feed it with a buffer."""
    from cerebro_db.training.tasks import visit_of
    from cerebro_db.training.visit import Visit

    memory = recall(gd)
    if kind == BEGIN:
        assert task is not None
        visit = Visit(
            visit_of(task, memory.run_id, memory.architectures),
            state,
            weights,
            memory.programs,
            memory.cache,
            lambda: tick(plpy),
        )
        return memory.begin(visit)
    visit = memory.current(token)
    targets = visit.targets
    visit.feed(
        subepoch,
        buffer_id,
        decode(x or b"", x_shape or (), np.float32),
        decode(y or b"", y_shape or (), targets.dtype),
    )
    return memory.token


@entry
def train_final(plpy: Any, gd: dict[str, Any], token: int | None) -> dict[str, Any]:
    """End a visit: the next state and what was done."""
    memory = recall(gd)
    state, report = memory.end(token).finish()
    return {
        "state": state,
        "rows": report.rows,
        "loss": report.loss,
        "read_seconds": report.read_seconds,
        "train_seconds": report.train_seconds,
        "compiled": report.compiled,
        "cached": report.cached,
        "kept": memory.kept(),
        "memory_mb": report.memory_mb,
        "trained_at": time.time(),
    }


def tick(plpy: Any) -> None:
    """Let the server act on a cancel request."""
    plpy.execute("SELECT 1")


@entry
def release(plpy: Any, gd: dict[str, Any]) -> None:
    """Give back the memory of decoded partitions; programs stay for the next run."""
    recall(gd).release()
