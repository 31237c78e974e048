"""A search from its request: what it explores is checked, then it is a run like others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.functions.callbacks import Monitor
from cerebro_db.configs.grids.grid import metrics_notice
from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import Change
from cerebro_db.core.search import Aim, Earlier, Objective, SearchSpec
from cerebro_db.core.search_texts import monitors_of_aims
from cerebro_db.core.spec import (
    TRAINING,
    VALIDATION,
    Architecture,
    Configuration,
    Space,
    program_key,
)
from cerebro_db.decide.search.methods import (
    METHODS,
    default_places,
    first_epochs,
    method_of,
    most_trials,
    total_epochs,
)
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.architectures import limits_of, load_architectures
from cerebro_db.models.selection import Suiting, check_layers
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.catalog.trials import measures_of
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.searching import SearchRequest
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.driver import FIXED, Drive, Queued, no_notice
from cerebro_db.runs.losses import different_losses, different_penalties
from cerebro_db.runs.searches.results import METHOD, PARAMS, RANDOM_STATE, selection_name
from cerebro_db.runs.selection import chosen_by
from cerebro_db.runs.setup import (
    Resolved,
    RunSetup,
    check_output,
    check_request,
    output_of,
    resolve,
    setup_of,
    spec_of,
    tables_of,
)
from cerebro_db.scoring.prediction_models import LOSS
from cerebro_db.wire import as_json


def search(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: SearchRequest,
    notify: Callable[[str], None] = no_notice,
    registered: Callable[[int], None] = lambda run_id: None,
) -> int:
    """Search for the best configurations; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to search.
        notify: gets a line an epoch.
        registered: gets the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    drive = Drive(pool, dialect, Limits(), notify, FIXED, registered)
    return drive.begin(request, functools.partial(_set_up, request, notify))


def queue(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: SearchRequest,
    queued: Queued,
    notify: Callable[[str], None] = no_notice,
) -> int:
    """Set up a search that another driver is to begin; returns the run_id.

    Args:
        pool, dialect, request, notify: as above.
        queued: writes down who begins with it, in the transaction that registers it.
    """
    drive = Drive(pool, dialect, Limits(), notify, FIXED, lambda run_id: None)
    return drive.queue(request, queued, functools.partial(_set_up, request, notify))


def check(pool: SessionPool, dialect: PostgreSQL, request: SearchRequest) -> None:
    """Refuse a search that could not be begun now."""
    drive = Drive(pool, dialect, Limits(), no_notice, FIXED, lambda run_id: None)
    drive.check(request, functools.partial(_set_up, request, no_notice))


def check_without_data(session: Session, request: SearchRequest) -> None:
    """Refuse what is wrong with a search whatever its packed tables will be: they are not there yet.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    check_output(session, request)
    output, table = output_of(session, request), request.model_selection_table
    selection_name(session, table, output, replace=request.replace)
    chosen = chosen_by(session, request)
    load_architectures(session, chosen.architectures, chosen.model_ids)


def _set_up(
    request: SearchRequest,
    notify: Callable[[str], None],
    session: Session,
    dialect: PostgreSQL,
) -> RunSetup:
    """Read and check the tables and the space of a search, and set up its run.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    check_request(request, dialect)
    found, limits = resolve(request, session, dialect.training), limits_of(session)
    table = selection_name(
        session, request.model_selection_table, found.output, replace=request.replace
    )
    maker, space = found.maker(request.seed), _suited(found, limits, notify)
    probes = _probes(space, maker, found.models)
    spec = _spec(request, space, _aims(request, probes, notify), found, probes)
    for notice in (metrics_notice(space.compile_grid), _size_notice(spec)):
        if notice is not None:
            notify(notice)
    if request.warm_start_run is not None:
        spec = structs.replace(spec, earlier=_earlier_trials(session, request.warm_start_run, spec))
    places = min(spec.concurrency, most_trials(spec))
    run = spec_of(request, found, probes, places, spec)
    if spec.early_stopping.watches and request.metrics_compute_frequency is None:
        run = structs.replace(run, frequency=1)
    setup = setup_of(request, found, structs.replace(run, model_selection_table=table))
    return replace(setup, probes=setup.maker.probes(found.models))


