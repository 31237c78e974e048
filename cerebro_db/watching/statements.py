"""The SQL that begins a run like one that is there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cerebro_db.watching.reading import RunFacts, Source

_FIT = (
    ("num_iterations", None), ("use_gpus", False), ("validation_table", None),
    ("metrics_compute_frequency", None), ("warm_start", False), ("name", None), ("description", None),
    ("use_caching", True), ("seed", 0), ("durability", "hop"), ("schedule", "hopper"),
)  # fmt: skip
# cerebro_fit has no such argument.
_OF_SEVERAL = ("schedule",)


def statement_of(source: Source, run: RunFacts) -> str:
    """The call that asks for the same run under another output table."""
    output = f"{run.model_output_table}_again"
    if run.search is not None:
        return _search(run, run.search, output)
    tables: dict[str, Any] = {"source_table": run.source_table, "model_output_table": output}
    options = {name: getattr(run, name) for name, default in _FIT if getattr(run, name) != default}
    if run.model_selection_table is not None:
        given = {**tables, "model_selection_table": run.model_selection_table, **options}
        return call("cerebro_fit_multiple", given)
    rows = source.run(_ONLY, (run.run_id,))
    one = dict(zip(("model_id", "compile_params", "fit_params"), rows[0], strict=True))
    given = {**tables, "model_arch_table": run.model_arch_table, **one}
    given |= {name: value for name, value in options.items() if name not in _OF_SEVERAL}
    return call("cerebro_fit", given)


_ONLY = """
SELECT c.model_id, c.compile_params, c.fit_params FROM cerebro._configurations c WHERE c.run_id = %s LIMIT 1
"""


def _search(run: RunFacts, search: Mapping[str, Any], output: str) -> str:
    """The decisions of a search again, to the same bits; and the search itself, from its beginning."""
    again = call("cerebro_replay", {"run_id": run.run_id, "model_output_table": output})
    space, budget = search.get("space") or {}, search.get("budget") or {}
    given = {
        "source_table": run.source_table,
        "model_output_table": output,
        "model_arch_table": run.model_arch_table,
        "model_selection_table": None,
        "model_id_list": space.get("model_ids"),
        "compile_params_grid": space.get("compile_params_grid"),
        "fit_params_grid": space.get("fit_params_grid"),
        "automl_method": search.get("method"),
        "automl_params": ", ".join(f"{k}={v!r}" for k, v in (search.get("params") or {}).items()),
        "validation_table": run.validation_table,
        "seed": run.seed,
        "concurrency": search.get("concurrency"),
        "deterministic": search.get("deterministic"),
        **{name: value for name, value in budget.items() if _is_limit(value)},
    }
    kept = {name: one for name, one in given.items() if one not in (None, "")}
    kept.setdefault("model_selection_table", None)
    return f"{again}\n\n-- or from the beginning:\n{call('cerebro_search', kept)}"


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value < 2**31 - 1


def call(function: str, given: Mapping[str, Any]) -> str:
    """A call of a function with its arguments by name, as psql takes it."""
    listed = ",\n".join(f"    {name} := {literal(value)}" for name, value in given.items())
    return f"SELECT cerebro.{function}(\n{listed});"


def literal(value: Any) -> str:
    """A value as SQL, whatever it holds."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    text = str(value).replace("'", "''")
    return f"E'{text.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{text}'"
