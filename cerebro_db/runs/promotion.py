"""Promotion: the best model of a run gets an alias of the registry, if it is better than what has it."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.configs.registry import ModelReference, model_reference
from cerebro_db.errors import InvalidArgument, SerializationFailed, UndefinedModel, WrongRunStatus
from cerebro_db.models.registered import named_models
from cerebro_db.models.registry import RegisterRequest, register, set_alias
from cerebro_db.postgres.catalog import Catalog, StoredRun
from cerebro_db.postgres.control import JobHost, control_session, transaction
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.packed import PackedTable, fingerprint, packed_of
from cerebro_db.postgres.registry import Registry
from cerebro_db.postgres.sessions import Session
from cerebro_db.scoring.evaluation import Score, scores_on
from cerebro_db.scoring.prediction_models import LOSS, badness


def promotion_of(text: str | None, role: str) -> ModelReference:
    """Reads the alias of a model of the caller.

    Raises:
        InvalidArgument: it names no alias, or a model of someone else.
    """
    reference = model_reference(text, role)
    if reference.alias is None or reference.owner is not None:
        raise InvalidArgument(
            f"{role}: got {shown(text)}; allowed: a model of your own with an alias, such as "
            "'model:digits@champion'"
        )
    return reference


def promote_if_better(
    host: JobHost, run_id: int | None, model: str | None, mst_key: int | None = None
) -> int | None:
    """Register a model of a run and give it an alias, if it is better than the version that has it.

    Both are scored on the validation table of the run, as it is now.

    Args:
        host: of the call.
        run_id: a finished run with a validation table.
        model: with the alias, such as ``model:digits@champion``.
        mst_key: which model of the run; None for the best one.

    Returns:
        The new version; None where the model is no better.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it has not finished, or has no validation table.
        InvalidArgument: the two have no loss or metric in common, or were not trained for such rows.
    """
    reference = promotion_of(model, "model")
    with control_session(host.pool, host.search_path) as control:
        run = _finished(control, run_id)
        assert run.row.validation_oid is not None
        test = packed_of(control, run.row.validation_oid, "validation_table")
        output = QualifiedName(run.row.output_schema, run.row.output_name)
        key = _best(control, run.run_id) if mst_key is None else mst_key
        winner = _score(host, control, output.text, test, key)
        before = _champion(control, reference)
        told: dict[str, Any] = {
            "alias": reference.alias,
            "validation": {
                "table": test.relation.name.text,
                "fingerprint": fingerprint(control, test),
                "rows": test.rows,
            },
            "scores": _told(winner),
            "champion": None,
        }
        if before is not None:
            champion = _score(host, control, str(reference.at(before)), test, None)
            if not _is_better(_goal(control, run.run_id, key), winner, champion):
                return None
            told["champion"] = {"version": before, "scores": _told(champion)}
        with transaction(control):
            return _promoted(control, run, key, reference, before, told)


def _finished(session: Session, run_id: int | None) -> StoredRun:
    run = Catalog(session).run(run_id)
    if run.status != "finished":
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which is {run.status}; allowed: a run that is finished"
        )
    if run.row.validation_oid is None:
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which has no validation table; allowed: a run with one, by which "
            "models are compared"
        )
    return run


def _best(session: Session, run_id: int) -> int:
    rows = session.run(
        "SELECT mst_key FROM cerebro.leaderboard WHERE run_id = %s AND epoch IS NOT NULL "
        "AND status NOT IN ('failed', 'cancelled') ORDER BY rank, mst_key LIMIT 1",
        (run_id,),
    )
    if not rows:
        raise WrongRunStatus(f"run_id: got {run_id}, none of whose models was scored")
    return int(rows[0][0])


def _goal(session: Session, run_id: int, mst_key: int) -> str:
    rows = session.run(
        "SELECT goal FROM cerebro._configurations WHERE run_id = %s AND mst_key = %s",
        (run_id, mst_key),
    )
    return str(rows[0][0]) if rows else LOSS


def _champion(session: Session, reference: ModelReference) -> int | None:
    """The version that has the alias; None where none has."""
    try:
        return Registry(session).usable(reference).version
    except UndefinedModel:
        return None


def _score(
    host: JobHost, control: Session, name: str, test: PackedTable, mst_key: int | None
) -> Score:
    table = named_models(control, name)
    key = table.only_key() if mst_key is None else mst_key
    table.check_key(key)
    (score,) = scores_on(host, control, table, test, (key,))
    return score


def _is_better(goal: str, winner: Score, champion: Score) -> bool:
    """Compare by the first metric, or by the loss, which must be the same one.

    Raises:
        InvalidArgument: it is not.
    """
    ours, theirs = _measure(goal, winner), _measure(goal, champion)
    if ours[0] != theirs[0]:
        raise InvalidArgument(
            f"model: its version is measured by {theirs[0]}, and the model of the run by {ours[0]}; "
            "allowed: the same",
            hint="cerebro.cerebro_set_alias gives the alias to whichever version you choose",
        )
    return badness(goal, ours[1], winner.loss) < badness(goal, theirs[1], champion.loss)


def _measure(goal: str, score: Score) -> tuple[str, float | None]:
    if goal == LOSS or not score.metrics:
        return score.loss_type, score.loss
    return score.names[0], score.metrics[0]


def _told(score: Score) -> dict[str, Any]:
    """Loss and metrics as JSON has them."""
    values = {score.loss_type: score.loss, **dict(zip(score.names, score.metrics, strict=True))}
    finite = float("inf")
    return {name: value if abs(value) < finite else None for name, value in values.items()}


def _promoted(
    session: Session,
    run: StoredRun,
    mst_key: int,
    reference: ModelReference,
    before: int | None,
    told: dict[str, Any],
) -> int:
    request = RegisterRequest(run.run_id, mst_key, reference.name, promotion=told)
    version = register(session, request)
    # That has locked the model: nobody else gives its aliases away now.
    if _champion(session, reference) != before:
        raise SerializationFailed(
            f"another session has given {reference} to another version meanwhile"
        )
    set_alias(session, reference.name, reference.alias, version)
    return version
