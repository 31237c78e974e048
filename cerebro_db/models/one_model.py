"""One configuration that is given in the call, in place of a table of configurations."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.configs.messages import shown
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
        refuse_objects(self.object_table)
        if self.model_id is None:
            raise InvalidArgument(
                "model_id: got NULL; allowed: one of model_arch_table",
                hint="cerebro.cerebro_load_model returns it",
            )
        if self.compile_params is None:
            raise InvalidArgument("compile_params: got NULL; allowed: a text of parameters")
        return MST_KEY, self.model_id, self.compile_params, self.fit_params or ""


def refuse_objects(object_table: str | None) -> None:
    """There is no table of Python objects to read functions from.

    Raises:
        InvalidArgument: one is named.
    """
    if object_table is not None:
        raise InvalidArgument(
            f"object_table: got {shown(object_table)}; allowed: NULL, as objects of Python are not "
            "read from tables",
            hint="the accuracy among the k best needs none: metrics=['top_3_accuracy'], for any k",
        )


def architectures_of(session: Session, one: OneModel) -> Relation:
    """The table of architectures that a call names."""
    return find(session, one.model_arch_table, "model_arch_table")
