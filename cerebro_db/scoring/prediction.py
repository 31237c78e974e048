"""Prediction: trained models asked about the rows of a table, the answers in a new table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cerebro_db.configs.images import OnError, ignores_errors
from cerebro_db.configs.messages import check_range
from cerebro_db.configs.predictions import Answer, PredictionType, prediction_type
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.registered import named_models
from cerebro_db.postgres.control import Notify, control_session, no_notice
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.prediction_answers import Answer as Answers
from cerebro_db.postgres.dialects.prediction_answers import Classes, Several, Values
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import new_outputs
from cerebro_db.postgres.relations import CallerPath
from cerebro_db.postgres.sessions import Session, SessionPool
from cerebro_db.postgres.slots import MAX_WORKERS
from cerebro_db.postgres.table_kinds import PREDICTIONS
from cerebro_db.postgres.times import Styles
from cerebro_db.scoring.class_texts import shown_classes
from cerebro_db.scoring.prediction_job import PredictionJob, Work
from cerebro_db.scoring.prediction_models import Asked, chosen_keys, models_of_table
from cerebro_db.scoring.prediction_source import test_source
from cerebro_db.scoring.prediction_spread import SpreadJob
from cerebro_db.training.targets import TargetFacts


@dataclass(frozen=True)
class PredictionRequest:
    """The arguments of ``cerebro_predict``, as given; search_path is for the names.

    Attributes:
        styles: of the caller's session, in which classes are told.
        on_error: of images that cannot be read.
    """

    model_table: str | None
    test_table: str | None
    id_col: str | None
    independent_varname: str | None
    output_table: str | None
    pred_type: str | float | None = Answer.PROB
    use_gpus: bool | None = False
    mst_key: int | None = None
    num_workers: int | None = None
    ensemble: int | None = None
    replace: bool | None = False
    search_path: CallerPath | None = None
    styles: Styles | None = None
    on_error: str | None = OnError.STOP

    @property
    def ignores(self) -> bool:
        """True if rows of images that cannot be read are left out."""
        return ignores_errors(self.on_error)

    @property
    def wanted(self) -> PredictionType:
        """Answer that is wanted for each row.

        Raises:
            InvalidArgument: there is no such answer.
        """
        return prediction_type(Answer.PROB if self.pred_type is None else self.pred_type)


def predict(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: PredictionRequest,
    notify: Notify = no_notice,
) -> QualifiedName:
    """Make a table of predictions, or nothing at all; returns its name.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to predict.
        notify: is told of ids that several rows have.

    Raises:
        InvalidArgument: several models and none of them chosen, or a pred_type that the target
            has not.
        InvalidData: a row has no id, or features that are no row of the model.
    """
    check_range("num_workers", request.num_workers, 1, MAX_WORKERS)
    ignores_errors(request.on_error)
    wanted = request.wanted
    with control_session(pool, request.search_path) as session:
        table = named_models(session, request.model_table)
        keys = chosen_keys(session, table, request.mst_key, request.ensemble)
        asked = models_of_table(session, table, keys)
        kinds, styles = asked.class_kinds, request.styles
        values = shown_classes(session, asked.class_values, kinds, styles)
        asked = replace(asked, class_values=values)
        work = resolved(session, dialect, request, asked, wanted)
        job_of(pool, dialect, session, notify).run(work)
        return work.output


def job_of(
    pool: SessionPool,
    dialect: PostgreSQL,
    control: Session,
    notify: Callable[[str], None],
) -> PredictionJob | SpreadJob:
    """How this server predicts: by sessions side by side, or by its segments."""
    if (spread := dialect.prediction.spread) is not None:
        return SpreadJob(dialect, spread, control, notify)
    return PredictionJob(pool, dialect, control, notify)


def resolved(
    session: Session,
    dialect: PostgreSQL,
    request: PredictionRequest,
    asked: Asked,
    wanted: PredictionType,
) -> Work:
    """Job for a request, its names looked up; the models are known."""
    answer = answer_for(asked, wanted)
    names = (request.test_table, request.id_col, request.independent_varname)
    source = test_source(session, dialect, asked, names, request.ignores)
    outputs = new_outputs(
        session,
        request.output_table,
        "output_table",
        PREDICTIONS,
        replace=request.replace,
        inputs=[source.table.oid],
    )
    use_gpus = bool(request.use_gpus)
    return Work(asked, source, answer, outputs, request.num_workers, use_gpus)


def answer_for(asked: Asked, wanted: PredictionType) -> Answers:
    """Columns that are inserted for each row.

    Raises:
        InvalidArgument: all targets are numbers and have no classes.
    """
    targets = asked.targets.each
    if wanted.answer is not Answer.RESPONSE and all(one.kind != "class" for one in targets):
        names = ", ".join(map(repr, asked.names))
        raise InvalidArgument(
            f"pred_type: got {wanted}; allowed: 'response', as "
            f"{names} is a float target and has no classes"
        )
    given = zip(asked.names, targets, asked.class_values, strict=True)
    answers = tuple(_answer(*one, wanted) for one in given)
    return answers[0] if len(answers) == 1 else Several(answers)


def _answer(
    name: str,
    target: TargetFacts,
    class_values: tuple[str | None, ...],
    wanted: PredictionType,
) -> Classes | Values:
    if target.kind != "class":
        return Values(name, target.shape)
    classes = target.num_classes
    if wanted.answer is Answer.ABOVE:
        return Classes(name, class_values, classes, wanted.number)
    counts = {Answer.RESPONSE: 1, Answer.TOP: min(classes, int(wanted.number))}
    return Classes(name, class_values, counts.get(wanted.answer, classes))
