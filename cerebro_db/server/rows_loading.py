"""Models for single rows: read through a session, built in the process of the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cerebro_db.configs.architecture import ArchitectureLimits
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidState
from cerebro_db.models.registered import named_models
from cerebro_db.postgres.sessions import Session
from cerebro_db.scoring.prediction_models import Asked, models_of_table
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.limits import bind

if TYPE_CHECKING:  # TensorFlow is imported at the first call
    from cerebro_db.training.rows import RowModel

R = TypeVar("R")


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to be asked.

    Attributes:
        model: what computes.
    """

    model: RowModel

    def ask(self, plpy: Any, question: Callable[[RowModel], R]) -> R:
        """Ask the model."""
        return compute(plpy, lambda tick: question(self.model))


def read_model(session: Session, text: str, mst_key: int | None) -> tuple[Asked, bytes]:
    """Facts of a model of a table, and its state."""

    table = named_models(session, text)
    if mst_key is not None:
        table.check_key(mst_key)
    key = table.only_key() if mst_key is None else mst_key
    asked = models_of_table(session, table, [key])
    sql = f"SELECT s.state FROM {table.states.sql} s WHERE s.mst_key = %s ORDER BY s.chunk"
    chunks = [row[0] for row in session.run(sql, (key,))]
    if not all(isinstance(chunk, bytes | memoryview) for chunk in chunks):
        raise InvalidState(f"{table.states}: got NULL for a chunk of the state of {key}")
    return asked, b"".join(chunks)


def built(plpy: Any, asked: Asked, data: bytes, settings: Settings) -> LoadedModel:
    """The model, ready to be asked."""
    # Elsewhere this process reads models through sessions of its own.
    memory = bind(settings, connects=plpy.asks_nothing)

    def work(tick: Tick) -> RowModel:
        from cerebro_db.training.environment import configure_once

        configure_once(threads=1)
        from cerebro_db.training.rows import RowModel
        from cerebro_db.training.tasks import Architectures

        known = Architectures(ArchitectureLimits.of(settings), memory)
        task, classes = asked.members[0].task, asked.class_values
        return RowModel(
            task, data, known, asked.names, classes, asked.shapes, asked.divisor, asked.class_kinds
        )

    return LoadedModel(compute(plpy, work))
