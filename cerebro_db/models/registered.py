"""Registered models as values: all that the tables of a run tell of a model, out of the registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from msgspec import structs

from cerebro_db.columns.encoded import Recorded
from cerebro_db.columns.recorded import parse_recorded, recorded_text
from cerebro_db.configs.names import ModelReference, is_registered, model_reference
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.trained import ROLE, ModelTable, load_model_table
from cerebro_db.postgres.catalog.registry import Registry
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import MAX_DIMENSIONS, MAX_SIZE
from cerebro_db.postgres.tables.relations import Relation
from cerebro_db.postgres.tables.times import kind_named
from cerebro_db.training.fields import Fields
from cerebro_db.training.scores.targets import TargetFacts

# Further inputs and outputs of a model.
_INPUTS, _OUTPUTS = "more_inputs", "more_outputs"
_STATES = QualifiedName("cerebro", "_usable_states")


def named_models(session: Session, text: str | None) -> ModelTable:
    """The models that a user names: a table of models, or a registered one such as ``model:digits``.

    Raises:
        UndefinedModel: there is no such model, version or alias, or the caller may not use it.
        WrongObjectType: the table was not made by training, or has no model.
    """
    if is_registered(text):
        return registered(session, model_reference(text, ROLE))
    return load_model_table(session, text)


def registered(session: Session, reference: ModelReference) -> RegisteredModel:
    """A registered model that the caller may use, as a table of one model."""
    found = Registry(session).usable(reference)
    facts = Fields.parse(found.facts, f"{reference}: facts")
    inputs, outputs = (
        [facts, *(facts.objects(name) if facts.has(name) else ())] for name in (_INPUTS, _OUTPUTS)
    )
    first, *more = [_target(one.object("targets")) for one in outputs]
    class_values = tuple(_texts(one, "class_values") for one in outputs)
    name = _NamedView("cerebro", "_usable_versions", str(reference.at(found.version)))
    view = Relation(name, 0, "v", ())
    return RegisteredModel(
        relation=view,
        info=view,
        states=_STATES,
        mst_keys=(found.key,),
        targets=replace(first, more=tuple(more)).with_values(class_values),
        dependent_varnames=tuple(one.text("dependent_varname") for one in outputs),
        class_values=class_values,
        input_shapes=tuple(
            one.integers("input_shape", 0, MAX_SIZE, most=MAX_DIMENSIONS) for one in inputs
        ),
        normalizing_const=facts.number("normalizing_const"),
        encoding=_encoding(facts, reference),
        class_kinds=tuple(map(_class_kind, outputs)),
        independent_varnames=_all_of("independent_varname", Fields.text, inputs),
        classes_found=_all_of("classes_found", _count, outputs),
        facts=found.facts,
        run_key=found.run_key,
        full_name=str(structs.replace(reference, owner=found.owner).at(found.version)),
    )


def stored_facts(table: ModelTable) -> str:
    """JSON that ``registered`` reads: the first input and output, then what else there is."""
    outputs = [
        {
            "targets": {
                "kind": target.kind,
                "num_classes": target.num_classes,
                "shape": list(target.shape),
            },
            "dependent_varname": name,
            "class_values": list(values),
            "class_kind": kind,
            **({} if found is None else {"classes_found": found}),
        }
        for target, name, values, kind, found in zip(
            table.targets.each,
            table.dependent_varnames,
            table.class_values,
            table.class_kinds or [None] * len(table.class_values),
            table.classes_found or [None] * len(table.class_values),
            strict=True,
        )
    ]
    names = table.independent_varnames
    inputs: list[dict[str, Any]] = [
        {"input_shape": list(shape), **({"independent_varname": names[place]} if names else {})}
        for place, shape in enumerate(table.input_shapes)
    ]
    more = {name: rest for name, rest in ((_INPUTS, inputs[1:]), (_OUTPUTS, outputs[1:])) if rest}
    return json.dumps(
        {
            **outputs[0],
            **inputs[0],
            "normalizing_const": table.normalizing_const,
            "encoding": table.encoding and recorded_text(table.encoding),
            **more,
        }
    )


T = TypeVar("T")


def _all_of(name: str, read: Callable[[Fields, str], T], each: Sequence[Fields]) -> tuple[T, ...]:
    """A fact of each input or output; none where an earlier version has recorded none."""
    return tuple(read(one, name) for one in each) if all(one.has(name) for one in each) else ()


def _count(facts: Fields, name: str) -> int:
    return facts.integer(name, 0, MAX_SIZE)


def _class_kind(facts: Fields) -> str | None:
    """As it was found when the model was registered; an earlier version wrote none."""
    return kind_named(facts.raw("class_kind")) if facts.has("class_kind") else None


def _target(facts: Fields) -> TargetFacts:
    return TargetFacts(
        facts.text("kind"),
        facts.integer("num_classes", 0, MAX_SIZE),
        facts.integers("shape", 0, MAX_SIZE, most=MAX_DIMENSIONS),
    )


@dataclass(frozen=True)
class Origin:
    """Columns of an output table that tell the models of its rows.

    Attributes:
        columns: names and types of columns beside ``mst_key``, that only registered models have.
        values: of these columns.
        keys: what ``mst_key`` is shown as, where it is another number there.
    """

    columns: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    keys: Mapping[int, int] = field(default_factory=dict)

    def key(self, mst_key: int) -> int:
        """The model's ``mst_key`` as a user knows it."""
        return self.keys.get(mst_key, mst_key)


def origin_of(table: ModelTable) -> Origin:
    """The origin of what the models of a table say."""
    if not isinstance(table, RegisteredModel):
        return Origin()
    (key,) = table.mst_keys
    columns = ("model text", "version_id integer")
    return Origin(columns, (table.full_name, key), {key: table.run_key})


@dataclass(frozen=True)
class RegisteredModel(ModelTable):
    """One model, whose mst_key is the number of its version in the registry.

    Attributes:
        facts: JSON, as stored.
        run_key: its mst_key in the run that trained it.
        full_name: with owner and version.
    """

    facts: str
    run_key: int
    full_name: str

    def check_key(self, mst_key: int) -> None:
        """Refuse any other key."""
        if mst_key not in self.mst_keys:
            raise InvalidArgument(
                f"mst_key: got {mst_key}; allowed: NULL, as {self.relation.name} is one model"
            )


def name_of(models: ModelTable) -> str:
    """Name by which models are found: that of a registered one has its owner and version."""
    return models.full_name if isinstance(models, RegisteredModel) else str(models.relation.name)


@dataclass(frozen=True)
class _NamedView(QualifiedName):
    """A view that messages call by the name of the model."""

    shown: str

    def __str__(self) -> str:
        return self.shown


def _encoding(facts: Fields, reference: ModelReference) -> Recorded | None:
    text = facts.raw("encoding")
    return None if text is None else parse_recorded(str(text), str(reference))


def _texts(facts: Fields, name: str) -> tuple[str | None, ...]:
    """A list of texts and nulls."""
    values = facts.raw(name)
    if not isinstance(values, list) or not all(v is None or isinstance(v, str) for v in values):
        raise InvalidArgument(f"facts: got something else than texts for {name!r}")
    return tuple(values)
