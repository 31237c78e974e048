"""A database with Cerebro-DB: its functions, named as in SQL, and its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.client.frames import Frame, frame
from cerebro_db.client.grids import Grid, grids
from cerebro_db.client.progress import shown_beside
from cerebro_db.client.run import Run
from cerebro_db.client.values import plain
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.connections import Connections, connections_of
from cerebro_db.watching import reading

_PREFIX = "cerebro_"
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


@dataclass(frozen=True)
class Signature:
    """A function in the database.

    Attributes:
        names: of its arguments, in their order.
        result: name of its type.
    """

    names: tuple[str, ...]
    is_set: bool
    result: str
    comment: str


class Database:
    """A database with Cerebro-DB.

    All functions of schema ``cerebro`` are methods, without the prefix ``cerebro_``, with their arguments by place
    or by name: ``db.evaluate("points_out", "points_val", "points_scores")``. Those that take Keras models or
    Python values are written out below.

    Args:
        connections: to it.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._known: dict[str, list[Signature]] | None = None

    def __enter__(self) -> Database:
        """The database."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection, unless it was yours."""
        self._connections.close()

    # -- data --------------------------------------------------------------------
    def pack(
        self,
        source_table: str,
        output_table: str,
        dependent_varname: str,
        independent_varname: str,
        buffer_size: int | None = None,
        normalizing_const: float | None = None,
        num_classes: int | None = None,
        distribution_rules: str | None = None,
        num_partitions: int | None = None,
        seed: int | None = None,
        sample_weight: str | None = None,
        replace: bool = False,
        encoding_of: str | None = None,
    ) -> str:
        """Pack a table for training; returns the name of the packed table.

        Args:
            source_table: rows with features and a target.
            output_table: to be made.
            dependent_varname: column of the target; several are separated by commas.
            independent_varname: column of the features, an array of numbers.
            buffer_size: rows of a buffer.
            normalizing_const: features are divided by it.
            num_classes: allowed for classes that the table does not have.
            distribution_rules: on Greenplum, the segments.
            num_partitions: by default one for each processor.
            seed: of the order of rows.
            sample_weight: column of the weights of rows.
            replace: whether tables of an earlier call give way.
            encoding_of: a packed table or models, whose classes, shapes and normalizing constant hold here.
        """
        self._call("pack", _given(locals()))
        return output_table

    def pack_columns(
        self,
        source_table: str,
        output_table: str,
        dependent_varname: str,
        independent_varname: str,
        *,
        encoding_of: str | None = None,
        encodings: Mapping[str, str] | None = None,
        replace: bool = False,
        **options: Any,
    ) -> str:
        """Pack columns of mixed types for training; returns the name of the packed table.

        Args:
            source_table, output_table, dependent_varname, replace: as for :meth:`pack`.
            independent_varname: columns separated by commas, or ``*``.
            encoding_of: a packed table or models such as ``model:name@alias``, whose encoding and classes are
                used; by default the rows are surveyed anew.
            encodings: methods of some columns, by their names.
            options: further arguments of ``cerebro_pack_columns``, by name.
        """
        given = _given(locals(), "options", "encodings") | options
        if encodings is not None:
            given["encodings"] = json.dumps(dict(encodings))
        self._call("pack_columns", given)
        return output_table

    def pack_validation(
        self,
        source_table: str,
        output_table: str,
        dependent_varname: str,
        independent_varname: str,
        training_table: str,
        buffer_size: int | None = None,
        distribution_rules: str | None = None,
        replace: bool = False,
        on_error: str | None = None,
    ) -> str:
        """Pack a table like a training table, for validation; returns the name of the packed table.

        Args:
            source_table, output_table, dependent_varname, independent_varname: as for :meth:`pack`.
            training_table: the packed table whose classes and encoding hold here.
            buffer_size, distribution_rules, replace: as for :meth:`pack`.
            on_error: of images: 'stop' or 'ignore'.
        """
        self._call("pack_validation", _given(locals()))
        return output_table

    # -- models ------------------------------------------------------------------
    def load_model(
        self,
        model_arch_table: str,
        model: Any,
        name: str | None = None,
        description: str | None = None,
        with_weights: bool = False,
    ) -> int:
        """Put an architecture into a table of architectures; returns its model_id.

        Args:
            model_arch_table: made where there is none.
            model: a Keras model, or its JSON.
            name, description: for people.
            with_weights: whether training begins with the weights of the model.
        """
        given: dict[str, Any] = {"model_arch_table": model_arch_table}
        given |= {"model_arch": model if isinstance(model, str) else model.to_json()}
        given |= {"name": name or getattr(model, "name", None), "description": description}
        if with_weights:
            given["model_weights"] = _weights(model)
        return int(self._call("load_model", _given(given)))

    # -- training ----------------------------------------------------------------
    def fit_multiple(
        self,
        source_table: str,
        model_output_table: str,
        model_selection_table: str | None = None,
        num_iterations: int = 1,
        use_gpus: bool = False,
        validation_table: str | None = None,
        metrics_compute_frequency: int | None = None,
        warm_start: bool = False,
        name: str | None = None,
        description: str | None = None,
        use_caching: bool = True,
        seed: int = 0,
        num_workers: int | None = None,
        durability: str | None = None,
        max_seconds: float | None = None,
        schedule: str | None = None,
        replace: bool = False,
        wait: bool = True,
        priority: int | None = None,
        strategy: str | None = None,
        strategy_params: str | None = None,
        deterministic: bool | None = None,
        *,
        models: Sequence[Any] = (),
        grid: Grid | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Train every configuration of a grid, as ``cerebro_fit_multiple`` does.

        Args:
            source_table: the packed table.
            model_output_table: to be made.
            model_selection_table: the configurations. With ``models`` it is made, and named after the output
                table where it is not given.
            num_iterations: epochs.
            use_gpus, validation_table, metrics_compute_frequency, warm_start, name, description, use_caching,
                seed, num_workers, durability, max_seconds, schedule, replace, strategy, strategy_params,
                deterministic: as in SQL.
            wait: False returns at once, and the run goes on without this session.
            priority: in the queue of runs.
            models: Keras models, or their JSON, in place of a table of configurations.
            grid: parameters of the models, each a list of what to try: ``{"loss": [...], "metrics": [...],
                "optimizer": ["Adam", "SGD"], "lr": [0.1, 0.01], "batch_size": [32]}``; or both grids as in SQL.
            progress: whether a bar is shown meanwhile; by default in terminals and notebooks.

        Returns:
            The run. It has ended, with ``wait``.
        """
        given = _given(locals(), "models", "grid", "wait", "progress")
        if models:
            arch_table = self._loaded(model_output_table, models, replace)
            table = model_selection_table or _beside(model_output_table, "_configs")
            compile_grid, fit_grid = grids(grid)
            self._call(
                "generate_configs",
                {
                    "model_arch_table": arch_table[0], "model_selection_table": table,
                    "model_id_list": arch_table[1], "compile_params_grid": compile_grid,
                    "fit_params_grid": fit_grid, "replace": replace,
                },
            )  # fmt: skip
            given["model_selection_table"] = table
        elif grid is not None:
            raise InvalidArgument("grid: got one without models; allowed: with models := [...]")
        return self._started("fit_multiple", given, wait, progress)

    def fit(
        self,
        source_table: str,
        model_output_table: str,
        model_arch_table: str | None = None,
        model_id: int | None = None,
        compile_params: str = "",
        fit_params: str = "",
        num_iterations: int = 1,
        *,
        model: Any = None,
        wait: bool = True,
        progress: bool | None = None,
        **options: Any,
    ) -> Run:
        """Train one model, as ``cerebro_fit`` does.

        Args:
            source_table: the packed table.
            model_output_table: to be made.
            model_arch_table, model_id: its architecture; or
            model: a Keras model, or its JSON.
            compile_params: such as ``"loss='mse',optimizer='Adam(lr=0.01)',metrics=['mae']"``.
            fit_params: such as ``"batch_size=32"``.
            num_iterations: epochs.
            wait, progress: as for :meth:`fit_multiple`.
            options: further arguments of ``cerebro_fit``, by name.
        """
        given = _given(locals(), "model", "wait", "progress", "options") | _given(options)
        given["fit_params"] = fit_params
        if model is not None:
            table, (number,) = self._loaded(
                model_output_table, [model], bool(options.get("replace"))
            )
            given |= {"model_arch_table": table, "model_id": number}
        return self._started("fit", given, wait, progress)

    def search(
        self,
        source_table: str,
        model_output_table: str,
        model_arch_table: str | None = None,
        model_selection_table: str | None = None,
        model_id_list: Sequence[int] | None = None,
        compile_params_grid: str | None = None,
        fit_params_grid: str | None = None,
        automl_method: str = "hyperband",
        automl_params: str | None = None,
        *,
        models: Sequence[Any] = (),
        grid: Grid | None = None,
        wait: bool = True,
        progress: bool | None = None,
        **options: Any,
    ) -> Run:
        """Search the best model of a space, as ``cerebro_search`` does.

        Args:
            source_table: the packed table.
            model_output_table: to be made.
            model_arch_table, model_id_list: the architectures; or
            models: Keras models, or their JSON.
            model_selection_table: to be made of the best configuration.
            compile_params_grid, fit_params_grid: the space; or
            grid: both, as for :meth:`fit_multiple`; a range is ``[low, high, "log"]``.
            automl_method: such as 'hyperband', 'asha', 'tpe', 'bohb', 'pbt'.
            automl_params: such as 'R=9, eta=3'.
            wait, progress: as for :meth:`fit_multiple`.
            options: further arguments of ``cerebro_search``, by name.
        """
        given = _given(locals(), "models", "grid", "wait", "progress", "options") | _given(options)
        given["model_selection_table"] = model_selection_table
        if models:
            table, keys = self._loaded(model_output_table, models, bool(options.get("replace")))
            given |= {"model_arch_table": table, "model_id_list": keys}
        if grid is not None:
            given["compile_params_grid"], given["fit_params_grid"] = grids(grid)
        return self._started("search", given, wait, progress)

    def resume(
        self, run_id: int, *, wait: bool = True, progress: bool | None = None, **options: Any
    ) -> Run:
        """Go on with a run that has stopped, as ``cerebro_resume`` does.

        Args:
            run_id: of the run.
            wait, progress: as for :meth:`fit_multiple`.
            options: further arguments of ``cerebro_resume``, by name.
        """
        given = {"run_id": run_id, **_given(options)}
        return self._started("resume", given, wait, progress)

    # -- runs --------------------------------------------------------------------
    def run(self, run_id: int | None = None) -> Run:
        """A run; by default the newest that goes on, or else the newest.

        Raises:
            UndefinedRun: you have no such run.
        """
        return Run(self._connections, reading.run_facts(self._connections, run_id).run_id)

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
        """A function of schema ``cerebro``, without its prefix."""
        if name.startswith("_") or name not in self._functions():
            raise AttributeError(f"Cerebro-DB has no function cerebro_{name}")
        signatures = self._functions()[name]

        def function(*values: Any, **named: Any) -> Any:
            return self._call(name, _placed(name, signatures, values, named))

        function.__name__ = function.__qualname__ = name
        shown = "\n".join(f"{name}({', '.join(one.names)})" for one in signatures)
        function.__doc__ = f"{signatures[0].comment}\n\n{shown}"
        return function

    def __dir__(self) -> list[str]:
        """Names of the methods, and of the functions of the database."""
        return sorted({*super().__dir__(), *self._functions()})

    # -- inside ------------------------------------------------------------------
    def _functions(self) -> dict[str, list[Signature]]:
        if self._known is None:
            self._known = {}
            for name, names, is_set, result, comment in self._connections.run(_FUNCTIONS):
                inputs = tuple(names or ())
                signature = Signature(inputs, is_set, result, comment or "")
                self._known.setdefault(name.removeprefix(_PREFIX), []).append(signature)
        return self._known

    def _call(self, name: str, given: Mapping[str, Any]) -> Any:
        """Call a function with arguments by name; its value, a frame of its rows, or a run."""
        arguments = ", ".join(f"{key} := %s" for key in given)
        sql = f"SELECT * FROM cerebro.{_PREFIX}{name}({arguments})"
        names, rows = self._connections.patiently(sql, [_bound(value) for value in given.values()])
        signatures = self._functions().get(name, [])
        if any(one.is_set for one in signatures) or len(names) > 1:
            return frame(names, rows)
        value = rows[0][0]
        if name in _OF_RUNS:
            return Run(self._connections, int(value))
        return None if any(one.result == "void" for one in signatures) else _plain(value)

    def _started(self, name: str, given: dict[str, Any], wait: bool, progress: bool | None) -> Run:
        if not wait:
            given["wait"] = False
        with shown_beside(self._connections, given.get("run_id"), progress, wait):
            found: Run = self._call(name, given)
        return found

    def _loaded(self, output: str, models: Sequence[Any], replace: bool) -> tuple[str, list[int]]:
        """The table of architectures of Keras models, and the model_id of each."""
        table = _beside(output, "_models")
        if replace and self._connections.run("SELECT to_regclass(%s)::text", (table,))[0][0]:
            self._call("drop_outputs", {"output_table": table})
        return table, [self.load_model(table, one) for one in models]


_FUNCTIONS = """
SELECT p.proname::text, p.proargnames[1:p.pronargs], p.proretset, pg_catalog.format_type(p.prorettype, NULL),
       pg_catalog.obj_description(p.oid, 'pg_proc')
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = 'cerebro' AND p.proname LIKE 'cerebro\\_%%' AND p.prorettype <> 'pg_catalog.internal'::pg_catalog.regtype
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_aggregate a WHERE a.aggfnoid = p.oid)
 ORDER BY p.proname, p.pronargs
