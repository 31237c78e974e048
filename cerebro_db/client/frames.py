"""Rows as a pandas frame where pandas is there, and as named tuples else."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pandas

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
