"""The report of a call: what it has found and decided, kept with the version that it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from cerebro_db.configs.names import ModelReference
from cerebro_db.core.model_reports import ModelReport, Scores
from cerebro_db.models.registry import describe, keep_report
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.automl import AutomlRequest
from cerebro_db.runs.automl.findings import VALIDATION, Findings, tags_of, text_of
from cerebro_db.runs.automl.statements import Statements
from cerebro_db.wire import encode

_LONGEST_DESCRIPTION = 10_000
_MOST_LINES, _LONGEST_LINE = 400, 1_000


def report_of(
    request: AutomlRequest,
    findings: Findings,
    scores: Mapping[str, Scores],
    rows: Mapping[str, int],
    columns: int,
    classes: int,
) -> ModelReport:
    """The parts of a report that are computed, the most wanted ones first.

    Args:
        request: of the call.
        findings: about the version.
        scores: of the version.
        rows: of each part.
        columns: that it learns from.
        classes: 0 of a number.
    """
    curves = findings.curves(classes)
    importances, measure = findings.importances(columns, rows.get(VALIDATION, 0))
    bins, error = findings.reliability() if classes else ([], None)
    return ModelReport(
        call={name: value for name, value in structs.asdict(request).items() if value is not None},
        rows=dict(rows),
        scores=dict(scores),
        importances=importances,
        measure=measure,
        reliability=bins,
        calibration_error=error,
        threshold=findings.threshold(classes),
        curves=curves,
    )


def kept(
    control: Session,
    reference: ModelReference,
    report: ModelReport,
    statements: Statements,
    decisions: Sequence[str],
    runs: Sequence[int],
    tables: str,
) -> None:
    """Keep a report with its version; the steps and the scores also as description and tags.

    Args:
        control: a session, in no transaction.
        reference: the version.
        report: what was computed.
        statements: of the call.
        decisions: of the plan.
        runs: of the call.
        tables: the table of models.
    """
    call = report.call
    text = ";\n".join(step.text for step in statements.made)
    scores = text_of(report.scores)
    description = f"cerebro.cerebro_automl of {call['source_table']}, target {call['target']}; {scores}:\n{text}"
    whole = structs.replace(
        report,
        decisions=list(decisions),
        steps=list(statements.made),
        log=[(seconds, line[:_LONGEST_LINE]) for seconds, line in _some(statements.log)],
        runs=list(runs),
        tables=tables,
    )
    with transaction(control):
        tags = encode(tags_of(report.scores))
        describe(control, str(reference), description[:_LONGEST_DESCRIPTION], tags)
        keep_report(control, reference, encode(whole))


def _some(log: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The first and the last lines of a log."""
    if len(log) <= _MOST_LINES:
        return list(log)
    half = _MOST_LINES // 2
    return [*log[:half], (log[half][0], f"{len(log) - 2 * half} lines more"), *log[-half:]]
