"""Contributions: how much each column of a row has moved the prediction of a model."""

from __future__ import annotations

from dataclasses import replace

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.models.registered import named_models
from cerebro_db.models.trained import ModelTable
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.dialects.statements.answers import Contributions
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import PREDICTIONS
from cerebro_db.postgres.tables.outputs import new_outputs
from cerebro_db.requests.explaining import ContributionsRequest
from cerebro_db.scoring.explaining import chosen_key
from cerebro_db.scoring.prediction import job_of
from cerebro_db.scoring.prediction_job import Work
from cerebro_db.scoring.prediction_models import Ensemble, models_of_table, shown_classes
from cerebro_db.scoring.prediction_source import feature_source, test_source
from cerebro_db.scoring.samples import Sample, drawn
from cerebro_db.scoring.user_columns import UserColumn, user_columns

# Columns of the output that none of the id may be called like.
_TAKEN = ("class_name", "class_value", "column_name", "contribution", "base", "prediction")
# Bytes of the rows that every worker compares with.
_MOST_BYTES = 32 * 2**20


def contributions(host: JobHost, request: ContributionsRequest) -> QualifiedName:
    """Make a table of contributions, or nothing at all; returns its name.

    Args:
        host: of the call; gets notices of ids that several rows have.
        request: what to explain.

    Raises:
        InvalidArgument: there are several models and none is named, or no such class.
        InvalidData: a row has no id, or features that are no row of the model.
    """
    with control_session(host.pool, host.search_path) as session:
        table = named_models(session, request.model_table)
        key = chosen_key(table, request.mst_key)
        check_one_output(table)
        ensemble = models_of_table(session, table, [key])
        values = shown_classes(session, ensemble.class_values, ensemble.class_kinds, host.styles)
        ensemble, columns = replace(ensemble, class_values=values), user_columns(table)
        class_id = class_of(request.class_value, values[0], table)
        answer = Contributions(ensemble.names[0], values[0], tuple(one.name for one in columns))
        names = (request.test_table, request.id_col, request.independent_varname)
        source = test_source(session, host.dialect, ensemble, names, request.on_error, _TAKEN)
        outputs = new_outputs(
            session,
            request.output_table,
            "output_table",
            PREDICTIONS,
            replace=request.replace,
            inputs=[source.table.oid],
        )
        background = _background(host, session, request, ensemble)
        explained = _explaining(ensemble, request, columns, background, class_id)
        use_gpus = bool(request.use_gpus)
        work = Work(explained, source, answer, outputs, request.num_workers, use_gpus)
        job_of(host, session).run(work)
        return work.output


def check_one_output(table: ModelTable) -> None:
    """Refuse models whose prediction is not one number, or probabilities of one target.

    Raises:
        InvalidArgument: they are such.
    """
    first, *more = table.targets.each
    if more or (first.kind != "class" and first.shape):
        names = ", ".join(map(repr, table.dependent_varnames))
        what = f"{names}, several targets" if more else f"{names}, arrays"
        raise InvalidArgument(
            f"model_table: {table.relation.name} predicts {what}; allowed: one target, of classes or numbers"
        )


def class_of(value: str | None, values: tuple[str | None, ...], table: ModelTable) -> int | None:
    """The id of the class that is named; None for none.

    Raises:
        InvalidArgument: there is no such class, or there are none.
    """
    if value is None:
        return None
    if value not in values:
        known = [one for one in values if one is not None]
        allowed = ", ".join(map(shown, known[:20])) + (", ..." if len(known) > 20 else "")
        raise InvalidArgument(
            f"class_value: got {shown(value)}; allowed: "
            + (allowed if known else f"NULL, as {table.dependent_varnames[0]!r} is a number"),
            hint=nearest(value, known) if known else None,
        )
    return values.index(value)


def _background(
    host: JobHost, session: Session, request: ContributionsRequest, ensemble: Ensemble
) -> Sample:
    name = request.background_table
    is_other = name is not None
    text = name if is_other else request.test_table
    role = "background_table" if is_other else "test_table"
    source = feature_source(
        session, host.dialect, ensemble, (text, request.independent_varname), role
    )
    sample = drawn(session, source, request.samples, request.seed)
    if not sample.rows:
        raise InvalidData(f"{role}: {text} has no rows; allowed: rows to compare with")
    if len(sample.data) > _MOST_BYTES:
        most = max(1, _MOST_BYTES * sample.rows // len(sample.data))
        raise InvalidArgument(f"samples: got {request.samples} rows of this size; allowed: {most}")
    return sample


def _explaining(
    ensemble: Ensemble,
    request: ContributionsRequest,
    columns: list[UserColumn],
    background: Sample,
    class_id: int | None,
) -> Ensemble:
    task = {
        "columns": [one.task() for one in columns],
        "seed": request.seed,
        "background": background.task(),
        **({} if class_id is None else {"class": class_id}),
    }
    (member,) = ensemble.members
    explained = replace(member, task=member.task | {"contributions": task})
    return replace(ensemble, members=(explained,))
