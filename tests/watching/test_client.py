"""Cerebro-DB from Python: any connection, frames with and without pandas, models, notebooks."""

from __future__ import annotations

import inspect
import io
import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg2
import pytest
import sqlalchemy
from pace import stretched

import cerebro_db
from cerebro_db.client import Database, Run, connect
from cerebro_db.client.values import grids
from cerebro_db.configs.grids.grid import parse_compile_grid, parse_fit_grid
from cerebro_db.errors import (
    InvalidArgument,
    LoopbackFailed,
    MissingPackage,
    UndefinedRun,
    WrongRunStatus,
)
from cerebro_db.postgres.sessions import parts
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.watching.comparing import compare
from cerebro_db.watching.statements import statement_of
from tests.fitting.conftest import PLAIN
from tests.fitting.sizes import PARTITIONS
from tests.watching.conftest import EPOCHS, Watched

GRID = {
    "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], "optimizer": ["Adam"],
    "lr": [0.01, 0.003], "batch_size": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def db(watched: Watched) -> Iterator[Database]:
    with connect(watched.dsn) as database:
        yield database


def url_of(dsn: str, driver: str) -> sqlalchemy.URL:
    """A URL of SQLAlchemy for a libpq string."""
    given = psycopg2.extensions.parse_dsn(dsn)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}", username=given.get("user"), database=given["dbname"],
        query={"host": given["host"], "port": given.get("port", "5432")},
    )  # fmt: skip


def kinds(dsn: str) -> dict[str, Callable[[], Any]]:
    """What a user may have."""
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg 3")
    return {
        "dsn": lambda: dsn,
        "url": lambda: url_of(dsn, "psycopg2").render_as_string(),
        "engine": lambda: sqlalchemy.create_engine(url_of(dsn, "psycopg2")),
        "engine of psycopg 3": lambda: sqlalchemy.create_engine(url_of(dsn, "psycopg")),
        "connection of an engine": lambda: sqlalchemy.create_engine(
            url_of(dsn, "psycopg2")
        ).connect(),
        "psycopg2": lambda: psycopg2.connect(dsn),
        "psycopg": lambda: psycopg.connect(dsn),
        "psycopg, autocommit": lambda: psycopg.connect(dsn, autocommit=True),
    }


@pytest.mark.parametrize("kind", list(kinds("")))
def test_any_connection_will_do(watched: Watched, kind: str) -> None:
    given = kinds(watched.dsn)[kind]()
    database = cerebro_db.connect(given)
    run = database.run(watched.run_id)
    assert run.status == "finished"
    assert len(run.leaderboard()) == 4
    assert len(run.hops()) == 4 * EPOCHS * PARTITIONS
    table = f"made_{list(kinds('')).index(kind)}"
    assert database.load_model(table, PLAIN) == 1
    assert watched.sql.value(f"SELECT count(*) FROM {table}") == 1
    with pytest.raises(StatementFailed, match="mst_key: got 99") as caught:
        run.best().connections.run("SELECT cerebro.cerebro_export('watched_out', 99)")
    assert caught.value.sqlstate == "22023"
    assert caught.value.hint
    assert len(run.metrics()) == 4 * EPOCHS * 2  # it works after an error
    database.drop_outputs(table)
    database.close()
    if hasattr(given, "closed"):  # it is the user's
        assert not given.closed
        given.close()


