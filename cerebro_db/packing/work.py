"""A request to pack whose names are resolved: what is read, under which names it is written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from cerebro_db.configs.encodings import Encoding
from cerebro_db.packing.columns import NO_OTHERS, Others
from cerebro_db.packing.encoding_plan import planned
from cerebro_db.packing.request import PackRequest
from cerebro_db.packing.segments import Chosen
from cerebro_db.packing.source import (
    Feature,
    Target,
    check_number,
    encoded_feature,
    image_feature,
    recorded_feature,
)
from cerebro_db.postgres.encoding import create_features
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import Outputs
from cerebro_db.postgres.packed import PackedTable
from cerebro_db.postgres.relations import Relation, column

BUILD_SUFFIX = "_packing"
STAGE_SUFFIX = "_staging"
ENCODING_SUFFIX = "_encoding"


@dataclass(frozen=True)
class Work:
    """A request whose names are resolved.

    Attributes:
        others: further inputs and outputs.
        classes: how many are wanted of each output.
    """

    request: PackRequest
    source: Relation
    feature: Feature
    target: Target
    training: PackedTable | None
    outputs: Outputs
    weight: str | None = None
    segments: Chosen = field(default_factory=Chosen)
    others: Others = NO_OTHERS
    classes: tuple[int | None, ...] = (None,)

    @property
    def output(self) -> QualifiedName:
        """The packed table."""
        return self.outputs.name

    @property
    def divisor(self) -> float:
        """The normalizing constant."""
        if self.training is not None:
            return self.training.normalizing_const
        return float(self.request.normalizing_const or 1.0)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the source that are read."""
        weights = [] if self.weight is None else [self.weight]
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
    request: PackRequest, source: Relation, target: Target, training: PackedTable | None
) -> Feature:
    """The independent variable: a column, or several with an encoding."""
    listed = request.independent_varname
    if request.encoding is not None:
        others = (target.column.name, weight_of(request, source))
        return encoded_feature(planned(source, listed, others, request.encoding))
    if request.image is not None:
        return image_feature(source, listed, request.image.encoding(""))
    return recorded_feature(source, listed, training.encoding if training else None)


def weight_of(request: PackRequest, source: Relation) -> str | None:
    """The column of sample weights."""
    if request.sample_weight is None:
        return None
    found = column(source, request.sample_weight, "sample_weight")
    check_number(found, "sample_weight")
    return found.name


def readable_encoding(work: Work) -> tuple[str, list[str]]:
    """The statements, and their values, that make an encoding a table."""
    encoding = work.feature.encoding
    if work.request.encoding is None or not isinstance(encoding, Encoding):
        return "", []
    table = work.output.suffixed(ENCODING_SUFFIX)
    rows = json.dumps(list(encoding.features()))
    return f"{create_features(table)}; ", [rows]
