"""What is found about a new champion at the end of a call: its scores on the rows for validation and on the holdout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cerebro_db.postgres.calls.host import JobHost
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.runs.automl.places import HOLDOUT, HOLDOUT_SCORES, PACKED_TEST, SCORES, Places
from cerebro_db.runs.automl.statements import Clock, OutOfTime, Statements, call_of

_INTERVENTION = "57"
_LOSS = "loss"
_SEEN = "the model was chosen on these rows, so others may be worse; holdout_share := 0.1 keeps some that nothing sees"


@dataclass(frozen=True)
class Scores:
    """Scores of a model by what they measure, on one part of the rows; None where they were not computed."""

    validation: Mapping[str, float] | None = None
    holdout: Mapping[str, float] | None = None

    @property
    def text(self) -> str:
        """Both, for people."""
        parts = {"validation": self.validation, "holdout": self.holdout}
        return "; ".join(f"{name} {_listed(one)}" for name, one in parts.items() if one)

    @property
    def tags(self) -> dict[str, float]:
        """Both, by the name of the part and of the measure."""
        parts = {"validation": self.validation, "holdout": self.holdout}
        return {
            f"{part}_{name}": value
            for part, one in parts.items()
            for name, value in (one or {}).items()
        }


class Findings:
    """Finder of facts about a version, each within the time that is left.

    Args:
        host: of the call.
        statements: of the call.
        places: of the tables.
        clock: of the call.
        model: the version, as functions name it.
    """

    def __init__(
        self, host: JobHost, statements: Statements, places: Places, clock: Clock, model: str
    ) -> None:
        self._host, self._statements, self._places, self._clock = host, statements, places, clock
        self._model = model

    def scores(self, is_held: bool) -> Scores:
        """The scores of the version, which are told as what they are.

        Args:
            is_held: whether there is a holdout.
        """
        holdout = self._measured(HOLDOUT, HOLDOUT_SCORES) if is_held else None
        validation = self._measured(PACKED_TEST, SCORES)
        if holdout is not None:
            self._host.notice(f"holdout: {_listed(holdout)}, on rows that nothing has seen before")
        if validation is not None:
            more = "" if is_held else f": {_SEEN}"
            self._host.notice(f"validation: {_listed(validation)}{more}")
        return Scores(validation, holdout)

    def _measured(self, suffix: str, output: str) -> dict[str, float] | None:
        """Loss and metrics on a table; None where there was no time."""
        if not self._made(
            "cerebro_evaluate",
            model_table=self._model,
            test_table=self._places[suffix],
            output_table=self._places[output],
        ):
            return None
        ((loss, names, values),) = self._statements.look(
            f"SELECT loss, metrics_type, metrics FROM {self._places[output]}"
        )
        return {**dict(zip(names or [], values or [], strict=True)), _LOSS: loss}

    def _made(self, function: str, **given: object) -> bool:
        """True if a function has come to its end in the time that is left."""
        try:
            self._statements.run(f"SELECT {call_of(function, **given)}", max(1.0, self._clock.last))
        except OutOfTime as error:
            self._host.notice(f"cerebro.{function}: there is no time left: {error.message}")
            return False
        except StatementFailed as failure:
            if failure.sqlstate.startswith(_INTERVENTION):
                raise
            self._host.notice(f"cerebro.{function}: {failure.message}")
            return False
        return True


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
