"""Entries of the aggregate cerebro_measure."""

from __future__ import annotations

from typing import Any

from cerebro_db.server.computing import Tick, compute, computing
from cerebro_db.server.entry import entry
from cerebro_db.server.memory import recall
from cerebro_db.server.training import PREPARE, checked, prepared
from cerebro_db.training.blocks import decode_features, decode_targets

BEGIN, CONFIGURATION = 0, 1  # kinds of rows; the others are buffers


@entry
def measure_step(
    plpy: Any,
    gd: dict[str, Any],
    token: int | None,
    kind: int | None,
    task: str | None,
    state: bytes | None,
    buffer_id: int | None,
    x: bytes | None,
    x_shape: list[int] | None,
    y: bytes | None,
    y_shape: list[int] | None,
) -> int:
    """Begin a scan, add a configuration, or feed it with a buffer."""
    if kind == PREPARE:
        return compute(plpy, lambda tick: prepared(plpy, gd, task or "").token)
    memory = recall(gd)

    def work(tick: Tick) -> int:
        from cerebro_db.training.scan import Scan
        from cerebro_db.training.tasks import scan_of

        if kind == BEGIN:
            told = scan_of(task or "", memory.run_id)
            return memory.begin(Scan(told, memory.scorers, memory.cache, tick))
        scan = memory.current(token, Scan)
        if kind == CONFIGURATION:
            scan.add(task or "", state or b"", memory.architectures)
        else:
            scan.feed(
                checked("buffer_id", buffer_id, 0, 2**31 - 1),
                decode_features(x, x_shape, scan.inputs),
                decode_targets(y, y_shape, scan.targets),
            )
        return memory.token

    return compute(plpy, work)


@entry
@computing
def measure_final(tick: Tick, gd: dict[str, Any], token: int | None) -> str:
    """End a scan: sums of loss and metrics as JSON."""
    from cerebro_db.training.scan import Scan

    memory = recall(gd)
    return str(memory.end(token, Scan).finish(memory.kept))


@entry
@computing
def try_scores(tick: Tick, gd: dict[str, Any], task: str | None) -> str:
    """Find out which configurations cannot be scored."""
    from cerebro_db.training.scan import try_scores as tried

    memory = recall(gd)
    return tried(task or "", memory.scorers, memory.architectures)


@entry
@computing
def combine(tick: Tick, gd: dict[str, Any], task: str | None) -> str:
    """Add up the sums of all partitions."""
    from cerebro_db.training.scan import combine as combined

    return combined(task or "", recall(gd).architectures)
