"""Orders of direct workers, as JSON that has values only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.catalog import STATES_SCHEMA
from cerebro_db.postgres.dialects.postgresql.direct import Goal
from cerebro_db.postgres.dialects.postgresql.training import columns_of_names
from cerebro_db.postgres.direct_session import DirectRun
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.training.fields import Fields

# Buffers are read so many bytes at a time; the trainer computes meanwhile.
_BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Order:
    """A hop that a driver has ordered.

    Attributes:
        hop: of the plan, by the names of its columns.
        makes: version of the state afterwards.
        place: of the partition and of the state before, as ``place`` of the server's statements tells it.
        goals: where the state is left.
        task: JSON for the trainer.
        salt: what places the buffers; None leaves them in the order of their ids.
        passes: over the partition.
        weights_of: model_id whose weights are the start.
        source, target: tables of the state before and afterwards.
        packed: the packed table.
        oid: of it; None where its rows have none.
        columns: of it, as ``columns_of`` tells them.
        row_bytes: of a decoded row.
        rows: of the partition.
    """

    run_id: int
    hop: Mapping[str, int]
    version: int
    makes: int
    place: int | None
    goals: list[Goal]
    task: str
    salt: str | None
    passes: int
    weights_of: int | None
    source: QualifiedName | None
    target: QualifiedName
    packed: QualifiedName
    oid: int | None
    columns: dict[str, str]
    row_bytes: int
    rows: int

    @classmethod
    def parse(cls, text: str, run: DirectRun) -> Order:
        """An order as a driver writes it.

        Raises:
            InvalidArgument: it is none, or one of another run.
        """
        told = Fields.parse(text, "order")
        if told.integer("run_id") != run.run_id:
            raise InvalidArgument(f"order: got one of run {told.integer('run_id')}")
        names = ("mst_key", "epoch", "position", "partition_key")
        source = told.raw("source")
        return cls(
            run_id=run.run_id,
            hop={name: told.integer(name, 0, 2**31 - 1) for name in names},
            version=told.integer("version", 0),
            makes=told.integer("makes"),
            place=_optional(told, "place"),
            goals=_goals(told),
            task=told.text("task"),
            salt=None if told.raw("salt") is None else told.text("salt"),
            passes=told.integer("passes", 1),
            weights_of=_optional(told, "weights_of"),
            source=None if source is None else _of_states(told.text("source"), run),
            target=_of_states(told.text("target"), run),
            packed=_named(told.object("packed")),
            oid=None if told.raw("oid") is None else told.integer("oid", 1, 2**32 - 1),
            columns=columns_of_names(_texts(told, "inputs"), _texts(told, "targets")),
            row_bytes=told.integer("row_bytes", 1),
            rows=told.integer("rows", 0),
        )

    @property
    def partition_key(self) -> int:
        """Of the partition to train on."""
        return self.hop["partition_key"]

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


def _optional(told: Fields, name: str) -> int | None:
    return None if told.raw(name) is None else told.integer(name, 0, 2**31 - 1)


def _goals(told: Fields) -> list[Goal]:
    """Goals of the state, checked."""
    found = told.raw("goals")
    numbers = (int, type(None))
    if not (
        isinstance(found, list)
        and found
        and all(isinstance(one, list) and len(one) == len(numbers) for one in found)
        and all(isinstance(value, numbers) for one in found for value in one)
    ):
        raise InvalidArgument("order: got no places for the state")
    return [(place, following) for place, following in found]


def _of_states(name: str, run: DirectRun) -> QualifiedName:
    """A table of states of the run, and no other."""
    if run.states is None or not name.startswith(f"{run.states}_"):
        raise InvalidArgument("order: got a table that is none of the run's states")
    return QualifiedName(STATES_SCHEMA, name)


def _named(told: Fields) -> QualifiedName:
    return QualifiedName(told.text("schema"), told.text("name"))


def _texts(told: Fields, name: str) -> list[str]:
    found = told.raw(name)
    if not (isinstance(found, list) and found and all(isinstance(one, str) for one in found)):
        raise InvalidArgument(f"order: got no names of columns for {name}")
    return found
