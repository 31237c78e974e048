"""Entries of cerebro_pack and the other functions that pack."""

from __future__ import annotations

import re
from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.packing import pack as packing
from cerebro_db.packing.encoding_plan import EncodingRequest
from cerebro_db.packing.request import ImageRequest, PackRequest
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host

_NUMBER = re.compile(r"-?[0-9]{1,9}|NULL", re.IGNORECASE | re.ASCII)
_MOST_TEXT = 2000


@entry_of("cerebro_pack")
def pack(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    output_table: str | None,
    dependent_varname: str | None,
    independent_varname: str | None,
    buffer_size: int | None,
    normalizing_const: float | None,
    num_classes: int | list[int | None] | str | None,
    distribution_rules: str | None,
    num_partitions: int | None,
    seed: int | None,
    sample_weight: str | None,
    replace: bool | None,
) -> None:
    """Pack a table for training."""
    host = Host.apart(plpy, gd)
    request = PackRequest(
        source_table,
        output_table,
        dependent_varname,
        independent_varname,
        buffer_size=buffer_size,
        normalizing_const=1.0 if normalizing_const is None else normalizing_const,
        num_classes=_listed(num_classes) if isinstance(num_classes, str) else num_classes,
        distribution_rules=distribution_rules,
        num_partitions=num_partitions,
        seed=seed,
        sample_weight=sample_weight,
        replace=replace,
        search_path=host.search_path,
    )
    packing.pack(host.pool, host.dialect, request, host.notice)


@entry_of("cerebro_pack_columns")
def pack_columns(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    output_table: str | None,
    dependent_varname: str | None,
    independent_varname: str | None,
    buffer_size: int | None,
    numbers: str | None,
    categories: str | None,
    max_categories: int | None,
    encodings: str | None,
    excluded: str | None,
    num_classes: int | None,
    num_partitions: int | None,
    seed: int | None,
    sample_weight: str | None,
    distribution_rules: str | None,
    replace: bool | None,
) -> None:
    """Pack columns of mixed types for training."""
    host = Host.apart(plpy, gd)
    request = PackRequest(
        source_table,
        output_table,
        dependent_varname,
        independent_varname,
        buffer_size=buffer_size,
        num_classes=num_classes,
        num_partitions=num_partitions,
        seed=seed,
        sample_weight=sample_weight,
        distribution_rules=distribution_rules,
        encoding=EncodingRequest(numbers, categories, max_categories, encodings, excluded),
        replace=replace,
        search_path=host.search_path,
    )
    packing.pack(host.pool, host.dialect, request, host.notice)


@entry_of("cerebro_pack_images")
def pack_images(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    output_table: str | None,
    dependent_varname: str | None,
    independent_varname: str | None,
    image_shape: list[int | None] | None,
    image_format: str | None,
    buffer_size: int | None,
    normalizing_const: float | None,
    num_classes: int | None,
    num_partitions: int | None,
    seed: int | None,
    sample_weight: str | None,
    distribution_rules: str | None,
    replace: bool | None,
    on_error: str | None,
) -> None:
    """Pack images for training."""
    host = Host.apart(plpy, gd)
    request = PackRequest(
        source_table,
        output_table,
        dependent_varname,
        independent_varname,
        buffer_size=buffer_size,
        normalizing_const=normalizing_const,
        num_classes=num_classes,
        num_partitions=num_partitions,
        seed=seed,
        sample_weight=sample_weight,
        distribution_rules=distribution_rules,
        image=ImageRequest(image_shape, image_format),
        replace=replace,
        on_error=on_error,
        search_path=host.search_path,
    )
    packing.pack(host.pool, host.dialect, request, host.notice)


@entry_of("cerebro_pack_validation")
def pack_validation(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    output_table: str | None,
    dependent_varname: str | None,
    independent_varname: str | None,
    training_table: str | None,
    buffer_size: int | None,
    distribution_rules: str | None,
    replace: bool | None,
    on_error: str | None,
) -> None:
    """Pack a table the way a training table was packed."""
    host = Host.apart(plpy, gd)
    request = PackRequest(
        source_table,
        output_table,
        dependent_varname,
        independent_varname,
        buffer_size=buffer_size,
        distribution_rules=distribution_rules,
        training_table=training_table,
        is_validation=True,
        replace=replace,
        on_error=on_error,
        search_path=host.search_path,
    )
    packing.pack(host.pool, host.dialect, request, host.notice)


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
