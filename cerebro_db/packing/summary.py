"""The one row of a packed table's summary: the columns of MADlib, then what training needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.encodings import recorded_text
from cerebro_db.packing.layout import Layout
from cerebro_db.packing.request import PackRequest
from cerebro_db.packing.segments import ALL_SEGMENTS, Chosen
from cerebro_db.packing.source import Target
from cerebro_db.packing.survey import Survey
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.packed import FORMAT_VERSION, PackedTable


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
) -> list[Field]:
    """All columns, in their order."""
    return [
        *_madlib_fields(survey, layout, output),
        *_distribution(segments),
        *_own_fields(request, survey, layout, training),
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
    request: PackRequest, survey: Survey, layout: Layout, training: PackedTable | None
) -> list[Field]:
    features, targets = survey.features, survey.targets
    encoding = survey.feature.encoding
    dtypes = ["int32" if one.is_class else "float32" for one in targets]
    found = [one.found if one.is_class else None for one in targets]
    seed = None if request.is_validation else request.seed
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
        Field("encoding", "json", recorded_text(encoding) if encoding else None),
        Field("sample_weight", "text", survey.weight),
        Field("format_version", "integer", FORMAT_VERSION),
    ]


def _class_values(target: Target) -> Field:
    """The class values as text of an array, with NULL for each class that was not found."""
    kind = f"{target.cast}[]" if target.is_class else "text[]"
    values = target.values
    if values is not None:
        # The server's text of a one-dimensional array with at least one element ends with "}".
        values = values[:-1] + ",NULL" * (target.num_classes - target.found) + "}"
    return Field(f"{target.column.name}_class_values", kind, values)
