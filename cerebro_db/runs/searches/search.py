"""A search from its request: what it explores is checked, then it is a run like others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from cerebro_db.configs.functions.callbacks import Monitor
from cerebro_db.configs.grids.grid import told_of_metrics
from cerebro_db.configs.grids.search_methods import GRID
from cerebro_db.configs.messages import check_range
from cerebro_db.core.decisions import Change
from cerebro_db.core.search import UNLIMITED, Aim, Budget, EarlyStopping, Objective, SearchSpec
from cerebro_db.core.search_texts import monitors_of_aims
from cerebro_db.core.spec import (
    EVERY_HOP,
    TRAINING,
    VALIDATION,
    Architecture,
    Configuration,
    Space,
    program_key,
)
from cerebro_db.decide.search.methods import (
    default_places,
    first_epochs,
    method_of,
    most_epochs,
    most_trials,
    total_epochs,
)
from cerebro_db.decide.search.sampling import check_sampler
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.strategies import DEFAULT
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.architectures import limits_of, load_architectures
from cerebro_db.models.fit_checks import check_alike, target_facts, with_counts
from cerebro_db.models.object_tables import object_table
from cerebro_db.models.selection import Suiting, check_layers
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql.training import PostgreSQLTraining
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.packed import PackedTable, load_packed
from cerebro_db.postgres.relations import CallerPath, find
from cerebro_db.postgres.sessions import Session, SessionPool
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.driver import FIXED, Drive, Queued, no_notice
from cerebro_db.runs.losses import different_losses, different_penalties
from cerebro_db.runs.request import FitRequest, Limits
from cerebro_db.runs.searches.earlier import earlier_trials
from cerebro_db.runs.searches.results import selection_name
from cerebro_db.runs.setup import RunSetup, check_output, output_of, spec_of, threads_of
from cerebro_db.runs.stored import probes_of
from cerebro_db.scoring.prediction_models import LOSS


@dataclass(frozen=True)
class SearchRequest:
    """Request of a caller for a search; texts are parsed already, tables not looked at yet.

    Attributes:
        model_selection_table: a table that gets the best configuration; None for none.
        method, params: of ``configs.grids.search_methods``; params are validated, all of them there.
        objective: parts of it; none for the validation loss, or the loss where there is no validation.
        concurrency: trials at the same time; None for the default of the method and the partitions.
        warm_start_run: an earlier run whose trials are learnt from.
        given: texts of the caller that are shown in the output tables.
        random_state: of what is drawn; None for the seed, which all weights come from.
    """

    source_table: str | None
    model_output_table: str | None
    model_arch_table: str | None
    space: Space
    method: str
    params: Mapping[str, Any]
    model_selection_table: str | None = None
    object_table: str | None = None
    objective: tuple[Aim, ...] = ()
    early_stopping: EarlyStopping = field(default_factory=EarlyStopping)
    budget: Budget = field(default_factory=Budget)
    deterministic: bool = True
    concurrency: int | None = None
    warm_start_run: int | None = None
    use_gpus: bool | None = False
    validation_table: str | None = None
    metrics_compute_frequency: int | None = None
    name: str | None = None
    description: str | None = None
    use_caching: bool | None = True
    seed: int | None = 0
    random_state: int | None = None
    num_workers: int | None = None
    durability: str | None = EVERY_HOP
    schedule: str | None = DEFAULT
    replace: bool | None = False
    search_path: CallerPath | None = None
    cores: int = 1
    given: Mapping[str, str] = field(default_factory=dict)


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
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    drive = Drive(pool, dialect, Limits(), notify, FIXED, registered)
    return drive.begin(_common(request), functools.partial(_set_up, request, notify))


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
    return drive.queue(_common(request), queued, functools.partial(_set_up, request, notify))


def check(pool: SessionPool, dialect: PostgreSQL, request: SearchRequest) -> None:
    """Refuse a search that could not be begun now."""
    drive = Drive(pool, dialect, Limits(), no_notice, FIXED, lambda run_id: None)
    drive.check(_common(request), functools.partial(_set_up, request, no_notice))


def check_without_data(session: Session, request: SearchRequest) -> None:
    """Refuse what is wrong with a search whatever its packed tables will be: they are not there yet.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    common = _common(request)
    common.check()
    check_output(session, common)
    output, table = output_of(session, common), request.model_selection_table
    selection_name(session, table, output, replace=request.replace)
    object_table(session, request.object_table)
    models = find(session, request.model_arch_table, "model_arch_table")
    load_architectures(session, models, request.space.model_ids)


def _common(request: SearchRequest) -> FitRequest:
    """Part of the request that a search has in common with other runs."""
    return FitRequest(
        source_table=request.source_table,
        model_output_table=request.model_output_table,
        model_selection_table=None,
        num_iterations=most_epochs(request.method, request.params),
        use_gpus=request.use_gpus,
        validation_table=request.validation_table,
        metrics_compute_frequency=request.metrics_compute_frequency,
        name=request.name,
        description=request.description,
        use_caching=request.use_caching,
        seed=request.seed,
        num_workers=request.num_workers,
        durability=request.durability,
        schedule=request.schedule,
        replace=request.replace,
        search_path=request.search_path,
        cores=request.cores,
    )