@pytest.mark.parametrize("kind", list(kinds("")))
def test_large_values_go_and_come_in_parts(
    watched: Watched, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = kinds(watched.dsn)[kind]()
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    monkeypatch.setattr(parts, "LARGE_BYTES", 100)
    database = cerebro_db.connect(given)
    weights = np.arange(6 * 8 + 8 + 8 * 3 + 3, dtype="<f4").tobytes()
    table = f"in_parts_{list(kinds('')).index(kind)}"
    database.load_model(table, PLAIN)
    assert database._call(
        "cerebro_load_model",
        {"model_arch_table": table, "model_arch": PLAIN, "model_weights": weights},
    ) == 2  # fmt: skip
    stored = watched.sql.value(f"SELECT model_weights FROM {table} WHERE model_id = 2")
    assert bytes(stored) == weights
    file = database.export("watched_out", 1, "npz")
    whole = watched.sql.value("SELECT cerebro_export('watched_out', 1, 'npz')")
    assert len(file) > 1000
    assert arrays(file) == arrays(bytes(whole))
    assert arrays(database.run(watched.run_id).model(1).export("npz")) == arrays(file)
    database.drop_outputs(table)
    database.close()
    if hasattr(given, "closed"):
        assert not given.closed
        given.close()


def arrays(file: bytes) -> dict[str, bytes]:
    """The bytes of the arrays in a file of NumPy."""
    with np.load(io.BytesIO(file)) as found:
        return {name: found[name].tobytes() for name in found.files}


def test_a_users_transaction_stays_theirs(watched: Watched) -> None:
    connection = psycopg2.connect(watched.dsn)
    connection.cursor().execute("CREATE TABLE theirs (x int)")
    assert cerebro_db.connect(connection).run(watched.run_id).status == "finished"
    connection.rollback()
    assert watched.sql.value("SELECT to_regclass('theirs')") is None
    connection.close()


def test_what_is_no_database_is_reported() -> None:
    with pytest.raises(InvalidArgument, match="database: got int; allowed: a DSN"):
        connect(7)
    with pytest.raises(InvalidArgument, match=r"got an engine of sqlite\+pysqlite"):
        connect(sqlalchemy.create_engine("sqlite://"))
    with pytest.raises(LoopbackFailed):
        connect("host=/nowhere dbname=none")


def test_the_import_is_light() -> None:
    code = (
        "import sys, cerebro_db; cerebro_db.connect; heavy = {'tensorflow', 'keras', 'pandas', 'plotly', "
        "'optuna', 'sklearn', 'mlflow'} & set(sys.modules); assert not heavy, heavy; "
        "assert 'cerebro_db.runs.driver' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")


def test_rows_are_frames_of_pandas(db: Database, watched: Watched) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    run = db.run(watched.run_id)
    board, metrics = run.leaderboard(), run.metrics()
    assert isinstance(board, pandas.DataFrame)
    assert list(board["rank"]) == sorted(board["rank"])
    assert {"learning_rate", "val_accuracy", "val_loss", "accuracy", "mst_key"} <= {*board.columns}
    last = metrics[(metrics.epoch == EPOCHS) & (metrics.dataset == "validation")]
    merged = board.merge(last, on="mst_key")
    assert np.allclose(merged["val_loss"], merged["loss_y"])
    assert list(db.runs(limit=1000)["run_id"])[-2:] == [watched.large, watched.run_id]


def test_rows_are_named_tuples_without_pandas(
    db: Database, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    board = db.run(watched.run_id).leaderboard()
    assert isinstance(board, list)
    assert board[0].rank == 1
    assert board[0].val_accuracy >= board[-1].val_accuracy


def test_functions_are_methods(db: Database, watched: Watched) -> None:
    known = watched.sql.column(
        "SELECT DISTINCT proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'cerebro' AND proname ~ '^cerebro_' "
        "AND NOT EXISTS (SELECT 1 FROM pg_aggregate a WHERE a.aggfnoid = p.oid)"
    )
    missing = [name for name in known if not hasattr(db, name.removeprefix("cerebro_"))]
    assert missing == []
    assert {"evaluate", "fit_multiple", "version"} <= set(dir(db))
    assert db.version() == cerebro_db.__version__
    assert "Loss and metrics" in db.evaluate.__doc__
    db.evaluate("watched_out", "val", "scores", mst_key=1)
    (score,) = db.table("scores").to_dict("records")
    assert score["mst_key"] == 1
    assert list(db.drop_outputs("scores").iloc[:, 0]) == ["public.scores"]
    schedule = db.hyperband_schedule(9, eta=3)
    assert list(schedule.columns) == ["s", "i", "n_i", "r_i"]
    with pytest.raises(AttributeError, match="no function cerebro_nonsense"):
        db.nonsense()
    with pytest.raises(InvalidArgument, match="pause: got the argument run_id twice"):
        db.pause(1, run_id=1)
    with pytest.raises(InvalidArgument, match="pause: got 2 arguments; allowed: 1: run_id"):
        db.pause(1, 2)


@pytest.mark.parametrize(
    "name",
    [
        "pack",
        "pack_columns",
        "pack_validation",
        "fit_multiple",
        "fit",
        "search",
        "load_model",
        "resume",
    ],
)
def test_what_is_written_out_has_the_names_of_sql(
    db: Database, watched: Watched, name: str
) -> None:
    names = watched.sql.fetch(
        "SELECT proargnames[1:pronargs] FROM pg_proc WHERE proname = %s ORDER BY oid",
        (f"cerebro_{name}",),
    )
    parameters = list(inspect.signature(getattr(Database, name)).parameters.values())[1:]
    by_place = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    if name == "load_model":
        by_place[by_place.index("model")] = "model_arch"
        of_python = {"with_weights", "example_inputs"}
        assert set(by_place) - of_python <= set(names[0][0])
    else:
        assert by_place == names[0][0][: len(by_place)]
        if parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:  # else by name, as options
            assert len(by_place) == len(names[0][0])


def test_grids_are_those_of_sql() -> None:
    compile_grid, fit_grid = grids(GRID)
    assert len(list(parse_compile_grid(compile_grid).combinations())) == 2
    assert len(list(parse_fit_grid(fit_grid).combinations())) == 1
    both = {"compile_params_grid": "{'loss': ['mse']}", "fit_params_grid": {"batch_size": [8]}}
    assert grids(both) == ("{'loss': ['mse']}", "{'batch_size': [8]}")
    for wrong in ({}, {**both, "lr": 1}, {"optimizer_params_list": [{}], "lr": [1]}):
        with pytest.raises(InvalidArgument, match="grid: got"):
            grids(wrong)


ARRAYS = {
    "arrays": {"lr": np.logspace(-4, -1, 4), "batch_size": np.array([8, 16])},
    "numbers": {"lr": [np.float64(0.1), np.float32(0.1)], "batch_size": np.int64(8)},
    "ranges": {"lr": [0.1], "batch_size": range(8, 33, 8)},
    "words": {"nesterov": [np.bool_(True), np.False_], "optimizer": [np.str_("SGD")], "lr": [0.1]},
    "weights": {"lr": 0.1, "class_weight": [{np.int64(0): np.float32(1.5), 1: np.float64(2)}, {0: 1, 1: 3}]},
}  # fmt: skip


@pytest.mark.parametrize("given", ARRAYS.values(), ids=ARRAYS)
def test_values_of_numpy_are_read_as_the_same_values(given: dict[str, Any]) -> None:
    """As the same lists of Python's own are, and floats to the bit."""
    base = {"loss": ["mse"], "optimizer": ["SGD"]}
    own: dict[str, Any] = {
        "lr": [float(one) for one in np.ravel(given["lr"])] if "lr" in given else [],
        "batch_size": [int(one) for one in np.ravel(given.get("batch_size", []))],
        "nesterov": [True, False], "optimizer": ["SGD"], "class_weight": [{0: 1.5, 1: 2.0}, {0: 1, 1: 3}],
    }  # fmt: skip
    found = grids({**base, **given})
    assert found == grids({**base, **{name: own[name] for name in given}})
    compiling = list(parse_compile_grid(found[0]).combinations())
    fitting = list(parse_fit_grid(found[1]).combinations())
    assert len(compiling) * len(fitting) == math.prod(len(own[name]) for name in given)
    texts = " ".join(one["optimizer"] for one in compiling)
    assert all(f"lr={rate!r}" in texts for rate in own["lr"])


def test_both_grids_as_in_sql_may_have_values_of_numpy() -> None:
    both = {
        "compile_params_grid": {
            "loss": ["mse"],
            "optimizer_params_list": [{"optimizer": ["SGD"], "lr": np.logspace(-2, -1, 2)}],
        },
        "fit_params_grid": {"batch_size": range(1, 3)},
    }
    assert grids(both) == (
        "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.01, 0.1]}]}",
        "{'batch_size': [1, 2]}",
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.nan, "got nan; allowed: finite numbers"),
        ([1.0, float("inf")], "got inf; allowed: finite numbers"),
        (len, "of type builtin_function_or_method; allowed: numbers, texts"),
        ({1, 2}, "of type set; allowed"),
        ({(1, 2): 3}, r"got the key \(1, 2\); allowed: texts and whole numbers"),
        (1j, "of type complex; allowed"),
    ],
)
def test_what_is_no_value_of_a_grid_is_refused(value: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"grid: .*{told}"):
        grids({"loss": ["mse"], "optimizer": ["Adam"], "lr": [value]})


