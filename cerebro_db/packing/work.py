"""A request to pack whose names are resolved: what is read, under which names it is written."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.columns.encoded import Encoding
from cerebro_db.columns.inputs import Input, encoded_input
from cerebro_db.columns.recorded import recorded_text
from cerebro_db.columns.values import Column
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.packing.columns import NO_OTHERS, Others
from cerebro_db.packing.earlier import Earlier
from cerebro_db.packing.encoding_plan import planned
from cerebro_db.packing.layout import Layout, default_buffer_size
from cerebro_db.packing.request import PackRequest
from cerebro_db.packing.segments import ALL_SEGMENTS, Chosen
from cerebro_db.packing.source import (
    Target,
    check_number,
    image_column,
    recorded_input,
)
from cerebro_db.packing.survey import Survey
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.kinds import BUILD_SUFFIX, PACKED, STAGE_SUFFIX
from cerebro_db.postgres.tables.outputs import Outputs
from cerebro_db.postgres.tables.packed import FORMAT_VERSION, PackedTable
from cerebro_db.postgres.tables.relations import Relation, column
from cerebro_db.training.buffers import wire_bytes

ENCODING_SUFFIX = "_encoding"


@dataclass(frozen=True)
class Work:
    """A request whose names are resolved.

    Attributes:
        others: further inputs and outputs.
        earlier: the packing that is followed; that of the training table, if there is one.
        classes: how many are wanted of each output.
    """

    request: PackRequest
    source: Relation
    feature: Input
    target: Target
    training: PackedTable | None
    outputs: Outputs
    weight: Column | None = None
    segments: Chosen = field(default_factory=Chosen)
    others: Others = NO_OTHERS
    classes: tuple[int | None, ...] = (None,)
    earlier: Earlier | None = None

    @property
    def output(self) -> QualifiedName:
        """The packed table."""
        return self.outputs.name

    @property
    def divisor(self) -> float:
        """The normalizing constant."""
        if self.earlier is not None:
            return self.earlier.normalizing_const
        return float(self.request.normalizing_const or 1.0)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source that are read."""
        weights = [] if self.weight is None else [self.weight.name]
        listed = [*self.feature.sources, self.target.column.name, *self.others.columns, *weights]
        return tuple(dict.fromkeys(listed))

    @property
    def names(self) -> tuple[str, str]:
        """The first input and output, as columns of the packed table."""
        return self.feature.column.name, self.target.column.name

    @property
    def build(self) -> QualifiedName:
        """The packed table while it is not finished."""
        return self.output.suffixed(BUILD_SUFFIX)

    @property
    def stage(self) -> QualifiedName:
        """The copy of a source whose rows have no addresses."""
        return self.output.suffixed(STAGE_SUFFIX)


def feature_for(
    request: PackRequest, source: Relation, target: Target, earlier: Earlier | None
) -> Input:
    """The independent variable: a column, or several with an encoding."""
    listed = request.independent_varname
    if earlier is not None:
        return recorded_input(source, listed, earlier.encoding)
    if request.encoding is not None:
        weight = weight_of(request, source)
        others = (target.column.name, None if weight is None else weight.name)
        return encoded_input(planned(source, listed, others, request.encoding))
    if request.image is not None:
        return image_column(source, listed, request.image.encoding(""))
    return recorded_input(source, listed, None)


def weight_of(request: PackRequest, source: Relation) -> Column | None:
    """The column of sample weights."""
    if request.sample_weight is None:
        return None
    found = column(source, request.sample_weight, "sample_weight")
    check_number(found, "sample_weight")
    return found


def readable_encoding(work: Work) -> tuple[str, list[str]]:
    """The statements, and their values, that make an encoding a table."""
    encoding = work.feature.recorded
    if work.request.encoding is None or not isinstance(encoding, Encoding):
        return "", []
    table = work.output.suffixed(ENCODING_SUFFIX)
    rows = json.dumps(list(encoding.described()))
    return f"{_create_features(table)}; ", [rows]


_FEATURE_COLUMNS = (
    "position integer, feature text, column_name text, column_type text, encoding text, "
    "category text, code integer, center double precision, scale double precision, "
    "fill double precision"
)


def _create_features(table: QualifiedName) -> str:
    """SQL of the table in which an encoding can be read. Parameter: its features as JSON."""
    return (
        f"CREATE TABLE {table.sql} ({_FEATURE_COLUMNS}); "
        f"{PACKED.comment(table, '_encoding')}; "
        f"INSERT INTO {table.sql} SELECT * FROM pg_catalog.json_to_recordset(%s) "
        f"AS f({_FEATURE_COLUMNS})"
    )


# The server holds no value of a gigabyte; some room for its own headers.
LARGEST_VALUE = 2**30 - 2**16


