"""A database with Cerebro-DB: its functions, named as in SQL, and its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_db.client.exporting import exported, is_module
from cerebro_db.client.methods import PREFIX, all_methods, takes
from cerebro_db.client.progress import shown_beside
from cerebro_db.client.run import Report, Run
from cerebro_db.client.values import Frame, Grid, frame, grids, plain
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.sessions.connections import Connections, connections_of
from cerebro_db.requests import FUNCTIONS
from cerebro_db.requests.declared import Job
from cerebro_db.requests.fitting import FitOneRequest, FitRequest, ResumeRequest
from cerebro_db.requests.searching import SearchRequest
from cerebro_db.watching import reading

# These return the number of a run.
_OF_RUNS = ("fit", "fit_multiple", "search", "resume", "extend", "replay")


def connect(database: Any) -> Database:
    """A database that has Cerebro-DB.

    Args:
        database: a DSN such as ``"host=... dbname=..."`` or ``"postgresql://..."`` (empty: libpq's
            environment variables), a SQLAlchemy engine or connection, or a connection of psycopg2 or psycopg,
            which stays yours: nothing is shown while it is busy, and what you have begun is not committed.

    Raises:
        InvalidArgument: it is something else.
        LoopbackFailed: there is no connection.
    """
    return Database(connections_of(database))


class Database:
    """A database with Cerebro-DB.

    All functions of schema ``cerebro`` are methods, without the prefix ``cerebro_``, with their arguments by place
    or by name: ``db.evaluate("points_out", "points_val", "points_scores")``. Those that take Keras models too are
    written out below.

    Args:
        connections: to it.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __enter__(self) -> Database:
        """The database."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection, unless it was yours."""
        self._connections.close()

    # -- models ------------------------------------------------------------------
    def load_model(
        self,
        model_arch_table: str,
        model: Any,
        name: str | None = None,
        description: str | None = None,
        with_weights: bool = False,
        example_inputs: Sequence[Any] | None = None,
    ) -> int:
        """Put an architecture into a table of architectures; returns its model_id.

        Args:
            model_arch_table: made where there is none.
            model: a Keras model, or its JSON as a text or a dictionary, such as :meth:`mlp` returns; or a
                ``torch.nn.Module``, which is exported here, in train mode and in eval mode.
            name, description: for people.
            with_weights: whether training begins with the weights of the model; with those of a module it always does.
            example_inputs: of a module: a tensor of some rows for each input.

        Raises:
            InvalidArgument: it is none of these, or is to have weights and is no model.
        """
        given: dict[str, Any] = {"model_arch_table": model_arch_table}
        given |= {"name": name or getattr(model, "name", None), "description": description}
        if is_module(model):
            given["model_arch"], given["model_weights"] = exported(model, example_inputs)
        else:
            given["model_arch"] = _json_of(model)
        if with_weights and "model_weights" not in given:
            given["model_weights"] = _weights(model)
        found = {key: value for key, value in given.items() if value is not None}
        return int(self._call("cerebro_load_model", found))

    # -- training ----------------------------------------------------------------
    @takes(FitRequest, model_selection_table=None, num_iterations=1)
    def fit_multiple(
        self,
        given: dict[str, Any],
        *,
        models: Sequence[Any] = (),
        grid: Grid | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Train every configuration of a grid, as ``cerebro_fit_multiple`` does; returns the run.

        ``models`` are Keras models, or their JSON (:meth:`mlp` makes one), in place of a table of configurations, which is made and named after
        the output table where it is not given. ``grid`` has their parameters, each a list of what to try: ``{"loss":
        [...], "metrics": [...], "optimizer": ["Adam", "SGD"], "lr": [0.1, 0.01], "batch_size": [32]}``; or both grids
        as in SQL. ``progress`` says whether a bar is shown meanwhile; by default in terminals and notebooks.
        """
        if models:
            output = given["model_output_table"]
            arch_table, keys = self._loaded(given, models)
            table = given["model_selection_table"] or _beside(output, "_configs")
            given["model_selection_table"] = table
            compile_grid, fit_grid = grids(grid)
            replace = given.get("replace", False)
            texts = {"compile_params_grid": compile_grid, "fit_params_grid": fit_grid}
            self.generate_configs(arch_table, table, keys, **texts, replace=replace)
        elif grid is not None:
            raise InvalidArgument("grid: got one without models; allowed: with models := [...]")
        return self._started("fit_multiple", given, progress)

    @takes(FitOneRequest, model_arch_table=None, model_id=None, compile_params="", fit_params="",
           num_iterations=1)  # fmt: skip
    def fit(self, given: dict[str, Any], *, model: Any = None, progress: bool | None = None) -> Run:
        """Train one model, as ``cerebro_fit`` does; returns the run.

        ``model`` is a Keras model, or its JSON, in place of a table of architectures and a model_id.
        """
        if model is not None:
            table, (number,) = self._loaded(given, [model])
            given |= {"model_arch_table": table, "model_id": number}
        return self._started("fit", given, progress)

    @takes(SearchRequest, model_arch_table=None, model_selection_table=None, model_id_list=None,
           compile_params_grid=None, fit_params_grid=None)  # fmt: skip
    def search(
        self,
        given: dict[str, Any],
        *,
        models: Sequence[Any] = (),
        grid: Grid | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Search the best model of a space, as ``cerebro_search`` does; returns the run.

        ``models`` are Keras models, or their JSON (:meth:`mlp` makes one), in place of a table of architectures; ``grid`` is as for
        :meth:`fit_multiple`, where a range is ``[low, high, "log"]``.
        """
        if models:
            table, keys = self._loaded(given, models)
            given |= {"model_arch_table": table, "model_id_list": keys}
        if grid is not None:
            given["compile_params_grid"], given["fit_params_grid"] = grids(grid)
        return self._started("search", given, progress)

    @takes(ResumeRequest)
    def resume(self, given: dict[str, Any], *, progress: bool | None = None) -> Run:
        """Go on with a run that has stopped, as ``cerebro_resume`` does; returns the run."""
        return self._started("resume", given, progress)

    # -- runs --------------------------------------------------------------------
    def run(self, run_id: int | None = None) -> Run:
        """A run; by default the newest that goes on, or else the newest.

        Raises:
            UndefinedRun: you have no such run.
        """
        return Run(self._connections, reading.run_facts(self._connections, run_id).run_id)

    def report(self, model: str) -> Report:
        """A report of a registered model; needs the extra ``report``.

        Args:
            model: such as ``visits@champion``.
        """
        from cerebro_db.watching.report import model_html

        return Report(model_html(self._connections, model))

    def runs(self, limit: int = 20) -> Frame:
        """The newest runs, the newest first."""
        columns = (
            "run_id", "name", "status", "owner", "source_table", "model_output_table", "num_iterations",
            "created", "started", "finished", "error",
        )  # fmt: skip
        found = reading.runs_facts(self._connections, limit)
        return frame(columns, [[getattr(one, name) for name in columns] for one in found])

    # -- SQL ---------------------------------------------------------------------
    def sql(self, query: str, parameters: Sequence[Any] = ()) -> Frame:
        """The rows of a query, whose parameters are ``%s``; without any, a per cent sign is one."""
        text = query if parameters else query.replace("%", "%%")
        return frame(*self._connections.patiently(text, parameters))

    def table(self, name: str) -> Frame:
        """The rows of a table."""
        ((known,),) = self._connections.run("SELECT %s::regclass::text", (name,))
        return self.sql(f"SELECT * FROM {known}")

    def __getattr__(self, name: str) -> Any:
        """Refuse names that are no function."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"Cerebro-DB has no function cerebro_{name}")

    # -- inside ------------------------------------------------------------------
    def _call(self, name: str, given: Mapping[str, Any]) -> Any:
        """Call a function with arguments by name; its value, a frame of its rows, a run, or the table that it makes."""
        arguments = ", ".join(f"{key} := %s" for key in given)
        call = f"cerebro.{name}({arguments})"
        values = [_bound(value) for value in given.values()]
        functions = FUNCTIONS[name]
        if functions[0].returns == "bytea":
            return b"".join(self._connections.large_value(call, values))
        names, rows = self._connections.patiently(f"SELECT * FROM {call}", values)
        if len(names) > 1 or any(one.returns.startswith("SETOF") for one in functions):
            return frame(names, rows)
        value = rows[0][0]
        if name.removeprefix(PREFIX) in _OF_RUNS:
            return Run(self._connections, int(value))
        if functions[0].returns == "void":
            job = functions[0].job
            return given.get(job.makes or "") if isinstance(job, Job) else None
        return value

    def _started(self, name: str, given: dict[str, Any], progress: bool | None) -> Run:
        wait = given.get("wait", True)
        with shown_beside(self._connections, given.get("run_id"), progress, wait):
            found: Run = self._call(f"{PREFIX}{name}", given)
        return found

    def _loaded(self, given: Mapping[str, Any], models: Sequence[Any]) -> tuple[str, list[int]]:
        """The table of architectures of Keras models, and the model_id of each."""
        table = _beside(given["model_output_table"], "_models")
        replace = bool(given.get("replace"))
        if replace and self._connections.run("SELECT to_regclass(%s)::text", (table,))[0][0]:
            self.drop_outputs(table)
        return table, [self.load_model(table, one) for one in models]


for _name, _method in all_methods().items():
    if _name not in vars(Database):
        setattr(Database, _name, _method)


def _bound(value: Any) -> Any:
    """A value as a driver takes it: objects are JSON, tuples and arrays are lists."""
    value = plain(value)
    return json.dumps(value) if isinstance(value, dict) else value


def _beside(table: str, suffix: str) -> str:
    """The name of a table beside another one."""
    return f'{table[:-1]}{suffix}"' if table.endswith('"') else f"{table}{suffix}"


def _json_of(model: Any) -> str:
    """The JSON of a model, or the name of a net."""
    if isinstance(model, str):
        return model
    if isinstance(model, Mapping):
        return json.dumps(plain(model))
    if not hasattr(model, "to_json"):
        raise InvalidArgument(
            f"model: got {shown(model)}, of type {type(model).__name__}; allowed: a Keras model, its JSON, or a PyTorch module"
        )
    return str(model.to_json())


def _weights(model: Any) -> bytes:
    """The weights of a Keras model as ``cerebro_load_model`` reads them."""
    import numpy as np

    if not hasattr(model, "get_weights"):
        raise InvalidArgument(
            f"with_weights: got True for a model of type {type(model).__name__}; allowed: for a Keras model",
            hint="its JSON has no weights; model_weights of cerebro.cerebro_load_model are their bytes",
        )
    parts = [_as_float32(np, one).ravel() for one in model.get_weights()]
    return np.concatenate([np.zeros(0, np.float32), *parts]).tobytes()


def _as_float32(np: Any, weight: Any) -> Any:
    """An array of weights as float32.

    Raises:
        InvalidArgument: it has whole numbers, or numbers beyond float32, that would become others.
    """
    given = np.asarray(weight)
    with np.errstate(over="ignore"):
        found = given.astype(np.float32)
    changed = found.astype(given.dtype) != given if given.dtype.kind in "iu" else None
    if changed is None:
        changed = np.isfinite(given) & ~np.isfinite(found)
    if changed.any():
        raise InvalidArgument(
            f"model: got the weight {given[changed].flat[0]!s} of type {given.dtype}; allowed: what float32 holds",
            hint="weights are stored as float32: numbers up to 3.4e38, whole ones up to 16777216",
        )
    return found