"""


def _given(values: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    """The arguments that are given: those that are None have the default of SQL."""
    hidden = {"self", *left_out}
    return {k: value for k, value in values.items() if k not in hidden and value is not None}


def _placed(
    name: str, signatures: Sequence[Signature], values: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name.

    Raises:
        InvalidArgument: there are too many, or one is given twice or has no such name.
    """
    longest = max((one.names for one in signatures), key=len)
    fitting = [one.names for one in signatures if set(named) <= set(one.names)] or [longest]
    names = fitting[0]
    if len(values) > len(names):
        raise InvalidArgument(
            f"{name}: got {len(values)} arguments; allowed: {len(names)}: {', '.join(names)}"
        )
    placed = dict(zip(names, values, strict=False))
    wrong = [key for key in named if key in placed or key not in names]
    if wrong:
        how = "twice" if wrong[0] in placed else "of no such name"
        raise InvalidArgument(
            f"{name}: got the argument {wrong[0]} {how}; allowed: {', '.join(names)}"
        )
    return placed | dict(named)


def _bound(value: Any) -> Any:
    """A value as a driver takes it: objects are JSON, tuples and arrays are lists."""
    value = plain(value)
    return json.dumps(value) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _beside(table: str, suffix: str) -> str:
    """The name of a table beside another one."""
    return f'{table[:-1]}{suffix}"' if table.endswith('"') else f"{table}{suffix}"


def _weights(model: Any) -> bytes:
    """The weights of a Keras model as ``cerebro_load_model`` reads them."""
    import numpy as np

    parts = [_as_float32(np, one).ravel() for one in model.get_weights()]
    return np.concatenate([np.zeros(0, np.float32), *parts]).tobytes()


def _as_float32(np: Any, weight: Any) -> Any:
    """One array of weights.

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
