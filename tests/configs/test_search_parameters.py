"""Texts of a search: MADlib's and ours, and what is told of wrong ones."""

from __future__ import annotations

import pytest

from cerebro_db.configs.monitors import Monitor
from cerebro_db.configs.search_parameters import (
    METHODS,
    EarlyStopping,
    Goal,
    monitors_of_goals,
    parse_early_stopping,
    parse_method,
    parse_objectives,
)
from cerebro_db.errors import InvalidArgument

METRICS = {"accuracy": "accuracy", "auc": "AUC", "true_positives": "TruePositives"}


@pytest.mark.parametrize(
    ("method", "params", "name", "values"),
    [
        (None, None, "hyperband", {"R": 6, "eta": 3, "skip_last": 0}),
        ("hyperband", "R=9, eta=3, skip_last=0", "hyperband", {"R": 9, "eta": 3, "skip_last": 0}),
        ("HyperBand", " r = 27 ", "hyperband", {"R": 27, "eta": 3, "skip_last": 0}),
        ("hyperopt", None, "tpe", {"num_configs": 20, "num_iterations": 5, "startup": 10}),
        ("hyperopt", "num_configs=20, num_iterations=10, algorithm=tpe", "tpe",
         {"num_configs": 20, "num_iterations": 10, "startup": 10}),
        ("Hyperopt", "Algorithm='rand', NUM_CONFIGS=4", "random",
         {"num_configs": 4, "num_iterations": 5}),
        ("grid", "", "grid", {"num_iterations": 5}),
        ("successive-halving", "num_configs=16, eta=4, R=16", "successive_halving",
         {"R": 16, "eta": 4, "num_configs": 16, "min_epochs": 1}),
        ("SHA", None, "successive_halving", {"R": 6, "eta": 3, "num_configs": 9, "min_epochs": 1}),
        ("asha", "min_epochs=2", "asha", {"R": 6, "eta": 3, "num_configs": 20, "min_epochs": 2}),
        ("bohb", "R=9", "bohb", {"R": 9, "eta": 3, "skip_last": 0, "startup": 10}),
        ("cma_es", None, "cma-es", {"num_configs": 20, "num_iterations": 5, "startup": 1}),
        ("pbt", "quantile=0.5, factor=1.1", "pbt",
         {"population": 8, "generations": 5, "interval": 1, "quantile": 0.5, "factor": 1.1,
          "resample": 0.25}),
    ],
)  # fmt: skip
def test_methods(method: str | None, params: str | None, name: str, values: object) -> None:
    found = parse_method(method, params)
    assert (found.name, found.params) == (name, values)


