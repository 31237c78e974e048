"""Functions that an administrator registers, in runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import psycopg2
import pytest

from tests.fitting.conftest import ADAM
from tests.fitting.test_callbacks import broken

Fit = Callable[..., tuple[str, int]]
WITH_OURS = (
    "loss='custom.our_loss',optimizer='Adam(lr=0.01)',metrics=['custom.our_loss','accuracy']"
)


@pytest.fixture
def registered(bench: Any) -> Iterator[None]:
    bench.run("SELECT cerebro_register_function('our_loss', 'keras.losses:log_cosh')")
    yield
    bench.run("DELETE FROM cerebro.catalog_functions")


def test_a_registered_loss_and_metric(
    bench: Any, fit: Fit, selection: Callable[..., str], weights: Any, registered: None
) -> None:
    keras_own = WITH_OURS.replace("custom.our_loss", "log_cosh", 1)
    out, run_id = fit(configs=selection([1], [WITH_OURS, keras_own]), epochs=2, seed=1)
    alone, _ = fit(configs=selection([1], [keras_own]), epochs=2, seed=1)
    names, losses, values = bench.row(
        f"SELECT metrics_type, training_loss, training_metrics FROM {out}_info WHERE mst_key = 1"
    )
    assert names == ["our_loss", "accuracy"]
    assert values == pytest.approx(losses, rel=1e-5)
    manifest = bench.value("SELECT manifest FROM cerebro.runs WHERE run_id = %s", (run_id,))
    assert manifest["functions"] == {
        "our_loss": {
            "path": "keras.losses:log_cosh",
            "package": "keras",
            "version": keras.__version__,
        }
    }
    assert bench.row("SELECT name, path, package, places, registered_by FROM cerebro.registered_functions") == (
        "our_loss", "keras.losses:log_cosh", "keras", 2, bench.value("SELECT current_user"),
    )  # fmt: skip
    first = weights(alone)[1]
    configs = selection([1], [WITH_OURS.replace("['custom.our_loss',", "[")])
    assert weights(fit(configs=configs, epochs=2, seed=1)[0])[1] == first
    bench.run("SELECT cerebro_unregister_function('our_loss')")
    bench.run(f"SELECT cerebro_predict('{out}', 'blobs', 'id', 'x', '{out}_p', mst_key := 1)")
    assert bench.value(f"SELECT count(DISTINCT id) FROM {out}_p") == 150
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match=r"configuration 1: got custom\.our_loss; all"
    ):
        fit(configs=configs)


def test_a_run_is_not_resumed_with_another_function(
    bench: Any, fit: Fit, selection: Callable[..., str], weights: Any, registered: None
) -> None:
    configs = selection([1], [WITH_OURS])
    with broken(bench, "hops", "INSERT", "NEW.epoch = 2"):
        fit(configs=configs)
    run_id = bench.value("SELECT max(run_id) FROM cerebro.runs")
    bench.run("SELECT cerebro_unregister_function('our_loss')")
    resume = f"SELECT cerebro_resume({run_id}, max_seconds := 60)"
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=r"got custom\.our_loss"):
        bench.run(resume)
    bench.run("SELECT cerebro_register_function('our_loss', 'keras.losses:mean_squared_error')")
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="began with functions"):
        bench.run(resume)
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("mse", "keras.losses:log_cosh", "name: got 'mse', which Keras has"),
        ("our_loss", "keras.losses:huber", "registered already"),
        ("Ours", "keras.losses:huber", "allowed: lower-case"),
        ("ours", "os:system", "not Python's own library"),
        ("ours", "builtins:eval", "not Python's own library"),
        ("ours", "keras.losses:LogCosh", "no function"),
        ("ours", "keras.losses:no_such", "cannot be imported"),
        ("ours", "keras.ops:where", None),
        ("ours", None, "path: got NULL"),
    ],
)
def test_what_is_refused(
    bench: Any, registered: None, name: str, path: str | None, message: str | None
) -> None:
    call = "SELECT cerebro_register_function(%s, %s)"
    if message is None:
        bench.run(call, (name, path))
        return
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=message):
        bench.run(call, (name, path))
    assert bench.column("SELECT name FROM cerebro.registered_functions") == ["our_loss"]


def test_a_function_of_one_argument_is_no_loss(
    bench: Any, fit: Fit, selection: Callable[..., str], registered: None
) -> None:
    bench.run("SELECT cerebro_register_function('shrunk', 'keras.ops:exp')")
    loss = ADAM.replace("sparse_categorical_crossentropy", "custom.shrunk")
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="of one argument"):
        fit(configs=selection([1], [loss]))
    scheduled = ["batch_size=8,callbacks=[LearningRateScheduler(custom.shrunk)]"]
    out, _ = fit(configs=selection([1], [ADAM.replace("Adam(lr=0.01)", "SGD")], scheduled))
    assert bench.value(f"SELECT status FROM {out}_info") == "finished"
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue,
        match="name: got 'other'; registered functions: our_loss, shrunk",
    ):
        bench.run("SELECT cerebro_unregister_function('other')")
