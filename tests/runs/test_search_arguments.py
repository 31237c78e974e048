"""Arguments of a search that are wrong whatever the tables hold."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import structs

from cerebro_db.core.search import UNLIMITED, Aim, Budget
from cerebro_db.errors import InvalidArgument
from cerebro_db.requests.searching import SearchRequest

COMPILE = (
    "{'loss': ['mse'], 'metrics': ['mae'], 'optimizer_params_list': "
    "[{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}]}"
)
RIGHT = SearchRequest(
    source_table="t",
    model_output_table="o",
    model_arch_table="a",
    model_selection_table="s",
    model_id_list=[1, 2],
    compile_params_grid=COMPILE,
    fit_params_grid="{'batch_size': [8, 16]}",
)


def test_madlibs_arguments() -> None:
    request = structs.replace(
        RIGHT, automl_method="hyperopt", automl_params="num_configs=20, num_iterations=5, algorithm=tpe"
    )  # fmt: skip
    assert (request.parsed[0], request.parsed[1]["num_configs"]) == ("tpe", 20)
    assert request.space.model_ids == (1, 2)
    assert request.space.compile_grid.has_range()
    assert request.budget == Budget()
    assert request.aims == ()
    assert not request.stopping.watches


def test_ours() -> None:
    request = structs.replace(
        RIGHT, objective="val_mae, loss", early_stopping="patience=2", max_seconds=9.5, max_epochs=7,
        max_configs=3, warm_start_run=4, deterministic=None, concurrency=5,
    )  # fmt: skip
    assert request.parsed[0] == "hyperband"
    assert request.aims == (Aim("val_mae"), Aim("loss"))
    assert request.stopping.patience == 2
    assert request.budget == Budget(9.5, 7, 3)
    assert (request.warm_start_run, request.concurrency) == (4, 5)
    assert Budget() == Budget(None, UNLIMITED, UNLIMITED)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_id_list": None}, "model_id_list: got no model"),
        (
            {
                "automl_method": "grid",
                "random_state": 3,
                "compile_params_grid": COMPILE.replace("[0.001, 0.1, 'log']", "[0.1]"),
            },
            "random_state: got 3; it must be NULL for automl_method := 'grid', which draws nothing",
        ),
        ({"model_id_list": []}, "model_id_list: got no model"),
        ({"model_id_list": [1, 1]}, "every model is allowed only once"),
        ({"model_id_list": [1, None]}, "model_id_list: got NULL"),
        ({"compile_params_grid": None}, "compile_params_grid: got NULL; allowed: a dictionary"),
        ({"compile_params_grid": ""}, "compile_params_grid: got ''"),
        ({"compile_params_grid": "{}"}, "'optimizer_params_list' is missing"),
        ({"compile_params_grid": COMPILE.replace("'lr'", "'rl'")}, "'rl'"),
        ({"compile_params_grid": COMPILE.replace("'log'", "'lg'")}, "Did you mean 'log'"),
        ({"compile_params_grid": COMPILE.replace("0.001", "0.2")}, "with low below high"),
        ({"compile_params_grid": COMPILE.replace("['mse']", "[]")}, "a list of at least one value"),
        ({"fit_params_grid": None}, "fit_params_grid: got NULL; allowed: a dictionary such as"),
        ({"fit_params_grid": "{'batch_sise': [8]}"}, "Did you mean 'batch_size'"),
        ({"automl_method": "hyperbnad"}, "automl_method: got 'hyperbnad'"),
        ({"automl_params": "eta=1"}, "eta=1"),
        ({"automl_params": "R=0"}, "R=0"),
        ({"automl_method": "grid"}, "compile_params_grid: got a range; allowed with"),
        ({"random_state": -1}, "random_state: got -1"),
        ({"objective": "val mae"}, "objective: got 'val mae'"),
        ({"objective": ""}, "objective: got ''"),
        ({"early_stopping": "patience=-1"}, "patience=-1"),
        ({"early_stopping": "patiense=1"}, "Did you mean 'patience'"),
        ({"max_seconds": 0.0}, "max_seconds: got 0.0; allowed: above 0"),
        ({"max_seconds": math.nan}, "max_seconds: got nan"),
        ({"max_epochs": 0}, "max_epochs: got 0; allowed: 1 to"),
        ({"max_configs": 0}, "max_configs: got 0; allowed: 1 to 100000"),
        ({"max_configs": 100_001}, "max_configs: got 100001"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        structs.replace(RIGHT, **change)
    assert told in caught.value.message
