"""Values and grids of Python, NumPy, pandas as plain ones, and as the texts that the database reads."""

from __future__ import annotations

import json
import math
import numbers
import re
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from cerebro_db.configs.grids.parameters import COMPILE_KEYS, FIT_KEYS
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    import pandas

Grid = Mapping[str, Any]
_BOTH = ("compile_params_grid", "fit_params_grid")
_OPTIMIZERS, _MODELS = "optimizer_params_list", "model_params_list"
_COMPILING = tuple(name for name in COMPILE_KEYS if name != "optimizer")
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


def grids(grid: Grid | None) -> tuple[str, str]:
    """Compile and fit parameters of a grid, as texts.

    Args:
        grid: of each parameter a list of what to try, or one value. Those that are neither compile nor fit
            parameters are arguments of the optimizers. Or both grids as in SQL, under ``compile_params_grid`` and
            ``fit_params_grid``.

    Raises:
        InvalidArgument: there is none, or it has both forms.
    """
    if grid is None or not len(grid):
        raise InvalidArgument(
            "grid: got none; allowed: parameters such as {'loss': ['mse'], 'lr': [0.1, 0.01]}"
        )
    if any(name in grid for name in _BOTH):
        if wrong := [name for name in grid if name not in _BOTH]:
            raise InvalidArgument(f"grid: got {wrong[0]} beside {_BOTH[0]} or {_BOTH[1]}")
        compile_grid, fit_grid = (grid.get(name, {}) for name in _BOTH)
        return _text(compile_grid), _text(fit_grid)
    fitting = {name: _listed(value) for name, value in grid.items() if name in FIT_KEYS}
    return literal(_compiling(grid), "grid"), literal(fitting, "grid")


def _compiling(grid: Grid) -> dict[str, Any]:
    """The compile parameters of a grid, with arguments of optimizers in their place."""
    lists = {name: value for name, value in grid.items() if name in (_OPTIMIZERS, _MODELS)}
    compiling = {name: _listed(value) for name, value in grid.items() if name in _COMPILING}
    arguments = {
        name: _listed(value)
        for name, value in grid.items()
        if name not in (*lists, *compiling, *FIT_KEYS)
    }
    if arguments and _OPTIMIZERS in lists:
        raise InvalidArgument(
            f"grid: got {next(iter(arguments))} beside {_OPTIMIZERS}; allowed: within it"
        )
    return compiling | lists | ({_OPTIMIZERS: [arguments]} if arguments else {})


def _listed(value: Any) -> Any:
    found = plain(value)
    return found if isinstance(found, list) else [found]


def _text(grid: Any) -> str:
    return grid if isinstance(grid, str) else literal(dict(grid), "grid")


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
