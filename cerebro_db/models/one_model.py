"""One configuration that is given in the call, in place of a table of configurations."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.relations import Relation, find
from cerebro_db.postgres.sessions import Session

MST_KEY = 1


@dataclass(frozen=True)
class OneModel:
    """Configuration of ``cerebro_fit``, as given."""

    model_arch_table: str | None
    model_id: int | None
    compile_params: str | None
    fit_params: str | None
    object_table: str | None = None

    def row(self) -> tuple[int, int, str, str]:
        """Its row of a table of configurations.

        Raises:
            InvalidArgument: something is missing.
        """
        if self.model_id is None:
            raise InvalidArgument(
                "model_id: got NULL; allowed: one of model_arch_table",
                hint="cerebro.cerebro_load_model returns it",
            )
        if self.compile_params is None:
            raise InvalidArgument("compile_params: got NULL; allowed: a text of parameters")
        return MST_KEY, self.model_id, self.compile_params, self.fit_params or ""


def architectures_of(session: Session, one: OneModel) -> Relation:
    """The table of architectures that a call names."""
    return find(session, one.model_arch_table, "model_arch_table")
