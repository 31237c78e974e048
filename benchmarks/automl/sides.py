"""The sides: a statement of Cerebro-DB, LightGBM tuned by Optuna, and an MLP of Keras tuned by Optuna.

Each has the training rows, so many seconds and two processors, and predicts the test rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.automl.tables import Table
from benchmarks.server import Server

_VALIDATION = 0.2
_PATIENCE = 50  # rounds of boosting, or a tenth of them in epochs
_MOST_CATEGORIES = 100  # of a column, that Keras gets one by one
_THREADS = 2


def score(table: Table, predicted: np.ndarray) -> float:
    """The metric of the test rows.

    Args:
        table: with the test rows.
        predicted: numbers; of classes ``[rows, classes]``, in the order of their names.
    """
    from sklearn.metrics import accuracy_score, roc_auc_score

    if table.metric == "rmse":
        return float(np.sqrt(np.mean((predicted - table.test.y.to_numpy()) ** 2)))
    classes = sorted(table.train.y.unique())
    truth = table.test.y.map({name: place for place, name in enumerate(classes)})
    if table.metric == "accuracy":
        return float(accuracy_score(truth, predicted.argmax(axis=1)))
    return float(roc_auc_score(truth, predicted[:, 1]))


# -- Cerebro-DB ---------------------------------------------------------------------------------
def cerebro(server: Server, table: Table, seconds: float, seed: int) -> dict[str, Any]:
    """``cerebro_automl`` and ``cerebro_predict``; loading the rows is not counted."""
    name = table.name
    with server.session() as cursor:
        for suffix, rows in (("", table.train), ("_test", table.test)):
            _load(cursor, f"{name}{suffix}", rows)
        begun = time.monotonic()
        call = f"SELECT cerebro_automl('{name}', '{name}_model_{seed}', 'y', max_seconds := {seconds}, seed := {seed}, excluded := 'id')"
        cursor.execute(call)
        took = time.monotonic() - begun
        kind = "response" if table.metric == "rmse" else "prob"
        cursor.execute(
            f"SELECT cerebro_predict('model:{name}_model_{seed}@champion', '{name}_test', 'id', NULL, '{name}_found', '{kind}')"
        )
        predicted = _predicted(cursor, table)
        notices = [line.strip() for line in cursor.connection.notices]
        for made in (name, f"{name}_test", f"{name}_found"):
            cursor.execute(f"DROP TABLE {made}")
    return {"score": score(table, predicted), "seconds": took, "notices": notices[-40:]}


def _load(cursor: Any, name: str, rows: pd.DataFrame) -> None:
    kinds = {"f": "double precision", "i": "bigint", "u": "bigint"}
    columns = [f'"{one}" {kinds.get(rows[one].dtype.kind, "text")}' for one in rows.columns]
    cursor.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, {', '.join(columns)})")
    text = StringIO(rows.to_csv(header=False))
    cursor.copy_expert(f"COPY {name} FROM STDIN CSV", text)
    cursor.execute(f"ANALYZE {name}")


def _predicted(cursor: Any, table: Table) -> np.ndarray:
    if table.metric == "rmse":
        cursor.execute(f"SELECT estimated FROM {table.name}_found ORDER BY id")
        return np.array([float(row[0]) for row in cursor.fetchall()])
    cursor.execute(f"SELECT id, class_value, prob FROM {table.name}_found")
    rows = pd.DataFrame(cursor.fetchall(), columns=["id", "name", "prob"])
    return rows.pivot(index="id", columns="name", values="prob").sort_index().to_numpy()


# -- peers --------------------------------------------------------------------------------------
def _parts(table: Table, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the training rows that train, and of those that validate."""
    order = np.random.default_rng(seed).permutation(len(table.train))
    count = int(len(order) * _VALIDATION)
    return order[count:], order[:count]


def _tuned(objective: Callable[[Any], float], seconds: float, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed)
    optuna.create_study(sampler=sampler).optimize(objective, timeout=seconds)


def lightgbm(table: Table, seconds: float, seed: int) -> dict[str, Any]:
    """LightGBM with the ranges of its documentation, early stopping, and the best trial."""
    import lightgbm as boosted

    train, test = _for_trees(table)
    target, kind = _task_of_trees(table)
    ours, theirs = _parts(table, seed)
    best: dict[str, Any] = {"value": np.inf, "trials": 0}
    deadline = time.monotonic() + seconds

    def late(state: Any) -> None:  # a trial that is cut off counts as far as it came
        if time.monotonic() > deadline:
            raise boosted.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    def objective(trial: Any) -> float:
        chosen = {
            **kind,
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 7, 511, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 2, 200, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
            "bagging_freq": 1,
            "lambda_l1": trial.suggest_float("lambda_l1", 1e-8, 10, log=True),
            "lambda_l2": trial.suggest_float("lambda_l2", 1e-8, 10, log=True),
            "cat_smooth": trial.suggest_float("cat_smooth", 1, 200, log=True),
            "num_threads": _THREADS, "seed": seed, "verbose": -1,
        }  # fmt: skip
        data = boosted.Dataset(train.iloc[ours], target.iloc[ours], free_raw_data=False)
        valid = boosted.Dataset(train.iloc[theirs], target.iloc[theirs], reference=data)
        stop = boosted.early_stopping(_PATIENCE, verbose=False)
        model = boosted.train(chosen, data, 5000, valid_sets=[valid], callbacks=[stop, late])
        value = float(next(iter(model.best_score["valid_0"].values())))
        value = -value if kind["metric"] == "auc" else value
        best["trials"] += 1
        if value < best["value"]:
            best.update(value=value, predicted=model.predict(test))
        return value

    begun = time.monotonic()
    _tuned(objective, seconds, seed)
    predicted = np.asarray(best["predicted"])
    if kind["objective"] == "binary":
        predicted = np.stack([1 - predicted, predicted], axis=1)
    took = time.monotonic() - begun
    return {"score": score(table, predicted), "seconds": took, "trials": best["trials"]}