def buffer_size(work: Work, survey: Survey) -> int:
    """Most rows of a buffer: the caller's number, or as many as make a good size."""
    elements = max(
        sum(math.prod(feature.shape) for feature in survey.features),
        sum(math.prod(target.shape) for target in survey.targets),
    )
    return work.request.buffer_size or default_buffer_size(elements)


def check_size(survey: Survey, layout: Layout) -> None:
    """A buffer must not outgrow what the server can hold in one value while it is made."""
    features = survey.features
    row = max(
        *(wire_bytes(feature.shape, feature.element_oid) for feature in features),
        4 * sum(math.prod(feature.shape) for feature in features),
    )
    most = LARGEST_VALUE // row
    if most < 1:
        raise InvalidData(
            f"column {survey.feature.column.name!r}: got rows of shape {survey.feature.shape}; "
            "allowed: less than a gigabyte in a row",
            hint="make the arrays smaller in a view, such as images of fewer pixels",
        )
    if layout.buffer_size > most:
        raise InvalidArgument(
            f"buffer_size: got {layout.buffer_size} rows in a buffer; allowed: at most {most} "
            f"rows of shape {survey.feature.shape}, as the server's values are below a gigabyte",
            hint=f"buffer_size := {most}, or NULL to have it chosen",
        )


@dataclass(frozen=True)
class Field:
    """A column of the summary, its SQL type and its value."""

    name: str
    type: str
    value: Any


def summary_fields(
    request: PackRequest,
    survey: Survey,
    layout: Layout,
    output: QualifiedName,
    training: PackedTable | None,
    segments: Chosen,
    earlier: Earlier | None,
) -> list[Field]:
    """All columns, in their order."""
    return [
        *_madlib_fields(survey, layout, output),
        *_distribution(segments),
        *_own_fields(request, survey, layout, training, earlier),
    ]


def _madlib_fields(survey: Survey, layout: Layout, output: QualifiedName) -> list[Field]:
    features, targets = survey.features, survey.targets
    return [
        Field("source_table", "text", str(survey.source)),
        Field("output_table", "text", str(output)),
        Field("dependent_varname", "text[]", [one.column.name for one in targets]),
        Field("independent_varname", "text[]", [one.column.name for one in features]),
        Field("dependent_vartype", "text[]", [one.column.type for one in targets]),
        *map(_class_values, targets),
        Field("buffer_size", "integer", layout.buffer_size),
        Field("normalizing_const", "double precision", survey.divisor),
        Field("num_classes", "integer[]", [one.num_classes or None for one in targets]),
    ]


def _distribution(segments: Chosen) -> list[Field]:
    """Place of the rows: all segments, or the numbers of some, first as dbid."""
    names = ("distribution_rules", "__internal_gpu_config__")
    if segments.segments is None:
        return [Field(name, "text", ALL_SEGMENTS) for name in names]
    values = (segments.dbids, list(segments.segments))
    return [Field(name, "integer[]", value) for name, value in zip(names, values, strict=True)]


def _own_fields(
    request: PackRequest,
    survey: Survey,
    layout: Layout,
    training: PackedTable | None,
    earlier: Earlier | None,
) -> list[Field]:
    features, targets = survey.features, survey.targets
    encoding = survey.feature.recorded
    dtypes = ["int32" if one.is_class else "float32" for one in targets]
    found = [one.found if one.is_class else None for one in targets]
    seed = request.shuffle_seed
    return [
        Field("independent_vartype", "text[]", [one.column.type for one in features]),
        Field("input_shapes", "json", json.dumps([one.shape for one in features])),
        Field("input_dtypes", "text[]", ["float32"] * len(features)),
        Field("target_kinds", "text[]", [one.kind for one in targets]),
        Field("target_shapes", "json", json.dumps([one.shape for one in targets])),
        Field("target_dtypes", "text[]", dtypes),
        Field("classes_found", "integer[]", found),
        Field("num_rows", "bigint", len(layout.addresses)),
        Field("num_partitions", "integer", len(layout.rows_per_partition())),
        Field("rows_per_partition", "bigint[]", layout.rows_per_partition()),
        Field("buffers_per_partition", "integer[]", layout.buffers_per_partition()),
        Field("seed", "bigint", seed),
        Field("training_table", "text", str(training.relation.name) if training else None),
        Field("encoding_of", "text", earlier.name if earlier and not training else None),
        Field("encoding", "json", recorded_text(encoding) if encoding else None),
        Field("sample_weight", "text", survey.weight and survey.weight.name),
        Field("format_version", "integer", FORMAT_VERSION),
    ]


def _class_values(target: Target) -> Field:
    """The class values as text of an array, with NULL for each class that was not found."""
    kind, values = f"{target.cast}[]" if target.is_class else "text[]", target.values
    if target.told is not None:
        kind, values = target.told
    if values is not None:
        # The server's text of a one-dimensional array with at least one element ends with "}".
        values = values[:-1] + ",NULL" * (target.num_classes - target.found) + "}"
    return Field(f"{target.column.name}_class_values", kind, values)
