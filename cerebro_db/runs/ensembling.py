"""Ensembles: several models of a run become one registered model, which predicts their mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cerebro_db.configs.architectures.ensembles import mean_of
from cerebro_db.configs.architectures.freezing import with_policy
from cerebro_db.configs.frameworks import (
    check_architecture,
    check_layers_can_be_added,
    output_names,
)
from cerebro_db.configs.grammar import parse_keywords
from cerebro_db.configs.grids.outputs import outputs_of
from cerebro_db.configs.grids.parameters import compile_text
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import checked_description, model_name
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.architectures import limits_of
from cerebro_db.models.registered import stored_facts
from cerebro_db.models.registry import add_version, lineage_of, models_of, state_chunks
from cerebro_db.models.trained import ModelTable, TrainedModel, load_models
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.catalog.registry import NewVersion
from cerebro_db.postgres.catalog.runs import StoredRun
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import packed_of
from cerebro_db.postgres.tables.relations import find
from cerebro_db.requests.ensembling import EnsembleRequest
from cerebro_db.requests.predicting import EvaluationRequest
from cerebro_db.runs.promotion import finished_run
from cerebro_db.scoring.contributions import check_one_output
from cerebro_db.scoring.evaluation import ScoringJob, test_rows
from cerebro_db.scoring.greedy import OF_CLASSES, OF_NUMBERS, selected
from cerebro_db.training.joined_states import joined
from cerebro_db.training.scores.probabilities import probabilities
from cerebro_db.training.scores.studies.outputs import arrays_of
from cerebro_db.training.state import from_bytes

_ROLE = "validation_table"
_CHUNK = 16 * 2**20
# What compile parameters say of layers or of training; the mean is only scored.
_OF_TRAINING = (
    "l1", "l2", "dropout", "freeze", "dtype_policy", "loss_per_member", "param_groups",
)  # fmt: skip


class _Member(NamedTuple):
    """A model of the ensemble, how often it counts, and numbers of its output."""

    model: TrainedModel
    times: int
    units: int


def ensemble(host: JobHost, request: EnsembleRequest) -> int | None:
    """Register the mean of several models of a run.

    Args:
        host: of the call; gets a notice of the members.
        request: which run, and which rows they are compared on.

    Returns:
        The version; None where the best model alone is as good.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it has not finished, or there is no validation table.
        InvalidArgument: it has one model, several targets, or a target that the metric is not for.
    """
    reference = model_name(request.name, "name")
    if reference.owner is not None:
        raise InvalidArgument(
            f"name: got {shown(request.name)}; allowed: a name without owner, as a model belongs to the role that "
            "registers it"
        )
    description = checked_description(request.description)
    with control_session(host.pool, host.search_path) as control:
        run = finished_run(control, request.run_id, request.validation_table)
        table = models_of(control, run)
        check_one_output(table)
        metric = _metric(request.metric, table)
        models = _candidates(control, run, table, request.candidates)
        members = _members(host, control, request, run, table, models, metric)
        if len(members) < 2:
            host.notice(
                f"no mean of models of run {run.run_id} is better by {metric} than the best one alone"
            )
            return None
        new = _new_version(control, run, table, members, metric, description)
        state = _state(control, table, members)
        with transaction(control):
            version = add_version(control, reference, new, _chunks(state))
    listed = ", ".join(f"{one.times} x mst_key {one.model.mst_key}" for one in members)
    host.notice(
        f"{reference.at(version)} is the mean of {listed}, best by {metric} on the rows for validation"
    )
    return version


def _metric(given: str | None, table: ModelTable) -> str:
    is_class = table.targets.kind == "class"
    allowed = list(OF_CLASSES if is_class else OF_NUMBERS)
    if is_class and table.targets.num_classes != 2:
        allowed.remove("auc")
    if given is not None and given not in allowed:
        what = f"{table.targets.num_classes} classes" if is_class else "numbers"
        raise InvalidArgument(
            f"metric: got {given!r} for a target of {what}; allowed: {', '.join(map(repr, allowed))}"
        )
    return given or allowed[0]


def _candidates(
    control: Session, run: StoredRun, table: ModelTable, most: int
) -> list[TrainedModel]:
    """The best models, the best one first."""
    rows = control.run(
        "SELECT mst_key FROM cerebro.leaderboard WHERE run_id = %s AND epoch IS NOT NULL "
        "AND status NOT IN ('failed', 'cancelled') ORDER BY rank, mst_key",
        (run.run_id,),
    )
    keys = [key for (key,) in rows if key in table.mst_keys][:most]
    if len(keys) < 2:
        raise InvalidArgument(
            f"run_id: got {run.run_id}, which has {len(keys)} scored {'model' if len(keys) == 1 else 'models'}; "
            "allowed: a run of two or more"
        )
    found = {model.mst_key: model for model in load_models(control, table, keys)}
    return [found[key] for key in keys]


def _members(
    host: JobHost,
    control: Session,
    request: EnsembleRequest,
    run: StoredRun,
    table: ModelTable,
    models: Sequence[TrainedModel],
    metric: str,
) -> list[_Member]:
    """The models of the ensemble, which are compared where their outputs are of one size."""
    results = _predicted(host, control, request, run, table, models)
    classes = table.targets.num_classes
    ranked, found, truth = [], [], np.zeros(0)
    units = 0
    for model in models:
        raw, targets = arrays_of(results[model.mst_key]["study"])
        loss = model.outputs[0].loss
        if loss.all_arguments().get("from_logits") or raw.shape[1] != (units or raw.shape[1]):
            continue  # its outputs have no mean with the others'
        units, truth = raw.shape[1], targets[:, 0]
        values = raw.astype(np.float64)
        found.append(probabilities(values, loss, classes) if classes else values)
        ranked.append(model)
    if len(ranked) < 2:
        raise InvalidArgument(
            f"run_id: got {run.run_id}, whose models have outputs of different sizes, or logits; allowed: two models or "
            "more that predict probabilities or numbers of one size"
        )
    badness = (OF_CLASSES if classes else OF_NUMBERS)[metric]
    counts = selected(found, truth, badness, request.members)
    pairs = zip(ranked, counts, strict=True)
    return [_Member(model, count, units) for model, count in pairs if count]


def _predicted(
    host: JobHost,
    control: Session,
    request: EnsembleRequest,
    run: StoredRun,
    table: ModelTable,
    models: Sequence[TrainedModel],
) -> Mapping[int, Any]:
    text = request.validation_table
    if text is None:
        assert run.tables.validation is not None
        text = str(packed_of(control, run.tables.validation.oid, _ROLE).relation.name)
    given = EvaluationRequest(run.tables.output.text, text, None)
    with test_rows(host, control, table, given, find(control, text, _ROLE)) as test:
        keeps = max(1, table.targets.num_classes) * len(models)
        job = ScoringJob(host, table, test, models, {}, {"kind": "outputs"}, keeps=keeps)
        return job.run(control, use_gpus=False)


def _new_version(
    control: Session,
    run: StoredRun,
    table: ModelTable,
    members: Sequence[_Member],
    metric: str,
    description: str | None,
) -> NewVersion:
    first = members[0].model
    counts = [one.times for one in members]
    configs = [_architecture(one.model) for one in members]
    text = mean_of(configs, table.input_shapes, counts, members[0].units)
    config = check_architecture(text, limits_of(control))
    params = parse_keywords(first.compile_text, "compile_params")
    kept = compile_text({name: value for name, value in params.items() if name not in _OF_TRAINING})
    outputs_of(first.compile_params, output_names(config))
    chosen = {
        "metric": metric,
        "members": [{"mst_key": one.model.mst_key, "count": one.times} for one in members],
    }
    lineage = json.loads(lineage_of(control, run, first.mst_key))
    return NewVersion(
        description=description,
        tags=None,
        run_id=run.run_id,
        mst_key=first.mst_key,
        model_arch=json.dumps(config, sort_keys=True),
        compile_params=kept,
        fit_params=first.fit_text,
        facts=stored_facts(table),
        lineage=json.dumps({**lineage, "ensemble": chosen}),
    )


def _architecture(model: TrainedModel) -> dict[str, Any]:
    """The architecture as the model computes it."""
    config: dict[str, Any] = json.loads(model.architecture)
    check_layers_can_be_added(config, "run_id")
    policy = model.compile_params.dtype_policy
    return config if policy is None else with_policy(config, policy)


def _state(control: Session, table: ModelTable, members: Sequence[_Member]) -> bytes:
    keys = [one.model.mst_key for one in members]
    return joined(from_bytes(b"".join(state_chunks(control, table.states, key))) for key in keys)


def _chunks(state: bytes) -> list[bytes]:
    return [state[start : start + _CHUNK] for start in range(0, len(state), _CHUNK)]