def _task_of_trees(table: Table) -> tuple[pd.Series, dict[str, Any]]:
    """The target as numbers, and the parameters of the task."""
    target = table.train.y
    if table.metric == "rmse":
        return target, {"objective": "regression", "metric": "rmse"}
    classes = sorted(target.unique())
    ids = target.map({name: place for place, name in enumerate(classes)})
    if len(classes) == 2:
        return ids, {"objective": "binary", "metric": "auc"}
    kind = {"objective": "multiclass", "metric": "multi_logloss", "num_class": len(classes)}
    return ids, kind


def _for_trees(table: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    train, test = table.train[table.columns].copy(), table.test[table.columns].copy()
    for name in table.categories:
        known = pd.CategoricalDtype(sorted(train[name].dropna().unique()))
        train[name], test[name] = train[name].astype(known), test[name].astype(known)
    return train, test


def keras(table: Table, seconds: float, seed: int) -> dict[str, Any]:
    """An MLP on standardized numbers and one-hot categories, as tutorials have it, tuned by Optuna."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras as framework
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
    framework.utils.set_random_seed(seed)
    train, test = _for_nets(table)
    classes = sorted(table.train.y.unique()) if table.metric != "rmse" else []
    target = table.train.y
    mean, deviation = (0.0, 1.0) if classes else (float(target.mean()), float(target.std()))
    known = {name: place for place, name in enumerate(classes)}
    values = (target.map(known) if classes else (target - mean) / deviation).to_numpy()
    ours, theirs = _parts(table, seed)
    best: dict[str, Any] = {"value": np.inf, "trials": 0}
    deadline = time.monotonic() + seconds

    class UntilDeadline(framework.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if time.monotonic() > deadline:
                self.model.stop_training = True

    def objective(trial: Any) -> float:
        layers = [framework.Input((train.shape[1],))]
        rate = trial.suggest_float("dropout", 0.0, 0.5)
        units = trial.suggest_categorical("units", [64, 128, 256, 512])
        for _ in range(trial.suggest_int("depth", 1, 4)):
            layers += [
                framework.layers.Dense(units, activation="relu"),
                framework.layers.Dropout(rate),
            ]
        last = "softmax" if classes else None
        model = framework.Sequential([*layers, framework.layers.Dense(max(len(classes), 1), last)])
        model.compile(
            framework.optimizers.Adam(trial.suggest_float("lr", 1e-4, 1e-2, log=True)),
            "sparse_categorical_crossentropy" if classes else "mse",
        )
        stop = framework.callbacks.EarlyStopping(
            patience=_PATIENCE // 10, restore_best_weights=True
        )
        found = model.fit(
            train[ours], values[ours], verbose=0, epochs=1000,
            batch_size=trial.suggest_categorical("batch", [64, 128, 256, 512]),
            validation_data=(train[theirs], values[theirs]), callbacks=[stop, UntilDeadline()],
        )  # fmt: skip
        value = min(found.history.get("val_loss", [np.inf]))
        best["trials"] += 1
        if value < best["value"]:
            best.update(value=value, predicted=model.predict(test, verbose=0, batch_size=4096))
        return float(value)

    begun = time.monotonic()
    _tuned(objective, seconds, seed)
    predicted = best["predicted"] if classes else best["predicted"][:, 0] * deviation + mean
    took = time.monotonic() - begun
    return {"score": score(table, predicted), "seconds": took, "trials": best["trials"]}


def _for_nets(table: Table) -> tuple[np.ndarray, np.ndarray]:
    return tuple(  # type: ignore[return-value]
        np.concatenate(list(_features(table, rows)), axis=1).astype(np.float32)
        for rows in (table.train, table.test)
    )


def _features(table: Table, rows: pd.DataFrame) -> Iterator[np.ndarray]:
    for name in table.columns:
        if name in table.categories:
            common = table.train[name].value_counts().index[:_MOST_CATEGORIES]
            yield np.stack([rows[name] == one for one in common], axis=1)
        else:
            mean, deviation = table.train[name].mean(), table.train[name].std()
            yield ((rows[name].fillna(mean) - mean) / (deviation or 1)).to_numpy()[:, None]
