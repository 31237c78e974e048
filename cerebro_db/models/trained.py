"""Trained models as values, read from the three output tables of a run."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_db.columns.encoded import Recorded
from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.frameworks import check_architecture, compile_params_in, output_names
from cerebro_db.configs.grids.outputs import OutputSpec, outputs_of
from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.errors import InvalidArgument, UndefinedTable, WrongObjectType
from cerebro_db.executors.tasks import input_task, target_task
from cerebro_db.models.architectures import limits_of
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.completeness import check_local
from cerebro_db.postgres.tables.kinds import MAX_TARGETS, STATES_SUFFIX, Facts, Shape
from cerebro_db.postgres.tables.packed import recorded_encoding
from cerebro_db.postgres.tables.relations import Relation, find
from cerebro_db.postgres.tables.times import time_kind
from cerebro_db.training.scores.targets import TargetFacts

ROLE = "model_table"
_HINT = "cerebro.cerebro_fit_multiple makes such tables"
_SHOWN_KEYS = 20


@dataclass(frozen=True)
class TrainedModel:
    """One model of a model table; its state stays there."""

    mst_key: int
    architecture: str
    architecture_id: str
    compile_text: str
    fit_text: str

    @property
    def compile_params(self) -> CompileParams:
        """Parameters that it was compiled with."""
        return compile_params_in(self.architecture, self.compile_text)

    @functools.cached_property
    def outputs(self) -> tuple[OutputSpec, ...]:
        """Loss, metrics and weight of each output."""
        return outputs_of(self.compile_params, output_names(json.loads(self.architecture)))


@dataclass(frozen=True)
class ModelTable:
    """The models of one run, and what all of them were trained on.

    Attributes:
        mst_keys: of all models, sorted.
        dependent_varnames: names of the targets.
        class_values: of each target, in the order of the ids, as text; empty for float targets.
        input_shapes: of one row of each input.
        normalizing_const: the features were divided by it.
        encoding: how columns or images become features; None where rows have an array.
        class_kinds: of each target, the SQL name of the type of its class values, if they are dates
            or times; empty where that is not known.
        is_for_loss: whether they are from a search that looked for the loss first.
        independent_varnames: the columns of the inputs; empty where an earlier version has not recorded them.
        classes_found: of each target, how many of its classes the training rows had, 0 for float targets;
            empty where an earlier version has not recorded that.
    """

    relation: Relation
    info: Relation
    states: QualifiedName
    mst_keys: tuple[int, ...]
    targets: TargetFacts
    dependent_varnames: tuple[str, ...]
    class_values: tuple[tuple[str | None, ...], ...]
    input_shapes: tuple[tuple[int, ...], ...]
    normalizing_const: float
    encoding: Recorded | None = field(default=None, kw_only=True)
    class_kinds: tuple[str | None, ...] = field(default=(), kw_only=True)
    is_for_loss: bool = field(default=False, kw_only=True)
    independent_varnames: tuple[str, ...] = field(default=(), kw_only=True)
    classes_found: tuple[int, ...] = field(default=(), kw_only=True)

    def check_key(self, mst_key: int) -> None:
        """Refuse a key that no model has."""
        if mst_key not in self.mst_keys:
            raise InvalidArgument(
                f"mst_key: got {mst_key}; {self.relation.name} has models of the "
                f"keys {self._shown_keys()}",
                hint=f"SELECT mst_key FROM {self.relation.name} shows them",
            )

    def only_key(self) -> int:
        """The key of the only model."""
        if len(self.mst_keys) != 1:
            raise InvalidArgument(
                f"mst_key: got NULL; {self.relation.name} has {len(self.mst_keys)} models: "
                f"{self._shown_keys()}",
                hint="name one of them, for example the first of cerebro.leaderboard",
            )
        return self.mst_keys[0]

    def _shown_keys(self) -> str:
        shown = ", ".join(map(str, self.mst_keys[:_SHOWN_KEYS]))
        return shown + (", ..." if len(self.mst_keys) > _SHOWN_KEYS else "")


def load_model_table(session: Session, text: str | None) -> ModelTable:
    """The models that a user names.

    Raises:
        WrongObjectType: the table was not made by training, or has no model.
    """
    relation = _with_columns(find(session, text, ROLE), "mst_key", "model_arch")
    info = _companion(session, relation, "_info")
    states = _companion(session, relation, STATES_SUFFIX)
    summary = _companion(session, relation, "_summary")
    _with_columns(info, "mst_key", "compile_params", "fit_params")
    _with_columns(states, "mst_key", "chunk", "state")
    check_local(session, states, ROLE)
    _with_columns(summary, *_FACTS)
    rows = session.run(
        f"SELECT m.mst_key FROM {relation.name.sql} m WHERE EXISTS (SELECT 1 "
        f"FROM {states.name.sql} s WHERE s.mst_key = m.mst_key) ORDER BY 1"
    )
    if not rows:
        raise WrongObjectType(f"{ROLE}: {relation.name} has no trained model", hint=_HINT)
    facts = _facts(session, summary)
    names = facts.names("dependent_varname")
    shapes = _input_shapes(facts)
    inputs = _listed(session, summary, "independent_varname", len(shapes))
    found = _listed(session, summary, "classes_found", len(names))
    class_values = tuple(_class_values(session, summary, name) for name in names)
    return ModelTable(
        relation=relation,
        info=info,
        states=states.name,
        mst_keys=tuple(row[0] for row in rows),
        targets=_targets(facts, len(names)).with_values(class_values),
        dependent_varnames=tuple(names),
        class_values=class_values,
        input_shapes=shapes,
        normalizing_const=facts.divisor("normalizing_const"),
        encoding=recorded_encoding(session, summary, ROLE),
        class_kinds=_class_kinds(session, summary, len(names)),
        is_for_loss=_OBJECTIVE in facts.row and facts.texts(_OBJECTIVE)[0] in ("loss", "val_loss"),
        independent_varnames=tuple(str(name) for name in inputs),
        classes_found=tuple(_counted(facts, count) for count in found),
    )


def load_models(session: Session, table: ModelTable, mst_keys: Sequence[int]) -> list[TrainedModel]:
    """Some models of a table, in the order of their keys."""
    rows = session.run(
        "SELECT m.mst_key, m.model_arch::text, i.compile_params, i.fit_params "
        f"FROM {table.relation.name.sql} m JOIN {table.info.name.sql} i ON i.mst_key = m.mst_key "
        "WHERE m.mst_key = ANY (%s::integer[]) ORDER BY 1",
        (list(mst_keys),),
    )
    if [row[0] for row in rows] != sorted(mst_keys):
        raise WrongObjectType(
            f"{ROLE}: {table.info.name} does not have each of the models {sorted(mst_keys)} once",
            hint=_HINT,
        )
    limits = limits_of(session)
    return [_model(row, limits) for row in rows]


def recipe(model: TrainedModel, table: ModelTable) -> dict[str, Any]:
    """A model as part of a worker's task."""
    return {
        "mst_key": model.mst_key,
        "architecture": model.architecture,
        "architecture_id": model.architecture_id,
        "compile_params": model.compile_text,
        "fit_params": model.fit_text,
        "targets": target_task(table.targets),
        **input_task(table.input_shapes),
        "jit": False,
        "steps_per_call": 1,
    }


