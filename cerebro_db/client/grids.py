"""Grids as Python has them, as the texts that functions in the database read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_db.client.values import literal, plain
from cerebro_db.configs.grids.parameters import COMPILE_KEYS, FIT_KEYS
from cerebro_db.errors import InvalidArgument

Grid = Mapping[str, Any]
_BOTH = ("compile_params_grid", "fit_params_grid")
_OPTIMIZERS, _MODELS = "optimizer_params_list", "model_params_list"
_COMPILING = tuple(name for name in COMPILE_KEYS if name != "optimizer")


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
