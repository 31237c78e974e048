"""Texts of a search: MADlib's and ours, and what is told of wrong ones."""

from __future__ import annotations

import pytest

from cerebro_db.configs.functions.callbacks import Monitor
from cerebro_db.core.search import Aim, EarlyStopping
from cerebro_db.core.search_texts import (
    monitors_of_aims,
    parse_early_stopping,
    parse_objectives,
)
from cerebro_db.decide.search.methods import METHODS, parse_method, parse_more
from cerebro_db.errors import InvalidArgument

METRICS = {"accuracy": "accuracy", "auc": "AUC", "true_positives": "TruePositives"}


@pytest.mark.parametrize(
    ("method", "params", "name", "values"),
    [
        (None, None, "hyperband", {"R": 6, "eta": 3, "skip_last": 0}),
        ("hyperband", "R=9, eta=3, skip_last=0", "hyperband", {"R": 9, "eta": 3, "skip_last": 0}),
        ("HyperBand", " r = 27 ", "hyperband", {"R": 27, "eta": 3, "skip_last": 0}),
        ("hyperopt", None, "tpe", {"num_configs": 20, "num_iterations": 5}),
        ("hyperopt", "num_configs=20, num_iterations=10, algorithm=tpe", "tpe",
         {"num_configs": 20, "num_iterations": 10}),
        ("Hyperopt", "Algorithm='rand', NUM_CONFIGS=4", "random",
         {"num_configs": 4, "num_iterations": 5}),
        ("grid", "", "grid", {"num_iterations": 5}),
        ("successive-halving", "num_configs=16, eta=4, R=16", "successive_halving",
         {"R": 16, "eta": 4, "num_configs": 16, "r": 1}),
        ("SHA", "r=2", "successive_halving", {"R": 6, "r": 2, "eta": 3, "num_configs": 20}),
        ("asha", "ETA=2, r=2, R=4", "asha", {"R": 4, "r": 2, "eta": 2}),
        ("bohb", "R=9", "bohb", {"R": 9, "eta": 3, "skip_last": 0}),
        ("cma_es", None, "cma-es", {"num_configs": 20, "num_iterations": 5}),
        ("CMAES", None, "cma-es", {"num_configs": 20}),
        ("pbt", "quantile=0.5", "pbt", {"population": 8, "interval": 1, "quantile": 0.5}),
    ],
)  # fmt: skip
def test_methods(
    method: str | None, params: str | None, name: str, values: dict[str, object]
) -> None:
    found, all_params = parse_method(method, params)
    assert found == name
    assert {key: all_params[key] for key in values} == values


