"""What the worker's helper functions for images call."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.images import ImageEncoding, image_encoding
from cerebro_db.configs.scaling import check_divisor
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.training import images


@entry
def array(
    plpy: Any, data: bytes | None, shape: list[int | None] | None, format: str | None
) -> bytes | None:
    """An image as the server's array_send() would write it; None for NULL."""
    return None if data is None else images.image_wire(data, _image(shape, format))


@entry
def fault(
    plpy: Any, data: bytes | None, shape: list[int | None] | None, format: str | None
) -> str | None:
    """What is wrong with an image; None for NULL."""
    return None if data is None else images.image_fault(data, _image(shape, format))


@entry_of("cerebro_image_array")
def values(
    plpy: Any,
    data: bytes | None,
    shape: list[int | None] | None,
    format: str | None,
    divisor: float | None,
) -> list[Any] | None:
    """The values of an image, divided, as nested lists; None for NULL."""
    image = _image(shape, format)
    wanted = check_divisor(divisor)
    found: list[Any] | None = None
    if data is not None:
        found = images.image_values(data, image, wanted).tolist()
    return found


def _image(shape: list[int | None] | None, format: str | None) -> ImageEncoding:
    return image_encoding("data", format, shape)
