"""Request of a packing job by its caller, and the job's answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from cerebro_db.columns.images import ImageEncoding, OnError, ignores_errors, image_encoding
from cerebro_db.configs.messages import check_divisor, shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.packing.encoding_plan import EncodingRequest
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.kinds import MAX_CLASSES
from cerebro_db.requests.declared import Request
from cerebro_db.requests.packing import PackColumnsRequest, PackImagesRequest, PackValidationRequest

LARGEST_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class ImageRequest:
    """Arguments of ``cerebro_pack_images`` about its images, as given."""

    shape: Sequence[int | None] | None
    format: str | None

    def encoding(self, name: str) -> ImageEncoding:
        """Encoding that is recorded for the column ``name``."""
        return image_encoding(name, self.format, self.shape)


@dataclass(frozen=True)
class PackRequest:
    """The arguments of ``cerebro_pack`` and its like, as given.

    Attributes:
        encoding: of ``cerebro_pack_columns``: how the columns that are listed become features.
        image: of ``cerebro_pack_images``.
        sample_weight: a column of weights of the rows in training.
        is_validation: follow ``training_table`` and keep the order of the rows.
        on_error: of images that cannot be read.
        encoding_of: a packed table or models, whose classes and encoding hold here, too.
        is_scored: whether models are scored on the rows: follow whatever ``encoding_of`` has, and keep the order
            of the rows.
    """

    source_table: str | None
    output_table: str | None
    dependent_varname: str | None
    independent_varname: str | None
    buffer_size: int | None = None
    normalizing_const: float | None = 1.0
    num_classes: int | Sequence[int | None] | None = None
    distribution_rules: str | None = None
    num_partitions: int | None = None
    seed: int | None = 0
    training_table: str | None = None
    is_validation: bool = False
    encoding: EncodingRequest | None = None
    image: ImageRequest | None = None
    sample_weight: str | None = None
    replace: bool | None = False
    on_error: str | None = OnError.STOP
    encoding_of: str | None = None
    is_scored: bool = False

    @property
    def shuffle_seed(self) -> int | None:
        """Seed of the order of the rows; None where they keep theirs."""
        return None if self.is_validation or self.is_scored else self.seed

    @property
    def ignores(self) -> bool:
        """True if rows of images that cannot be read are left out."""
        return ignores_errors(self.on_error)

    @property
    def makes_features(self) -> bool:
        """True if columns or images become features, rather than arrays of numbers."""
        return self.encoding is not None or self.image is not None

    def check(self) -> None:
        """Refuse what no table could make right."""
        if self.encoding is not None:
            self.encoding.check()
        if self.image is not None and not (self.encoding_of and self.image.shape is None):
            self.image.encoding("")
        _check_positive("buffer_size", self.buffer_size)
        classes = self.num_classes
        for number in [classes] if isinstance(classes, int | None) else classes:
            _check_positive("num_classes", number, MAX_CLASSES)
        _check_positive("num_partitions", self.num_partitions)
        check_divisor(self.normalizing_const)
        if self.seed is None:
            raise InvalidArgument("seed: got NULL; allowed: any bigint")
        ignores_errors(self.on_error)


_OF_ENCODINGS = tuple(one.name for one in fields(EncodingRequest))
_NUMBER = re.compile(r"-?[0-9]{1,9}|NULL", re.IGNORECASE | re.ASCII)
_MOST_TEXT = 2000


def pack_request(request: Request) -> PackRequest:
    """The request of one of the packing functions, in the form that they have in common."""
    given, more = request.given(), dict[str, Any]()
    if isinstance(request, PackValidationRequest):
        more["is_validation"] = True
    if isinstance(request, PackColumnsRequest):
        more["encoding"] = EncodingRequest(**{name: given.pop(name) for name in _OF_ENCODINGS})
    if isinstance(request, PackImagesRequest):
        more["image"] = ImageRequest(given.pop("image_shape"), given.pop("image_format"))
    elif given.get("normalizing_const", 1.0) is None:
        given["normalizing_const"] = 1.0
    if isinstance(classes := given.get("num_classes"), str):
        given["num_classes"] = _listed(classes)
    return PackRequest(**given, **more)


def _listed(text: str) -> list[int | None]:
    """The text of an array of numbers, such as ``{3,NULL}``."""
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    words = [word.strip() for word in body.split(",")]
    if len(text) > _MOST_TEXT or not all(_NUMBER.fullmatch(word) for word in words):
        raise InvalidArgument(
            f"num_classes: got {shown(text)}; allowed: NULL, a number, or numbers and NULLs such as "
            "{3,NULL}"
        )
    return [None if word.upper() == "NULL" else int(word) for word in words]


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


def _check_positive(name: str, value: int | None, most: int = LARGEST_INTEGER) -> None:
    good = value is None or (isinstance(value, int) and 1 <= value <= most)
    if not good:
        raise InvalidArgument(f"{name}: got {value}; allowed: NULL or an integer from 1 to {most}")


def _target(classes: int) -> str:
    if not classes:
        return "float targets"
    return f"{classes} class{'' if classes == 1 else 'es'}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
