"""SQL that reads images: their values as arrays in binary form, and what is wrong with one."""

from __future__ import annotations

from cerebro_db.configs.images import ImageEncoding

# Rows that are left out and named.
FAULTS_SHOWN = 3


def image_sent(data: str, image: ImageEncoding) -> str:
    """Expression that equals array_send() of the values of an image; empty for NULL."""
    return f"COALESCE(cerebro._image_array({data}, {_arguments(image)}), ''::bytea)"


def image_fault(data: str, image: ImageEncoding, divisor: str = "1.0") -> str:
    """Fault of an image: ``null``, the words that tell it, or NULL.

    The divisor is part of it only because a statement has it for every kind of features.
    """
    return (
        f"CASE WHEN {data} IS NULL THEN 'null' WHEN {divisor}::double precision IS NOT NULL "
        f"THEN cerebro._image_fault({data}, {_arguments(image)}) END"
    )


def image_shape(image: ImageEncoding) -> str:
    """The shape of every image."""
    return f"ARRAY[{', '.join(map(str, image.shape))}]"


def _arguments(image: ImageEncoding) -> str:
    return f"{image_shape(image)}, '{image.format.value}', {image.max_pixels}"
