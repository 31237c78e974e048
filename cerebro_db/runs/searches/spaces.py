"""The space of a search from the arguments that name it."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.configs.grids.grid import parse_compile_grid, parse_fit_grid
from cerebro_db.configs.grids.model_selection import checked_model_ids
from cerebro_db.core.spec import Space
from cerebro_db.errors import InvalidArgument


def space_of(
    model_id_list: Sequence[int | None] | None,
    compile_params_grid: str | None,
    fit_params_grid: str | None,
) -> Space:
    """A space, its texts parsed once.

    Raises:
        InvalidArgument: there is no model, or a grid is wrong.
    """
    for name, text in (
        ("compile_params_grid", compile_params_grid),
        ("fit_params_grid", fit_params_grid),
    ):
        if text is None:
            raise InvalidArgument(
                f"{name}: got NULL; allowed: a dictionary such as {_EXAMPLES[name]}"
            )
    models = tuple(checked_model_ids(model_id_list))
    space = Space(models, str(compile_params_grid), str(fit_params_grid))
    parse_compile_grid(space.compile_params_grid)
    parse_fit_grid(space.fit_params_grid)
    return space


_EXAMPLES = {
    "compile_params_grid": "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam']}]}",
    "fit_params_grid": "{'batch_size': [16, 32]}",
}
