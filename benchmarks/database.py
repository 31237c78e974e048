"""The side of Cerebro-DB: a workload as tables, packed and trained by SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import exchange
from benchmarks.hops import Hop, read
from benchmarks.meter import Cost
from benchmarks.server import Server
from benchmarks.workload import Workload
from cerebro_db.requests.fitting import FitRequest


@dataclass(frozen=True)
class Tables:
    """The names of a workload's tables."""

    workload: str

    @property
    def source(self) -> str:
        """Rows."""
        return f"{self.workload}_source"

    @property
    def packed(self) -> str:
        """Buffers."""
        return f"{self.workload}_packed"

    @property
    def models(self) -> str:
        """Architectures."""
        return f"{self.workload}_models"

    @property
    def configurations(self) -> str:
        """The grid."""
        return f"{self.workload}_configurations"

    def output(self, number: int) -> str:
        """Name of the output table of a run."""
        return f"{self.workload}_output_{number}"


@dataclass(frozen=True)
class Trained:
    """Figures of a run: its time, hops, the accuracy of each configuration, and why others failed."""

    cost: Cost
    hops: list[Hop]
    accuracies: dict[int, float]
    errors: dict[int, str]


def load(server: Server, workload: Workload) -> Tables:
    """Make the tables that all sides start from; this is not measured."""
    tables = Tables(workload.name)
    dimensions = "[]" * (workload.features.ndim - 1)
    with server.session() as cursor:
        cursor.execute(f"CREATE TABLE {tables.source} (x real{dimensions}, y integer)")
        exchange.write(cursor, tables.source, workload.features, workload.labels)
        cursor.execute(f"VACUUM ANALYZE {tables.source}")
        for architecture in workload.architectures:
            cursor.execute("SELECT cerebro_load_model(%s, %s)", (tables.models, architecture))
        _generate(cursor, tables, workload)
        cursor.execute("CHECKPOINT")
    return tables


def load_apart(cursor: Any, workload: Workload, trained: Any, apart: Any, partitions: int) -> None:
    """Make the tables of a workload of which some rows are set apart to validate on; this is not measured.

    These are <name>_packed and <name>_val_packed, from <name>_train and <name>_val, and <name>_models.

    Args:
        cursor: of a session.
        trained, apart: rows, by their places.
        partitions: of the packed table.
    """
    name, dimensions = workload.name, "[]" * (workload.features.ndim - 1)
    for part, chosen in (("train", trained), ("val", apart)):
        table = f"{name}_{part}"
        cursor.execute(f"CREATE TABLE {table} (x real{dimensions}, y integer)")
        exchange.write(cursor, table, workload.features[chosen], workload.labels[chosen])
    cursor.execute(
        "SELECT cerebro_pack(%s, %s, 'y', 'x', num_partitions := %s)",
        (f"{name}_train", f"{name}_packed", partitions),
    )
    cursor.execute(
        "SELECT cerebro_pack_validation(%s, %s, 'y', 'x', %s)",
        (f"{name}_val", f"{name}_val_packed", f"{name}_packed"),
    )
    for architecture in workload.architectures:
        cursor.execute("SELECT cerebro_load_model(%s, %s)", (f"{name}_models", architecture))


def pack(server: Server, tables: Tables, workload: Workload) -> Cost:
    """Pack the rows, in a fresh session."""
    with server.session() as cursor, server.meter.measure() as cost:
        cursor.execute(
            "SELECT cerebro_pack(%s, %s, 'y', 'x', num_partitions := %s)",
            (tables.source, tables.packed, workload.partitions),
        )
    return cost


def train(
    server: Server,
    tables: Tables,
    workload: Workload,
    workers: int | None,
    times: int,
    schedule: str = "hopper",
    caching: bool = True,
) -> list[Trained]:
    """Train the grid in a fresh session, so many times; the first time is the cold one."""
    runs = []
    with server.session() as cursor:
        cursor.execute("SET extra_float_digits = 3")  # older servers round what they show
        for number in range(times):
            arguments = (
                tables.packed, tables.output(number), tables.configurations, workload.epochs,
                workers, schedule, caching,
            )  # fmt: skip
            with server.meter.measure() as cost:
                cursor.execute(
                    "SELECT cerebro_fit_multiple(%s, %s, %s, %s, num_workers := %s, "
                    "schedule := %s, use_caching := %s)",
                    arguments,
                )
                ((run_id,),) = cursor.fetchall()
            accuracies, errors = _ends(cursor, run_id)
            runs.append(Trained(cost, read(cursor, run_id), accuracies, errors))
            name = tables.output(number)
            cursor.execute(f"DROP TABLE {name}, {name}_info, {name}_summary, {name}_states")
    return runs


def drop(server: Server, tables: Tables) -> None:
    """Free the disk for the next workload."""
    names = [tables.source, tables.packed, f"{tables.packed}_summary"]
    with server.session() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")


def request(tables: Tables, workload: Workload, workers: int, cores: int) -> FitRequest:
    """The request of :func:`train`, for the plan of the peers."""
    return FitRequest(
        source_table=tables.packed,
        model_output_table=f"{workload.name}_plan",
        model_selection_table=tables.configurations,
        num_iterations=workload.epochs,
        num_workers=workers,
        cores=cores,
    )


def packed_bytes(server: Server, tables: Tables) -> int:
    """Bytes of the packed table on disk."""
    with server.session() as cursor:
        cursor.execute("SELECT pg_total_relation_size(%s)", (tables.packed,))
        return int(cursor.fetchone()[0])


def _generate(cursor: Any, tables: Tables, workload: Workload) -> None:
    model_ids = list(range(1, len(workload.architectures) + 1))
    compile_grid = {
        "loss": [workload.loss],
        "optimizer_params_list": [
            {"optimizer": ["Adam"], "learning_rate": list(workload.learning_rates)}
        ],
        "metrics": ["accuracy"],
    }
    fit_grid = {"batch_size": list(workload.batch_sizes), "epochs": [1]}
    cursor.execute(
        "SELECT cerebro_generate_configs(%s, %s, %s, %s, %s)",
        (tables.models, tables.configurations, model_ids, str(compile_grid), str(fit_grid)),
    )


def _ends(cursor: Any, run_id: int) -> tuple[dict[int, float], dict[int, str]]:
    """Accuracies of the configurations that were trained, and errors of the others."""
    cursor.execute(
        "SELECT mst_key, training_metrics[1], error FROM cerebro.leaderboard WHERE run_id = %s",
        (run_id,),
    )
    rows = cursor.fetchall()
    accuracies = {key: accuracy for key, accuracy, error in rows if error is None}
    return accuracies, {key: error for key, _, error in rows if error is not None}
