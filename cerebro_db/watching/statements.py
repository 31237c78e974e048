"""The SQL that begins a run like one that is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.postgres.names import value_literal
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.watching.reading import RunFacts, Source
from cerebro_db.wire import plain

# Named apart; and the number of workers, which changes no results.
_APART = (
    "source_table", "model_output_table", "model_selection_table", "schedule", "strategy", "num_workers",
)  # fmt: skip


def statement_of(source: Source, run: RunFacts) -> str:
    """The call that asks for the same run under another output table."""
    output = _beside(run.model_output_table)
    if run.search is not None:
        return _search(run, SearchSpec.from_text(json.dumps(run.search)), output)
    tables: dict[str, Any] = {"source_table": run.source_table, "model_output_table": output}
    function = FitRequest.function
    options = {
        name: value
        for name in function.arguments
        if name not in _APART
        and (value := getattr(run, name, None)) not in (None, "", function.defaults.get(name))
    }
    options["strategy"] = run.schedule  # always: it decides the bits, whatever the default is
    if run.model_selection_table is not None:
        given = {**tables, "model_selection_table": run.model_selection_table, **options}
        return call("cerebro_fit_multiple", given)
    rows = source.run(_ONLY, (run.run_id,))
    one = dict(zip(("model_id", "compile_params", "fit_params"), rows[0], strict=True))
    given = {**tables, "model_arch_table": run.model_arch_table, **one, **options}
    return call("cerebro_fit", given)


def _beside(table: str) -> str:
    """Another name beside that of a table, which is written as the server would."""
    is_quoted = table.endswith('"')
    return f'{table[:-1]}_again"' if is_quoted else f"{table}_again"


_ONLY = """
SELECT c.model_id, c.compile_params, c.fit_params FROM cerebro._configurations c WHERE c.run_id = %s LIMIT 1
"""


def _search(run: RunFacts, spec: SearchSpec, output: str) -> str:
    """Two calls: one replays the decisions of a search to the same bits, one searches from the beginning."""
    replayed = call("cerebro_replay", {"run_id": run.run_id, "model_output_table": output})
    if spec.replays:
        return replayed
    given: dict[str, Any] = {
        "source_table": run.source_table,
        "model_output_table": output,
        "model_arch_table": run.model_arch_table,
        "model_selection_table": None,
        "model_id_list": spec.space.model_ids,
        "compile_params_grid": spec.space.compile_params_grid,
        "fit_params_grid": spec.space.fit_params_grid,
        "automl_method": spec.method,
        "automl_params": _named(spec.params),
        "random_state": spec.seed,
        "objective": ", ".join(map(_objective, spec.objectives)),
        "early_stopping": _named(_stopping(spec)),
        **{_LIMITS.get(name, name): limit for name, limit in plain(spec.budget).items()},
        "concurrency": spec.concurrency,
        "deterministic": spec.deterministic,
    }
    names = ("validation_table", "name", "description", "seed", "durability", "schedule")
    given |= {name: getattr(run, name) for name in names} | {"use_gpus": run.use_gpus or None}
    kept = {
        name: one
        for name, one in given.items()
        if name == "model_selection_table" or one not in (None, "")
    }
    # Its trials are kept with the search, and the number of their run is not.
    learnt = ", with warm_start_run := that of the run it has learnt from" if spec.earlier else ""
    return f"{replayed}\n\n-- or from the beginning{learnt}:\n{call('cerebro_search', kept)}"


# As the function calls them.
_LIMITS = {"max_configurations": "max_configs"}
_STOPPING = {"least_improvement": "min_delta"}


def _stopping(spec: SearchSpec) -> dict[str, Any]:
    return {_STOPPING.get(name, name): one for name, one in plain(spec.early_stopping).items()}


def _objective(one: Objective) -> str:
    return f"{one.monitor}(mode={'max' if one.maximise else 'min'})"


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={one!r}" for name, one in values.items() if one is not None)


def call(function: str, given: Mapping[str, Any]) -> str:
    """A call of a function with its arguments by name, as psql takes it."""
    listed = ",\n".join(f"    {name} := {value_literal(value)}" for name, value in given.items())
    return f"SELECT cerebro.{function}(\n{listed});"
