"""Findings about a new champion at the end of a call, each part as a statement and within the time that is left."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from cerebro_db.core.model_reports import Bin, Importance, Scores, Step, Threshold
from cerebro_db.postgres.names import value_literal
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.runs.automl.places import (
    HOLDOUT,
    HOLDOUT_SCORES,
    IMPORTANCE,
    PACKED_TEST,
    RELIABILITY,
    SAMPLE,
    SCORES,
    TEST,
    THRESHOLD,
    Places,
)
from cerebro_db.runs.automl.statements import (
    Clock,
    OutOfTime,
    Statements,
    call_of,
    is_intervention,
)

VALIDATION, HELD = "validation", "holdout"
_LOSS = "loss"
_SEEN = "the model was chosen on these rows, so others may be worse; holdout_share := 0.1 keeps some that nothing sees"
# Seconds: a part of a report is not begun with less, and importances are of no more rows than take longer.
_LEAST, _MOST = 0.5, 30.0
# Rows of a pass over them, by second; repeats of each column, and rows at least and at most.
_ROWS_A_SECOND, _REPEATS, _FEW_ROWS, _MANY_ROWS = 50_000, 3, 200, 20_000
_MOST_CLASSES = 50


def tags_of(scores: Mapping[str, Scores]) -> dict[str, float]:
    """Scores by the name of the part and of the measure."""
    return {
        f"{part}_{name}": value
        for part, one in scores.items()
        for name, value in one.items()
        if value is not None
    }


def text_of(scores: Mapping[str, Scores]) -> str:
    """Scores for people."""
    return "; ".join(f"{name} {_listed(one)}" for name, one in scores.items())


class Findings:
    """Finder of facts about a version.

    Args:
        statements: of the call.
        places: of the tables.
        clock: of the call.
        model: the version, as functions name it.
    """

    def __init__(self, statements: Statements, places: Places, clock: Clock, model: str) -> None:
        self._statements, self._places, self._clock = statements, places, clock
        self._model = model

    def scores(self, is_held: bool) -> dict[str, Scores]:
        """The scores of the version on parts of the rows, with a NOTICE of what kind of rows each part has.

        Args:
            is_held: whether there is a holdout.
        """
        found = {}
        if is_held and (scores := self._measured(HOLDOUT, HOLDOUT_SCORES)) is not None:
            found[HELD] = scores
            self._statements.notice(
                f"holdout: {_listed(scores)}, on rows that nothing has seen before"
            )
        if (scores := self._measured(PACKED_TEST, SCORES)) is not None:
            found[VALIDATION] = scores
            more = "" if is_held else f": {_SEEN}"
            self._statements.notice(f"validation: {_listed(scores)}{more}")
        return found

    def curves(self, classes: int) -> Any:
        """Confusion and ROC curves on the rows for validation; None of numbers and of very many classes."""
        if not 2 <= classes <= _MOST_CLASSES or not self._has_time("curves"):
            return None
        model, table = map(value_literal, (self._model, self._places[PACKED_TEST]))
        try:
            found = self._statements.look(
                f"SELECT cerebro._curves({model}, {table}, NULL)::text", self._clock.spare
            )
        except (OutOfTime, StatementFailed) as failure:
            self._skip("curves", failure)
            return None
        return json.loads(found[0][0])

    def reliability(self) -> tuple[list[Bin], float | None]:
        """How reliable the probabilities of classes are, and the calibration error."""
        if not self._may("cerebro_reliability", PACKED_TEST, RELIABILITY):
            return [], None
        rows = self._statements.look(
            "SELECT num_rows, confidence, accuracy, calibration_error "
            f"FROM {self._places[RELIABILITY]} ORDER BY bin"
        )
        return [Bin(*row[:3]) for row in rows], rows[0][3] if rows else None

    def threshold(self, classes: int) -> Threshold | None:
        """The best threshold of a model of two classes."""
        if classes != 2 or not self._may("cerebro_threshold", PACKED_TEST, THRESHOLD):
            return None
        names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
        ((name, value, metric, reached, *counts),) = self._statements.look(
            f"SELECT class_value, threshold, metric, reached, {', '.join(names)} FROM {self._places[THRESHOLD]}"
        )
        counted = dict(zip(names, counts, strict=True))
        return Threshold(name, _finite(value), metric, _finite(reached), counted)

    def importances(self, columns: int, rows: int) -> tuple[list[Importance], str]:
        """Permutation importance of the columns, and what it is measured by; of some rows where all take too long.

        Args:
            columns: of the model.
            rows: for validation.
        """
        affordable = int(_ROWS_A_SECOND * min(self._clock.spare, _MOST) / max(1, columns))
        repeats = max(1, min(_REPEATS, affordable // _FEW_ROWS))
        most = min(_MANY_ROWS, affordable // repeats)
        if most < min(rows, _FEW_ROWS):
            self._statements.notice(
                f"report: there is no time for the importance of {columns} columns; cerebro.cerebro_explain computes it"
            )
            return [], ""
        table = PACKED_TEST if rows <= most else SAMPLE
        if table == SAMPLE:
            self._statements.run(
                f"CREATE VIEW {self._places[SAMPLE]} AS SELECT * FROM {self._places[TEST]} s "
                f"ORDER BY pg_catalog.md5(ROW(s.*)::text) LIMIT {most}"
            )
        if not self._may("cerebro_explain", table, IMPORTANCE, repeats=repeats):
            return [], ""
        found = self._statements.look(
            f"SELECT column_name, importance, deviation, measure FROM {self._places[IMPORTANCE]} ORDER BY rank"
        )
        listed = [Importance(name, _finite(value), _finite(more)) for name, value, more, _ in found]
        return listed, found[0][3] if found else ""

    def _measured(self, suffix: str, output: str) -> Scores | None:
        """Loss and metrics on a table; None where there was no time."""
        seconds = max(1.0, self._clock.last)
        if not self._made("cerebro_evaluate", seconds, suffix, output):
            return None
        ((loss, names, values),) = self._statements.look(
            f"SELECT loss, metrics_type, metrics FROM {self._places[output]}"
        )
        found = {**dict(zip(names or [], values or [], strict=True)), _LOSS: loss}
        return {name: _finite(value) for name, value in found.items()}

    def _may(self, function: str, suffix: str, output: str, **more: object) -> bool:
        """True if a function was called, in time, that a call can do without."""
        if not self._has_time(f"cerebro.{function}"):
            return False
        return self._made(function, self._clock.spare, suffix, output, **more)

    def _has_time(self, what: str) -> bool:
        """True if there is time for a part that a call can do without; else a NOTICE says that it is missing."""
        if self._clock.spare >= _LEAST:
            return True
        self._statements.notice(f"report: without {what}: no time is left")
        return False

    def _made(
        self, function: str, seconds: float, suffix: str, output: str, **more: object
    ) -> bool:
        """True if a function of the version and a table has come to its end in so many seconds."""
        call = call_of(
            function,
            model_table=self._model,
            test_table=self._places[suffix],
            output_table=self._places[output],
            **more,
        )
        try:
            self._statements.make(Step(f"SELECT {call}", function), seconds)
        except (OutOfTime, StatementFailed) as failure:
            self._skip(f"cerebro.{function}", failure)
            return False
        return True

    def _skip(self, what: str, failure: OutOfTime | StatementFailed) -> None:
        """Send a NOTICE that a part is missing, unless somebody has ended the call."""
        if is_intervention(failure):
            raise failure
        self._statements.notice(f"report: without {what}: {failure.message}")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _listed(values: Scores) -> str:
    shown = {name: "NaN" if value is None else f"{value:.4g}" for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