@pytest.fixture(scope="module")
def fitted(db: Database) -> Run:
    """Two configurations of a Keras model, by one call."""
    return db.fit_multiple(
        "packed", "from_python", num_iterations=2, validation_table="val", metrics_compute_frequency=1,
        models=[PLAIN], grid=GRID, progress=False, name="from Python", seed=np.int64(0),
    )  # fmt: skip


def test_models_and_a_grid_are_enough(db: Database, fitted: Run) -> None:
    assert fitted.status == "finished"
    assert repr(fitted) == f"<Run {fitted.run_id}: finished>"
    assert sorted(fitted.leaderboard()["learning_rate"]) == [0.003, 0.01]
    assert len(db.table("from_python_configs")) == 2
    again = db.fit_multiple(
        "packed", "from_python", num_iterations=1, models=[PLAIN], grid=GRID, replace=True, progress=False,
    )  # fmt: skip
    assert len(db.table("from_python_models")) == 1
    again.drop()
    with pytest.raises(UndefinedRun):
        assert again.status
    with pytest.raises(InvalidArgument, match="grid: got one without models"):
        db.fit_multiple("packed", "nowhere", grid=GRID)


def test_a_model_is_whatever_has_its_json(db: Database) -> None:
    net = db.mlp(np.int64(2), np.array([3]), 2)
    assert isinstance(net, dict)
    numbers = [db.load_model("as_python", one) for one in (net, json.dumps(net))]
    (found,) = db.sql("SELECT count(DISTINCT model_arch::text) AS n FROM as_python")["n"]
    assert (numbers, found) == ([1, 2], 1)
    with pytest.raises(InvalidArgument, match="model: got 5, of type int; allowed: a Keras model"):
        db.load_model("as_python", 5)
    with pytest.raises(InvalidArgument, match="with_weights: got True for a model of type dict"):
        db.load_model("as_python", net, with_weights=True)


