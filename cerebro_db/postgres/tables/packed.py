"""Packed tables as values, read from the summary that packing left beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from cerebro_db.columns.encoded import Recorded
from cerebro_db.columns.recorded import parse_recorded
from cerebro_db.configs.messages import shown
from cerebro_db.core.folds import FOLD_KINDS, FOLD_NUMBERS
from cerebro_db.errors import (
    UndefinedTable,
    WrongObjectType,
)
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.buffers import Block, PartitionInfo, read_buffers
from cerebro_db.postgres.tables.completeness import check_local
from cerebro_db.postgres.tables.kinds import MAX_TARGETS, Facts, Shape
from cerebro_db.postgres.tables.relations import KINDS, Relation, find

FORMAT_VERSION = 1
SUMMARY_SUFFIX = "_summary"
_HINT = (
    "pack it first: cerebro.cerebro_pack packs arrays of numbers, cerebro.cerebro_pack_columns columns of mixed "
    "types, cerebro.cerebro_pack_images images"
)
_VALIDATION_HINT = "pack it with cerebro.cerebro_pack_validation and the training table"


class PackedInput(NamedTuple):
    """An independent variable.

    Attributes:
        name: of the bytea column.
        shape: of one row.
        dtype: NumPy's name of it.
        type: SQL type in the source.
    """

    name: str
    shape: Shape
    dtype: str
    type: str


@dataclass(frozen=True)
class PackedTarget:
    """A dependent variable.

    Attributes:
        name: of the bytea column.
        kind: ``class`` or ``float``.
        shape: of one target; ``()`` for a class or a number.
        dtype: NumPy's name of it.
        type: SQL type in the source.
        category: the server's category of the type of class values; None for float targets.
        num_classes: 0 for float targets.
        classes_found: how many of them occur in the training source.
        class_values: in the order of the ids, as text; ``num_classes`` of them. None is the class
            of NULL labels if it is among the first ``classes_found``, else padding.
        class_array: those that were found, as the server's text of an array.
        class_type: SQL type of that array; empty for float targets.
    """

    name: str
    kind: str
    shape: Shape
    dtype: str
    type: str
    category: str | None
    num_classes: int
    classes_found: int
    class_values: tuple[str | None, ...]
    class_array: str | None
    class_type: str = ""

    @property
    def is_class(self) -> bool:
        """True if the target is a class label."""
        return self.kind == "class"

    @property
    def is_one_hot(self) -> bool:
        """True if the source had one-hot arrays: the class values are places in them."""
        return self.is_class and self.type.endswith("[]")


@dataclass(frozen=True)
class PackedTable:
    """A packed table and what its summary says.

    Attributes:
        encoding: how columns or images became features; None where the source had an array.
        sample_weight: the column of the weights that lie beside the targets; None for none.
        fold_kind: how the rows are in folds by their numbers; None where they have none.
    """

    relation: Relation
    summary: QualifiedName
    inputs: tuple[PackedInput, ...]
    targets: tuple[PackedTarget, ...]
    normalizing_const: float
    buffer_size: int
    partitions: tuple[PartitionInfo, ...]
    encoding: Recorded | None = None
    sample_weight: str | None = None
    fold_kind: str | None = None

    @property
    def input(self) -> PackedInput:
        """The one independent variable."""
        return self.inputs[0]

    @property
    def target(self) -> PackedTarget:
        """The one dependent variable."""
        return self.targets[0]

    @property
    def is_spread(self) -> bool:
        """True if each partition lies on a segment."""
        return self.partitions[0].segment_key is not None if self.partitions else False

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(partition.rows for partition in self.partitions)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in a worker's memory: features and target."""
        shapes = [*(one.shape for one in self.inputs), *(one.shape for one in self.targets)]
        return 4 * sum(map(math.prod, shapes))

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the whole table in a worker's memory."""
        return self.rows * self.row_bytes


def is_packed(relation: Relation) -> bool:
    """True if a table has the columns of a packed one."""
    return relation.has("partition_key") and relation.has("buffer_id")