def no_state(states: str, mst_key: int) -> WrongObjectType:
    """The error where someone has removed the state of a model."""
    return WrongObjectType(
        f"{states} has no state of the model {mst_key}",
        hint="its rows were deleted; train it again under another model_output_table",
    )


def one_or_all(values: Sequence[Any]) -> Any:
    """Values of all inputs or outputs, or that of the only one; tuples as lists, for messages."""
    found = [list(value) if isinstance(value, tuple) else value for value in values]
    return found[0] if len(found) == 1 else found


_FACTS = (
    "dependent_varname",
    "num_classes",
    "normalizing_const",
    "input_shape",
    "target_kind",
    "target_shape",
)
# Where there are several inputs or outputs.
_OBJECTIVE = "objective"
_LISTS = ("independent_varname", "input_shapes", "target_kinds", "target_shapes")


def _model(row: tuple[Any, ...], limits: ArchitectureLimits) -> TrainedModel:
    mst_key, architecture, compile_text, fit_text = row
    config = check_architecture(architecture, limits)
    text = json.dumps(config, sort_keys=True)
    return TrainedModel(mst_key, text, fingerprint(config), compile_text, fit_text)


def _companion(session: Session, relation: Relation, suffix: str) -> Relation:
    name = relation.name.suffixed(suffix)
    try:
        return find(session, str(name), ROLE)
    except UndefinedTable:
        raise WrongObjectType(
            f"{ROLE}: {relation.name} has no table {name} beside it", hint=_HINT
        ) from None