def test_numbers_of_numpy_name_runs_and_models(db: Database, fitted: Run) -> None:
    assert db.run(np.int64(fitted.run_id)).run_id == fitted.run_id
    assert len(db.runs(np.int32(1))) == 1
    assert list(db.sql("SELECT %s::float8 + 1 AS x", [np.float32(0.5)])["x"]) == [1.5]
    assert fitted.model(np.int64(1)).mst_key == 1
    compared = fitted.compare(np.int64(fitted.run_id)).runs
    assert [one.run_id for one in compared] == [fitted.run_id] * 2


def test_one_model(db: Database) -> None:
    params = "loss='sparse_categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
    run = db.fit(
        "packed", "one_python", compile_params=params, fit_params="batch_size=8", model=PLAIN
    )
    assert run.best().parameters["learning_rate"] == 0.01
    assert run.best().results["accuracy"] > 0
    with pytest.raises(InvalidArgument, match=r"mst_key: got 9; run \d+ has models of 1"):
        run.model(9)


def test_a_search(db: Database, watched: Watched) -> None:
    space = GRID | {"lr": [0.001, 0.1, "log"]}
    run = db.search(
        "packed", '"Searched"', models=[PLAIN], grid=space, automl_method="random",
        automl_params="num_configs=3, num_iterations=1", objective="accuracy", early_stopping="patience=3, min_delta=0.01", max_seconds=600, progress=False,
    )  # fmt: skip
    assert len(run.leaderboard()) == 3
    assert len(run.decisions()) > 0
    # The report tells how to search again, and how to repeat the decisions.
    again = statement_of(run.connections, run.facts).split("-- or from the beginning:")
    trials = "SELECT mst_key, parameters::text, objectives FROM cerebro.trials WHERE run_id = %s ORDER BY 1"
    known = watched.sql.fetch(trials, (run.run_id,))
    for statement in again:
        other = watched.sql.value(statement)
        assert watched.sql.fetch(trials, (other,)) == known
        watched.sql.run("SELECT cerebro_drop_run(%s)", (other,))
        watched.sql.run("SELECT cerebro_drop_outputs('\"Searched_again\"')")
    assert run.best().mst_key == run.leaderboard()["mst_key"].iloc[0]


