"""Report of a registered version about the call that made it, as the catalog keeps it."""

from __future__ import annotations

from typing import Any

from msgspec import field

from cerebro_db.wire import Wire

Scores = dict[str, float | None]


class Importance(Wire, frozen=True):
    """Permutation importance of a column: the mean and its deviation."""

    column: str
    value: float | None
    deviation: float | None = None


class Bin(Wire, frozen=True):
    """Rows whose confidence is in a range: how many there are, their mean confidence, and the share that is right."""

    rows: int
    confidence: float
    accuracy: float


class Threshold(Wire, frozen=True):
    """The best threshold for a class.

    Attributes:
        value: from which on a row is best taken for the class.
        metric: by which it is the best one; what it reaches.
        counts: of rows, by what they are and are taken for.
    """

    class_value: str | None
    value: float | None
    metric: str
    reached: float | None
    counts: dict[str, int] = field(default_factory=dict)


class Step(Wire, frozen=True):
    """A statement of a call.

    Attributes:
        text: SQL.
        function: that it calls; empty of other SQL, and of several.
        given: its arguments by name.
    """

    text: str
    function: str = ""
    given: dict[str, Any] = field(default_factory=dict)


class ModelReport(Wire, frozen=True):
    """Contents of a report, none of them rows of the table.

    Attributes:
        call: arguments by name.
        decisions: what was chosen, and why.
        steps: the statements, in their order.
        log: notices of the steps: seconds since the call began, and a line.
        tables: the table of models; names of all other tables of the call begin with its name.
        runs: the run of the first model, and that of the search if there was one.
        rows: of each part.
        scores: of each part, by what they measure.
        measure: of the importances.
        curves: confusion and ROC curves, as ``cerebro._curves`` has them.
    """

    call: dict[str, Any] = field(default_factory=dict)
    decisions: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    log: list[tuple[float, str]] = field(default_factory=list)
    tables: str = ""
    runs: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    scores: dict[str, Scores] = field(default_factory=dict)
    importances: list[Importance] = field(default_factory=list)
    measure: str = ""
    reliability: list[Bin] = field(default_factory=list)
    calibration_error: float | None = None
    threshold: Threshold | None = None
    curves: Any = None