def _with_columns(relation: Relation, *names: str) -> Relation:
    missing = [name for name in names if not relation.has(name)]
    if missing:
        raise WrongObjectType(f"{ROLE}: {relation.name} has no column {missing[0]}", hint=_HINT)
    return relation


def _facts(session: Session, summary: Relation) -> Facts:
    lists = _LISTS if all(map(summary.has, _LISTS)) else ()
    objective = (_OBJECTIVE,) if summary.has(_OBJECTIVE) else ()
    names = (*_FACTS, *lists, *objective)
    rows = session.run(f"SELECT {', '.join(names)} FROM {summary.name.sql}")
    if len(rows) != 1:
        raise WrongObjectType(
            f"{ROLE}: {summary.name} has {len(rows)} rows; allowed: one", hint=_HINT
        )
    return Facts(ROLE, summary.name, dict(zip(names, rows[0], strict=True)), _HINT)


def _targets(facts: Facts, count: int) -> TargetFacts:
    """Of all outputs; where there is one, an older summary tells its kind and shape alone."""
    if "target_kinds" not in facts.row:
        if count != 1:
            raise WrongObjectType(
                f"{ROLE}: {facts.table} names {count} targets in column dependent_varname; "
                "allowed: one, as it tells the kind of one",
                hint=_HINT,
            )
        kinds, shapes = [facts.row["target_kind"]], [facts.row["target_shape"]]
        kind, shape = "target_kind", "target_shape"
    else:
        kind, shape = "target_kinds", "target_shapes"
        kinds = [facts.at(kind, place) for place in range(count)]
        shapes = [facts.at(shape, place) for place in range(count)]
    first, *more = [
        TargetFacts(
            facts.choice(kind, of_one, "class", "float"),
            facts.count("num_classes", facts.at("num_classes", place)),
            facts.shape(shape, size, MAX_TARGETS),
        )
        for place, (of_one, size) in enumerate(zip(kinds, shapes, strict=True))
    ]
    return replace(first, more=tuple(more))


def _input_shapes(facts: Facts) -> tuple[Shape, ...]:
    if "input_shapes" not in facts.row:
        return (facts.shape("input_shape", facts.row["input_shape"]),)
    name = "input_shapes"
    places = range(len(facts.names("independent_varname")))
    return tuple(facts.shape(name, facts.at(name, place)) for place in places)


def _class_kinds(session: Session, summary: Relation, count: int) -> tuple[str | None, ...]:
    if not summary.has("dependent_vartype"):
        return ()
    sql = f"SELECT s.dependent_vartype::text[] FROM {summary.name.sql} s"
    types = session.run(sql)[0][0] or []
    if len(types) != count:
        return ()
    return tuple(time_kind(session, str(name)) for name in types)


def _counted(facts: Facts, text: str | None) -> int:
    is_number = text is None or (text.isascii() and text.isdigit())
    read = replace(facts, row={**facts.row, "classes_found": text})
    return read.count("classes_found", int(text or 0) if is_number else text)


def _listed(session: Session, summary: Relation, name: str, count: int) -> list[str | None]:
    """An array of a summary as texts, one for each input or output; empty where there is none such."""
    if not summary.has(name):
        return []
    rows = session.run(f"SELECT s.{quote(name)}::text[] FROM {summary.name.sql} s")
    found = rows[0][0] or []
    return list(found) if len(found) == count else []


def _class_values(session: Session, summary: Relation, name: str) -> tuple[str | None, ...]:
    column = f"{name}_class_values"
    if not summary.has(column):
        return ()
    sql = f"SELECT s.{quote(column)}::text[] FROM {summary.name.sql} s"
    return tuple(session.run(sql)[0][0] or ())
