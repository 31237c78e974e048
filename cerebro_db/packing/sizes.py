"""How large buffers are, and may be."""

from __future__ import annotations

import math

from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.packing.layout import Layout, default_buffer_size
from cerebro_db.packing.survey import Survey
from cerebro_db.packing.work import Work
from cerebro_db.training.buffers import wire_bytes

# The server holds no value of a gigabyte; some room for its own headers.
LARGEST_VALUE = 2**30 - 2**16


def buffer_size(work: Work, survey: Survey) -> int:
    """Most rows of a buffer: as asked for, or as many as make a good size."""
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
