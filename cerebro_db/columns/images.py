"""Encodings of images as numbers: what is recorded with a packed table, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec.structs import replace

from cerebro_db.columns.encoded import Recorded, is_text, kept
from cerebro_db.configs.messages import shown
from cerebro_db.configs.settings import DEFAULT_PIXELS
from cerebro_db.errors import InvalidArgument, hinted

# Of an image after it was resized; what it may have before is checked when it is opened.
MAX_VALUES = 2**24
MAX_SIDE = 8192
_CHANNELS = (1, 3, 4)
_MAX_DIMENSIONS = 4
# What ``on_error`` is where rows of images that cannot be read are left out.
IGNORE = "ignore"


class ImageFormat(StrEnum):
    """Storage of images."""

    RAW = "raw"
    ENCODED = "encoded"


def check_ignores(on_error: str, can_be_damaged: bool) -> bool:
    """True if rows that cannot be read are left out.

    Raises:
        InvalidArgument: the features are no images.
    """
    if on_error == IGNORE and not can_be_damaged:
        raise InvalidArgument(
            "on_error: got 'ignore' for features that are no images; allowed: 'stop'"
        )
    return on_error == IGNORE


@kept
class ImageEncoding(Recorded, frozen=True, omit_defaults=False, eq=False):
    """A column of images.

    Attributes:
        name: of the column, of type bytea; that of another table may be another.
        format: one byte for each value, in C order; or JPEG and PNG.
        shape: of an image: height, width, and channels if there are any; raw ones have any.
        max_pixels: of an image as it is stored; a setting, which is not recorded.
    """

    key: ClassVar[str] = "image"
    beside: ClassVar[frozenset[str]] = frozenset({"name", "max_pixels"})
    unrecorded: ClassVar[frozenset[str]] = frozenset({"max_pixels"})

    name: str
    format: ImageFormat
    shape: tuple[int, ...]
    max_pixels: int = DEFAULT_PIXELS

    @property
    def names(self) -> list[str]:
        """The column that is read."""
        return [self.name]

    def named(self, name: str) -> ImageEncoding:
        """The encoding of a column of that name."""
        return replace(self, name=name)

    @property
    def meaning(self) -> object:
        """The meaning of the features: format and shape."""
        return self

    def to_json(self) -> dict[str, Any]:
        """The recorded JSON."""
        return {self.key: self.to_fields()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ImageEncoding:
        """The encoding of recorded JSON."""
        fields = value[cls.key]
        found = image_encoding(fields["name"], fields["format"], fields["shape"])
        if not found.name or not is_text(found.name):
            raise ValueError(found.name)
        return found

    # -- SQL ---------------------------------------------------------------------------------------
    def sent(self, data: str) -> str:
        """SQL that equals array_send() of the values of an image; empty for NULL."""
        return f"COALESCE(cerebro._image_array({data}, {self._arguments}), ''::bytea)"

    def fault(self, data: str) -> str:
        """SQL of the fault of an image: ``null``, a message, or NULL."""
        fault = f"cerebro._image_fault({data}, {self._arguments})"
        return f"CASE WHEN {data} IS NULL THEN 'null' ELSE {fault} END"

    @property
    def shape_sql(self) -> str:
        """SQL of the shape of every image."""
        return f"ARRAY[{', '.join(map(str, self.shape))}]"

    @property
    def _arguments(self) -> str:
        return f"{self.shape_sql}, '{self.format.value}', {self.max_pixels}"


@hinted(
    "image_shape := ARRAY[28, 28, 1], image_format := 'raw' are height, width, channels of raw bytes"
)
def image_encoding(name: str, format: object, shape: object) -> ImageEncoding:
    """An encoding of what a user gives for ``image_format`` and ``image_shape``.

    Raises:
        InvalidArgument: there is no such format, or images have no such shape.
    """
    if format not in tuple(ImageFormat):
        raise InvalidArgument(
            f"image_format: got {'NULL' if format is None else shown(format)}; allowed: "
            "'encoded' for JPEG and PNG, 'raw' for one byte a value"
        )
    kind = ImageFormat(str(format))
    if not isinstance(shape, list | tuple) or not _fits(kind, shape):
        raise InvalidArgument(
            f"image_shape: got {'NULL' if shape is None else shown(shape)}; allowed: {_ALLOWED[kind]}"
        )
    return ImageEncoding(name, kind, tuple(shape))


_ALLOWED = {
    ImageFormat.RAW: f"up to {_MAX_DIMENSIONS} sizes from 1, together at most {MAX_VALUES} values",
    ImageFormat.ENCODED: (
        f"height and width from 1 to {MAX_SIDE}, then 1, 3 or 4 channels or nothing for one; "
        f"together at most {MAX_VALUES} values"
    ),
}


def _fits(kind: ImageFormat, shape: Sequence[Any]) -> bool:
    good = 1 <= len(shape) <= _MAX_DIMENSIONS and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in shape
    )
    if not good or math.prod(shape) > MAX_VALUES:
        return False
    if kind is ImageFormat.RAW:
        return True
    channels = shape[2] if len(shape) == 3 else 1
    return len(shape) in (2, 3) and max(shape[:2]) <= MAX_SIDE and channels in _CHANNELS
