"""Promotion: the best model of a run gets an alias of the registry, if it is better than what has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import ModelReference, model_reference
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    SerializationFailed,
    UndefinedModel,
    WrongRunStatus,
)
from cerebro_db.models.registered import name_of, named_models
from cerebro_db.models.registry import kept_model, register, set_alias
from cerebro_db.models.trained import ModelTable
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.catalog.registry import Registry
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.fingerprint import fingerprint
from cerebro_db.postgres.tables.packed import (
    PackedTable,
    is_packed,
    load_packed,
    origin_of,
    packed_of,
)
from cerebro_db.postgres.tables.relations import find
from cerebro_db.requests.registry import RegisterRequest
from cerebro_db.scoring.evaluation import Score, is_alike, scores_on
from cerebro_db.scoring.prediction_models import LOSS, badness
from cerebro_db.scoring.raw_rows import RawRows, listed_names, same_rows

_ROLE = "validation_table"
_GONE = (
    "validation_table := '...' of cerebro.cerebro_promote_if_better names other rows, packed or raw; a packing with "
    "encoding_of := 'model:name@alias' needs no raw rows"
)


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


@dataclass(frozen=True)
class Comparison:
    """Scores of two models on the same rows.

    Attributes:
        winner: of the model of the run.
        champion: of the version that has the alias; None where none has.
        rows: which rows they were, as the lineage tells it.
    """

    winner: Score
    champion: Score | None
    rows: dict[str, Any]


def promote_if_better(
    host: JobHost,
    run_id: int | None,
    model: str | None,
    mst_key: int | None = None,
    validation_table: str | None = None,
    version: int | None = None,
) -> int | None:
    """Register a model of a run and give it an alias, if it is better than the version that has it.

    Both are scored on the validation table, as it is now. Where that is packed in another way than one of
    them was trained with, they are scored on the raw rows that it was packed from, each by its own encoding.

    Args:
        host: of the call; gets notices of raw rows.
        run_id: a finished run.
        model: with the alias, such as ``model:digits@champion``.
        mst_key: which model of the run; None for the best one.
        validation_table: a packed table or raw rows; None for the validation table of the run.
        version: of the model, which competes in place of a model of a run.

    Returns:
        The version; None where the model is no better.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it has not finished, or there is no validation table.
        UndefinedTable, UndefinedColumn, InvalidData: the raw rows are not there, or a model cannot see them.
        InvalidArgument: the two have no loss or metric in common.
    """
    reference = promotion_of(model, "model")
    if version is not None:
        _check_version(run_id, mst_key, validation_table)
        return _promoted_version(host, reference, version, str(validation_table))
    with control_session(host.pool, host.search_path) as control:
        run = finished_run(control, run_id, validation_table)
        output = run.tables.output
        key = _best(control, run.run_id) if mst_key is None else mst_key
        winner = _one_model(control, output.text, key)
        before = _champion(control, reference)
        rivals = [winner]
        if before is not None:
            rivals.append(_one_model(control, str(reference.at(before)), None))
        test = _validation(control, run, validation_table)
        compared = _compared(host, control, rivals, test)
        result: dict[str, Any] = {
            "alias": reference.alias,
            "validation": compared.rows,
            "scores": _finite_values(compared.winner),
            "champion": None,
        }
        if compared.champion is not None:
            goal = _goal(control, run.run_id, key)
            if not _is_better(goal, compared.winner, compared.champion):
                return None
            result["champion"] = {"version": before, "scores": _finite_values(compared.champion)}
        with transaction(control):
            return _promoted(control, run, key, reference, before, result)


_ORIGIN = "SELECT run_id, mst_key FROM cerebro.registered_versions WHERE version_id = %s"


def _check_version(run_id: int | None, mst_key: int | None, validation_table: str | None) -> None:
    for name, value in (("run_id", run_id), ("mst_key", mst_key)):
        if value is not None:
            raise InvalidArgument(
                f"version: got one beside {name}; allowed: a model of a run, or a version of the model"
            )
    if validation_table is None:
        raise InvalidArgument(
            "validation_table: got NULL with a version; allowed: rows, packed or raw, to compare by"
        )


def _promoted_version(
    host: JobHost, reference: ModelReference, version: int, validation_table: str
) -> int | None:
    """Give a version an alias if it is better than the one that has it; returns it then."""
    with control_session(host.pool, host.search_path) as control:
        candidate = Registry(control).usable(reference.at(version))
        rivals = [_one_model(control, str(reference.at(version)), None)]
        before = _champion(control, reference)
        if before == version:
            return None
        if before is not None:
            rivals.append(_one_model(control, str(reference.at(before)), None))
            compared = _compared(host, control, rivals, _rows_of(control, validation_table))
            assert compared.champion is not None
            origin = control.run(_ORIGIN, (candidate.key,))
            goal = _goal(control, *origin[0]) if origin else LOSS
            if not _is_better(goal, compared.winner, compared.champion):
                return None
        with transaction(control):
            kept_model(control, reference)
            if _champion(control, reference) != before:
                raise _given_away(reference)
            set_alias(control, reference.name, reference.alias, version)
    return version


def _given_away(reference: ModelReference) -> SerializationFailed:
    return SerializationFailed(
        f"another session has given {reference} to another version meanwhile"
    )


@dataclass(frozen=True)
class Rival:
    """A model in a comparison with others."""

    table: ModelTable
    key: int


def _one_model(control: Session, name: str, mst_key: int | None) -> Rival:
    table = named_models(control, name)
    key = table.only_key() if mst_key is None else mst_key
    table.check_key(key)
    return Rival(table, key)


def _validation(
    control: Session, run: StoredRun, validation_table: str | None
) -> PackedTable | RawRows:
    """The rows by which models are compared."""
    if validation_table is None:
        assert run.tables.validation is not None
        return packed_of(control, run.tables.validation.oid, _ROLE)
    return _rows_of(control, validation_table)


def _rows_of(control: Session, validation_table: str) -> PackedTable | RawRows:
    found = find(control, validation_table, _ROLE)
    if is_packed(found):
        return load_packed(control, validation_table, _ROLE)
    return RawRows(found)


def _compared(
    host: JobHost, control: Session, rivals: Sequence[Rival], test: PackedTable | RawRows
) -> Comparison:
    tables = [rival.table for rival in rivals]
    if isinstance(test, RawRows):
        return _compared_raw(host, control, rivals, test, None)
    other = next((table for table in tables if not is_alike(table, test)), None)
    if other is not None:
        rows = _raw_rows(control, test, other)
        return _compared_raw(host, control, rivals, rows, test)
    facts = {
        "table": str(test.relation.name),
        "fingerprint": fingerprint(control, test),
        "rows": test.rows,
    }
    return _scored(host, control, rivals, [test] * len(rivals), facts)


def _compared_raw(
    host: JobHost,
    control: Session,
    rivals: Sequence[Rival],
    rows: RawRows,
    packed: PackedTable | None,
) -> Comparison:
    if packed is not None:
        host.notice(
            f"{packed.relation.name} is packed in another way than one of the models was trained with: they are "
            f"scored on the raw rows of {rows.table.name}, each by its own encoding"
        )
    with same_rows(host, control, [rival.table for rival in rivals], rows) as tests:
        facts = {
            "table": str(rows.table.name),
            "fingerprint": None,
            "rows": tests[0].rows,
            "packed_table": str(packed.relation.name) if packed else None,
        }
        return _scored(host, control, rivals, tests, facts)


def _scored(
    host: JobHost,
    control: Session,
    rivals: Sequence[Rival],
    tests: Sequence[PackedTable],
    facts: dict[str, Any],
) -> Comparison:
    found = [
        scores_on(host, control, rival.table, test, (rival.key,))[0]
        for rival, test in zip(rivals, tests, strict=True)
    ]
    return Comparison(found[0], found[1] if len(found) > 1 else None, facts)


def _raw_rows(control: Session, packed: PackedTable, other: ModelTable) -> RawRows:
    """The rows that a validation table was packed from.

    Raises:
        UndefinedTable, NotPermitted: they are not there any more, or may not be read.
    """
    origin = origin_of(control, packed)
    try:
        source = find(control, origin.source, _ROLE)
    except CerebroError as error:
        error.message = (
            f"{_ROLE}: {packed.relation.name} is packed in another way than {name_of(other)} was trained with, so the "
            f"raw rows are needed that it was packed from: {error.message.removeprefix(f'{_ROLE}: ')}"
        )
        error.hint = _GONE
        raise
    inputs = None if packed.encoding is not None else listed_names(origin.independent)
    return RawRows(source, listed_names(origin.dependent), inputs)


def finished_run(session: Session, run_id: int | None, validation_table: str | None) -> StoredRun:
    """A run whose models can be compared.

    Raises:
        WrongRunStatus: it has not finished, or there are no rows for validation.
    """
    run = Catalog(session).run(run_id)
    if run.status != "finished":
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which is {run.status}; allowed: a run that is finished"
        )
    if run.tables.validation is None and validation_table is None:
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which has no validation table; allowed: a run with one, by which "
            "models are compared",
            hint="validation_table := '...' names rows to compare models by, packed or raw",
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


def _finite_values(score: Score) -> dict[str, Any]:
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
    result: dict[str, Any],
) -> int:
    request = RegisterRequest(run.run_id, mst_key, reference.name)
    version = register(session, request, result)
    # That has locked the model: nobody else gives its aliases away now.
    if _champion(session, reference) != before:
        raise _given_away(reference)
    set_alias(session, reference.name, reference.alias, version)
    return version
