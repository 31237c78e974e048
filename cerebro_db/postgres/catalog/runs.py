"""The catalog of runs: read through views of what is the caller's, written by functions."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from cerebro_db.configs.messages import plain_text
from cerebro_db.configs.settings import Settings
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import TRAINING, Architecture, Configuration, Hop
from cerebro_db.core.statuses import DRIVEN
from cerebro_db.core.tasks import Measures
from cerebro_db.decide.strategies import parse_strategy
from cerebro_db.errors import CerebroError, UndefinedRun, WrongRunStatus
from cerebro_db.postgres.catalog.rows import rows_json
from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName
from cerebro_db.postgres.sessions.errors import LOCK_TIMEOUT, StatementFailed
from cerebro_db.postgres.sessions.session import Session

# That have rows of a run.
RUN_TABLES = (
    "runs", "configurations", "architectures", "plan", "decisions", "hops", "updates", "metrics", "requests",
    "direct_workers", "direct_orders", "direct_answers",
)  # fmt: skip

_Value = TypeVar("_Value")


# In the place of fingerprints where a dump was restored: it has the rows that the run had, with numbers of their own.
RESTORED = "restored"


class PackedMark(NamedTuple):
    """A packed table and what is in it, as a run has found it.

    Attributes:
        oid: of the table.
        fingerprint: of its rows.
    """

    oid: int
    fingerprint: str


@dataclass(frozen=True)
class RunTables:
    """The tables of a run. Others than its spec they may change: by another name of its output, or by a dump that is restored.

    Attributes:
        output: the model output table.
        replaces: whether output tables of that name that are there at its end give way.
        states: how the names of the tables of states begin, None where they are gone.
    """

    output: QualifiedName
    replaces: bool
    source: PackedMark
    validation: PackedMark | None
    states: str | None


@dataclass(frozen=True)
class StoredRun:
    """A run as it is in the catalog.

    Attributes:
        owner: oid of the role.
        is_mine: whether that is the current role.
        status: as ``cerebro.runs`` tells it.
        error: why it stopped.
        manifest_text: JSON of what its workers have reported; empty before they were ready.
        active: seconds that earlier drivers spent on it.
        lock_key: of the advisory lock that the driver holds.
        spec_text: JSON of its spec.
    """

    run_id: int
    owner: int
    is_mine: bool
    status: str
    error: str | None
    manifest_text: str
    active: float
    lock_key: int
    spec_text: str
    tables: RunTables

    @functools.cached_property
    def spec(self) -> RunSpec:
        """The spec of the run.

        Raises:
            InvalidData: somebody has changed it.
        """
        return RunSpec.from_text(self.spec_text, parse_strategy)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of the run's workers: versions and processor."""
        found: Mapping[str, Any] = json.loads(self.manifest_text)
        return found


class Driving(NamedTuple):
    """The last driver of a run: its session and when it resumed the run; status, error, states."""

    pid: int
    resumed: str | None
    status: str
    error: str | None
    has_states: bool


class ConfigurationRow(NamedTuple):
    """Row of a configuration of a run."""

    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    hop_seconds: float
    initial_seed: int
    jit: bool
    steps_per_call: int
    goal: str
    is_warm: bool
    status: str
    error: str | None


