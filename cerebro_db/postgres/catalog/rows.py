"""Rows as JSON for the functions that write the catalog; the server reads it by the columns of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

# Columns of type json and jsonb, which are given as text.
_JSON = frozenset({"detail", "heard"})


def rows_json(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows with values of these columns. Numbers are read back to the bit."""
    found = [
        {name: _plain(name, value) for name, value in zip(names, row, strict=True)} for row in rows
    ]
    return json.dumps(found, ensure_ascii=False, allow_nan=False)


def _plain(name: str, value: Any) -> Any:
    if name in _JSON:
        return json.loads(value)
    if isinstance(value, float) and not math.isfinite(value):
        return _text(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return f"\\x{bytes(value).hex()}"
    # Servers before PostgreSQL 10 read no array of JSON.
    return array_text(value) if isinstance(value, list | tuple) else value


def array_text(values: Sequence[Any]) -> str:
    """An array as the text that the server reads."""
    texts = ["NULL" if one is None else _quoted(_text(one)) for one in values]
    return f"{{{','.join(texts)}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: Any) -> str:
    """A number or a text as the server reads it."""
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(float(value))