def load_packed(session: Session, text: str | None, role: str) -> PackedTable:
    """The packed table that a user names.

    Args:
        session: has the caller's search_path.
        text: as a user writes it.
        role: the name of the argument, for messages.

    Raises:
        WrongObjectType: the table was not made by packing, or by another version.
        InvalidData: its buffers are not those that its summary tells of.
    """
    packed, facts = _described(session, text, role)
    blocks = [Block(one.name, one.shape) for one in packed.inputs]
    blocks += [
        Block(one.name, one.shape, bool(packed.sample_weight) and one is packed.target)
        for one in packed.targets
    ]
    partitions = read_buffers(session, packed.relation, facts, blocks, _HINT)
    return replace(packed, partitions=partitions)


def described(session: Session, text: str | None, role: str) -> PackedTable:
    """The packed table that a user names as its summary tells of it, without partitions: no right to read
    its rows is needed.

    Args and errors are those of ``load_packed``.
    """
    return _described(session, text, role)[0]


def _described(session: Session, text: str | None, role: str) -> tuple[PackedTable, Facts]:
    relation = find(session, text, role)
    if not is_packed(relation):
        hint = _VALIDATION_HINT if role == "validation_table" else _HINT
        raise WrongObjectType(f"{role}: {relation.name} is not packed", hint=hint)
    check_local(session, relation, role)
    summary = _summary_of(session, relation, role)
    facts = _facts(session, summary, role)
    inputs = tuple(_input(facts, i) for i in range(len(facts.names("independent_varname"))))
    targets = tuple(
        _target(session, summary, facts, index)
        for index in range(len(facts.names("dependent_varname")))
    )
    packed = PackedTable(
        relation=relation,
        summary=summary.name,
        inputs=inputs,
        targets=targets,
        normalizing_const=facts.divisor("normalizing_const"),
        buffer_size=facts.whole("buffer_size", facts.row["buffer_size"], 1),
        partitions=(),
        encoding=recorded_encoding(session, summary, role),
        sample_weight=_sample_weight(session, summary),
        fold_kind=_fold_kind(session, relation, summary, role),
    )
    return packed, facts


class Origin(NamedTuple):
    """What a table was packed from.

    Attributes:
        source: the table or view with the rows.
        dependent, independent: its columns of targets and features.
    """

    source: str
    dependent: tuple[str, ...]
    independent: tuple[str, ...]


def origin_of(session: Session, packed: PackedTable) -> Origin:
    """What a table was packed from, as its summary tells."""
    rows = session.run(f"SELECT s.source_table FROM {packed.summary.sql} s")
    targets, inputs = ([one.name for one in each] for each in (packed.targets, packed.inputs))
    return Origin(str(rows[0][0]), tuple(targets), tuple(inputs))


def recorded_encoding(session: Session, summary: Relation, role: str) -> Recorded | None:
    """The encoding that a summary tells of, of a packed table or of models; None if there is none.

    Args:
        session: has the caller's rights.
        summary: a table of one row.
        role: the name of the argument, for messages.
    """
    if not summary.has("encoding"):
        return None
    rows = session.run(f"SELECT s.encoding::text FROM {summary.name.sql} s")
    text = rows[0][0] if rows else None
    return None if text is None else parse_recorded(text, f"{role}: {summary.name}")


def packed_of(session: Session, oid: int, role: str) -> PackedTable:
    """A packed table that was found before, whatever its name is now.

    Raises:
        UndefinedTable: it was dropped, or what has its number is something else.
    """
    rows = session.run(_NAME_OF, (oid, list(KINDS)))
    if not rows:
        raise UndefinedTable(
            f"{role}: the packed table that the run began with is not there",
            hint=f"it was dropped, or {MOVED}: start a new run with a table that is packed again",
        )
    try:
        return load_packed(session, QualifiedName(*rows[0]).text, role)
    except WrongObjectType as error:
        raise UndefinedTable(
            error.message, hint=f"it is no packed table any more, or {MOVED}: start a new run"
        ) from None


# Why what a run has read may not be there in the whole database.
MOVED = "the dump that was restored here has none of its name"
_NAME_OF = """
SELECT n.nspname, c.relname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = %s AND c.relkind = ANY (%s::pg_catalog.text[])
"""