class Catalog:
    """Writes of one driver, through a session of its own.

    Args:
        session: nothing else uses it meanwhile.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session(self) -> Session:
        """The session, for statements beside those of the catalog in its transaction."""
        return self._session

    def settings(self) -> Settings:
        """Settings of administrators."""
        return Settings.of(dict(self._run("SELECT name, value FROM cerebro.settings")))

    def run(self, run_id: int | None, what: str = "run_id") -> StoredRun:
        """A run that the caller may see.

        Args:
            run_id: which one.
            what: the argument that it was given as.

        Raises:
            UndefinedRun: there is none, or it is someone else's.
        """
        rows = self._run(
            "SELECT r.run_id, r.owner::bigint, r.owner = cerebro._role(), v.status, r.error, "
            "r.manifest::text, r.active, r.lock_key, r.spec::text, r.output_schema, r.output_name, r.replaces, "
            "r.source_oid::bigint, r.source_print, r.validation_oid::bigint, r.validation_print, r.states "
            "FROM cerebro._runs r JOIN cerebro.runs v ON v.run_id = r.run_id WHERE r.run_id = %s",
            [run_id],
        )
        number, owner, is_mine, status, error, manifest, active, key, spec, *more = _only(
            rows, run_id, what
        )
        schema, name, replaces, oid, mark, validation_oid, validation_mark, states = more
        validation = None if validation_oid is None else PackedMark(validation_oid, validation_mark)
        output = QualifiedName(schema, name)
        tables = RunTables(output, replaces, PackedMark(oid, mark), validation, states)
        return StoredRun(number, owner, is_mine, status, error, manifest, active, key, spec, tables)

    def lock_key(self, run_id: int) -> int:
        """Key of the advisory lock that the driver of a run holds.

        Raises:
            UndefinedRun: someone has dropped it.
        """
        sql = "SELECT lock_key FROM cerebro._runs WHERE run_id = %s"
        return int(_only(self._run(sql, [run_id]), run_id)[0])

    def new_run(
        self,
        spec: RunSpec,
        tables: RunTables,
        lock_key: int,
        configurations: Sequence[Configuration],
        architectures: Iterable[Architecture],
        weights: str,
        status: str = "starting",
    ) -> int:
        """Register a run, its configurations and its models; returns the run_id.

        Args:
            spec, tables, lock_key: of the run.
            configurations: that it begins with.
            architectures: its models.
            weights: SQL of a table with the weights that they may begin with.
            status: of a run that this session drives, or that waits.
        """
        row = {
            **_columns(spec),
            **_columns_of_tables(tables),
            "lock_key": lock_key,
            "status": status,
        }
        self.call("_mark_role")
        run_id = int(self.call("_add_run", json.dumps(row, ensure_ascii=False), spec.to_text()))
        if configurations:
            self.add_configurations(run_id, configurations, "waiting")
        for model in architectures:
            self._run(
                "SELECT cerebro._add_architecture(%s, %s, %s, %s, "
                f"(SELECT a.model_weights FROM {weights} a WHERE a.model_id = %s))",
                [run_id, model.model_id, model.text, model.facts.to_json(), model.model_id],
            )
        return run_id

    def add_configurations(
        self, run_id: int, configurations: Sequence[Configuration], status: str
    ) -> None:
        """Configurations join a run."""
        rows = [(*_values_of(one), status) for one in configurations]
        columns = ("budget", *ConfigurationRow._fields[:-1])
        self.call("_add_configurations", run_id, rows_json(columns, rows))

    def configurations(self, run_id: int) -> list[ConfigurationRow]:
        """The configurations of a run, by mst_key."""
        rows = self._run(
            f"SELECT {', '.join(ConfigurationRow._fields)} FROM cerebro._configurations "
            "WHERE run_id = %s ORDER BY mst_key",
            [run_id],
        )
        return [ConfigurationRow(*row) for row in rows]

    def architectures(self, run_id: int) -> list[tuple[int, str, str, bool]]:
        """The models of a run: model_id, architecture and facts as JSON, and whether there are weights."""
        rows = self._run(
            "SELECT model_id, model_arch, model_facts, model_weights IS NOT NULL "
            "FROM cerebro._architectures WHERE run_id = %s",
            [run_id],
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def driven(self, run_id: int) -> Driving:
        """Record this session as the driver of a run, and add up the time of earlier drivers."""
        self.call("_driven", run_id)
        return self.driving(run_id)

    def driving(self, run_id: int) -> Driving:
        """Last driver of a run, and what is written of its standing.

        Raises:
            UndefinedRun: someone has dropped it.
        """
        rows = self._run(
            "SELECT driver_pid, resumed::text, status, error, states IS NOT NULL "
            "FROM cerebro._runs WHERE run_id = %s",
            [run_id],
        )
        return Driving(*_only(rows, run_id))

    def started(self, run_id: int, manifest: Mapping[str, Any]) -> None:
        """The workers are ready."""
        self.call("_started", run_id, json.dumps(manifest, sort_keys=True))

    def planned(self, run_id: int) -> dict[int, int]:
        """The last epoch that is planned of each configuration, where there is one."""
        sql = "SELECT mst_key, max(epoch) FROM cerebro._plan WHERE run_id = %s GROUP BY mst_key"
        return {row[0]: row[1] for row in self._run(sql, [run_id])}

    def plan(self, run_id: int, first: int) -> list[Hop]:
        """Planned hops from an epoch on."""
        rows = self._run(
            "SELECT mst_key, epoch, position, partition_key, group_size FROM cerebro._plan "
            "WHERE run_id = %s AND epoch >= %s",
            [run_id, first],
        )
        return [Hop(*row) for row in rows]

    def metrics(self, run_id: int) -> list[Measures]:
        """All results of a run."""
        rows = self._run(
            "SELECT mst_key, epoch, dataset, loss, metric_names, metrics, elapsed "
            "FROM cerebro._metrics WHERE run_id = %s ORDER BY mst_key, epoch, dataset",
            [run_id],
        )
        return [Measures(*row) for row in rows]

    def forget_metrics(self, run_id: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Delete the results of configurations after epochs that are scored once more."""
        for mst_key, epoch in pairs:
            self.call("_forget_metrics", run_id, mst_key, epoch)

    def forget_hops(self, run_id: int, done: Mapping[int, int], hops_an_epoch: int) -> None:
        """Drop the rows of hops whose states are lost; ``done`` counts those that are not."""
        for count, mst_keys in keys_by_value(done).items():
            self.call("_forget_hops", run_id, mst_keys, hops_an_epoch, count, [])

    def forget_hops_but(
        self, run_id: int, mst_key: int, done: int, kept: Sequence[int], hops_an_epoch: int
    ) -> None:
        """Drop the rows of hops of a configuration from a number on, but for some of them."""
        self.call("_forget_hops", run_id, [mst_key], hops_an_epoch, done, list(kept))

    def has_recorded(self, run_id: int, done: Mapping[int, int], hops_an_epoch: int) -> bool:
        """Compare the hops of configurations that have a row with the first ones, as many as ``done``."""
        rows = self._run(
            "SELECT mst_key, count(*), max((epoch - 1) * %s + position + 1) FROM cerebro._hops "
            "WHERE run_id = %s GROUP BY mst_key",
            [hops_an_epoch, run_id],
        )
        found = {mst_key: (int(count), int(last)) for mst_key, count, last in rows}
        return all(found.get(key, (0, 0)) == (count, count) for key, count in done.items())

    def recorded_hops(self, run_id: int) -> dict[int, int]:
        """Number of hops of each configuration that have a row."""
        sql = "SELECT mst_key, count(*) FROM cerebro._hops WHERE run_id = %s GROUP BY mst_key"
        return {mst_key: int(count) for mst_key, count in self._run(sql, [run_id])}

    def first_unrecorded(self, run_id: int, mst_key: int, hops_an_epoch: int) -> int:
        """The number, from 1, of the first hop of a configuration that has no row."""
        rows = self._run(
            "SELECT (epoch - 1) * %s + position + 1 FROM cerebro._hops "
            "WHERE run_id = %s AND mst_key = %s ORDER BY 1",
            [hops_an_epoch, run_id, mst_key],
        )
        return next((n for n, (found,) in enumerate(rows, 1) if found != n), len(rows) + 1)

    def now(self) -> datetime:
        """The server's time."""
        ((found,),) = self._run("SELECT pg_catalog.clock_timestamp()", [])
        return cast(datetime, found)

    def count_hops(self, run_id: int) -> int:
        """Hops that are committed."""
        sql = "SELECT count(*) FROM cerebro._hops WHERE run_id = %s"
        return int(self._run(sql, [run_id])[0][0])

    def add_plan(
        self, run_id: int, hops: Sequence[Hop], reasons: Mapping[tuple[int, int], str]
    ) -> None:
        """Store what has been planned, before any of it is done.

        Args:
            run_id: which run.
            hops: that are planned.
            reasons: why they are made as they are, by mst_key and epoch: where that is new.
        """
        rows = [
            (
                hop.epoch, hop.mst_key, hop.position, hop.partition_key, hop.group,
                None if hop.position else reasons.get((hop.mst_key, hop.epoch)),
            )
            for hop in hops
        ]  # fmt: skip
        names = ("epoch", "mst_key", "position", "partition_key", "group_size", "reason")
        self.call("_add_plan", run_id, rows_json(names, rows))

    def add_metrics(self, run_id: int, rows: Sequence[Measures]) -> None:
        """Store results, all or none."""
        if rows:
            names = ("mst_key", "epoch", "dataset", "loss", "metric_names", "metrics", "elapsed")
            added = rows_json(names, [tuple(vars(row).values()) for row in rows])
            self.call("_add_metrics", run_id, added)

    def configuration_ended(
        self, run_id: int, mst_key: int, status: str, error: str | None
    ) -> None:
        """A configuration is finished or failed."""
        ends = [mst_key], status, plain_text(error), False
        self.call("_configurations_ended", run_id, *ends)

    def configurations_ended(self, run_id: int, mst_keys: Sequence[int], status: str) -> None:
        """Set the status of configurations with models: finished or stopped."""
        self.call("_configurations_ended", run_id, list(mst_keys), status, None, True)

    def run_ended(self, run_id: int, status: str, error: str | None = None) -> None:
        """A run is finished, failed, cancelled, paused or interrupted."""
        self.call("_run_ended", run_id, status, plain_text(error), None)

    def run_queued(self, run_id: int) -> None:
        """A run that stopped waits for another driver."""
        self.call("_run_queued", run_id)

    def output_renamed(self, run_id: int, output: QualifiedName) -> None:
        """A run is to leave its output under another name."""
        self.call("_output_renamed", run_id, str(output), output.schema, output.name)

    def run_stopped(
        self, run_id: int, status: str, reason: str, before: Sequence[str] = DRIVEN
    ) -> None:
        """A run stopped before its end; one that has ended, which was none of ``before``, stays so."""
        self.call("_run_ended", run_id, status, plain_text(reason), list(before))

    def requests(self, run_id: int) -> list[tuple[int, str, int | None, str, str]]:
        """Requests to a driver that are not answered yet: id, action, mst_key, who asks, JSON."""
        rows = self._run(
            "SELECT request_id, action, mst_key, pg_catalog.pg_get_userbyid(role), detail::text "
            "FROM cerebro._requests WHERE run_id = %s AND answer IS NULL ORDER BY request_id",
            [run_id],
        )
        return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    def add_request(self, run_id: int, action: str, mst_key: int | None, detail: str = "{}") -> int:
        """Ask something of the driver of a run; returns the request's id."""
        return int(self.call("_add_request", run_id, action, mst_key, detail))

    def answer(self, request_id: int, text: str) -> None:
        """Answer a request, with JSON."""
        self.call("_answer", request_id, text)

    def answer_of(self, request_id: int) -> str | None:
        """The answer to a request; None as long as there is none.

        Raises:
            WrongRunStatus: it was forgotten, as another driver has begun since.
        """
        sql = "SELECT answer::text FROM cerebro._requests WHERE request_id = %s"
        rows = self._run(sql, [request_id])
        if not rows:
            raise WrongRunStatus(
                "the driver of the run ended before it has answered; nothing was changed",
                hint="ask again when the run goes on",
            )
        return None if rows[0][0] is None else str(rows[0][0])

    def forget_request(self, request_id: int) -> None:
        """Delete a request whose answer was read."""
        self.call("_forget_request", request_id)

    def forget_requests(self, run_id: int, up_to: int | None = None) -> None:
        """Delete unanswered requests: all, or up to one of them.

        What a driver is asked to begin with stays: it was meant for the one that comes.
        """
        if not self.requests(run_id):
            return
        self.call("_forget_requests", run_id, 2**63 - 1 if up_to is None else up_to)

    def forget_extensions(self, run_id: int) -> None:
        """Delete requests to extend a search that no driver has followed."""
        self.call("_forget_extensions", run_id)

    def states_dropped(self, run_id: int) -> None:
        """The states of a run are gone."""
        self.call("_states_dropped", run_id)

    def revived(self, run_id: int, states: str) -> None:
        """A finished run goes on from states that were made anew, and replaces its tables then."""
        self.call("_revived", run_id, states)

    def stopped_runs(self, older_than: float) -> list[int]:
        """Runs without a driver that stopped so many seconds ago and still have states."""
        rows = self._run(
            "SELECT r.run_id FROM cerebro._runs r JOIN cerebro.runs v ON v.run_id = r.run_id "
            "WHERE r.states IS NOT NULL AND v.status NOT IN ('queued', 'starting', 'running') "
            "AND greatest(r.created, r.resumed, r.finished, (SELECT max(h.finished) "
            "FROM cerebro._hops h WHERE h.run_id = r.run_id)) "
            "<= clock_timestamp() - %s * interval '1 second' ORDER BY 1",
            [older_than],
        )
        return [row[0] for row in rows]

    def orphaned_states(self) -> list[str]:
        """Tables of states that belong to no run: the caller's, or all for administrators."""
        rows = self._run(
            "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relkind = 'r' "
            "AND c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n "
            "WHERE n.nspname = %s) AND (pg_catalog.pg_has_role(c.relowner, 'USAGE') "
            "OR pg_catalog.pg_has_role('cerebro_admin', 'USAGE')) "
            "AND NOT EXISTS (SELECT 1 FROM cerebro._runs r "
            "WHERE pg_catalog.left(c.relname, pg_catalog.length(r.states) + 1) "
            "= r.states || '_') ORDER BY 1",
            [STATES_SCHEMA],
        )
        return [row[0] for row in rows]

    def table_bytes(self, table: QualifiedName) -> int:
        """The size of a table with its TOAST and indexes, 0 where there is none."""
        sql = "SELECT pg_catalog.pg_total_relation_size(pg_catalog.to_regclass(%s))"
        return int(self.execute(sql, [table.text])[0][0] or 0)

    def drop_run(self, run_id: int) -> None:
        """Drop all that the catalog knows of a run."""
        self.call("_drop_run", run_id)

    def lock(self, *tables: str) -> None:
        """Be the only one who writes into tables, where a server wants that for every change of rows.

        A transaction that changes rows of several tables begins with this, and so does one that both
        inserts and changes.
        """
        if self._session.ticks:
            self._session.wait_for_locks()
        self.call("_lock_catalog", list(tables))

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the dialect."""
        return self._session.run(sql, parameters)

    def attempt(self) -> AbstractContextManager[None]:
        """A statement that fails ends what is run inside, and not the transaction."""
        return self._session.attempt()

    def commit(self) -> None:
        """End a transaction; no tick could leave it unknown whether this was done."""
        self._session.run_through("COMMIT")

    def execute_quietly(self, sql: str) -> None:
        """Run a statement of a clean-up, which must not hide what went wrong."""
        with suppress(CerebroError):
            if not self._session.busy and not self._session.closed:
                self._session.run_through(sql)

    def call(self, function: str, *values: Any) -> Any:
        """Call a function that writes into the catalog; returns its value."""
        return self._retried(lambda: self._session.write(function, *values))

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._retried(lambda: self._session.run(sql, parameters))

    def _retried(self, work: Callable[[], _Value]) -> _Value:
        while True:
            try:
                return work()
            except StatementFailed as error:
                # Nobody's open transaction, in which tables of the catalog are locked, ends a run.
                is_over = not self._session.ticks or self._session.in_transaction
                if is_over or error.sqlstate != LOCK_TIMEOUT:
                    raise


_values_of = operator.attrgetter(
    "budget", "mst_key", "architecture.model_id", "compile_text", "fit_text", "hop_seconds", "initial_seed", "jit",
    "steps_per_call", "goal", "is_warm",
)  # fmt: skip


def _columns(spec: RunSpec) -> dict[str, Any]:
    """The row of a spec: what views and queries have in columns of their own."""
    return {
        "name": spec.name,
        "description": spec.description,
        "source_table": spec.source_table,
        "validation_table": spec.validation_table,
        "model_selection_table": spec.model_selection_table,
        "model_arch_table": spec.model_arch_table,
        "num_iterations": spec.epochs,
        "metrics_compute_frequency": spec.frequency,
        "warm_start": spec.warm_start,
        "seed": spec.seed,
        "num_partitions": len(spec.partitions[TRAINING]),
        "num_workers": spec.workers.count,
        "threads": spec.threads,
        "use_gpus": spec.use_gpus,
        "use_caching": spec.use_caching,
        "durability": spec.durability,
        "cerebro_version": spec.cerebro_version,
        "schedule": spec.strategy.name,
        "strategy_params": spec.strategy.text,
        "rounds": spec.strategy.rounds,
    }


def _columns_of_tables(tables: RunTables) -> dict[str, Any]:
    validation = tables.validation
    return {
        "model_output_table": str(tables.output),
        "output_schema": tables.output.schema,
        "output_name": tables.output.name,
        "replaces": tables.replaces,
        "source_oid": tables.source.oid,
        "source_print": tables.source.fingerprint,
        "validation_oid": None if validation is None else validation.oid,
        "validation_print": None if validation is None else validation.fingerprint,
        "states": tables.states,
    }


def keys_by_value(values: Mapping[int, _Value]) -> dict[_Value, list[int]]:
    """The keys that have the same value: one statement is enough for all of them."""
    found: dict[_Value, list[int]] = {}
    for key, value in values.items():
        found.setdefault(value, []).append(key)
    return found


def _only(
    rows: Sequence[tuple[Any, ...]], run_id: int | None, what: str = "run_id"
) -> tuple[Any, ...]:
    """The row of a run."""
    if not rows:
        got = "NULL" if run_id is None else run_id
        raise UndefinedRun(f"{what}: got {got}; you have no run of that number")
    return rows[0]
