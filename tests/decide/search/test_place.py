"""Rows of tables of configurations are found again in the space that they came from."""

from __future__ import annotations

import pytest

from cerebro_db.core.spec import Space
from cerebro_db.decide.search.space import Drawing, Explorer

OPTIMIZERS = (
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}, "
    "{'optimizer': ['SGD'], 'lr': [0.01, 1.0, 'log'], 'momentum': [0.0, 0.9]}]"
)
FIT = "{'batch_size': [8, 64, 'linear'], 'epochs': [1, 2]}"


@pytest.mark.parametrize(
    "metrics",
    ["'accuracy'", "'accuracy', 'mae'", "['accuracy']", "['accuracy', 'mae']", "['accuracy'], 'mae'",
     "'AUC(curve=\\'PR\\')'".replace("\\'", '"')],
)  # fmt: skip
def test_what_was_drawn_is_found_again(metrics: str) -> None:
    grid = f"{{'loss': ['mse', 'mae'], 'metrics': [{metrics}], {OPTIMIZERS}}}"
    explorer = Explorer(Space((1, 2), grid, FIT))
    for number in range(20):
        parameters = explorer.suggest(Drawing([number]))
        assert explorer.place(explorer.text(parameters)) == parameters
