"""The one row of a packed table's summary: the columns of MADlib, then what training needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.encodings import recorded_text
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.packed import FORMAT_VERSION, PackedTable
from cerebro_db.driver.packing_layout import Layout
from cerebro_db.driver.packing_request import PackRequest
from cerebro_db.driver.packing_segments import ALL_SEGMENTS, Chosen
from cerebro_db.driver.packing_survey import Survey


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
    feature, target = survey.feature, survey.target
    class_type = f"{target.cast}[]" if target.is_class else "text[]"
    return [
        Field("source_table", "text", str(survey.source)),
        Field("output_table", "text", str(output)),
        Field("dependent_varname", "text[]", [target.column.name]),
        Field("independent_varname", "text[]", [feature.column.name]),
        Field("dependent_vartype", "text[]", [target.column.type]),
        Field(f"{target.column.name}_class_values", class_type, _padded(survey)),
        Field("buffer_size", "integer", layout.buffer_size),
        Field("normalizing_const", "double precision", survey.divisor),
        Field("num_classes", "integer[]", [target.num_classes or None]),
    ]


def _distribution(segments: Chosen) -> list[Field]:
    """Where the rows lie: all segments, or the numbers of some, first as dbid."""
    names = ("distribution_rules", "__internal_gpu_config__")
    if segments.segments is None:
        return [Field(name, "text", ALL_SEGMENTS) for name in names]
    values = (segments.dbids, list(segments.segments))
    return [Field(name, "integer[]", value) for name, value in zip(names, values, strict=True)]


def _own_fields(
    request: PackRequest, survey: Survey, layout: Layout, training: PackedTable | None
) -> list[Field]:
    feature, target = survey.feature, survey.target
    target_dtype = "int32" if target.is_class else "float32"
    seed = None if request.is_validation else request.seed
    return [
        Field("independent_vartype", "text[]", [feature.column.type]),
        Field("input_shapes", "json", json.dumps([feature.shape])),
        Field("input_dtypes", "text[]", ["float32"]),
        Field("target_kinds", "text[]", [target.kind]),
        Field("target_shapes", "json", json.dumps([target.shape])),
        Field("target_dtypes", "text[]", [target_dtype]),
        Field("classes_found", "integer[]", [target.found if target.is_class else None]),
        Field("num_rows", "bigint", len(layout.addresses)),
        Field("num_partitions", "integer", len(layout.rows_per_partition())),
        Field("rows_per_partition", "bigint[]", layout.rows_per_partition()),
        Field("buffers_per_partition", "integer[]", layout.buffers_per_partition()),
        Field("seed", "bigint", seed),
        Field("training_table", "text", str(training.relation.name) if training else None),
        Field("encoding", "json", recorded_text(feature.encoding) if feature.encoding else None),
        Field("sample_weight", "text", survey.weight),
        Field("format_version", "integer", FORMAT_VERSION),
    ]


def _padded(survey: Survey) -> str | None:
    """The class values as text of an array, with NULL for each class that was not found."""
    target = survey.target
    if target.values is None:
        return None
    # The server's text of a one-dimensional array with at least one element ends with "}".
    return target.values[:-1] + ",NULL" * (target.num_classes - target.found) + "}"
