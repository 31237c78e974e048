"""What is trained: a small grid with Adam, dropout and batch normalisation, and how it is called."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_db.configs.brackets import brackets
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
    """One training run.

    Attributes:
        output: the name of the output tables.
        epochs: of the training.
        durability: of the run.
        partitions, workers, predicts: of the server.
        searches: whether it is a search by Hyperband, which has epochs of its own.
    """

    output: str
    epochs: int
    durability: str = "hop"
    partitions: int = Server.partitions
    workers: int = Server.workers
    predicts: bool = Server.predicts
    searches: bool = False

    @classmethod
    def on(
        cls,
        server: Server,
        output: str,
        epochs: int,
        durability: str = "hop",
        searches: bool = False,
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
        )

    @property
    def hops(self) -> int:
        """Of the whole run."""
        if self.searches:
            return sum(one.epochs for one in brackets(*_BRACKETS)) * self.partitions
        return CONFIGURATIONS * self.partitions * self.epochs

    @property
    def prediction_tables(self) -> dict[int, str]:
        """Names of the tables that hold predictions, by mst_key."""
        keys = range(1, CONFIGURATIONS + 1) if self.predicts else ()
        return {key: f"{self.output}_p{key}" for key in keys}

    @property
    def tables(self) -> list[str]:
        """All that it makes."""
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
            f"SELECT cerebro_fit_multiple('packed', '{self.output}', 'configs', {self.epochs}, "
            "validation_table := 'validation', metrics_compute_frequency := 1, "
            f"seed := {_SEED}, num_workers := {self.workers}, durability := '{self.durability}')"
        )

    def fit_command(self, dsn: str) -> list[str]:
        """The same as a command, whose process is the driver."""
        if self.searches:
            return [
                _CEREBRO, "search", "--dsn", dsn, "packed", self.output, "models", _SPACE, _FIT,
                "--model-id", "1", "--model-id", "2", "--method", "hyperband", "--params", _PARAMS,
                "--objective", "val_accuracy", "--validation-table", "validation", "--no-live",
                "--seed", str(_SEED), "--num-workers", str(self.workers),
                "--durability", self.durability,
            ]  # fmt: skip
        return [
            _CEREBRO, "fit", "--dsn", dsn, "packed", self.output, "configs", str(self.epochs),
            "--validation-table", "validation", "--metrics-compute-frequency", "1",
            "--seed", str(_SEED), "--num-workers", str(self.workers), "--durability", self.durability,
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
