"""Images as arrays of bytes: raw ones by their length, JPEG and PNG by Pillow, resized."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_db.columns.images import ImageEncoding, ImageFormat
from cerebro_db.errors import CerebroError, InvalidData, MissingPackage
from cerebro_db.training.buffers import to_float32, to_wire

Tick = Callable[[], None]

_FORMATS = ("JPEG", "PNG")
# Where a PNG says how many bits a value has.
_DEPTH_AT = 24
# Of a PNG so many bytes are decoded at a time; they may be a thousand times as many pixels.
_BLOCK_BYTES = 1024
# Each scan of a JPEG decodes all pixels once more, and hears no tick. Programs write about ten.
_MOST_SCANS = 64
# Markers that may have parameters; in the data between them, 0xFF is followed by other bytes.
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")
_START, _END, _SCAN = 0xD8, 0xD9, 0xDA
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


def no_tick() -> None:
    """The tick of a caller that never cancels."""


class _Watched(io.BytesIO):
    """Bytes whose reader may be stopped while it reads on."""

    def __init__(self, data: bytes, tick: Tick) -> None:
        super().__init__(data)
        self._tick = tick

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes; raises what the tick raises."""
        self._tick()
        return super().read(size)


def image_wire(data: bytes, image: ImageEncoding, tick: Tick = no_tick) -> bytes:
    """An image as the server's array_send() would write the array of its values.

    Args:
        data: the image.
        image: how it is read.
        tick: called while it is decoded; may raise to stop that.

    Raises:
        InvalidData: it cannot be read, is too large or of another size; the message goes on
            after the name of the column.
    """
    return to_wire(_read(data, image, tick))


def image_values(
    data: bytes, image: ImageEncoding, divisor: float, tick: Tick = no_tick
) -> NDArray[np.float32]:
    """The values of an image as packing makes them; an array of its shape.

    Raises:
        InvalidData: as ``image_wire``, the message begins with a name for the image.
    """
    try:
        return to_float32(_read(data, image, tick), divisor)
    except InvalidData as error:
        raise InvalidData(f"image: {error.message}", hint=error.hint) from None


def image_fault(data: bytes, image: ImageEncoding, tick: Tick = no_tick) -> str | None:
    """Fault of an image, if it has any."""
    try:
        image_wire(data, image, tick)
    except InvalidData as error:
        return error.message
    return None


def _read(data: bytes, image: ImageEncoding, tick: Tick) -> NDArray[np.uint8]:
    return _raw(data, image) if image.format is ImageFormat.RAW else _decoded(data, image, tick)


def _raw(data: bytes, image: ImageEncoding) -> NDArray[np.uint8]:
    wanted = math.prod(image.shape)
    if len(data) != wanted:
        raise InvalidData(
            f"holds {len(data)} bytes; allowed: {wanted}, one for each value of shape {image.shape}",
            hint="image_shape and image_format must be those of the bytes",
        )
    return np.frombuffer(data, np.uint8).reshape(image.shape)


def _decoded(data: bytes, image: ImageEncoding, tick: Tick) -> NDArray[np.uint8]:
    pillow = require_pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images, which are refused here
            with pillow.open(_Watched(data, tick), formats=_FORMATS) as opened:
                _check_size(opened.size, image.max_pixels)
                depth = 8
                if opened.format == "PNG":
                    opened.decodermaxblock = _BLOCK_BYTES
                    depth = data[_DEPTH_AT]
                else:
                    _check_scans(data, tick)
                opened.load()
                tick()
                return _resized(pillow, opened, image.shape, depth, tick)
    except CerebroError:
        raise
    except Exception as error:  # what a damaged image raises is of any kind
        raise InvalidData(
            f"holds no JPEG or PNG that can be read ({type(error).__name__})",
            hint="store that image anew; image_format := 'raw' takes the values themselves",
        ) from None


def _check_size(size: tuple[int, int], most: int) -> None:
    """Refuse a large image by the size in its first bytes, before it takes memory."""
    width, height = size
    if width * height > most:
        raise InvalidData(
            f"holds an image of {width} x {height} pixels; allowed: {most} together, the setting "
            "max_image_pixels",
            hint="resize it before it is stored",
        )


def _check_scans(data: bytes, tick: Tick) -> None:
    """A few bytes of a JPEG may be a scan, which takes as long as the pixels are many."""
    scans, found = 0, _MARKER.search(data)
    while found and (marker := found[1][0]) != _END:
        tick()
        scans += marker == _SCAN
        if scans > _MOST_SCANS:
            raise InvalidData(
                f"holds a JPEG of more than {_MOST_SCANS} scans; allowed: {_MOST_SCANS}",
                hint="store that image anew, as a JPEG that is not progressive or as a PNG",
            )
        place = found.end()
        if marker != _START:  # the others begin with their length
            place += max(2, int.from_bytes(data[place : place + 2], "big"))
        found = _MARKER.search(data, place)


def _of_eight_bits(pillow: Any, opened: Any, depth: int) -> Any:
    """An image of 8 bits a value, with the color that a PNG names as transparent.

    Pillow compares that color, in the bits of the file, with values that it has scaled to 8 bits already.

    Args:
        pillow: its module of images.
        opened: the image; is changed.
        depth: bits of a value in the file.
    """
    clear = opened.info.get("transparency")
    if opened.mode.startswith("I"):  # grey, of 16 bits
        values = np.asarray(opened)
        grey = (values >> 8).clip(0, 255).astype(np.uint8)
        if not isinstance(clear, int):
            return pillow.fromarray(grey)
        opacity = np.where(values == clear, 0, 255).astype(np.uint8)
        return pillow.merge("LA", [pillow.fromarray(part) for part in (grey, opacity)])
    if opened.mode == "L" and isinstance(clear, int) and depth < 8:
        opened.info["transparency"] = clear * 255 // (2**depth - 1)
    if opened.mode == "RGB" and isinstance(clear, tuple) and depth > 8:
        # The lower bits of the pixels are not there any more.
        opened.info["transparency"] = tuple(value >> 8 for value in clear)
    return opened


def _resized(
    pillow: Any, opened: Any, shape: tuple[int, ...], depth: int, tick: Tick
) -> NDArray[np.uint8]:
    opened = _of_eight_bits(pillow, opened, depth)
    converted = opened.convert(_MODES[shape[2] if len(shape) == 3 else 1])
    tick()
    if converted.size != (shape[1], shape[0]):
        converted = converted.resize((shape[1], shape[0]), pillow.Resampling.BILINEAR)
    return np.asarray(converted, np.uint8).reshape(shape)
