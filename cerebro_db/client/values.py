"""Values of Python, NumPy, pandas as plain ones, and as the literals that texts of the database have."""

from __future__ import annotations

import json
import math
import numbers
import re
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    import pandas

_ALLOWED = "numbers, texts, True, False, None, lists, ranges, arrays and dictionaries of these"


def plain(value: Any) -> Any:
    """A value without types of other libraries: their numbers are numbers with the same bits, arrays are lists.

    What is neither a number, a text, an array nor a collection of these stays as it is.
    """
    if value is None or isinstance(value, bool | bytes | bytearray | memoryview):
        return value
    if type(value) in (int, float, str):
        return value
    if isinstance(value, Mapping):
        keys = (key if isinstance(key, tuple) else plain(key) for key in value)
        return dict(zip(keys, map(plain, value.values()), strict=True))
    if isinstance(value, list | tuple | range):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy, columns of pandas
        return plain(value.tolist())
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def literal(value: Any, what: str) -> str:
    """The literal of a value in a grid: it is read as the same value, floats to the bit.

    Raises:
        InvalidArgument: it has none.
    """
    return _written(plain(value), what)


def _written(value: Any, what: str) -> str:
    if isinstance(value, dict):
        pairs = (f"{_key(key, what)}: {_written(one, what)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_written(one, what) for one in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"{what}: got {value}; allowed: finite numbers")
    if value is None or isinstance(value, bool | str):
        return repr(value)
    if isinstance(value, int | float):
        return json.dumps(value)
    raise InvalidArgument(
        f"{what}: got {shown(value)}, of type {type(value).__name__}; allowed: {_ALLOWED}",
        hint="losses, metrics and optimizers are named, such as 'Adam(lr=0.01)'",
    )


def _key(key: Any, what: str) -> str:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return repr(key)
    raise InvalidArgument(f"{what}: got the key {shown(key)}; allowed: texts and whole numbers")


# Without pandas, whose types are not there either, a list of named tuples.
Frame: TypeAlias = "pandas.DataFrame"


def frame(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Frame:
    """Rows with names of columns: a frame of pandas, or a list of named tuples where there is no pandas.

    Args:
        columns: names; those that Python cannot have become ``_1`` and so on in a named tuple.
        rows: as many values each.
    """
    try:
        import pandas
    except ImportError:
        kind = namedtuple("Row", [re.sub(r"\W", "_", one) for one in columns], rename=True)  # type: ignore[misc]
        return [kind(*row) for row in rows]
    return pandas.DataFrame.from_records([tuple(row) for row in rows], columns=list(columns))