@pytest.mark.parametrize(
    ("method", "params", "told", "hint"),
    [
        ("hyperbnad", None, "automl_method: got 'hyperbnad'; allowed: grid, random", "'hyperband'"),
        ("hyper opt 2", None, "automl_method: got 'hyper opt 2'", "'hyperopt'"),
        ("", None, "automl_method: got ''", "Allowed: asha, bohb"),
        ("x" * 1000, None, "automl_method: got 'xxx", "Allowed"),
        ("asha", "R=0", "automl_params: got R=0; it must be a whole number from 1", ""),
        ("hyperband", "R=0", "automl_params: got R=0; it must be a whole number from 1 to", ""),
        ("hyperband", "R=-3", "got R=-3", ""),
        ("hyperband", "R=2.5", "got R=2.5; it must be a whole number", ""),
        ("hyperband", "eta=1", "got eta=1; it must be a whole number from 2", ""),
        ("hyperband", "R=9, eta=3, skip_last=3", "got skip_last=3; allowed: 0 to 2", ""),
        ("hyperband", "skip_last=-1", "got skip_last=-1", ""),
        ("hyperband", "R=1000000, eta=2", "whose brackets have", "larger eta"),
        ("hyperband", "R=65536, eta=2", "whose brackets have", "larger eta"),
        ("bohb", "eta=1", "got eta=1", ""),
        ("bohb", "startup=0", "got startup=0", ""),
        ("hyperband", "num_configs=3", "got the unknown parameter 'num_configs'; allowed for "
         "method hyperband: R, eta, skip_last", ""),
        ("hyperband", "etta=3", "unknown parameter 'etta'", "'eta'"),
        ("hyperband", "R=9, r=3", "got R and r, which mean the same", ""),
        ("hyperband", "R", "got the value R without a name", ""),
        ("hyperband", "R=9 eta=3", "automl_params: got 'R=9 eta=3'", ""),
        ("hyperband", "R=__import__('os')", "got R=", ""),
        ("hyperopt", "algorithm=atpe", "got algorithm=atpe(); allowed: 'tpe', 'rand'", ""),
        ("hyperopt", "algorithm=3", "got algorithm=3; allowed: 'tpe', 'rand'", ""),
        ("hyperopt", "R=9", "unknown parameter 'R'; allowed for method hyperopt", ""),
        ("hyperopt", "num_configs=0", "got num_configs=0", ""),
        ("hyperopt", "num_iterations=0", "got num_iterations=0", ""),
        ("tpe", "algorithm=tpe", "unknown parameter 'algorithm'", ""),
        ("random", "num_configs=100001", "got num_configs=100001", ""),
        ("asha", "R=4, min_epochs=5", "got min_epochs=5; allowed: 1 to R, which is 4", ""),
        ("successive_halving", "num_configs=0", "got num_configs=0", ""),
        ("pbt", "population=1", "got population=1; it must be a whole number from 2", ""),
        ("pbt", "quantile=0", "got quantile=0", ""),
        ("pbt", "quantile=0.51", "got quantile=0.51", ""),
        ("pbt", "factor=1", "got factor=1; it must be a number above 1", ""),
        ("pbt", "resample=1.5", "got resample=1.5", ""),
        ("pbt", "generations=1000000, interval=2", "1000000 epochs together", ""),
        ("grid", "num_iterations=True", "got num_iterations=True", ""),
    ],
)  # fmt: skip
def test_wrong_methods(method: str, params: str | None, told: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_method(method, params)
    assert told in caught.value.message
    assert caught.value.hint
    assert hint in caught.value.hint


def test_a_method_that_is_no_text() -> None:
    with pytest.raises(InvalidArgument, match="automl_method: got 3"):
        parse_method(3, None)  # type: ignore[arg-type]


def test_each_method_has_defaults_that_are_allowed() -> None:
    for name, table in METHODS.items():
        assert list(parse_method(name, None).params) == [argument.name for argument in table]


@pytest.mark.parametrize(
    ("text", "goals"),
    [
        (None, ()),
        ("val_accuracy", (Goal("val_accuracy"),)),
        (" val_auc(mode=max) , loss ", (Goal("val_auc", "max"), Goal("loss"))),
        ("'my metric', val_auc(mode='min')", (Goal("my metric"), Goal("val_auc", "min"))),
        ("val_auc(max)", (Goal("val_auc", "max"),)),
    ],
)
def test_objectives(text: str | None, goals: tuple[Goal, ...]) -> None:
    assert parse_objectives(text) == goals


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "objective: got ''; it must be names separated by commas"),
        (" , ", "objective: got ' , '"),
        ("''", "it must be names"),
        ("3", "objective: got '3'; it must be names"),
        ("val_accuracy val_loss", "it must be Python-like literals"),
        ("loss, loss", "objective: got 'loss' twice; allowed: each once"),
        ("loss(mode=up)", "got mode='up' of loss; allowed: auto, min, max"),
        ("loss(mode=3)", "got mode=3 of loss"),
        ("loss(way='max')", "got the argument 'way' of loss; allowed: mode"),
        (", ".join(f"m{i}" for i in range(9)), "got 9 objectives; allowed: 1 to 8"),
        ("[loss]", "it must be names"),
    ],
)
def test_wrong_objectives(text: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_objectives(text)
    assert told in caught.value.message
    assert caught.value.hint


def test_what_objectives_mean_for_a_configuration() -> None:
    goals = parse_objectives("val_acc, loss, true_positives(mode=max)")
    assert monitors_of_goals(goals, METRICS, validated=True) == (
        Monitor("val_accuracy", True),
        Monitor("loss", False),
        Monitor("true_positives", True),
    )
    assert monitors_of_goals((), METRICS, validated=True) == (Monitor("val_loss", False),)
    assert monitors_of_goals((), METRICS, validated=False) == (Monitor("loss", False),)


@pytest.mark.parametrize(
    ("text", "validated", "told", "hint"),
    [
        ("val_acuracy", True, "objective: got 'val_acuracy'; allowed: loss, accuracy", "'val_accuracy'"),
        ("val_loss", False, "objective: got 'val_loss'; allowed: loss, accuracy", "validation_table"),
        ("precision", True, "objective: got 'precision'", "Allowed"),
        ("true_positives", True, "nobody knows whether more is better", "true_positives(mode=max)"),
    ],
)  # fmt: skip
def test_objectives_that_no_metric_gives(text: str, validated: bool, told: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        monitors_of_goals(parse_objectives(text), METRICS, validated=validated)
    assert told in caught.value.message
    assert hint in str(caught.value.hint)


def test_early_stopping() -> None:
    assert parse_early_stopping(None) == parse_early_stopping("") == EarlyStopping()
    assert not EarlyStopping().looks_at_epochs
    assert parse_early_stopping("patience=3, min_delta=0.01") == EarlyStopping(3, 0.01)
    found = parse_early_stopping("MEDIAN=True, startup=2, warmup=1, target=0.95")
    assert found == EarlyStopping(median=True, startup=2, warmup=1, target=0.95)
    assert found.looks_at_epochs
    assert parse_early_stopping("target=-1.5").target == -1.5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("patience=-1", "got patience=-1"),
        ("patience=1.5", "got patience=1.5"),
        ("patience=2, min_delta=-1", "got min_delta=-1"),
        ("min_delta=0.1", "got min_delta without patience"),
        ("startup=3", "got startup without median"),
        ("median=False, warmup=3", "got warmup without median"),
        ("median=yes", "got median=yes"),
        ("median=True, startup=0", "got startup=0"),
        ("target=high", "got target=high"),
        ("target=1e999", "1e999"),
        (
            "pateince=3",
            "got the unknown parameter 'pateince'; allowed for early_stopping: patience",
        ),
        ("patience", "without a name"),
        ("patience=1, Patience=2", "got patience and Patience"),
    ],
)
def test_wrong_early_stopping(text: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_early_stopping(text)
    assert told in caught.value.message
    assert caught.value.hint
