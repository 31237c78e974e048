"""Summary of a packing job: the table beside the packed one, that of an encoding, and the line that the caller gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cerebro_db.columns.encoded import Encoding, Recorded
from cerebro_db.columns.recorded import recorded_text
from cerebro_db.packing.layout import Layout
from cerebro_db.packing.resolve import ENCODING_SUFFIX, Work
from cerebro_db.packing.segments import ALL_SEGMENTS, Chosen
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.kinds import PACKED
from cerebro_db.postgres.tables.packed import FORMAT_VERSION

# A column of the summary, its SQL type and its value.
Field = tuple[str, str, Any]


@dataclass(frozen=True)
class PackSummary:
    """Result of a packing job.

    Attributes:
        output: the packed table.
        rows: of the source.
        shapes: of one row of each input.
        partitions: how many.
        buffers: how many, over all partitions.
        buffer_size: rows of the largest buffer.
        classes: of each output; 0 for float targets.
        seconds: wall time.
    """

    output: QualifiedName
    rows: int
    shapes: tuple[tuple[int, ...], ...]
    partitions: int
    buffers: int
    buffer_size: int
    classes: tuple[int, ...]
    seconds: float

    @property
    def num_classes(self) -> int:
        """The number of classes of the first output."""
        return self.classes[0]

    def __str__(self) -> str:
        shapes = ", ".join(" x ".join(map(str, shape)) for shape in self.shapes)
        targets = ", ".join(map(_target, self.classes))
        return (
            f"packed {_counted(self.rows, 'row')} of {shapes} features and {targets} into {self.output}: "
            f"{_counted(self.partitions, 'partition')}, {_counted(self.buffers, 'buffer')} of at "
            f"most {_counted(self.buffer_size, 'row')}, {self.seconds:.1f} s"
        )


def _target(classes: int) -> str:
    if not classes:
        return "float targets"
    return f"{classes} class{'' if classes == 1 else 'es'}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def summary_fields(work: Work, layout: Layout) -> list[Field]:
    """The columns of the summary, in their order.

    Args:
        work: with shapes and classes.
        layout: of its rows.
    """
    return [
        *_madlib_fields(work, layout),
        *_distribution(work.segments),
        *_own_fields(work, layout),
        *_fold_fields(work),
    ]


def _madlib_fields(work: Work, layout: Layout) -> list[Field]:
    inputs, targets = work.inputs, work.targets
    return [
        ("source_table", "text", str(work.source.name)),
        ("output_table", "text", str(work.output)),
        ("dependent_varname", "text[]", [one.name for one in targets]),
        ("independent_varname", "text[]", [one.name for one in inputs]),
        ("dependent_vartype", "text[]", [one.column.type for one in targets]),
        *((f"{one.name}_class_values", *one.summary) for one in targets),
        ("buffer_size", "integer", layout.buffer_size),
        ("normalizing_const", "double precision", inputs[0].divisor),
        ("num_classes", "integer[]", [one.num_classes or None for one in targets]),
    ]


def _distribution(segments: Chosen) -> list[Field]:
    """Place of the rows: all segments, or the numbers of some, first as dbid."""
    names = ("distribution_rules", "__internal_gpu_config__")
    if segments.segments is None:
        return [(name, "text", ALL_SEGMENTS) for name in names]
    values = (segments.dbids, list(segments.segments))
    return [(name, "integer[]", value) for name, value in zip(names, values, strict=True)]


def _own_fields(work: Work, layout: Layout) -> list[Field]:
    inputs, targets, training, known = work.inputs, work.targets, work.training, work.earlier
    recorded, rows = work.recorded, layout.rows_per_partition()
    return [
        ("independent_vartype", "text[]", [one.column.type for one in inputs]),
        ("input_shapes", "json", json.dumps([one.shape for one in inputs])),
        ("input_dtypes", "text[]", [one.dtype for one in inputs]),
        ("target_kinds", "text[]", [one.kind for one in targets]),
        ("target_shapes", "json", json.dumps([one.shape for one in targets])),
        ("target_dtypes", "text[]", [one.dtype for one in targets]),
        ("classes_found", "integer[]", [one.found for one in targets]),
        ("num_rows", "bigint", len(layout.addresses)),
        ("num_partitions", "integer", len(rows)),
        ("rows_per_partition", "bigint[]", rows),
        ("buffers_per_partition", "integer[]", layout.buffers_per_partition()),
        ("seed", "bigint", work.seed),
        ("training_table", "text", str(training.relation.name) if training else None),
        ("encoding_of", "text", known.name if known and not training else None),
        ("encoding", "json", None if recorded is None else recorded_text(recorded)),
        ("input_columns", "json", _input_columns(recorded)),
        ("sample_weight", "text", work.weight and work.weight.name),
        ("format_version", "integer", FORMAT_VERSION),
    ]


def _fold_fields(work: Work) -> list[Field]:
    """How the rows are in folds, where they have numbers for that."""
    if work.folds is None:
        return []
    kind, name = work.folds
    return [("fold_kind", "text", kind), ("fold_column", "text", name)]


def _input_columns(recorded: Recorded | None) -> str | None:
    """What of each input is of which column, as JSON; None where columns are not encoded."""
    if not isinstance(recorded, Encoding):
        return None
    pieces = recorded.pieces
    return json.dumps(
        [[one.described() for one in pieces if one.part == part] for part in recorded.parts]
    )


def readable_encoding(work: Work) -> tuple[str, list[str]]:
    """The statements, and their values, that make an encoding a table."""
    encoding = work.recorded
    if ENCODING_SUFFIX not in work.outputs.suffixes or not isinstance(encoding, Encoding):
        return "", []
    table = work.output.suffixed(ENCODING_SUFFIX)
    rows = json.dumps(list(encoding.described()))
    return f"{_create_features(table)}; ", [rows]


_FEATURE_COLUMNS = (
    "position integer, feature text, column_name text, column_type text, encoding text, "
    "category text, code integer, center double precision, scale double precision, "
    "fill double precision, input text"
)


def _create_features(table: QualifiedName) -> str:
    """SQL of the table in which an encoding can be read. Parameter: its features as JSON."""
    return (
        f"CREATE TABLE {table.sql} ({_FEATURE_COLUMNS}); "
        f"{PACKED.comment(table, '_encoding')}; "
        f"INSERT INTO {table.sql} SELECT * FROM pg_catalog.json_to_recordset(%s) "
        f"AS f({_FEATURE_COLUMNS})"
    )
