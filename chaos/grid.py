"""Workload: a small grid with Adam, dropout and batch normalisation, and its call."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_db.configs.grids.brackets import brackets
from cerebro_db.decide.strategies import DEFAULT, STRATEGIES
from chaos.server import Server

CONFIGURATIONS = 4
_FEATURES, _CLASSES, _TRAINING_ROWS, _ROWS = 8, 3, 960, 1200
_SEED = 7
_CEREBRO = str(Path(sys.executable).with_name("cerebro"))
_COMPILE = "loss='sparse_categorical_crossentropy',optimizer='Adam(lr={rate})',metrics=['accuracy']"
# R and eta of a search: 10 trials in three brackets, 28 epochs.
_BRACKETS = 4, 2
_PARAMS = "R=4, eta=2"
_SPACE = (
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}]}"
)
_FIT = "{'batch_size': [8, 32, 'log']}"
# Tables of an output name; predictions are one table for each configuration.
OUTPUTS = ("", "_info", "_summary", "_states")


@dataclass(frozen=True)
class Job:
    """A training run of the kill test.

    Attributes:
        output: the name of the output tables.
        epochs: of the training.
        durability: of the run.
        partitions, workers, predicts: of the server.
        searches: whether it is a search by Hyperband, which has epochs of its own.
        strategy: of the training.
    """

    output: str
    epochs: int
    durability: str = "hop"
    partitions: int = Server.partitions
    workers: int = Server.workers
    predicts: bool = Server.predicts
    searches: bool = False
    strategy: str = DEFAULT

    @classmethod
    def on(
        cls,
        server: Server,
        output: str,
        epochs: int,
        durability: str = "hop",
        searches: bool = False,
        strategy: str = DEFAULT,
    ) -> Job:
        """A run on a server."""
        return cls(
            output,
            epochs,
            durability,
            server.partitions,
            server.workers,
            server.predicts and not searches,
            searches,
            DEFAULT if searches else strategy,
        )

    @property
    def hops(self) -> int:
        """Number of hops of the whole run."""
        if self.searches:
            return sum(one.epochs for one in brackets(*_BRACKETS)) * self.partitions
        return self.configurations * self.partitions * self.epochs

    @property
    def _chooses_groups(self) -> bool:
        return STRATEGIES[self.strategy].chooses_groups

    @property
    def configurations(self) -> int:
        """Number of configurations to train: of all of them none would have a group."""
        return CONFIGURATIONS // 2 if self._chooses_groups else CONFIGURATIONS

    @property
    def _selection(self) -> str:
        return "large_configs" if self._chooses_groups else "configs"

    @property
    def _workers(self) -> int:
        """Number of workers: all partitions where so many train together."""
        together = STRATEGIES[self.strategy].may_join_hops()
        return self.partitions if together else self.workers

    @property
    def _params(self) -> str:
        return f"processors={self.partitions}" if self._chooses_groups else ""

    @property
    def prediction_tables(self) -> dict[int, str]:
        """Names of the tables that hold predictions, by mst_key."""
        keys = range(1, self.configurations + 1) if self.predicts else ()
        return {key: f"{self.output}_p{key}" for key in keys}

    @property
    def tables(self) -> list[str]:
        """Names of the tables that the run makes."""
        return [self.output + suffix for suffix in OUTPUTS] + [*self.prediction_tables.values()]

    def resume_command(self, dsn: str, run_id: int) -> list[str]:
        """The command that goes on with it."""
        return [_CEREBRO, "resume", "--dsn", dsn, str(run_id)]

    def fit(self) -> str:
        """The statement that begins it."""
        if self.searches:
            return (
                f"SELECT cerebro_search('packed', '{self.output}', 'models', NULL, ARRAY[1, 2], "
                f"$${_SPACE}$$, $${_FIT}$$, 'hyperband', '{_PARAMS}', objective := 'val_accuracy', "
                f"validation_table := 'validation', seed := {_SEED}, num_workers := {self.workers}, "
                f"durability := '{self.durability}')"
            )
        return (
            f"SELECT cerebro_fit_multiple('packed', '{self.output}', '{self._selection}', {self.epochs}, "
            "validation_table := 'validation', metrics_compute_frequency := 1, "
            f"seed := {_SEED}, num_workers := {self._workers}, durability := '{self.durability}', "
            f"strategy := '{self.strategy}', strategy_params := '{self._params}')"
        )

    def fit_command(self, dsn: str) -> list[str]:
        """The run as a command, whose process is the driver."""
        if self.searches:
            return [
                _CEREBRO, "search", "--dsn", dsn, "packed", self.output, "models", _SPACE, _FIT,
                "--model-id", "1", "--model-id", "2", "--method", "hyperband", "--params", _PARAMS,
                "--objective", "val_accuracy", "--validation-table", "validation", "--no-live",
                "--seed", str(_SEED), "--num-workers", str(self.workers),
                "--durability", self.durability,
            ]  # fmt: skip
        return [
            _CEREBRO, "fit", "--dsn", dsn, "packed", self.output, self._selection, str(self.epochs),
            "--validation-table", "validation", "--metrics-compute-frequency", "1",
            "--seed", str(_SEED), "--num-workers", str(self._workers), "--durability", self.durability,
            "--strategy", self.strategy, "--strategy-params", self._params,
        ]  # fmt: skip

    def predictions(self) -> list[str]:
        """The statements that predict with every model."""
        return [
            f"SELECT cerebro_predict('{self.output}', 'validation_rows', 'id', 'x', '{table}', "
            f"mst_key := {key})"
            for key, table in self.prediction_tables.items()
        ]

    def drop(self) -> str:
        """The statement that drops its tables."""
        return f"DROP TABLE IF EXISTS {', '.join(self.tables)}"


def load(server: Server) -> None:
    """Make the tables that all runs start from."""
    generator = random.Random(_SEED)
    centres = [[generator.gauss(0, 1) for _ in range(_FEATURES)] for _ in range(_CLASSES)]
    rows: list[Any] = []
    for number in range(_ROWS):
        label = generator.randrange(_CLASSES)
        x = [centre + generator.gauss(0, 1) for centre in centres[label]]
        rows += [number, x, "abc"[label]]
    server.fetch("CREATE TABLE rows (id int, x real[], y text)")
    values = ", ".join(["(%s, %s::real[], %s)"] * _ROWS)
    server.fetch(f"INSERT INTO rows VALUES {values}", rows)
    packing = "buffer_size := 40"
    if server.chooses_partitions:
        packing += f", num_partitions := {server.partitions}"
    for statement in (
        f"CREATE VIEW training_rows AS SELECT * FROM rows WHERE id < {_TRAINING_ROWS}",
        f"CREATE VIEW validation_rows AS SELECT * FROM rows WHERE id >= {_TRAINING_ROWS}",
        f"SELECT cerebro_pack('training_rows', 'packed', 'y', 'x', {packing})",
        "SELECT cerebro_pack_validation('validation_rows', 'validation', 'y', 'x', 'packed')",
    ):
        server.call(statement)
    for units in (16, 24):
        server.call("SELECT cerebro_load_model('models', %s)", (_model(units),))
    server.call(
        "SELECT cerebro_load_configs('models', 'configs', %s, %s, %s)",
        ([1, 2], [_COMPILE.format(rate=rate) for rate in (0.01, 0.003)], ["batch_size=16"]),
    )
    _load_large(server)


def _load_large(server: Server) -> None:
    """Load nets whose facts are changed to make a step seem long, so that a group is worth it."""
    for units in (16, 24):
        server.call("SELECT cerebro_load_model('large_models', %s)", (_model(units),))
    for model_id, found in server.fetch("SELECT model_id, model_facts FROM large_models"):
        facts = json.dumps(found | {"multiply_adds": 10**9})
        server.call(
            "UPDATE large_models SET model_facts = %s WHERE model_id = %s", (facts, model_id)
        )
    server.call(
        "SELECT cerebro_load_configs('large_models', 'large_configs', %s, %s, %s)",
        ([1, 2], [_COMPILE.format(rate=0.01)], ["batch_size=128"]),
    )


def _model(units: int) -> str:
    layers = [
        _layer("InputLayer", batch_shape=[None, _FEATURES]),
        _layer("Dense", units=units, activation="relu"),
        _layer("BatchNormalization"),
        _layer("Dropout", rate=0.2),
        _layer("Dense", units=_CLASSES, activation="softmax"),
    ]
    config = {"name": "net", "layers": layers}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": config})


def _layer(kind: str, **config: Any) -> dict[str, Any]:
    return {"module": "keras.layers", "class_name": kind, "config": config}
