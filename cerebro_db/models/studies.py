"""Trials of a search for Optuna: importance of parameters, and a storage for its dashboard."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import check_range, shown
from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.core.statuses import CANCELLED, FAILED, FINISHED, STOPPED, TRAINING, WAITING
from cerebro_db.decide.search.studies import (
    Importance,
    Measured,
    add_to_study,
    directions,
    importances,
)
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.catalog.trials import TrialRow, measures_of, search_of, times_of, trials_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.searching import ImportanceRequest

_LEAST = 2
_MOST_EPOCHS = 1_000_000
_SQLITE, _JOURNAL = (".db", ".sqlite", ".sqlite3"), (".log", ".journal", ".jsonl")
STATES = {
    FINISHED: "COMPLETE", STOPPED: "PRUNED", WAITING: "RUNNING", TRAINING: "RUNNING",
    FAILED: "FAIL", CANCELLED: "FAIL",
}  # fmt: skip


def importance_of(session: Session, request: ImportanceRequest) -> list[Importance]:
    """Importance of each parameter of a search, the most important one first.

    Args:
        session: whose role sees the run.
        request: what is asked for.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search, or too few of its trials were measured.
    """
    check_range("epoch", request.epoch, 1, _MOST_EPOCHS)
    run, spec = search_of(session, request.run_id)
    objective = _objective(spec, request.objective)
    measured = measures_of(session, run.run_id, objective)
    epoch = request.epoch or _usual_epoch(measured)
    trials = [
        Measured(one.parameters, (value,))
        for one in trials_of(session, run.run_id)
        if one.parameters and math.isfinite(value := measured.get(one.mst_key, {}).get(epoch, math.nan))
    ]  # fmt: skip
    if len(trials) < _LEAST:
        raise InvalidArgument(
            f"run_id: got {run.run_id}, of which {len(trials)} trials of its space were measured after "
            f"epoch {epoch}; allowed: a search with {_LEAST} such trials or more",
            hint="cerebro.metrics shows after which epochs each was measured",
        )
    return importances(spec, trials)


def _objective(spec: SearchSpec, name: str | None) -> Objective:
    """The objective of a name, by default the first one."""
    if name is None:
        return spec.objectives[0]
    known = {one.monitor: one for one in spec.objectives}
    if name not in known:
        raise InvalidArgument(
            f"objective: got {shown(name)}; allowed: {', '.join(known)}",
            hint=nearest(name[:80], known),
        )
    return known[name]


def _usual_epoch(measured: Mapping[int, Mapping[int, float]]) -> int:
    """The epoch after which most trials were measured, the last of these."""
    counts = Counter(epoch for epochs in measured.values() for epoch in epochs)
    return max(counts, key=lambda epoch: (counts[epoch], epoch), default=1)


def write_study(session: Session, run_id: int, file: Path) -> int:
    """Write a search as a storage of Optuna; returns the number of its trials.

    Args:
        session: whose role sees the run.
        run_id: which search.
        file: to be made: a database of SQLite, or a journal, as its ending says.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search, or the file cannot be made.
    """
    storage = _storage(file)
    run, spec = search_of(session, run_id)
    trials = trials_of(session, run.run_id)
    steps = measures_of(session, run.run_id, spec.objectives[0])
    name = run.spec.name or f"run {run.run_id}"
    times = times_of(session, run.run_id)
    measured = [
        _measured(spec, one, steps.get(one.mst_key, {}), times.get(one.mst_key)) for one in trials
    ]
    _write(storage, name, spec, measured)
    return len(trials)


def _storage(file: Path) -> str:
    """Name of a storage, from which Optuna makes it.

    Raises:
        InvalidArgument: the name of the file says nothing, or there is such a file.
    """
    ending = file.suffix.lower()
    if ending not in (*_SQLITE, *_JOURNAL):
        raise InvalidArgument(
            f"got the file {file}; allowed: a name that ends in {', '.join((*_SQLITE, *_JOURNAL))}",
            hint=f"{_SQLITE[0]} is a database of SQLite, {_JOURNAL[0]} a journal",
        )
    if file.exists():
        raise InvalidArgument(f"got the file {file}, which exists; allowed: a new one")
    if not file.absolute().parent.is_dir():
        raise InvalidArgument(f"got the file {file}; its folder does not exist")
    return f"sqlite:///{file.absolute()}" if ending in _SQLITE else str(file)


def _write(storage: str, name: str, spec: SearchSpec, trials: Sequence[Measured]) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    place: optuna.storages.BaseStorage
    if storage.startswith("sqlite:"):
        place = optuna.storages.RDBStorage(storage)
    else:
        place = optuna.storages.JournalStorage(JournalFileBackend(storage))
    study = optuna.create_study(storage=place, study_name=name, directions=directions(spec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([one.monitor for one in spec.objectives])
    study.set_user_attr("method", spec.method)
    add_to_study(study, spec, trials)


def _measured(
    spec: SearchSpec,
    trial: TrialRow,
    steps: Mapping[int, float],
    times: tuple[datetime, datetime] | None,
) -> Measured:
    finite = {epoch: value for epoch, value in steps.items() if not math.isnan(value)}
    has_values = trial.is_comparable and len(trial.objectives) == len(spec.objectives)
    state = STATES[trial.status]
    if state == "PRUNED" and len(spec.objectives) > 1 and has_values:
        state = "COMPLETE"  # of several objectives Optuna knows no pruned trials
    if state == "COMPLETE" and not has_values:
        state = "FAIL"
    known = {
        "mst_key": trial.mst_key, "model_id": trial.model_id, "bracket": trial.bracket,
        "rung": trial.rung, "status": trial.status, "compile_params": trial.compile_params,
        "fit_params": trial.fit_params, "reason": trial.reason,
    }  # fmt: skip
    attributes = {name: value for name, value in known.items() if value not in (None, "")}
    return Measured(
        trial.parameters,
        trial.objectives if state == "COMPLETE" else (),
        finite if len(spec.objectives) == 1 else {},
        state,
        attributes,
        times,
    )