def test_a_strategy_and_how_to_repeat_its_run(db: Database, watched: Watched) -> None:
    run = db.fit_multiple(
        "packed", "averaged", "grid", 1, strategy="averaging", strategy_params="rounds=2", progress=False,
    )  # fmt: skip
    repeated = watched.sql.value(statement_of(run.connections, run.facts))
    scores = (
        "SELECT mst_key, epoch, loss FROM cerebro.metrics WHERE run_id = %s ORDER BY 1, 2, dataset"
    )
    assert watched.sql.fetch(scores, (repeated,)) == watched.sql.fetch(scores, (run.run_id,))
    differences = compare(run.connections, (run.run_id, watched.run_id)).differences
    asked = {one.name: one.values for one in differences}
    assert asked["schedule"] == ("averaging", "hopper")
    assert asked["strategy_params"][0] == "rounds=2"


def test_the_best_is_a_model_of_keras(
    tensorflow: None, watched: Watched, db: Database, blobs: Any
) -> None:
    best = db.run(watched.run_id).best()
    assert best.mst_key == watched.sql.value(
        "SELECT mst_key FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank LIMIT 1",
        (watched.run_id,),
    )
    model = best.keras()
    features, labels = blobs
    found = model.predict(features[120:], verbose=0)
    assert (found.argmax(axis=1) == labels[120:]).mean() == pytest.approx(
        best.results["val_accuracy"], abs=1e-6
    )
    told = best.predict("val", "best_answers")
    assert len(told) == 30 * 3
    db.drop_outputs("best_answers")
    assert best.register("from_python") == 1


def test_a_run_that_has_no_models_yet(db: Database, watched: Watched) -> None:
    run = db.fit_multiple("packed", "paused_out", "grid", 1, max_seconds=0.001, progress=False)
    assert run.status == "paused"
    with pytest.raises(WrongRunStatus, match="is paused; allowed: a run that is finished"):
        run.best()
    assert run.progress() == "paused"
    assert run.resume(progress=False).status == "finished"
    assert run.compare(watched.run_id).sides


