"""Output tables of a run, written in one transaction when it ends."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cerebro_db
from cerebro_db.columns.recorded import recorded_text
from cerebro_db.configs.grids.outputs import first_metric, loss_names, metric_names
from cerebro_db.core.spec import TRAINING, VALIDATION, Configuration
from cerebro_db.core.statuses import FINISHED, STOPPED
from cerebro_db.postgres.catalog.records import EndRow, record_ends
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.catalog.states import IN_USE, StateStore
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName, quote
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.tables.kinds import HISTORY_SUFFIX, MODELS, STATES_SUFFIX
from cerebro_db.postgres.tables.outputs import replaced
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.runs.searches.results import INFO_COLUMNS, SearchResults, results_of
from cerebro_db.runs.setup import RunSetup

MODEL_TYPE = "cerebro_keras"
Ended = Mapping[int, tuple[str, str]]


def write(
    catalog: Catalog,
    dialect: PostgreSQL,
    setup: RunSetup,
    run: StoredRun,
    store: StateStore,
    ended: Ended,
    ends: Mapping[int, EndRow],
    stopped: Collection[int] = (),
) -> None:
    """Make ``<out>`` and the tables beside it, and end the run, all or nothing.

    Args:
        catalog: of the run; its session does all in one transaction.
        setup: of the run.
        run: which one.
        store: where its states are.
        ended: status and error of configurations that failed or were cancelled, by mst_key.
        ends: where those have ended that have models.
        stopped: of these, trials of a search that were to be trained further.
    """
    run_id = run.run_id
    catalog.execute("BEGIN")
    try:
        earlier = _put_aside(catalog, setup, run_id, ended)
        with _giving_way(catalog, setup):
            _write_tables(catalog, dialect, setup, run_id, store, ended, ends, stopped, earlier)
        catalog.lock("runs", "configurations")
        record_ends(catalog, run_id, ends)
        catalog.configurations_ended(run_id, list(ends), FINISHED)
        catalog.configurations_ended(run_id, list(stopped), STOPPED)
        if drop_states(catalog, dialect, run.tables.states):
            catalog.states_dropped(run_id)
        if ends:
            catalog.run_ended(run_id, "finished")
        else:
            catalog.run_ended(run_id, "failed", "no configuration was trained to the end")
        catalog.commit()
    except BaseException:
        catalog.execute_quietly("ROLLBACK")
        raise


def write_none(catalog: Catalog, dialect: PostgreSQL, run: StoredRun, error: str) -> None:
    """End a run that leaves no tables, as there is no model: what an earlier run left stays."""
    catalog.execute("BEGIN")
    try:
        catalog.lock("runs")
        if drop_states(catalog, dialect, run.tables.states):
            catalog.states_dropped(run.run_id)
        catalog.run_ended(run.run_id, "failed", error)
        catalog.commit()
    except BaseException:
        catalog.execute_quietly("ROLLBACK")
        raise


@contextmanager
def _giving_way(catalog: Catalog, setup: RunSetup) -> Iterator[None]:
    """The tables of an earlier run give way to those that are made inside, if so wanted."""
    if setup.outputs is None:
        yield
        return
    # A reader of the old tables is waited for: the work of the run is worth it.
    catalog.session.wait_for_locks()
    with replaced(catalog.session, setup.outputs):
        yield


@dataclass(frozen=True)
class _Earlier:
    """Copies of what a warm start keeps of the tables that it replaces.

    Attributes:
        history: of the models that it went on from.
        kept: a table and the copy of its rows, of configurations that have failed now.
    """

    history: QualifiedName | None = None
    kept: tuple[tuple[QualifiedName, QualifiedName], ...] = ()


def _write_tables(
    catalog: Catalog,
    dialect: PostgreSQL,
    setup: RunSetup,
    run_id: int,
    store: StateStore,
    ended: Ended,
    ends: Mapping[int, EndRow],
    stopped: Collection[int],
    earlier: _Earlier,
) -> None:
    """Make the output tables; ``ends`` has where each configuration with a model has ended."""
    _write_models(catalog, dialect, setup, store, ends)
    for table, aside in earlier.kept:  # where a configuration failed, its earlier model stays
        catalog.execute(f"INSERT INTO {table.sql} SELECT * FROM {aside.sql}")
        catalog.execute(f"DROP TABLE {aside.sql}")
    found = results_of(catalog.session, setup, run_id)
    _write_info(catalog, setup, run_id, ended, ends, stopped, found)
    _write_summary(catalog, setup, run_id, found)
    epochs = {key: end.model_epoch or 1 for key, end in ends.items()}
    write_history(catalog, setup, run_id, earlier.history, epochs)
    for suffix in MODELS.suffixes:
        catalog.execute(MODELS.comment(setup.output.suffixed(suffix), suffix))
    if found is not None:
        found.write_selection(catalog.session, setup)


def drop_states(catalog: Catalog, dialect: PostgreSQL, name: str | None) -> bool:
    """Drop the tables of states of a run, within a transaction; false where someone reads one.

    Args:
        catalog: whose session does it.
        name: how the names of the tables begin, None where they are gone.
    """
    if name is None:
        return True
    try:
        with catalog.attempt():
            catalog.execute("SET LOCAL lock_timeout = '2s'")
            for table, _ in catalog.execute(*dialect.training.tables(name)):
                catalog.execute(f"DROP TABLE {QualifiedName(STATES_SCHEMA, table).sql}")
    except StatementFailed as error:
        if error.sqlstate not in IN_USE:
            raise
        return False
    return True


def _put_aside(catalog: Catalog, setup: RunSetup, run_id: int, ended: Ended) -> _Earlier:
    """Copy what is needed of the tables of the earlier run, which can be dropped then."""
    if not setup.spec.warm_start:
        return _Earlier()
    kept = []
    for table in (setup.output, setup.output.suffixed(STATES_SUFFIX)):
        if not catalog.execute("SELECT pg_catalog.to_regclass(%s)::text", (table.text,))[0][0]:
            continue  # someone dropped it while the run went on
        aside = QualifiedName(STATES_SCHEMA, f"kept_{secrets.token_hex(16)}")
        catalog.execute(
            f"CREATE TABLE {aside.sql} AS "
            f"SELECT * FROM {table.sql} WHERE mst_key = ANY (%s::int[])",
            (list(ended),),
        )
        kept.append((table, aside))
    return _Earlier(put_history_aside(catalog, setup, run_id), tuple(kept))


def _write_models(
    catalog: Catalog,
    dialect: PostgreSQL,
    setup: RunSetup,
    store: StateStore,
    ends: Mapping[int, EndRow],
) -> None:
    for statement in model_tables(setup.output, dialect.training.together("mst_key")):
        catalog.execute(statement)
    kept = setup.output.suffixed(STATES_SUFFIX).sql
    hops_an_epoch = setup.spec.hops_an_epoch
    keys = [(key, (end.model_epoch or 1) * hops_an_epoch) for key, end in ends.items()]
    models = {c.mst_key: c.architecture for c in setup.configurations}
    texts = {model.model_id: model.text for model in models.values()}
    places = {model_id: place for place, model_id in enumerate(texts, 1)}
    for states, found in store.batches(keys):
        mst_keys, versions = [key for key, _ in found], [version for _, version in found]
        catalog.execute(
            f"INSERT INTO {kept} SELECT s.mst_key, s.chunk, s.state FROM {states.name.sql} s "
            "JOIN unnest(%s::int[], %s::int[]) AS t(mst_key, version) "
            "ON s.mst_key = t.mst_key AND s.version = t.version "
            # Of a round that is made together each segment has a copy.
            "WHERE coalesce(s.partition_key, 0) >= 0",
            (mst_keys, versions),
        )
        numbers = [places[models[key].model_id] for key in mst_keys]
        catalog.execute(models_from_states(setup.output), (list(texts.values()), mst_keys, numbers))


def model_tables(output: QualifiedName, together: str) -> list[str]:
    """Statements that make the tables of models and of the states that they are of.

    Args:
        output: the table of models.
        together: what has all rows of a configuration lie in one place.
    """
    kept = output.suffixed(STATES_SUFFIX).sql
    return [
        f"CREATE TABLE {output.sql} (mst_key integer PRIMARY KEY, model_weights bytea, "
        f"model_arch json){together}",
        f"ALTER TABLE {output.sql} ALTER COLUMN model_weights SET STORAGE EXTERNAL",
        f"CREATE TABLE {kept} (mst_key integer NOT NULL, chunk integer NOT NULL, "
        f"state bytea NOT NULL, PRIMARY KEY (mst_key, chunk)){together}",
        f"ALTER TABLE {kept} ALTER COLUMN state SET STORAGE EXTERNAL",
    ]


def models_from_states(output: QualifiedName) -> str:
    """Makes models where the states are that a run leaves: on segments these moved there already.

    Parameters: architectures, keys of configurations, and the place among the architectures of each.
    """
    return (
        f"INSERT INTO {output.sql} (mst_key, model_weights, model_arch) SELECT s.mst_key, "
        "cerebro._state_weights(cerebro.cerebro_joined_state(s.state ORDER BY s.chunk)), "
        f"(%s::json[])[pg_catalog.min(t.model)] FROM {output.suffixed(STATES_SUFFIX).sql} s "
        "JOIN unnest(%s::int[], %s::int[]) AS t(mst_key, model) ON s.mst_key = t.mst_key "
        "GROUP BY s.mst_key"
    )


_INFO_COLUMNS = (
    ("mst_key", "integer PRIMARY KEY"),
    ("model_id", "integer"),
    ("compile_params", "text"),
    ("fit_params", "text"),
    ("model_type", "text"),
    ("model_size", "double precision"),
    ("metrics_elapsed_time", "double precision[]"),
    ("metrics_type", "text[]"),
    ("loss_type", "text"),
    ("training_metrics_final", "double precision"),
    ("training_loss_final", "double precision"),
    ("training_metrics", "double precision[]"),
    ("training_loss", "double precision[]"),
    ("validation_metrics_final", "double precision"),
    ("validation_loss_final", "double precision"),
    ("validation_metrics", "double precision[]"),
    ("validation_loss", "double precision[]"),
    ("status", "text"),
    ("error", "text"),
    ("stopped_epoch", "integer"),
    ("best_epoch", "integer"),
    ("model_epoch", "integer"),
)
FOLD_COLUMNS = (("configuration", "integer"), ("fold", "integer"))
_OF_THE_MODEL = tuple(
    name for name, _ in _INFO_COLUMNS if name not in ("mst_key", "status", "error")
)


def _write_info(
    catalog: Catalog,
    setup: RunSetup,
    run_id: int,
    ended: Ended,
    ends: Mapping[int, EndRow],
    stopped: Collection[int],
    found: SearchResults | None,
) -> None:
    table = setup.output.suffixed("_info").sql
    folds = setup.spec.folds
    names = (*_INFO_COLUMNS, *(INFO_COLUMNS if found else ()), *(FOLD_COLUMNS if folds else ()))
    columns = ", ".join(f"{name} {kind}" for name, kind in names)
    catalog.execute(f"CREATE TABLE {table} ({columns})")
    if not setup.configurations:
        return
    metrics = _metrics(catalog, run_id)
    values: list[Any] = []
    for configuration in setup.configurations:
        mst_key = configuration.mst_key
        row = _info_row(configuration, metrics, ended.get(mst_key), ends.get(mst_key, _NO_END))
        if mst_key in stopped:
            row["status"] = STOPPED
        if found is not None:
            row |= found.info(mst_key, _epochs(metrics, mst_key))
        if folds is not None:
            row["configuration"], row["fold"] = folds.of(mst_key)
        values += [row[name] for name, _ in names]
    casts = ", ".join(f"%s::{kind.replace(' PRIMARY KEY', '')}" for _, kind in names)
    rows = ", ".join([f"({casts})"] * len(setup.configurations))
    catalog.execute(f"INSERT INTO {table} VALUES {rows}", values)


Metrics = dict[tuple[int, str], list[tuple[int, float, list[float], float]]]


def _metrics(catalog: Catalog, run_id: int) -> Metrics:
    """Epoch, loss, metrics and elapsed seconds by configuration and data set, in the order of epochs."""
    rows = catalog.execute(
        "SELECT mst_key, dataset, epoch, loss, metrics, elapsed FROM cerebro._metrics "
        "WHERE run_id = %s ORDER BY epoch",
        (run_id,),
    )
    found: Metrics = {}
    for mst_key, dataset, *point in rows:
        found.setdefault((mst_key, dataset), []).append((point[0], point[1], point[2], point[3]))
    return found


def _epochs(metrics: Metrics, mst_key: int) -> list[int]:
    """Epochs after which a configuration was measured, on either data set."""
    points = [*metrics.get((mst_key, TRAINING), ()), *metrics.get((mst_key, VALIDATION), ())]
    return sorted({epoch for epoch, *_ in points})


_NO_END = EndRow(None, None, None)


def _info_row(
    configuration: Configuration, metrics: Metrics, ended: tuple[str, str] | None, end: EndRow
) -> dict[str, Any]:
    outputs = configuration.outputs
    has_metric = first_metric(outputs) is not None
    status, error = ended or (FINISHED, None)
    row: dict[str, Any] = {
        "mst_key": configuration.mst_key,
        "model_id": configuration.architecture.model_id,
        "compile_params": configuration.compile_text,
        "fit_params": configuration.fit_text,
        "model_type": MODEL_TYPE,
        "model_size": configuration.architecture.facts.parameters * 4 / 1024,
        "metrics_type": metric_names(outputs) or None,
        "loss_type": loss_names(outputs),
        "status": status,
        "error": error,
        **end._asdict(),
    }
    elapsed = None
    for dataset in (TRAINING, VALIDATION):
        points = metrics.get((configuration.mst_key, dataset)) or None
        losses = [loss for _, loss, _, _ in points] if points else None
        firsts = [values[0] for _, _, values, _ in points] if points and has_metric else None
        elapsed = [seconds for _, _, _, seconds in points] if points else elapsed
        epochs = [epoch for epoch, _, _, _ in points or ()]
        # An earlier state may be the model; where there is none, the last values are shown.
        final = epochs.index(end.model_epoch) if end.model_epoch in epochs else -1
        row[f"{dataset}_loss"] = losses
        row[f"{dataset}_loss_final"] = losses[final] if losses else None
        row[f"{dataset}_metrics"] = firsts
        row[f"{dataset}_metrics_final"] = firsts[final] if firsts else None
    row["metrics_elapsed_time"] = elapsed
    return row


def _write_summary(
    catalog: Catalog, setup: RunSetup, run_id: int, found: SearchResults | None
) -> None:
    values = _summary_row(setup, run_id)
    if found is not None:  # each of its configurations has epochs of its own
        del values["metrics_iters"]
        values |= found.summary(setup)
    columns = ", ".join(map(quote, values))
    casts = ", ".join(f"%s::{kind}" for kind, _ in values.values())
    one, source = "", ""
    if setup.is_single:  # one model: it stands in for _info too, as MADlib has it
        one = "".join(f", i.{name}" for name in _OF_THE_MODEL)
        source = f", {setup.output.suffixed('_info').sql} i"
    sql = (
        f"CREATE TABLE {setup.output.suffixed('_summary').sql} AS "
        "SELECT t.*, r.started AS start_training_time, clock_timestamp() AS end_training_time"
        f"{one} FROM (SELECT {casts}) AS t ({columns}), cerebro._runs r{source} WHERE r.run_id = %s"
    )
    catalog.execute(sql, [*(value for _, value in values.values()), run_id])


def _summary_row(setup: RunSetup, run_id: int) -> dict[str, tuple[str, Any]]:
    spec, packed, targets = setup.spec, setup.packed, setup.packed.targets
    validated = None if spec.folds is not None else setup.validation
    validation = None if validated is None else str(validated.relation.name)
    output = setup.output
    return {
        "run_id": ("bigint", run_id),
        "source_table": ("text", str(packed.relation.name)),
        "validation_table": ("text", validation),
        "model": ("text", str(output)),
        "model_info": ("text", str(output.suffixed("_info"))),
        "dependent_varname": ("text[]", [target.name for target in targets]),
        "independent_varname": ("text[]", [one.name for one in packed.inputs]),
        "model_arch_table": ("text", spec.model_arch_table),
        "model_selection_table": ("text", spec.model_selection_table),
        "object_table": ("text", spec.object_table),
        "num_iterations": ("integer", spec.epochs),
        "metrics_compute_frequency": ("integer", spec.frequency),
        "warm_start": ("boolean", spec.warm_start),
        "name": ("text", spec.name),
        "description": ("text", spec.description),
        "cerebro_version": ("text", cerebro_db.__version__),
        "num_classes": ("integer[]", [target.num_classes or None for target in targets]),
        **{
            f"{target.name}_class_values": (
                "text[]",
                list(target.class_values) if target.is_class else None,
            )
            for target in targets
        },
        "dependent_vartype": ("text[]", [target.type for target in targets]),
        "classes_found": (
            "integer[]",
            [target.classes_found if target.is_class else None for target in targets],
        ),
        "normalizing_const": ("double precision", packed.normalizing_const),
        "metrics_iters": ("integer[]", spec.measured_epochs),
        **_shapes(packed),
        "encoding": ("json", recorded_text(packed.encoding) if packed.encoding else None),
    }


def _shapes(packed: PackedTable) -> dict[str, tuple[str, Any]]:
    """Shapes of rows and targets; of the first ones, and of all where there are several."""
    target = packed.target
    first = {
        "input_shape": ("integer[]", list(packed.input.shape)),
        "target_kind": ("text", target.kind),
        "target_shape": ("integer[]", list(target.shape)),
    }
    if len(packed.inputs) == len(packed.targets) == 1:
        return first
    return first | {
        "input_shapes": ("json", json.dumps([one.shape for one in packed.inputs])),
        "target_kinds": ("text[]", [one.kind for one in packed.targets]),
        "target_shapes": ("json", json.dumps([one.shape for one in packed.targets])),
    }


_COLUMNS = (
    ("mst_key", "integer NOT NULL"),
    ("iteration", "integer NOT NULL"),
    ("run_id", "bigint NOT NULL"),
    ("epoch", "integer NOT NULL"),
    ("dataset", "text NOT NULL"),
    ("loss", "double precision"),
    ("metric_names", "text[]"),
    ("metrics", "double precision[]"),
    ("elapsed", "double precision"),
)
_NAMES = ", ".join(name for name, _ in _COLUMNS)


def put_history_aside(catalog: Catalog, setup: RunSetup, run_id: int) -> QualifiedName | None:
    """Keep the history of the models that a run went on from; its table can be dropped then.

    Args:
        catalog: of the run; its session does all in one transaction.
        setup: of the run.
        run_id: which one.

    Returns:
        The table that has it meanwhile; None where there is no history.
    """
    table = setup.output.suffixed(HISTORY_SUFFIX)
    if not catalog.execute("SELECT pg_catalog.to_regclass(%s)::text", (table.text,))[0][0]:
        return None  # the earlier run wrote none, or someone dropped it
    warm = [row.mst_key for row in catalog.configurations(run_id) if row.is_warm]
    aside = QualifiedName(STATES_SCHEMA, f"kept_{secrets.token_hex(16)}")
    catalog.execute(
        f"CREATE TABLE {aside.sql} AS SELECT {_NAMES} FROM {table.sql} "
        "WHERE mst_key = ANY (%s::int[])",
        (warm,),
    )
    return aside


def write_history(
    catalog: Catalog,
    setup: RunSetup,
    run_id: int,
    earlier: QualifiedName | None,
    ends: Mapping[int, int],
) -> None:
    """Make the table: what was put aside, and what this run adds up to the epochs of its models.

    Args:
        catalog: of the run; its session does all in one transaction.
        setup: of the run.
        run_id: which one.
        earlier: what was put aside.
        ends: of each model that was trained to the end, the epoch after which it is kept.
    """
    table = setup.output.suffixed(HISTORY_SUFFIX).sql
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
    catalog.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY (mst_key, iteration, dataset))")
    iteration, before = "m.epoch", ""
    if earlier is not None:
        catalog.execute(f"INSERT INTO {table} SELECT {_NAMES} FROM {earlier.sql}")
        catalog.execute(f"DROP TABLE {earlier.sql}")
        # Results are computed after a model's last epoch, so its last iteration tells how many there were.
        iteration = "coalesce(b.before, 0) + m.epoch"
        before = (
            f"LEFT JOIN (SELECT mst_key, max(iteration) AS before FROM {table} GROUP BY mst_key) b "
            "ON b.mst_key = m.mst_key "
        )
    catalog.execute(
        f"INSERT INTO {table} ({_NAMES}) SELECT m.mst_key, {iteration}, m.run_id, m.epoch, m.dataset, "
        f"m.loss, m.metric_names, m.metrics, m.elapsed FROM cerebro._metrics m {before}"
        "JOIN unnest(%s::int[], %s::int[]) e (mst_key, last) "
        "ON e.mst_key = m.mst_key AND m.epoch <= e.last WHERE m.run_id = %s",
        (list(ends), list(ends.values()), run_id),
    )