def _suited(found: Resolved, limits: ArchitectureLimits, notify: Callable[[str], None]) -> Space:
    """The space of a search, with what its architectures have no layers for."""
    space = found.chosen.space
    assert space is not None
    texts = {model_id: model.text for model_id, model in found.models.items()}
    suiting = Suiting(texts, limits)
    left_out = suiting.left_out(space.compile_grid, space.model_ids)
    space = structs.replace(space, left_out=left_out)
    check_layers(texts, Explorer(space).probes(), limits)
    for line in suiting.notices if left_out else ():
        notify(line)
    return space


def _probes(
    space: Space, maker: Maker, known: Mapping[int, Architecture]
) -> tuple[Configuration, ...]:
    """Configurations with each value of a space: where one of them is wrong, so is the space."""
    rows = []
    for key, one in enumerate(Explorer(space).probes(), 1):
        fault = maker.fault(one, known)
        if fault is not None:
            raise InvalidArgument(
                f"the space has a configuration that cannot be trained: model_id {one.model_id} with "
                f"{one.compile_params!r} and {one.fit_params!r}: {fault}",
                hint="model_params_list in a grid tells what holds for some models only",
            )
        rows.append(Change(key, 1, one))
    return maker.make(rows, known)


def _spec(
    request: SearchRequest,
    space: Space,
    aims: tuple[Aim, ...],
    found: Resolved,
    probes: Sequence[Configuration],
) -> SearchSpec:
    """The spec of a search."""
    tables = tables_of(found.packed, found.validation)
    objectives = _objectives(aims, probes, validated=VALIDATION in tables)
    wanted = {one.dataset for one in objectives}
    if request.metrics_compute_frequency is not None:  # more is wanted than is decided by
        wanted = set(tables)
    spec = SearchSpec(
        method=request.parsed[0],
        params=request.parsed[1],
        space=space,
        objectives=objectives,
        early_stopping=request.stopping,
        budget=request.budget,
        seed=(request.seed if request.random_state is None else request.random_state) or 0,
        deterministic=request.deterministic is not False,
        goal=LOSS if objectives[0].metric == LOSS else probes[0].goal,
        measured=tuple(name for name in tables if name in wanted),
        given=_given(request),
    )
    METHODS[spec.method].check_space(spec, Explorer(spec.space))
    if spec.budget.max_epochs < (least := first_epochs(spec)):
        raise InvalidArgument(
            f"max_epochs: got {spec.budget.max_epochs}; allowed: at least {least}, with which the first "
            "trial begins"
        )
    programs = {
        program_key(one.architecture, one.compile_params, one.fit_params, True) for one in probes
    }
    return structs.replace(
        spec,
        concurrency=request.concurrency or default_places(spec, len(found.packed.partitions)),
        shared_epochs=max(1, round(total_epochs(spec) / len(programs))),
    )


def _size_notice(spec: SearchSpec) -> str | None:
    """The notice about a space that has fewer configurations than the search wants."""
    size, wanted = Explorer(spec.space).size, method_of(spec).trials()
    method = METHODS[spec.method]
    if not method.draws or method.waits or size >= wanted:
        return None
    return (
        f"the space has {int(size)} configuration{'s' if size != 1 else ''}, and {spec.method} wants "
        f"{int(wanted)}: each is tried once"
    )


def _given(request: SearchRequest) -> dict[str, str]:
    """Texts of the caller for the output tables."""
    drawn = request.random_state
    texts = {
        METHOD: request.automl_method,
        PARAMS: request.automl_params,
        RANDOM_STATE: None if drawn is None else str(drawn),
    }
    return {name: text for name, text in texts.items() if text is not None}


