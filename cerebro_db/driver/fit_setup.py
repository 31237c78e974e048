"""Everything that a run needs, read and checked before any worker starts."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.freezing import may_train, with_frozen
from cerebro_db.configs.memory import (
    Load,
    check_worker_memory,
    usable_mb,
    worker_limit_mb,
    worker_memory,
)
from cerebro_db.configs.model_outputs import OutputSpec, output_names, outputs_of, with_all_metrics
from cerebro_db.configs.parameters import (
    CompileParams,
    FitParams,
    parse_compile_params,
    parse_fit_params,
)
from cerebro_db.database.catalog import Catalog
from cerebro_db.database.dialects.postgresql_training import PostgreSQLTraining
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.outputs import MODELS
from cerebro_db.database.packed import PackedTable, load_packed
from cerebro_db.database.relations import Relation, find, find_if_there, new_name
from cerebro_db.database.sessions import Session, Tick
from cerebro_db.database.summaries import Facts
from cerebro_db.driver.architectures import Architecture, load_architectures
from cerebro_db.driver.fit_checks import check_alike, check_fits, target_facts
from cerebro_db.driver.fit_request import ROTATION, FitRequest
from cerebro_db.driver.goals import common_goal
from cerebro_db.driver.leftovers import new_output
from cerebro_db.driver.measuring import measured_for
from cerebro_db.driver.one_model import architectures_of
from cerebro_db.driver.outputs import Outputs
from cerebro_db.errors import CerebroError, InvalidArgument, WrongObjectType
from cerebro_db.planning import callbacks
from cerebro_db.planning.cost import hop_seconds, steps_per_call, use_jit
from cerebro_db.training.targets import TargetFacts

STATES_SUFFIX = "_states"
HISTORY_SUFFIX = "_history"


@dataclass(frozen=True)
class Configuration:
    """A configuration, parsed, with what the plan makes of it.

    Attributes:
        goal: by which it is ranked, the same for all of a run.
    """

    mst_key: int
    architecture: Architecture
    compile_text: str
    fit_text: str
    compile_params: CompileParams
    fit_params: FitParams
    hop_seconds: float
    initial_seed: int
    jit: bool
    steps_per_call: int
    goal: str

    @functools.cached_property
    def outputs(self) -> tuple[OutputSpec, ...]:
        """What each output of the model is compiled with."""
        names = output_names(json.loads(self.architecture.text))
        return outputs_of(self.compile_params, names)

    @property
    def monitored(self) -> CompileParams:
        """Its parameters as callbacks know them, with the metrics of all outputs."""
        return with_all_metrics(self.compile_params, self.outputs)


@dataclass(frozen=True)
class RunSetup:
    """A run that can start, or go on.

    Attributes:
        selection, architectures: names of the tables, for people; no selection for one model.
    """

    request: FitRequest
    packed: PackedTable
    validation: PackedTable | None
    output: QualifiedName
    selection: str | None
    architectures: str
    configurations: tuple[Configuration, ...]
    targets: TargetFacts
    num_workers: int
    threads: int

    @property
    def outputs(self) -> Outputs | None:
        """The output tables, where those of an earlier run give way to them."""
        if not self.request.replace and not self.replaces:
            return None
        return Outputs(
            self.output,
            str(self.request.model_output_table),
            "model_output_table",
            MODELS,
            MODELS.suffixes,
            replace=True,
            by="warm_start" if self.replaces else "replace",
        )

    @property
    def replaces(self) -> bool:
        """Whether the output tables of an earlier run are replaced, and gone on from."""
        return bool(self.request.warm_start)


def set_up(
    session: Session, sql: PostgreSQLTraining, request: FitRequest, tick: Tick
) -> tuple[QualifiedName, RunSetup]:
    """Read and check all that a request names; returns the architecture table as well.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    request.check()
    packed = load_packed(session, request.source_table, "source_table", tick)
    targets = target_facts(packed)
    output = _output(session, request, tick)
    validation = None
    if request.validation_table is not None:
        validation = load_packed(session, request.validation_table, "validation_table", tick)
        check_alike(packed, validation)
    selection, rows, table = _chosen(session, request, tick)
    known = load_architectures(session, table, {row[1] for row in rows}, tick)
    configurations = _configurations(rows, known, packed, targets, request)
    usable = min(len(packed.partitions), len(configurations))
    # Where partitions lie on other machines, those have processors of their own; all are alike.
    busy = usable if packed.is_spread else min(request.cores, usable)
    if request.schedule == ROTATION:  # one session, which all segments work for
        busy = 1
    setup = RunSetup(
        request=measured_for(request, {c.mst_key: c.fit_params for c in configurations}),
        packed=packed,
        validation=validation,
        output=output,
        selection=selection,
        architectures=str(table.name),
        configurations=configurations,
        targets=targets,
        num_workers=min(request.num_workers or busy, most_workers(packed, len(configurations))),
        threads=max(1, request.cores // session.run(*sql.neighbours(packed), tick)[0][0]),
    )
    return table.name, setup


def most_workers(packed: PackedTable, configurations: int) -> int:
    """More would have nothing to do: where partitions lie on segments each belongs to one worker."""
    return min(len(packed.partitions), configurations) if packed.is_spread else configurations


def _chosen(
    session: Session, request: FitRequest, tick: Tick
) -> tuple[str | None, list[tuple[int, int, str, str]], Relation]:
    """The name of the table of configurations, its rows, and the table of architectures."""
    if request.one is not None:
        return None, [request.one.row()], architectures_of(session, request.one, tick)
    selection = find(session, request.model_selection_table, "model_selection_table", tick)
    rows = _selection_rows(session, selection, tick)
    return str(selection.name), rows, _architecture_table(session, selection, tick)


def memory_workers(session: Session, setup: RunSetup, tick: Tick) -> int:
    """The most workers that the memory of the server is enough for.

    Raises:
        InvalidArgument: one of them may need more than it may use, with what the estimate is made of.
    """
    settings = Catalog(session, tick).settings()
    loads = [_load(configuration) for configuration in setup.configurations]
    tables = [setup.packed] if setup.validation is None else [setup.packed, setup.validation]
    cache = settings.cache_mb * 2**20 if setup.request.use_caching else 0
    estimate = worker_memory(loads, sum(map(decoded_bytes, tables)), cache)
    memory_mb, cores = session.run(_MACHINE, (), tick)[0]
    limit = worker_limit_mb(settings.max_worker_mb, memory_mb, cores)
    check_worker_memory(estimate, limit, "configurations")
    if setup.packed.is_spread:  # segments have processes of their own, whatever the workers are
        return setup.num_workers
    return max(1, usable_mb(memory_mb) * 2**20 // estimate.total)


_MACHINE = "SELECT cerebro._memory_mb(), cerebro._cores()"


def _load(configuration: Configuration) -> Load:
    facts, params = configuration.architecture.facts, configuration.compile_params
    fit = configuration.fit_params
    return Load(
        _program_key(configuration.architecture, params, fit, configuration.jit),
        facts.parameters,
        params.optimizer.name,
        configuration.jit,
        params.optimizer.keeps_averages,
        fit.batch_size,
        facts.row_bytes,
        facts.largest_bytes,
        facts.fixed_bytes,
    )


def row_bytes(packed: PackedTable) -> int:
    """Bytes of a row in a worker's memory: features and target."""
    shapes = [*(one.shape for one in packed.inputs), *(one.shape for one in packed.targets)]
    return 4 * sum(map(math.prod, shapes))


def decoded_bytes(packed: PackedTable) -> int:
    """Bytes of a whole packed table in a worker's memory."""
    return packed.rows * row_bytes(packed)


def _output(session: Session, request: FitRequest, tick: Tick) -> QualifiedName:
    role = "model_output_table"
    if not request.warm_start:
        if request.replace:  # tried as soon as no other run can make them
            return new_name(session, request.model_output_table, role, tick)
        return new_output(session, request.model_output_table, role, tick)
    previous = find(session, request.model_output_table, role, tick)
    states = previous.name.suffixed(STATES_SUFFIX)
    found = find_if_there(session, states.text, role, tick)
    if found is None or not all(found.has(column) for column in ("mst_key", "chunk", "state")):
        raise WrongObjectType(
            f"{role}: {previous.name} is no output of cerebro.cerebro_fit_multiple, as there is no table "
            f"{states} of states beside it, from which warm_start := true goes on",
            hint="name the table of an earlier run; without warm_start, training begins anew under "
            "another name",
        )
    return previous.name


def _selection_rows(
    session: Session, selection: Relation, tick: Tick
) -> list[tuple[int, int, str, str]]:
    for name in _SELECTION:
        if not selection.has(name):
            raise WrongObjectType(
                f"model_selection_table: {selection.name} has no column {name}",
                hint=_HINT,
            )
    rows = session.run(
        f"SELECT {', '.join(_SELECTION)} FROM {selection.name.sql} ORDER BY mst_key",
        (),
        tick,
    )
    if not rows:
        raise InvalidArgument(f"model_selection_table: {selection.name} is empty", hint=_HINT)
    for row in rows:
        _check_nulls(selection, row)
    checked = [_checked(selection, row) for row in rows]
    repeated = [key for key, count in Counter(row[0] for row in checked).items() if count > 1]
    if repeated:
        raise InvalidArgument(
            f"model_selection_table: {selection.name} has the mst_key {repeated[0]} more than once; "
            "allowed: each mst_key once",
            hint="give each configuration a mst_key of its own",
        )
    return checked


def _check_nulls(selection: Relation, row: tuple[Any, ...]) -> None:
    missing = [name for name, value in zip(_SELECTION, row, strict=True) if value is None]
    if missing:
        mst_key = row[0]
        which = f"the row of mst_key {mst_key}" if mst_key is not None else "a row"
        raise InvalidArgument(
            f"model_selection_table: {which} of {selection.name} has NULL in the column "
            f"{missing[0]}; allowed: no NULL",
            hint=f"UPDATE {selection.name} SET {missing[0]} = ... fills it; fit_params may be ''"
            if mst_key is not None
            else f"DELETE FROM {selection.name} WHERE mst_key IS NULL removes it",
        )


_HINT = "cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make such tables"
_SELECTION = ("mst_key", "model_id", "compile_params", "fit_params")


def _checked(selection: Relation, row: tuple[Any, ...]) -> tuple[int, int, str, str]:
    values = dict(zip(_SELECTION, row, strict=True))
    facts = Facts("model_selection_table", selection.name, values, _HINT)
    mst_key, model_id = (facts.whole(name, values[name], -(2**31)) for name in _SELECTION[:2])
    return mst_key, model_id, facts.text("compile_params"), facts.text("fit_params")


def _architecture_table(session: Session, selection: Relation, tick: Tick) -> Relation:
    summary = selection.name.suffixed("_summary")
    found = session.run("SELECT pg_catalog.to_regclass(%s)::text", (summary.text,), tick)
    if found[0][0] is None:
        raise WrongObjectType(
            f"model_selection_table: {selection.name} has no summary table {summary}",
            hint="cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make both",
        )
    rows = session.run(f"SELECT model_arch_table FROM {summary.sql}", (), tick)
    if len(rows) != 1:
        raise WrongObjectType(f"{summary}: got {len(rows)} rows; allowed: one", hint=_HINT)
    facts = Facts("model_selection_table", summary, {"model_arch_table": rows[0][0]}, _HINT)
    return find(session, facts.text("model_arch_table"), "model_arch_table", tick)


def _configurations(
    rows: list[tuple[int, int, str, str]],
    known: dict[int, Architecture],
    packed: PackedTable,
    targets: TargetFacts,
    request: FitRequest,
) -> tuple[Configuration, ...]:
    parsed = []
    for mst_key, model_id, compile_text, fit_text in rows:
        try:
            compile_params = parse_compile_params(compile_text)
            fit_params = parse_fit_params(fit_text)
            config = json.loads(known[model_id].text)
            outputs = outputs_of(compile_params, output_names(config))
            check_fits(known[model_id], outputs, fit_params, packed, targets)
            monitored = with_all_metrics(compile_params, outputs)
            callbacks.check(monitored, fit_params, validated=request.validation_table is not None)
            _check_trains(with_frozen(config, compile_params.freeze), compile_params.freeze)
        except CerebroError as error:
            error.message = f"configuration {mst_key}: {error.message}"
            raise
        params = (compile_params, fit_params, outputs)
        parsed.append((mst_key, known[model_id], compile_text, fit_text, *params))
    steps = Counter[Any]()
    for _, architecture, _, _, compile_params, fit_params, _ in parsed:
        key = _program_key(architecture, compile_params, fit_params, jit=True)
        steps[key] += _steps(packed, fit_params) * (request.num_iterations or 1)
    goal = common_goal(outputs for *_, outputs in parsed)
    return tuple(_planned(row, packed, request, steps, goal) for row in parsed)


def _check_trains(config: dict[str, Any], frozen: tuple[str, ...]) -> None:
    if not may_train(config):
        raise InvalidArgument(
            "got a model of which no layer trains; allowed: at least one does",
            hint="freeze fewer layers"
            if frozen
            else "add a layer with weights; trainable tells in its JSON whether they train",
        )


def _planned(
    row: Any, packed: PackedTable, request: FitRequest, steps: Counter[Any], goal: str
) -> Configuration:
    mst_key, architecture, compile_text, fit_text, compile_params, fit_params, _ = row
    facts, largest = architecture.facts, max(p.rows for p in packed.partitions)
    batch = fit_params.batch_size
    mean_rows = packed.rows // len(packed.partitions)
    planned = steps[_program_key(architecture, compile_params, fit_params, jit=True)]
    per_call = steps_per_call(facts, batch, 4 * sum(math.prod(one.shape) for one in packed.inputs))
    return Configuration(
        mst_key=mst_key,
        architecture=architecture,
        compile_text=compile_text,
        fit_text=fit_text,
        compile_params=compile_params,
        fit_params=fit_params,
        hop_seconds=hop_seconds(facts, mean_rows, batch, fit_params.epochs),
        initial_seed=seed_of(request.seed or 0, mst_key),
        jit=use_jit(facts, planned),
        steps_per_call=max(1, min(per_call, math.ceil(largest / batch))),
        goal=goal,
    )


def seed_of(seed: int, mst_key: int) -> int:
    """The seed of a configuration's initial weights, 31 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{mst_key}".encode()).digest()[:4]) >> 1


def _program_key(
    architecture: Architecture, params: CompileParams, fit: FitParams, jit: bool
) -> tuple[Any, ...]:
    """Equal for configurations that share a program, as far as the driver can tell."""
    penalties = (params.l1 is not None, params.l2 is not None, params.dropout)
    several = repr((params.losses, params.loss_weights))
    loss = (params.loss.name, repr(params.loss.arguments), several)
    weighted = fit.class_weight is not None
    optimizer = (params.optimizer.name, params.optimizer.schedule, params.optimizer.parts)
    layers = (architecture.id, params.freeze, params.dtype_policy)
    return (layers, optimizer, loss, penalties, weighted, fit.batch_size if jit else None)


def _steps(packed: PackedTable, fit: FitParams) -> int:
    """Mini-batches of one configuration in one epoch."""
    return fit.epochs * sum(math.ceil(p.rows / fit.batch_size) for p in packed.partitions)
