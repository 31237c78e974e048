"""Calibration: a new version of a registered model, whose logits are divided by a temperature, or mapped by steps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.configs.architectures.calibrated import (
    SIGMOID,
    Config,
    ramped,
    scaled,
    without_activation,
)
from cerebro_db.configs.frameworks import (
    check_architecture,
    check_layers_can_be_added,
    output_names,
)
from cerebro_db.configs.grids.outputs import outputs_of
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import checked_description, is_registered, model_reference
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.models.architectures import limits_of
from cerebro_db.models.registered import RegisteredModel, registered
from cerebro_db.models.registry import add_version, kept_model, state_chunks
from cerebro_db.models.trained import TrainedModel, load_models
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.catalog.registry import NewVersion
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation, find
from cerebro_db.requests.calibrating import CalibrateRequest
from cerebro_db.requests.predicting import EvaluationRequest
from cerebro_db.scoring.calibrating import check_classes
from cerebro_db.scoring.evaluation import ScoringJob, test_rows

_ROLE = "model_table"
TEMPERATURE = "temperature"
# Numbers in the JSON of a net: of all classes together.
_MOST_STEPS = 20_000


def calibrate(host: JobHost, request: CalibrateRequest) -> int:
    """Register a calibrated version of a model; returns its number.

    Args:
        host: of the call; gets a notice of what was found.
        request: which model, and on which rows.

    Raises:
        InvalidArgument: the model is not registered, or has no classes.
        InvalidArchitecture: the net does not end in a softmax or a sigmoid.
        InvalidData: no temperature is the best.
        UndefinedModel: the caller has no such model.
    """
    description = checked_description(request.description)
    reference = _reference(request)
    with control_session(host.pool, host.search_path) as control:
        with transaction(control):
            kept_model(control, reference)
        rows = find(control, request.test_table, "test_table")
        table = registered(control, reference)
        check_classes(table)
        (model,) = load_models(control, table, table.mst_keys)
        logits, activation = _logits(model, table)
        found = _studied(host, control, request, rows, table, model, logits, activation)
        config, own, what = _config(request.method, logits, found, activation)
        text = _checked(control, model, config)
        facts = {**own, "table": request.test_table} | {
            name: found[name] for name in ("rows", "before", "after")
        }
        with transaction(control):
            new = _new_version(control, table, model, text, facts, description)
            version = add_version(
                control, reference, new, state_chunks(control, table.states, table.mst_keys[0])
            )
    before, after = found["before"], found["after"]
    host.notice(
        f"{reference.at(version)} {what}: on {found['rows']} rows log loss "
        f"{before['loss']:.4g} -> {after['loss']:.4g}, expected calibration error "
        f"{before['calibration_error']:.4g} -> {after['calibration_error']:.4g}"
    )
    return version


def _config(
    method: str, logits: Config, found: dict[str, Any], activation: str | None
) -> tuple[Config, dict[str, Any], str]:
    """The calibrated net, facts about it, and what it does in words.

    Raises:
        InvalidData: there are more steps than a net should have.
    """
    if method == TEMPERATURE:
        temperature = 1 / found["scale"]
        facts = {"temperature": temperature}
        made = scaled(logits, found["scale"], activation)
        return made, facts, f"divides logits by {temperature:.4g}"
    ramps = found["ramps"]
    steps = max(len(rises) for _, _, _, rises in ramps) + 1
    if steps * len(ramps) > _MOST_STEPS:
        raise InvalidData(
            f"test_table: got {steps} steps of probabilities for each of {len(ramps)} outputs; allowed: "
            f"{_MOST_STEPS} together",
            "method := 'temperature' has one number for all of them",
        )
    facts = {"method": method, "steps": steps}
    return ramped(logits, ramps, activation), facts, f"maps probabilities by {steps} steps"


def _reference(request: CalibrateRequest) -> Any:
    text = request.model_table
    if not is_registered(text):
        raise InvalidArgument(
            f"{_ROLE}: got {'NULL' if text is None else shown(text)}; allowed: a registered model such as "
            "'model:digits@champion'",
            hint="cerebro.cerebro_register_model registers a model of a run",
        )
    return model_reference(text, _ROLE)


def _logits(model: TrainedModel, table: RegisteredModel) -> tuple[Config, str | None]:
    """The net that ends in logits, and its activation; None where the net ends in logits itself."""
    architecture, (output,) = json.loads(model.architecture), model.outputs
    check_layers_can_be_added(architecture, _ROLE)
    classes = table.targets.num_classes
    if output.loss.all_arguments().get("from_logits"):
        if output.loss.compares_each and classes > 2:
            raise InvalidArgument(
                f"{_ROLE}: got a model with the loss {output.loss.name} for {classes} classes, each with a probability "
                "of its own; allowed: probabilities whose sum is 1"
            )
        return architecture, None
    logits, activation = without_activation(architecture)
    if activation == SIGMOID and classes > 2:
        raise InvalidArgument(
            f"{_ROLE}: got a sigmoid for each of {classes} classes; allowed: probabilities whose sum is 1, as those "
            "of a softmax"
        )
    return logits, activation


def _studied(
    host: JobHost,
    control: Session,
    request: CalibrateRequest,
    rows: Relation,
    table: RegisteredModel,
    model: TrainedModel,
    logits: Config,
    activation: str | None,
) -> dict[str, Any]:
    is_binary = model.outputs[0].loss.compares_each
    is_one = activation == SIGMOID or (activation is None and is_binary)
    study = {"kind": request.method, "is_one": is_one}
    given = EvaluationRequest(
        request.model_table,
        request.test_table,
        None,
        dependent_varname=request.dependent_varname,
        independent_varname=request.independent_varname,
        on_error=request.on_error,
    )
    cut = replace(model, architecture=_text(logits), architecture_id=fingerprint(logits))
    with test_rows(host, control, table, given, rows) as test:
        keeps = 1 + max(2, table.targets.num_classes)  # the logits and the class of a row
        job = ScoringJob(host, table, test, [cut], {}, study, keeps=keeps)
        result = job.run(control, bool(request.use_gpus))[model.mst_key]["study"]
    return dict(result)


def _checked(session: Session, model: TrainedModel, config: Config) -> str:
    """The JSON of a net that may be kept, and whose output the configuration is for."""
    text = _text(check_architecture(_text(config), limits_of(session)))
    outputs_of(model.compile_params, output_names(json.loads(text)))
    return text


def _text(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


def _new_version(
    session: Session,
    table: RegisteredModel,
    model: TrainedModel,
    architecture: str,
    facts: dict[str, Any],
    description: str | None,
) -> NewVersion:
    """The values of the version that a model is calibrated to."""
    sql = (
        "SELECT v.run_id, v.lineage::text, v.version, v.tags::text FROM cerebro.registered_versions v "
        "WHERE v.version_id = %s"
    )
    run_id, lineage, version, tags = session.run(sql, (table.mst_keys[0],))[0]
    return NewVersion(
        description=description,
        tags=tags,
        run_id=run_id,
        mst_key=table.run_key,
        model_arch=architecture,
        compile_params=model.compile_text,
        fit_params=model.fit_text,
        facts=table.facts,
        lineage=json.dumps({**json.loads(lineage), "calibration": {"version": version, **facts}}),
    )