def _aims(
    request: SearchRequest, probes: Sequence[Configuration], notify: Callable[[str], None]
) -> tuple[Aim, ...]:
    """The objective, or one that all configurations of the space can be compared by, where none is given.

    Raises:
        InvalidArgument: none is given, and the space has several losses and no metric that all have.
    """
    losses, prefix = (
        different_losses(probes),
        "val_" if request.validation_table is not None else "",
    )
    named = ", ".join(losses)
    if losses and not request.aims:
        label = probes[0].monitored.metrics[0].label if probes[0].goal != LOSS else None
        if label is None:
            raise InvalidArgument(
                f"objective: got none for a space with different losses ({named}), whose values say nothing about "
                "each other; allowed: a metric that all configurations have",
                hint="name it first in 'metrics' of compile_params_grid, such as 'metrics': [['mae']]",
            )
        notify(
            f"the space has different losses ({named}), whose values say nothing about each other: "
            f"the objective is {prefix}{label}"
        )
        return (Aim(f"{prefix}{label}"),)
    aims = [one.monitor for one in request.aims] or [f"{prefix}{LOSS}"]
    compared = ", ".join(one for one in aims if one.removeprefix("val_") == LOSS)
    if losses and compared:
        notify(
            f"{compared} compares values of different losses ({named}), which say nothing about each other: "
            "a metric as objective does not"
        )
    elif compared and (penalties := different_penalties(probes)):
        notify(
            f"{compared} has the penalties of {' and '.join(penalties)} in it, which the search changes: "
            "a metric as objective does not"
        )
    return request.aims


def _objectives(
    aims: tuple[Aim, ...], probes: Sequence[Configuration], *, validated: bool
) -> tuple[Objective, ...]:
    """Objectives of the search, which all configurations must have."""
    found: list[tuple[Monitor, ...]] = []
    for one in probes:
        metrics = {metric.label: metric.name for metric in one.monitored.metrics}
        found.append(monitors_of_aims(aims, metrics, validated=validated))
    return tuple(
        Objective(
            one.name.removeprefix("val_"),
            VALIDATION if one.name.startswith("val_") else TRAINING,
            one.more_is_better,
        )
        for one in found[0]
    )


def _earlier_trials(session: Session, run_id: int, spec: SearchSpec) -> tuple[Earlier, ...]:
    """Results of another run for configurations that a search may come to.

    Args:
        session: that reads the catalog.
        run_id: of any run of the caller's, a search or not.
        spec: of the search.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: none of its configurations is of the space, and has the objectives; or the method
            learns nothing.
    """
    if not METHODS[spec.method].learns:
        learning = [name for name, one in METHODS.items() if one.learns]
        raise InvalidArgument(
            f"warm_start_run: got {run_id} for {spec.method!r}, which learns nothing; allowed: "
            f"with automl_method {', '.join(learning)}"
        )
    run = Catalog(session).run(run_id, "warm_start_run")
    rows = Catalog(session).configurations(run.run_id)
    measures = [measures_of(session, run.run_id, one) for one in spec.objectives]
    explorer, found = Explorer(spec.space), []
    for row in rows:
        parameters = explorer.place(
            ConfigurationText(row.model_id, row.compile_params, row.fit_params)
        )
        epochs = set.intersection(*(set(one.get(row.mst_key, {})) for one in measures))
        if parameters is None or not epochs:
            continue
        values = [one[row.mst_key][max(epochs)] for one in measures]
        losses = (
            -value if one.maximise else value
            for one, value in zip(spec.objectives, values, strict=True)
        )
        if all(map(math.isfinite, values)):
            found.append(Earlier(as_json(dict(parameters)), max(epochs), tuple(losses)))
    if not found:
        names = ", ".join(one.monitor for one in spec.objectives)
        raise InvalidArgument(
            f"warm_start_run: got {run_id}, of which no configuration is of the space and has {names}; "
            "allowed: a run with at least one",
            hint="cerebro.trials and cerebro.metrics tell what runs have found out",
        )
    return tuple(found)
