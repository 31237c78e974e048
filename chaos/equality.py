"""Compare what two checkouts train, to the bit.

    python -m chaos.equality OTHER_CHECKOUT

Each checkout has its own virtual environment in .cerebro/venv, and gets a server of its own in a temporary
folder. Both run the same grids with the same seeds: convolutions, batch normalisation and dropout, Adam, SGD
with momentum, callbacks, sample weights, a partition that is streamed, one that XLA compiles, then the
workloads toy, tabular and images of the benchmarks, and the demo. What is compared are weights, states, losses and metrics of all epochs, and predictions. The exit status is 1 where
anything differs. Both must run on the same machine: kernels are chosen by the processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg2
from sklearn.datasets import load_digits

from benchmarks import exchange
from benchmarks.workloads import WORKLOADS
from demo.run import PREPARE, SCRIPT, rows_of_digits

_DENSE = [{"units": 24, "activation": "relu"}, {"units": 10, "activation": "softmax"}]


def main() -> int:
    """Returns the exit status."""
    if len(sys.argv) != 2:
        sys.stderr.write(__doc__ or "")
        return 2
    here, other = Path(__file__).parents[1], Path(sys.argv[1]).resolve()
    ours, theirs = _digests(here), _digests(other)
    different = [name for name in theirs if ours.get(name) != theirs[name]]
    for name in theirs:
        sys.stdout.write(
            f"{'DIFFERENT' if name in different else 'equal':10}{name}  {theirs[name][:12]}" + "\n"
        )
    return 1 if different else 0


def _digests(checkout: Path) -> dict[str, str]:
    """Digests of what a checkout trains, by name."""
    program = str(checkout / ".cerebro" / "venv" / "bin" / "cerebro")
    with tempfile.TemporaryDirectory(prefix="cerebro-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        environment = {**os.environ, "CEREBRO_HOME": f"{folder}/home"}

        def cerebro(*arguments: str) -> str:
            done = subprocess.run(
                [program, *arguments], env=environment, check=True, capture_output=True, text=True
            )
            return done.stdout

        cerebro("server", "start")
        try:
            dsn = cerebro("server", "dsn").strip()
            cerebro("install", "--dsn", dsn)
            return _trained(dsn)
        finally:
            cerebro("server", "destroy", "--yes")


def _trained(dsn: str) -> dict[str, str]:
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    found: dict[str, str] = {}
    with connection.cursor() as cursor:
        cursor.execute("SET client_min_messages = warning")
        _load(cursor)
        for name, call in _RUNS.items():
            cursor.execute(f"SELECT {call.format(out=f'{name}_out')}")
            found |= _compared(cursor, name, "test")
        for name in _WORKLOADS:
            _train_workload(cursor, name)
            found |= _compared(cursor, name, f"{name}_source")
        _run_demo(dsn)
        found |= _compared(cursor, "digits", "digits_test")
    connection.close()
    return found


def _compared(cursor: object, name: str, rows: str) -> dict[str, str]:
    """Digests of what a run has left in the tables NAME_out; ``rows`` are predicted."""
    execute = cursor.execute  # type: ignore[attr-defined]
    found = {}
    for what, query in _COMPARED.items():
        execute(query.format(out=f"{name}_out", rows=rows, x=_FEATURES.get(name, "x")))
        found[f"{name}: {what}"] = str(cursor.fetchone()[0])  # type: ignore[attr-defined]
    return found


def _train_workload(cursor: object, name: str) -> None:
    """A workload of the benchmarks, at its published size."""
    execute = cursor.execute  # type: ignore[attr-defined]
    workload = WORKLOADS[name](1.0)
    dimensions = "[]" * (workload.features.ndim - 1)
    execute(f"CREATE TABLE {name}_source (x real{dimensions}, y integer)")
    exchange.write(cursor, f"{name}_source", workload.features, workload.labels)
    for architecture in workload.architectures:
        execute("SELECT cerebro_load_model(%s, %s)", (f"{name}_models", architecture))
    compile_grid = {
        "loss": [workload.loss],
        "optimizer_params_list": [{"optimizer": ["Adam"], "lr": list(workload.learning_rates)}],
        "metrics": ["accuracy"],
    }
    fit_grid = {"batch_size": list(workload.batch_sizes), "epochs": [1]}
    ids = list(range(1, len(workload.architectures) + 1))
    execute(
        "SELECT cerebro_generate_configs(%s, %s, %s, %s, %s)",
        (f"{name}_models", f"{name}_grid", ids, str(compile_grid), str(fit_grid)),
    )
    execute(
        "SELECT cerebro_pack(%s, %s, 'y', 'x', num_partitions := %s)",
        (f"{name}_source", f"{name}_packed", workload.partitions),
    )
    execute(
        "SELECT cerebro_fit_multiple(%s, %s, %s, %s)",
        (f"{name}_packed", f"{name}_out", f"{name}_grid", workload.epochs),
    )


def _run_demo(dsn: str) -> None:
    psql = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", dsn]
    for script in (PREPARE + rows_of_digits(), SCRIPT.read_text()):
        subprocess.run(psql, input=script, check=True, capture_output=True, text=True)


def _load(cursor: object) -> None:
    execute = cursor.execute  # type: ignore[attr-defined]
    digits = load_digits()
    execute("CREATE TABLE drawn (id integer PRIMARY KEY, x real[], y integer, w real)")
    rows = [
        (number, [float(value) for value in image.ravel()], int(label), 0.5 + number % 3)
        for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True))
    ]
    text = json.dumps(rows)
    execute(
        "INSERT INTO drawn SELECT (r->>0)::int, "
        "(SELECT array_agg(v::text::real ORDER BY o) FROM json_array_elements(r->1) "
        "WITH ORDINALITY AS e(v, o)), (r->>2)::int, (r->>3)::real FROM json_array_elements(%s) r",
        (text,),
    )
    execute(
        "CREATE VIEW train AS SELECT * FROM drawn WHERE id % 5 > 0; "
        "CREATE VIEW test AS SELECT * FROM drawn WHERE id % 5 = 0"
    )
    for statement in (*_PACKING, *(_model(*layers) for layers in _MODELS)):
        execute(statement)
    for statement in _CONFIGURATIONS:
        execute(statement)


_PACKING = (
    "SELECT cerebro_pack('train', 'packed', 'y', 'x', 250, 16.0, num_partitions := 3)",
    "SELECT cerebro_pack_validation('test', 'tested', 'y', 'x', 'packed')",
    "SELECT cerebro_pack('train', 'weighted', 'y', 'x', 250, 16.0, num_partitions := 2, sample_weight := 'w')",
)
_INPUT = ("InputLayer", {"batch_shape": [None, 64]})
_MODELS = (
    (_INPUT, *(("Dense", options) for options in _DENSE)),
    (_INPUT, ("Dense", _DENSE[0]), ("BatchNormalization", {}), ("Dropout", {"rate": 0.25}), ("Dense", _DENSE[1])),
    (
        _INPUT,
        ("Reshape", {"target_shape": [8, 8, 1]}),
        ("Conv2D", {"filters": 6, "kernel_size": [3, 3], "activation": "relu"}),
        ("Flatten", {}),
        ("Dense", _DENSE[1]),
    ),
)  # fmt: skip


def _model(*layers: tuple[str, dict[str, object]]) -> str:
    config = [
        {"module": "keras.layers", "class_name": name, "config": options}
        for name, options in layers
    ]
    text = json.dumps(
        {"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": config}}
    )
    return f"SELECT cerebro_load_model('models', '{text}')"


_LOSS = "'loss': ['sparse_categorical_crossentropy'], 'metrics': ['accuracy']"
_CONFIGURATIONS = (
    f"""SELECT cerebro_generate_configs('models', 'grid', ARRAY[1, 2, 3], $$ {{{_LOSS},
    'optimizer_params_list': [{{'optimizer': ['Adam'], 'lr': [0.01]}},
                              {{'optimizer': ['SGD'], 'lr': [0.05], 'momentum': [0.9]}}]}} $$,
    $$ {{'batch_size': [16, 50], 'epochs': [1]}} $$)""",
    f"""SELECT cerebro_generate_configs('models', 'watched', ARRAY[1], $$ {{{_LOSS},
    'optimizer_params_list': [{{'optimizer': ['Adam'], 'lr': [0.01, 0.1]}}]}} $$,
    $$ {{'batch_size': [32], 'epochs': [1],
         'callbacks': ["[EarlyStopping('val_loss', patience=1, restore_best_weights=True)]"]}} $$)""",
    f"""SELECT cerebro_generate_configs('models', 'long', ARRAY[1], $$ {{{_LOSS},
    'optimizer_params_list': [{{'optimizer': ['Adam'], 'lr': [0.001]}}]}} $$,
    $$ {{'batch_size': [4], 'epochs': [20]}} $$)""",
)
_RUNS = {
    "grid": "cerebro_fit_multiple('packed', '{out}', 'grid', 3, validation_table := 'tested', seed := 7)",
    "watched": "cerebro_fit_multiple('packed', '{out}', 'watched', 6, validation_table := 'tested')",
    "weighted": "cerebro_fit_multiple('weighted', '{out}', 'grid', 2)",
    "streamed": "cerebro_fit_multiple('packed', '{out}', 'grid', 2, use_caching := false)",
    "compiled": "cerebro_fit_multiple('packed', '{out}', 'long', 4)",
}
_WORKLOADS = ("toy", "tabular", "images")
_FEATURES = {"digits": "image"}
_COMPARED = {
    "states": "SELECT md5(string_agg(md5(state), ',' ORDER BY mst_key, chunk)) FROM {out}_states",
    "weights": "SELECT md5(string_agg(md5(model_weights), ',' ORDER BY mst_key)) FROM {out}",
    "measures": "SELECT md5(string_agg(concat_ws('/', m.mst_key, m.epoch, m.dataset, m.loss, m.metrics), ','"
    " ORDER BY m.mst_key, m.epoch, m.dataset)) FROM cerebro.metrics m JOIN {out}_summary s USING (run_id)",
    "predictions": "SELECT md5(string_agg(p.all_of_it, ',' ORDER BY p.all_of_it)) FROM (SELECT o.mst_key,"
    " (cerebro_predict_row('{out}', t.x, o.mst_key))::text AS all_of_it FROM {out} o, (SELECT {x} AS x"
    " FROM {rows} ORDER BY 1 LIMIT 20) t) p",
}

if __name__ == "__main__":
    sys.exit(main())