@pytest.mark.parametrize(
    ("method", "params", "told", "hint"),
    [
        ("hyperbnad", None, "automl_method: got 'hyperbnad'; allowed: grid, random", "'hyperband'"),
        ("hyper opt 2", None, "automl_method: got 'hyper opt 2'", "'hyperopt'"),
        ("", None, "automl_method: got ''", "Allowed: asha, bohb"),
        ("x" * 1000, None, "automl_method: got 'xxx", "Allowed"),
        ("asha", "R=0", "automl_params of asha: got R=0; it must be a whole number from 1", ""),
        ("hyperband", "R=0", "automl_params of hyperband: got R=0; it must be a whole number", ""),
        ("hyperband", "R=-3", "got R=-3", ""),
        ("hyperband", "R=2.5", "got R=2.5; it must be a whole number", ""),
        ("hyperband", "eta=1", "got eta=1; it must be a whole number from 2", ""),
        ("hyperband", "R=9, eta=3, skip_last=3", "got skip_last=3; allowed: 0 to 2", ""),
        ("hyperband", "skip_last=-1", "got skip_last=-1", ""),
        ("hyperband", "R=1000000, eta=2", "whose brackets have", "larger eta"),
        ("hyperband", "R=65536, eta=2", "whose brackets have", "larger eta"),
        ("bohb", "eta=1", "got eta=1", ""),
        ("bohb", "num_startup=0", "got num_startup=0", ""),
        ("hyperband", "num_configs=3", "automl_params of hyperband: got the unknown parameter "
         "'num_configs'", ""),
        ("hyperband", "etta=3", "unknown parameter 'etta'. Did you mean 'eta'?", ""),
        ("hyperband", "R=9, r=3", "got R twice", ""),
        ("hyperband", "R", "got the value R without a name", ""),
        ("hyperband", "R=9 eta=3", "automl_params: got 'R=9 eta=3'", ""),
        ("hyperband", "R=__import__('os')", "got R=", ""),
        ("hyperopt", "algorithm=atpe", "got algorithm='atpe'; allowed: 'tpe', 'rand', 'random'", ""),
        ("hyperopt", "algorithm=3", "got algorithm=3; allowed: 'tpe', 'rand', 'random'", ""),
        ("hyperopt", "R=9", "automl_params of hyperopt: got the unknown parameter 'R'", ""),
        ("hyperopt", "num_configs=0", "got num_configs=0", ""),
        ("hyperopt", "num_iterations=0", "got num_iterations=0", ""),
        ("tpe", "algorithm=tpe", "unknown parameter 'algorithm'", ""),
        ("random", "num_configs=100001", "got num_configs=100001", ""),
        ("asha", "R=4, r=5", "got r=5; allowed: 1 to R, which is 4", ""),
        ("successive_halving", "num_configs=0", "got num_configs=0", ""),
        ("pbt", "population=1", "got population=1; it must be a whole number from 2", ""),
        ("pbt", "quantile=0", "got quantile=0", ""),
        ("pbt", "population=3", "got population=3 and quantile=0.25, by which no member is replaced; "
         "allowed: at least 1 for population * quantile", ""),
        ("pbt", "interval=3, num_iterations=2", "got interval=3; allowed: 1 to num_iterations, which is 2", ""),
        ("pbt", "quantile=0.51", "got quantile=0.51", ""),
        ("pbt", "resample=1.5", "got resample=1.5", ""),
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


@pytest.mark.parametrize(
    ("text", "aims"),
    [
        (None, ()),
        ("val_accuracy", (Aim("val_accuracy"),)),
        (" val_auc(mode=max) , loss ", (Aim("val_auc", "max"), Aim("loss"))),
        ("'my metric', val_auc(mode='min')", (Aim("my metric"), Aim("val_auc", "min"))),
        ("val_auc(max)", (Aim("val_auc", "max"),)),
    ],
)
def test_objectives(text: str | None, aims: tuple[Aim, ...]) -> None:
    assert parse_objectives(text) == aims


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
    aims = parse_objectives("val_acc, loss, true_positives(mode=max)")
    assert monitors_of_aims(aims, METRICS, validated=True) == (
        Monitor("val_accuracy", True),
        Monitor("loss", False),
        Monitor("true_positives", True),
    )
    assert monitors_of_aims((), METRICS, validated=True) == (Monitor("val_loss", False),)
    assert monitors_of_aims((), METRICS, validated=False) == (Monitor("loss", False),)


@pytest.mark.parametrize(
    ("text", "validated", "told", "hint"),
    [
        ("val_acuracy", True, "objective: got 'val_acuracy'; allowed: loss, accuracy", "'val_accuracy'"),
        ("val_loss", False, "objective: got 'val_loss'; allowed: loss, accuracy", "validation_table"),
        ("precision", True, "objective: got 'precision'", "Allowed"),
        ("val_loss, val_accuracy, val_acc", True, "objective: got 'val_accuracy' and 'val_acc', two names of one "
         "metric; allowed: each metric once", "val_accuracy, val_loss"),
        ("true_positives", True, "nobody knows whether more is better", "true_positives(mode=max)"),
    ],
)  # fmt: skip
def test_objectives_that_no_metric_gives(text: str, validated: bool, told: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        monitors_of_aims(parse_objectives(text), METRICS, validated=validated)
    assert told in caught.value.message
    assert hint in str(caught.value.hint)


def test_early_stopping() -> None:
    assert parse_early_stopping(None).watches is False
    found = parse_early_stopping("patience=3, min_delta=0.01, first_epoch=2")
    assert (found.patience, found.least_improvement, found.first_epoch) == (3, 0.01, 2)
    assert not found.has_target
    found = parse_early_stopping("MEDIAN_AFTER=2, target=0.95")
    assert found == EarlyStopping(median_after=2, target=0.95)
    assert found.watches
    assert parse_early_stopping("target=-1.5").target == -1.5
    assert EarlyStopping().target is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("patience=-1", "got patience=-1"),
        ("patience=0", "got patience=0; it must be a whole number from 1"),
        ("median_after=0", "got median_after=0; it must be a whole number from 1"),
        ("patience=1.5", "got patience=1.5"),
        ("patience=2, min_delta=-1", "got min_delta=-1"),
        ("min_delta=0.1", "got min_delta without patience"),
        ("first_epoch=3", "got first_epoch without a rule"),
        ("median_after=yes", "got median_after="),
        ("median_after=-1", "got median_after=-1"),
        ("target=high", "got target="),
        ("target=1e999", "1e999"),
        ("target=nan", "got target=nan; it must be a number"),
        ("", "got ''; allowed: NULL, or a rule"),
        (" ", "got ' '; allowed: NULL, or a rule"),
        ("pateince=3", "got the unknown parameter 'pateince'. Did you mean 'patience'?"),
        ("patience", "without a name"),
        ("patience=1, Patience=2", "got patience twice"),
    ],
)
def test_wrong_early_stopping(text: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_early_stopping(text)
    assert told in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("method", "text", "told"),
    [
        ("bohb", "etta=2", "Allowed: R."),
        ("bohb", "eta=2", "got eta for a search that goes on; allowed: R"),
        (
            "tpe",
            "num_startup=2",
            "got num_startup for a search that goes on; allowed: num_configs, num_iterations",
        ),
        ("hyperband", "R=1000000", "configurations or more; allowed: 100000"),
        ("pbt", "population=0", "population=0"),
    ],
)
def test_wrong_extensions(method: str, text: str, told: str) -> None:
    params = METHODS[method].validated({})
    with pytest.raises(InvalidArgument) as caught:
        parse_more(method, params, text)
    assert told in caught.value.message
    assert caught.value.hint


def test_extensions() -> None:
    assert parse_more("bohb", METHODS["bohb"].validated({}), "r=12") == {"R": 12}
    assert parse_more("tpe", METHODS["tpe"].validated({}), None) == {}
