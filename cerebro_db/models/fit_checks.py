"""Checks of a model against packed tables, of a validation table against the training table, and of registered functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.functions.metrics import MetricSpec
from cerebro_db.configs.grids.outputs import OutputSpec
from cerebro_db.configs.grids.parameters import BALANCED, FitParams
from cerebro_db.configs.names import PREFIX, bare_name, is_custom
from cerebro_db.core.spec import Architecture, Configuration
from cerebro_db.errors import InvalidArgument, hinted
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.training.scores.metric_views import view_of
from cerebro_db.training.scores.targets import TargetFacts, encoding_for, plain


def target_facts(packed: PackedTable) -> TargetFacts:
    """The stored targets of a packed table."""
    first, *more = [
        TargetFacts(target.kind, target.num_classes, tuple(target.shape))
        for target in packed.targets
    ]
    weighted = packed.sample_weight is not None
    facts = TargetFacts(first.kind, first.num_classes, first.shape, weighted, tuple(more))
    return facts.with_values([target.class_values for target in packed.targets])


def with_counts(
    session: Session, packed: PackedTable, targets: TargetFacts, texts: Iterable[str]
) -> TargetFacts:
    """The targets with the rows of each class, where fit parameters among some texts want these."""
    wanted = any(BALANCED in text for text in texts)
    if not wanted or targets.more or targets.kind != "class":
        return targets
    return replace(targets, counts=class_counts(session, packed, targets))


@hinted("pack it with cerebro.cerebro_pack_validation and the training table")
def check_alike(packed: PackedTable, validation: PackedTable) -> None:
    """Refuse a validation table whose rows mean something else."""
    ours, theirs = _shapes(packed), _shapes(validation)
    if ours != theirs:
        raise InvalidArgument(
            f"validation_table: got rows of shape {_shown(theirs)}; source_table has {_shown(ours)}"
        )
    if packed.encoding != validation.encoding:
        raise InvalidArgument(
            f"validation_table: {validation.relation.name} has another encoding of its columns "
            f"than {packed.relation.name}"
        )
    if len(packed.targets) != len(validation.targets):
        raise InvalidArgument(
            f"validation_table: got {len(validation.targets)} targets; "
            f"source_table has {len(packed.targets)}"
        )
    for a, b in zip(packed.targets, validation.targets, strict=True):
        if (a.kind, a.shape, a.class_values) != (b.kind, b.shape, b.class_values):
            raise InvalidArgument(
                f"validation_table: got the target {b.name} ({b.kind}, classes "
                f"{list(b.class_values)}); source_table has {a.name} ({a.kind}, classes "
                f"{list(a.class_values)})"
            )


@hinted(
    "cerebro.cerebro_load_model adds an architecture that fits; the summary of the packed table tells its shapes"
)
def check_fits(
    architecture: Architecture,
    outputs: Sequence[OutputSpec],
    fit: FitParams,
    packed: PackedTable,
    targets: TargetFacts,
) -> None:
    """Check that a model takes the features and its outputs suit the targets.

    Raises:
        InvalidArgument: naming both shapes.
    """
    what, facts = f"got model_id {architecture.model_id}", architecture.facts
    wanted = (len(packed.inputs), len(packed.targets))
    if (len(facts.input_shapes), len(facts.output_shapes)) != wanted:
        allowed = "one of each" if wanted == (1, 1) else f"{wanted[0]} and {wanted[1]}"
        raise InvalidArgument(
            f"{what} with {len(facts.input_shapes)} inputs and {len(facts.output_shapes)} outputs; "
            f"allowed: {allowed}, as {packed.relation.name} has"
        )
    for shape, given in zip(facts.input_shapes, packed.inputs, strict=True):
        if tuple(shape) != given.shape:
            raise InvalidArgument(
                f"{what} with the input shape {list(shape)} for features of shape "
                f"{list(given.shape)} ({given.name} of {packed.relation.name})",
                hint=_ORDER if len(packed.inputs) > 1 else None,
            )
    for place, (output, target) in enumerate(zip(outputs, targets.each, strict=True)):
        _check_output(architecture, place, output, target)
    _check_class_weight(fit, targets)
    _check_mixup(architecture, fit)


# Of Keras' and of PyTorch's JSON.
_EMBEDDINGS = ('"Embedding"', "aten.embedding")


def _check_mixup(architecture: Architecture, fit: FitParams) -> None:
    """Refuse to mix rows of numbers that stand for something else."""
    if fit.mixup is not None and any(name in architecture.text for name in _EMBEDDINGS):
        raise InvalidArgument(
            f"fit_params: got mixup={fit.mixup:g} for a net with an Embedding; allowed: nets whose inputs are all "
            "amounts, as the mean of two ids is no id",
            hint="pack categories as onehot or target in place of ids, or leave mixup out",
        )


_ORDER = "the inputs of the model come in the order of independent_varname"


def _check_class_weight(fit: FitParams, targets: TargetFacts) -> None:
    if fit.class_weight is not None and targets.more:
        raise InvalidArgument(
            f"class_weight: got one for a model of {len(targets.each)} outputs; allowed: for models "
            "of one output, as in Keras",
            hint="sample_weight of cerebro.cerebro_pack weighs rows for all outputs",
        )
    if fit.class_weight is not None and targets.kind != "class":
        raise InvalidArgument(
            "class_weight: got one for a target of numbers; allowed: for a target that is a class",
            hint="sample_weight of cerebro.cerebro_pack weighs rows",
        )
    if fit.class_weight == BALANCED:
        if not targets.counts:
            raise InvalidArgument(
                "class_weight: got 'balanced' for a run that counts no classes; allowed: where a "
                "configuration has it when the run begins",
                hint="write the weights themselves, such as class_weight={0: 1.0, 1: 2.5}",
            )
        return
    too_large = [pair[0] for pair in fit.class_weight or () if pair[0] >= targets.num_classes]
    if too_large:
        raise InvalidArgument(
            f"class_weight: got the classes {too_large}; allowed: 0 to {targets.num_classes - 1}",
            hint="class ids are the places, from 0, of the class values in the summary of the packed table",
        )


def _check_output(
    architecture: Architecture, place: int, output: OutputSpec, target: TargetFacts
) -> None:
    shape = tuple(int(size or 0) for size in architecture.facts.output_shapes[place])
    what = f"got model_id {architecture.model_id} with the output shape {list(shape)}"
    expected = target.shape or (1,)
    if target.kind == "float" and shape != expected:
        raise InvalidArgument(f"{what} for a target of shape {list(expected)}")
    if target.kind == "class" and len(shape) != 1:
        raise InvalidArgument(f"{what} for {target.num_classes} classes; allowed: one dimension")
    try:
        encoding_for(target, output.loss.target, shape[-1])
        for metric in output.metrics:
            view_of(metric, output.loss, target, shape[-1])
            _check_prediction(metric, shape[-1])
    except InvalidArgument as error:
        raise InvalidArgument(
            f"model_id {architecture.model_id}, loss {output.loss.name}: {error.message}",
            error.hint,
        ) from None


def _check_prediction(metric: MetricSpec, units: int) -> None:
    if units > 1 and metric.all_arguments().get("sparse_y_pred"):
        raise InvalidArgument(
            f"{metric.name}: got sparse_y_pred=True, which is its default, for a model that tells {units} "
            "numbers, not the id of a class; allowed: sparse_y_pred=False",
            hint=f"write {metric.name}(num_classes=..., sparse_y_pred=False)",
        )


def _shapes(packed: PackedTable) -> list[list[int]]:
    return [list(one.shape) for one in packed.inputs]


def _shown(shapes: Sequence[Sequence[int]]) -> str:
    return str(shapes[0] if len(shapes) == 1 else shapes)


_KNOWN = "SELECT name, path, package, version, expression, places FROM cerebro.registered_functions"
_PLACES = 2


def configuration_named(mst_key: int) -> str:
    """A configuration in a message; one that is only asked for has no key yet."""
    return f"configuration {mst_key}" if mst_key else "the configuration"


def functions_of(
    session: Session, configurations: Iterable[Configuration]
) -> dict[str, dict[str, Any]]:
    """Path, package and version, or expression, of what configurations use: a part of the manifest.

    Raises:
        InvalidArgument: a function is not registered, or takes too few arguments.
    """
    used = [(c.mst_key, *pair) for c in configurations for pair in _used(c)]
    if not used:
        return {}
    known = {row[0]: row[1:] for row in session.run(_KNOWN)}
    for mst_key, name, as_schedule in used:
        what = f"{configuration_named(mst_key)}: got {PREFIX}{name}"
        if name not in known:
            hint = (
                nearest(name, known) if known else "cerebro.cerebro_register_function registers one"
            )
            raise InvalidArgument(f"{what}; allowed: a function that is registered", hint=hint)
        if as_schedule and known[name][3] is not None:
            raise InvalidArgument(
                f"{what}, an expression; allowed for a schedule: a function, or one of Keras' schedules"
            )
        if not as_schedule and known[name][4] < _PLACES:
            raise InvalidArgument(
                f"{what}, a function of one argument; allowed for a loss or metric: (y_true, y_pred)"
            )
    return {name: _function_facts(known[name]) for name in sorted({name for _, name, _ in used})}


def _function_facts(row: tuple[Any, ...]) -> dict[str, Any]:
    if row[3] is not None:
        return {"expression": row[3]}
    return dict(zip(("path", "package", "version"), row[:3], strict=True))


def _used(configuration: Configuration) -> Iterator[tuple[str, bool]]:
    """Names, and whether each is a schedule."""
    for output in configuration.outputs:
        for name in (output.loss.name, *(metric.name for metric in output.metrics)):
            if is_custom(name):
                yield bare_name(name), False
    for callback in configuration.fit_params.callbacks:
        if callback.schedule is not None and is_custom(callback.schedule.name):
            yield bare_name(callback.schedule.name), True


def class_counts(session: Session, packed: PackedTable, targets: TargetFacts) -> tuple[int, ...]:
    """Rows by class id, from the targets of all buffers; a partition is read at a time.

    Args:
        session: of a role that may read the table.
        packed: of one target, which is a class.
        targets: how it is stored.
    """
    import numpy as np  # which a driver is begun without

    column = quote(packed.target.name)
    sql = f"SELECT t.{column} FROM {packed.relation.name.sql} t WHERE t.partition_key = %s"
    total = np.zeros(targets.num_classes, np.int64)
    for partition in packed.partitions:
        for (data,) in session.run(sql, (partition.partition_key,)):
            ids = plain(np.frombuffer(bytes(data), targets.record))
            total += np.bincount(ids, minlength=targets.num_classes)
    return tuple(total.tolist())