def _set_up(
    asked: SearchRequest,
    notify: Callable[[str], None],
    session: Session,
    sql: PostgreSQLTraining,
    request: FitRequest,
) -> tuple[QualifiedName, RunSetup]:
    """Read and check the tables and the space of a search, and set up its run.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    request.check()
    packed = load_packed(session, request.source_table, "source_table")
    output = output_of(session, request)
    validation = None
    if request.validation_table is not None:
        validation = load_packed(session, request.validation_table, "validation_table")
        check_alike(packed, validation)
    table = find(session, asked.model_arch_table, "model_arch_table")
    objects = object_table(session, asked.object_table)
    if objects is not None:
        grid = objects.in_grid(asked.space.compile_params_grid)
        asked = replace(asked, space=structs.replace(asked.space, compile_params_grid=grid))
    known = load_architectures(session, table, asked.space.model_ids)
    targets = with_counts(session, packed, target_facts(packed), [asked.space.fit_params_grid])
    maker = Maker(
        packed, targets, validation is not None, request.seed or 0, tick=lambda: session.tick()
    )
    texts = {model_id: model.text for model_id, model in known.items()}
    suiting = Suiting(texts, limits_of(session))
    left_out = suiting.left_out(asked.space.compile_grid, asked.space.model_ids)
    asked = replace(asked, space=structs.replace(asked.space, left_out=left_out))
    check_layers(texts, Explorer(asked.space).probes(), limits_of(session))
    for told in suiting.told if left_out else ():
        notify(told)
    probes = _probes(asked.space, maker, known)
    asked = _with_objective(asked, probes, notify)
    spec = _spec(asked, packed, validation, probes)
    for line in (told_of_metrics(asked.space.compile_grid), _told_of_size(spec)):
        if line is not None:
            notify(line)
    if asked.warm_start_run is not None:
        spec = structs.replace(spec, earlier=earlier_trials(session, asked.warm_start_run, spec))
    places = min(spec.concurrency, most_trials(spec))
    found = spec_of(request, packed, validation, probes, places, sql)
    watches = spec.early_stopping.watches and asked.metrics_compute_frequency is None
    setup = RunSetup(
        spec=replace(found, measured=spec.measured, frequency=1 if watches else found.frequency),
        packed=packed,
        validation=validation,
        output=output,
        output_text=str(request.model_output_table),
        selection=selection_name(
            session, asked.model_selection_table, output, replace=asked.replace
        ),
        architectures=str(table.name),
        object_table=None if objects is None else objects.name,
        configurations=(),
        targets=maker.targets,
        threads=threads_of(session, sql, request.cores, packed),
        use_caching=bool(request.use_caching),
        replace_output=bool(request.replace),
        name=request.name,
        description=request.description,
        search=spec,
        models=known,
    )
    return table.name, replace(setup, probes=probes_of(setup, spec))


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
    asked: SearchRequest,
    packed: PackedTable,
    validation: PackedTable | None,
    probes: Sequence[Configuration],
) -> SearchSpec:
    """The spec of a search."""
    objectives = _objectives(asked, probes, validated=validation is not None)
    tables = [TRAINING] if validation is None else [TRAINING, VALIDATION]
    wanted = {one.dataset for one in objectives}
    if asked.metrics_compute_frequency is not None:  # somebody wants to see more than is decided by
        wanted = set(tables)
    spec = SearchSpec(
        method=asked.method,
        params=asked.params,
        space=asked.space,
        objectives=objectives,
        early_stopping=asked.early_stopping,
        budget=asked.budget,
        seed=(asked.seed if asked.random_state is None else asked.random_state) or 0,
        deterministic=asked.deterministic,
        goal=LOSS if objectives[0].metric == LOSS else probes[0].goal,
        measured=tuple(name for name in tables if name in wanted),
        given=asked.given,
    )
    check_sampler(spec)
    check_range("concurrency", asked.concurrency, 1, UNLIMITED)
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
        concurrency=asked.concurrency or default_places(spec, len(packed.partitions)),
        shared_epochs=max(1, round(total_epochs(spec) / len(programs))),
    )


def _told_of_size(spec: SearchSpec) -> str | None:
    """The notice about a space that has fewer configurations than the search wants."""
    size, wanted = Explorer(spec.space).size, method_of(spec).trials()
    if spec.method == GRID or size >= wanted:
        return None
    return (
        f"the space has {int(size)} configuration{'s' if size != 1 else ''}, and {spec.method} wants "
        f"{int(wanted)}: each is tried once"
    )


def _with_objective(
    asked: SearchRequest, probes: Sequence[Configuration], notify: Callable[[str], None]
) -> SearchRequest:
    """The request with an objective that all configurations of the space can be compared by, where none is given.

    Raises:
        InvalidArgument: none is given, and the space has several losses and no metric that all have.
    """
    losses, prefix = different_losses(probes), "val_" if asked.validation_table is not None else ""
    named = ", ".join(losses)
    if losses and not asked.objective:
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
        return replace(asked, objective=(Aim(f"{prefix}{label}"),))
    aims = [one.monitor for one in asked.objective] or [f"{prefix}{LOSS}"]
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
    return asked


def _objectives(
    asked: SearchRequest, probes: Sequence[Configuration], *, validated: bool
) -> tuple[Objective, ...]:
    """Objectives of the search, which all configurations must have."""
    found: list[tuple[Monitor, ...]] = []
    for one in probes:
        metrics = {metric.label: metric.name for metric in one.monitored.metrics}
        found.append(monitors_of_aims(asked.objective, metrics, validated=validated))
    return tuple(
        Objective(
            one.name.removeprefix("val_"),
            VALIDATION if one.name.startswith("val_") else TRAINING,
            one.more_is_better,
        )
        for one in found[0]
    )
