"""Limits of architectures, and the reading of their JSON text within these limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from cerebro_db.configs.messages import shown
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidArchitecture

_MIB = 2**20
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class ArchitectureLimits:
    """Limits of architectures.

    Args:
        characters: of the JSON text.
        depth: levels of nesting in the JSON.
        text: characters of a text inside the JSON.
        integer: of any whole number, except seeds.
        layers: number of layers and models, nested ones included; a layer that is called more
            than once counts for every call.
        parameters: number of weights, trainable or not.
        elements: numbers in one output of one layer, or in its attention scores, for one row.
        steps: time steps of a recurrent layer that is unrolled.
    """

    characters: int = 4 * _MIB
    depth: int = 100
    text: int = 1000
    integer: int = 2**31 - 1
    layers: int = Settings.max_layers
    parameters: int = Settings.max_parameters
    elements: int = 2**28
    steps: int = 1000

    @classmethod
    def of(cls, settings: Settings) -> ArchitectureLimits:
        """The limits that an administrator has set."""
        return cls(layers=settings.max_layers, parameters=settings.max_parameters)


def read_json(text: object, limits: ArchitectureLimits) -> dict[str, Any]:
    """The JSON object of a text; what follows may recurse into it and show its texts."""
    if not isinstance(text, str):
        refuse(f"got {'NULL' if text is None else type(text).__name__}; it must be a JSON text")
    if len(text) > limits.characters:
        refuse(f"got a text of {len(text)} characters; at most {limits.characters} are allowed")
    try:
        config = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        refuse(f"got a text that is not allowed JSON: {reason}")
    check_tree(config, limits)
    if not isinstance(config, dict):
        refuse("got JSON that is not an object; it must be the text of a model's to_json()")
    return config


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Refuses the architecture."""
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "..."
    raise InvalidArchitecture(f"model architecture: {message}", hint)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def check_tree(value: Any, limits: ArchitectureLimits) -> None:
    """Check the depth and the texts of JSON, level by level, so that nothing after it can recurse too deeply."""
    level, depth = [value], 0
    while level:
        if depth > limits.depth:
            refuse(f"nested deeper than the {limits.depth} levels allowed")
        level, depth = [child for node in level for child in _children(node, limits)], depth + 1


def _children(node: Any, limits: ArchitectureLimits) -> Iterator[Any]:
    if isinstance(node, dict):
        for key in node:
            _check_text(key, limits)
        yield from node.values()
    elif isinstance(node, list):
        yield from node
    elif isinstance(node, str):
        _check_text(node, limits)


def _check_text(text: str, limits: ArchitectureLimits) -> None:
    if len(text) > limits.text:
        refuse(f"got {shown(text)}, a text of {len(text)} characters inside the JSON; at most "
               f"{limits.text} are allowed")  # fmt: skip
    # Half a surrogate pair has no bytes, and the server's texts hold no NUL.
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        refuse(f"got {shown(text)}, which is not Unicode")
    if "\0" in text:
        refuse(f"got {shown(text)}, which has a NUL character")
