"""What the worker's helper functions for images call."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.images import ImageEncoding, image_encoding
from cerebro_db.server.entry import entry
from cerebro_db.training import images


@entry
def array(
    plpy: Any, data: bytes | None, shape: list[int | None] | None, format: str | None
) -> bytes:
    """An image as the server's array_send() would write it."""
    return images.image_wire(data or b"", _image(shape, format))


@entry
def fault(
    plpy: Any, data: bytes | None, shape: list[int | None] | None, format: str | None
) -> str | None:
    """What is wrong with an image."""
    return images.image_fault(data or b"", _image(shape, format))


def _image(shape: list[int | None] | None, format: str | None) -> ImageEncoding:
    return image_encoding("data", format, shape)
