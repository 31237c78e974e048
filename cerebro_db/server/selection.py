"""Entries of cerebro_generate_configs and cerebro_load_configs."""

from __future__ import annotations

from typing import Any

from cerebro_db.models import selection
from cerebro_db.models.selection import GridRequest, ListRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of


@entry_of("cerebro_generate_configs")
def generate_configs(
    plpy: Any,
    gd: dict[str, Any],
    model_arch_table: str | None,
    model_selection_table: str | None,
    model_id_list: list[int | None] | None,
    compile_params_grid: str | None,
    fit_params_grid: str | None,
    search_type: str | None,
    num_configs: int | None,
    random_state: int | None,
    object_table: str | None,
    replace: bool | None,
) -> None:
    """Write the configurations of a grid, or of a random search."""
    request = GridRequest(
        model_arch_table,
        model_selection_table,
        model_id_list,
        compile_params_grid,
        fit_params_grid,
        search_type,
        num_configs,
        random_state,
        object_table,
        replace,
    )
    _select(plpy, request)


@entry_of("cerebro_load_configs")
def load_configs(
    plpy: Any,
    gd: dict[str, Any],
    model_arch_table: str | None,
    model_selection_table: str | None,
    model_id_list: list[int | None] | None,
    compile_params_list: list[str | None] | None,
    fit_params_list: list[str | None] | None,
    object_table: str | None,
    replace: bool | None,
) -> None:
    """Write every combination of what is listed."""
    request = ListRequest(
        model_arch_table,
        model_selection_table,
        model_id_list,
        compile_params_list,
        fit_params_list,
        object_table,
        replace,
    )
    _select(plpy, request)


def _select(plpy: Any, request: GridRequest | ListRequest) -> None:
    with caller_session(plpy, writes=True) as session:
        selected = selection.select(session, request)
    plpy.notice(str(selected))
