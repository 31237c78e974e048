"""Orders of direct workers: a driver writes them as JSON that has values only, and a worker reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.dialects.statements.orders import Goal
from cerebro_db.postgres.dialects.statements.training import columns_of_names
from cerebro_db.postgres.direct.session import DirectRun
from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName
from cerebro_db.training.fields import Fields
from cerebro_db.wire import Wire, decode

# Buffers are read so many bytes at a time; the trainer computes meanwhile.
_BATCH_BYTES = 16 * 2**20

_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Names = Annotated[list[str], Meta(min_length=1)]


class Order(Wire, frozen=True, kw_only=True):
    """A hop that a driver has ordered.

    Attributes:
        mst_key, epoch, position, partition_key: of the plan.
        version: of the state before.
        makes: version of the state afterwards.
        segment_key: of the partition and of the state before; None without segments.
        goals: where the state is left.
        task: JSON for the trainer.
        salt: what places the buffers; None leaves them in the order of their ids.
        passes: over the partition.
        weights_of: model_id whose weights are the start.
        source, target: names of the tables of the state before and afterwards.
        packed: the packed table.
        oid: of it; None where its rows have none.
        inputs, targets: names of its columns.
        row_bytes: of a decoded row.
        rows: of the partition.
    """

    run_id: int
    mst_key: _Number
    epoch: _Number
    position: _Number
    partition_key: _Number
    version: Annotated[int, Meta(ge=0)]
    makes: int
    segment_key: _Number | None
    goals: Annotated[list[Goal], Meta(min_length=1)]
    task: str
    salt: str | None
    passes: Annotated[int, Meta(ge=1)]
    weights_of: _Number | None
    source: str | None
    target: str
    packed: QualifiedName
    oid: Annotated[int, Meta(ge=1, le=2**32 - 1)] | None
    inputs: _Names
    targets: _Names
    row_bytes: Annotated[int, Meta(ge=1)]
    rows: Annotated[int, Meta(ge=0)]

    @classmethod
    def parse(cls, text: str, run: DirectRun) -> Order:
        """An order as a driver writes it.

        Raises:
            InvalidArgument: it is none, or one of another run.
        """
        order = decode(cls, text, "order")
        if order.run_id != run.run_id:
            raise InvalidArgument(f"order.run_id: got {order.run_id}; allowed: {run.run_id}")
        for name in (order.source, order.target):
            if name is not None and not name.startswith(f"{run.states}_"):
                raise InvalidArgument("order: got a table that is none of the run's states")
        return order

    @property
    def source_table(self) -> QualifiedName | None:
        """Table of the state before."""
        return None if self.source is None else QualifiedName(STATES_SCHEMA, self.source)

    @property
    def target_table(self) -> QualifiedName:
        """Table of the state afterwards."""
        return QualifiedName(STATES_SCHEMA, self.target)

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the packed table, as ``columns_of`` gives them."""
        return columns_of_names(self.inputs, self.targets)

    def batches(self, cache_bytes: int) -> Iterator[tuple[int, list[int]]]:
        """The buffers in their order, some at a time: the pass, and buffer_ids.

        Args:
            cache_bytes: of decoded partitions that the trainer may keep: one that fits comes once.
        """
        fits = self.rows * self.row_bytes <= cache_bytes
        given = Fields.parse(self.task).object("buffers")
        rows = dict(zip(given.integers("ids", 0), given.integers("rows", 1), strict=True))
        for number in range(1 if fits else self.passes):
            batch: list[int] = []
            held = 0
            for buffer_id in sorted(rows, key=lambda one: self._place(number, one)):
                size = rows[buffer_id] * self.row_bytes
                if batch and held + size > _BATCH_BYTES:
                    yield number, batch
                    batch, held = [], 0
                batch.append(buffer_id)
                held += size
            if batch:
                yield number, batch

    def _place(self, number: int, buffer_id: int) -> str:
        """Place of a buffer in a pass, as the statement of a hop has it."""
        if self.salt is None:
            return f"{buffer_id:010d}"
        return hashlib.md5(
            f"{self.salt}/{number}/{buffer_id}".encode(), usedforsecurity=False
        ).hexdigest()
