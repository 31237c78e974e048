"""Entries of the worker's helper functions that pack: rows of a buffer into its bytes, images into numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from cerebro_db.columns import image_reading
from cerebro_db.columns.images import ImageEncoding, ImageFormat, image_encoding
from cerebro_db.configs.messages import check_divisor
from cerebro_db.configs.settings import DEFAULT_PIXELS, MAX_PIXELS
from cerebro_db.errors import NotSupported
from cerebro_db.requests.packing import ImageArrayRequest
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.server.settings import settings_of
from cerebro_db.server.training import checked
from cerebro_db.training import buffers


@entry
def arrays(
    plpy: Any,
    gd: dict[str, Any],
    rows: bytes | None,
    keys: bytes | None,
    positions: bytes | None,
    shape: list[int] | None,
    divisor: float | None,
    name: str | None,
    is_whole: bool | None,
) -> bytes:
    """Arrays as float32; see the comment of ``cerebro._pack_arrays``."""
    order = buffers.row_order(keys or b"", positions)
    count = len(keys or b"") // buffers.KEY_BYTES
    parsed = buffers.parse_arrays(rows or b"", count, buffers.checked_shape(shape))
    losses = buffers.Losses(name or "", bool(is_whole))
    found = buffers.to_float32(parsed, 1.0 if divisor is None else divisor, losses)
    if losses.found is not None:
        plpy.notice(losses.found.text())
    return buffers.encode(found, order)


@entry
def labels(
    plpy: Any,
    gd: dict[str, Any],
    ids: bytes | None,
    keys: bytes | None,
    positions: bytes | None,
) -> bytes:
    """Class ids as int32; see the comment of ``cerebro._pack_labels``."""
    order = buffers.row_order(keys or b"", positions)
    count = len(keys or b"") // buffers.KEY_BYTES
    return buffers.encode(buffers.parse_labels(ids or b"", count), order)


@entry
def weights(
    plpy: Any,
    gd: dict[str, Any],
    targets: bytes | None,
    weights: bytes | None,
    rows: int | None,
) -> bytes:
    """Targets with their weights; see the comment of ``cerebro._pack_weights``."""
    return buffers.with_weights(targets or b"", weights or b"", rows or 0)


R = TypeVar("R")
_LIMIT_SECONDS = 1.0


@entry
def array(
    plpy: Any,
    gd: dict[str, Any],
    data: bytes | None,
    shape: list[int | None] | None,
    format: str | None,
    max_pixels: int | None,
) -> bytes | None:
    """An image as the server's array_send() would write it; None for NULL."""
    return _of_image(plpy, image_reading.image_wire, data, _image(plpy, shape, format, max_pixels))


@entry
def fault(
    plpy: Any,
    gd: dict[str, Any],
    data: bytes | None,
    shape: list[int | None] | None,
    format: str | None,
    max_pixels: int | None,
) -> str | None:
    """Fault of an image; None for NULL."""
    return _of_image(plpy, image_reading.image_fault, data, _image(plpy, shape, format, max_pixels))


@entry_of(ImageArrayRequest)
def values(plpy: Any, gd: dict[str, Any], request: ImageArrayRequest) -> list[Any] | None:
    """The values of an image, divided, as nested lists; None for NULL."""
    image = image_encoding("image", request.image_format, request.image_shape)
    wanted, data = check_divisor(request.normalizing_const), request.image
    if data is None:
        return None
    if image.format is ImageFormat.ENCODED:
        image = replace(image, max_pixels=_limit.pixels(plpy, DEFAULT_PIXELS))
    found: list[Any] = _read(
        plpy, image, lambda tick: image_reading.image_values(data, image, wanted, tick).tolist()
    )
    return found


class _Limit:
    """The setting, looked up now and then: a query may read millions of images."""

    def __init__(self) -> None:
        self._pixels, self._since = DEFAULT_PIXELS, -_LIMIT_SECONDS

    def pixels(self, plpy: Any, otherwise: int) -> int:
        """The setting; ``otherwise`` where it cannot be looked up: on a segment, in a query that segments work for."""
        if plpy.segment is not None:
            return otherwise
        now = time.monotonic()
        if now - self._since >= _LIMIT_SECONDS:
            try:
                self._pixels = settings_of(plpy).max_image_pixels
            except plpy.Error as error:
                if error.sqlstate != NotSupported.sqlstate:
                    raise
                return otherwise
            self._since = now
        return self._pixels


_limit = _Limit()


def _image(
    plpy: Any, shape: list[int | None] | None, format: str | None, max_pixels: int | None
) -> ImageEncoding:
    """The encoding of an image, whose bound is the setting's where the caller gives more."""
    image = image_encoding("data", format, shape)
    most = checked("max_pixels", max_pixels, 1, MAX_PIXELS)
    if image.format is ImageFormat.ENCODED:
        most = min(most, _limit.pixels(plpy, most))
    return replace(image, max_pixels=most)


def _of_image(
    plpy: Any,
    work: Callable[[bytes, ImageEncoding, Tick], R],
    data: bytes | None,
    image: ImageEncoding,
) -> R | None:
    """Result of ``work`` with an image; None for NULL."""
    return None if data is None else _read(plpy, image, lambda tick: work(data, image, tick))


def _read(plpy: Any, image: ImageEncoding, work: Callable[[Tick], R]) -> R:
    """Read an image: one that must be decoded with errors by their cause."""
    return work(image_reading.no_tick) if image.format is ImageFormat.RAW else compute(plpy, work)