def test_a_bar_is_shown_beside_the_call(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from cerebro_db.client import progress

    seen: list[tuple[int, str, int]] = []

    class Bar:
        def update(self, facts: Any, pace: Any) -> None:
            seen.append((facts.run_id, facts.status, pace.done))

        def close(self) -> None:
            seen.append((0, "closed", 0))

    monkeypatch.setattr(progress, "shown", Bar)
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    run = db.fit_multiple("packed", "with_bar", "grid", 4, progress=True)
    assert {one[0] for one in seen} == {run.run_id, 0}
    assert seen[-1] == (0, "closed", 0)
    assert seen[-2] == (run.run_id, "finished", 4 * 4 * PARTITIONS)


def test_a_timeout(watched: Watched, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from cerebro_db.watching.reading import RunFacts

    monkeypatch.setattr(RunFacts, "goes_on", property(lambda one: True))
    with pytest.raises(TimeoutError, match=f"run {watched.run_id} still goes on"):
        db.run(watched.run_id).wait(timeout=0.01)


def test_runs_that_go_on_without_waiting(db: Database) -> None:
    run = db.fit_multiple("packed", "without_waiting", "grid", 1, wait=False)
    assert run.wait(timeout=stretched(120)).status == "finished"


def test_reports_are_shown_in_frames_of_their_own(db: Database, watched: Watched) -> None:
    pytest.importorskip("plotly", reason="reports need plotly")
    shown = db.run(watched.run_id).report(curves=False)._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert 'sandbox="allow-scripts"' in shown
    assert shown.count("<") == 2  # the element and its end
    assert "&lt;b&gt;" in db.run(watched.run_id)._repr_html_()


def test_tensorboard(db: Database, watched: Watched, tensorflow: None, tmp_path: Any) -> None:
    import tensorflow as tf
    from tensorflow.python.summary.summary_iterator import summary_iterator

    folder = db.run(watched.run_id).to_tensorboard(tmp_path)
    files = sorted((folder / "configuration_1" / "validation").iterdir())
    assert len(files) == EPOCHS
    events = [event for file in files for event in summary_iterator(str(file))]
    losses = [
        float(tf.make_ndarray(value.tensor))
        for event in events
        for value in event.summary.value
        if value.tag == "epoch_loss"
    ]
    known = watched.sql.column(
        "SELECT loss FROM cerebro.metrics WHERE run_id = %s AND mst_key = 1 AND dataset = 'validation' ORDER BY epoch",
        (watched.run_id,),
    )
    assert losses == pytest.approx(known, rel=1e-6)
    before = {file: file.stat().st_mtime_ns for file in files}
    db.run(watched.run_id).to_tensorboard(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in files} == before


def test_mlflow(db: Database, watched: Watched, tensorflow: None, tmp_path: Any) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'cerebro-db[mlflow]'")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    client.create_experiment("blobs", artifact_location=(tmp_path / "artifacts").as_uri())
    run = db.run(watched.run_id)
    parent = run.to_mlflow(uri, "blobs")
    experiment = client.get_experiment_by_name("blobs")
    found = client.search_runs(
        [experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{parent}'"
    )
    assert len(found) == 4
    best = next(one for one in found if one.data.tags["cerebro.rank"] == "1")
    assert best.data.params["optimizer"] == "Adam"
    history = client.get_metric_history(best.info.run_id, "val_loss")
    known = watched.sql.fetch(
        "SELECT epoch, loss FROM cerebro.metrics WHERE run_id = %s AND mst_key = %s "
        "AND dataset = 'validation' ORDER BY epoch",
        (watched.run_id, int(best.data.tags["cerebro.mst_key"])),
    )
    assert [(one.step, one.value) for one in history] == known
    whole = client.get_run(parent)
    assert whole.info.status == "FINISHED"
    assert json.loads(whole.data.tags["cerebro.manifest"])["tensorflow"]
    mlflow.set_tracking_uri(uri)
    (logged,) = mlflow.search_logged_models([experiment.experiment_id], output_format="list")
    model = mlflow.pyfunc.load_model(logged.model_uri)
    assert model.metadata.signature.inputs.inputs[0].shape == (-1, 6)
    rows = np.zeros((2, 6), np.float32)
    assert np.allclose(model.predict(rows), run.best().keras().predict(rows, verbose=0))


class _Tracking:
    """MLflow, as far as runs are begun and ended there; the second one cannot be begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[tuple[Any, ...]] = []

    def MlflowClient(self, uri: str | None) -> _Tracking:
        return self

    def get_experiment_by_name(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(experiment_id="1")

    def create_run(self, experiment_id: str, *, run_name: str, **_: Any) -> SimpleNamespace:
        if self.begun:
            raise RuntimeError("no room")
        self.begun.append(run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def set_terminated(self, *given: Any) -> None:
        self.ended.append(given)


def test_no_run_of_mlflow_is_left_unfinished(
    db: Database, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking, run = _Tracking(), db.run(watched.run_id)
    monkeypatch.setitem(sys.modules, "mlflow", tracking)
    with pytest.raises(RuntimeError, match="no room"):
        run.to_mlflow(with_model=False)
    assert tracking.ended == [(tracking.begun[0], "FAILED")]
    monkeypatch.setattr("cerebro_db.client.mlflow.find_spec", lambda name: None)
    tracking.begun.clear()
    with pytest.raises(MissingPackage, match="TensorFlow, which is not installed") as caught:
        run.to_mlflow()
    assert "--no-model" in str(caught.value.hint)
    assert not tracking.begun


def test_weights_and_biases(
    db: Database, watched: Watched, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of offline runs, which ``wandb sync`` sends: names and values are in them as texts."""
    pytest.importorskip("wandb", reason="needs wandb: pip install 'cerebro-db[wandb]'")
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    run = db.run(watched.run_id)
    folder = run.to_wandb(tmp_path / "offline", "blobs")
    assert folder == tmp_path / "offline" / "wandb"
    best = run.leaderboard().to_dict("records")[0]
    named = f"run {run.run_id} configuration {best['mst_key']}".encode()
    losses = run.metrics().query(f"mst_key == {best['mst_key']}")["loss"]
    wanted = [run.facts.title.encode(), b"finished", b"learning_rate"]  # their group is the run
    end = time.monotonic() + stretched(20)
    while True:  # what wandb writes in a process of its own is there a little later, at times
        files = [path.read_bytes() for path in folder.glob("offline-run-*/run-*.wandb")]
        of_best = next((content for content in files if named in content), b"")
        whole = [one for one in files if all(text in one for text in wanted)]
        if len(whole) == 4 and all(repr(value).encode() in of_best for value in losses):
            break
        assert time.monotonic() < end, files
        time.sleep(0.1)
    assert len(files) == 4
    assert b"blobs" in of_best
    # Nothing of the machine that asked, where nothing was trained.
    host = socket.gethostname().encode()
    assert b"j" + bytes([len(host)]) + host not in b"".join(files)