def _summary_of(session: Session, relation: Relation, role: str) -> Relation:
    name = relation.name.suffixed(SUMMARY_SUFFIX)
    try:
        summary = find(session, name.text, role)
    except UndefinedTable:
        raise WrongObjectType(
            f"{role}: {relation.name} has no summary table {name}", hint=_HINT
        ) from None
    if not summary.has("format_version"):
        raise WrongObjectType(
            f"{role}: {name} is not a summary of cerebro.cerebro_pack", hint=_HINT
        )
    return summary


def _facts(session: Session, summary: Relation, role: str) -> Facts:
    listed = ", ".join(_FACTS)
    rows = session.run(f"SELECT {listed} FROM {summary.name.sql}")
    facts = dict(zip(_FACTS, rows[0], strict=True)) if len(rows) == 1 else {}
    if facts.get("format_version") != FORMAT_VERSION:
        raise WrongObjectType(
            f"{role}: {summary.name} has {len(rows)} rows and format_version "
            f"{facts.get('format_version')}; allowed: one row of version {FORMAT_VERSION}",
            hint="pack the source again",
        )
    return Facts(role, summary.name, facts, _HINT)


_FACTS = (
    "format_version",
    "dependent_varname",
    "independent_varname",
    "dependent_vartype",
    "independent_vartype",
    "target_kinds",
    "target_dtypes",
    "target_shapes",
    "input_dtypes",
    "input_shapes",
    "num_classes",
    "classes_found",
    "normalizing_const",
    "buffer_size",
    "rows_per_partition",
    "buffers_per_partition",
)


def _input(facts: Facts, index: int) -> PackedInput:
    return PackedInput(
        name=facts.texts("independent_varname")[index],
        shape=facts.shape("input_shapes", facts.at("input_shapes", index)),
        dtype=str(facts.at("input_dtypes", index)),
        type=str(facts.at("independent_vartype", index)),
    )


def _target(session: Session, summary: Relation, facts: Facts, index: int) -> PackedTarget:
    name = facts.texts("dependent_varname")[index]
    found = facts.count("classes_found", facts.at("classes_found", index))
    kind = facts.choice("target_kinds", facts.at("target_kinds", index), "class", "float")
    values: tuple[str | None, ...] = ()
    array = category = None
    class_type = ""
    if kind == "class":
        column = quote(f"{name}_class_values")
        texts, array = session.run(_CLASSES.format(column, summary.name.sql), (found,))[0]
        values = tuple(texts)
        category, class_type = _category(summary, f"{name}_class_values")
    return PackedTarget(
        name=name,
        kind=kind,
        shape=facts.shape("target_shapes", facts.at("target_shapes", index), MAX_TARGETS),
        dtype=str(facts.at("target_dtypes", index)),
        type=str(facts.at("dependent_vartype", index)),
        category=category,
        num_classes=facts.count("num_classes", facts.at("num_classes", index)),
        classes_found=found,
        class_values=values,
        class_array=array,
        class_type=class_type,
    )


def _sample_weight(session: Session, summary: Relation) -> str | None:
    if not summary.has("sample_weight"):
        return None
    name: str | None = session.run(f"SELECT s.sample_weight FROM {summary.name.sql} s")[0][0]
    return name


def _fold_kind(session: Session, relation: Relation, summary: Relation, role: str) -> str | None:
    """How rows are in folds, where they have numbers for that."""
    if not summary.has("fold_kind"):
        return None
    kind: str | None = session.run(f"SELECT s.fold_kind FROM {summary.name.sql} s")[0][0]
    if kind is not None and (kind not in FOLD_KINDS or not relation.has(FOLD_NUMBERS)):
        raise WrongObjectType(
            f"{role}: {summary.name} has the fold_kind {shown(kind)}, and {relation.name} "
            f"{'a' if relation.has(FOLD_NUMBERS) else 'no'} column {FOLD_NUMBERS}; allowed: such a column, and one of "
            f"{', '.join(FOLD_KINDS)}",
            hint=_HINT,
        )
    return kind


def _category(summary: Relation, name: str) -> tuple[str | None, str]:
    found = next(column for column in summary.columns if column.name == name)
    return found.element_category, found.type


_CLASSES = """
SELECT ARRAY(SELECT u.v::text FROM unnest(s.{0}) WITH ORDINALITY AS u(v, o) ORDER BY u.o),
       (s.{0})[1:%s]::text
  FROM {1} s
"""
