"""Images as arrays of bytes: raw ones by their length, JPEG and PNG by Pillow, resized."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_db.configs.images import ImageEncoding, ImageFormat
from cerebro_db.errors import CerebroError, InvalidData, MissingPackage
from cerebro_db.training.buffers import to_float32, to_wire

# An image tells its size in its first bytes. Larger ones are refused before they take memory.
MAX_PIXELS = 2**26
_FORMATS = ("JPEG", "PNG")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def require_pillow() -> Any:
    """Pillow's module of images.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackage(
            "JPEG and PNG images need the Python package Pillow, which is not installed",
            hint="install cerebro-db[images] where the server finds its packages",
        ) from None
    return Image


def image_wire(data: bytes, image: ImageEncoding) -> bytes:
    """An image as the server's array_send() would write the array of its values.

    Raises:
        InvalidData: it cannot be read, is too large or of another size; the message goes on
            after the name of the column.
    """
    return to_wire(_read(data, image))


def image_values(data: bytes, image: ImageEncoding, divisor: float) -> NDArray[np.float32]:
    """The values of an image as packing makes them; an array of its shape.

    Raises:
        InvalidData: as ``image_wire``, the message begins with a name for the image.
    """
    try:
        return to_float32(_read(data, image), divisor)
    except InvalidData as error:
        raise InvalidData(f"image: {error.message}", hint=error.hint) from None


def image_fault(data: bytes, image: ImageEncoding) -> str | None:
    """What is wrong with an image, if anything is."""
    try:
        image_wire(data, image)
    except InvalidData as error:
        return error.message
    return None


def _read(data: bytes, image: ImageEncoding) -> NDArray[np.uint8]:
    return _raw(data, image) if image.format is ImageFormat.RAW else _decoded(data, image)


def _raw(data: bytes, image: ImageEncoding) -> NDArray[np.uint8]:
    wanted = math.prod(image.shape)
    if len(data) != wanted:
        raise InvalidData(
            f"holds {len(data)} bytes; allowed: {wanted}, one for each value of shape {image.shape}",
            hint="image_shape and image_format must be those of the bytes",
        )
    return np.frombuffer(data, np.uint8).reshape(image.shape)


def _decoded(data: bytes, image: ImageEncoding) -> NDArray[np.uint8]:
    pillow = require_pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images, which are refused here
            with pillow.open(io.BytesIO(data), formats=_FORMATS) as opened:
                _check_size(*opened.size)
                return _resized(pillow, opened, image.shape)
    except CerebroError:
        raise
    except Exception as error:  # what a damaged image raises is of any kind
        raise InvalidData(
            f"holds no JPEG or PNG that can be read ({type(error).__name__})",
            hint="store that image anew; image_format := 'raw' takes the values themselves",
        ) from None


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise InvalidData(
            f"holds an image of {width} x {height} pixels; allowed: {MAX_PIXELS} together",
            hint="resize it before it is stored",
        )


def _resized(pillow: Any, opened: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if opened.mode.startswith("I"):  # 16 bits a value
        opened = pillow.fromarray((np.asarray(opened, np.int64) >> 8).clip(0, 255).astype(np.uint8))
    converted = opened.convert(_MODES[shape[2] if len(shape) == 3 else 1])
    if converted.size != (shape[1], shape[0]):
        converted = converted.resize((shape[1], shape[0]), pillow.Resampling.BILINEAR)
    return np.asarray(converted, np.uint8).reshape(shape)
