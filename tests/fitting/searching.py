"""A search; it may kill itself on the way.

    python -m fitting.searching DSN NAME WORKERS METHOD [RUN_ID] [KILL]

KILL is ``before N`` or ``after N``: when decision N is about to be stored, or was stored.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from cerebro_db.core.spec import Space
from cerebro_db.postgres.calls.host import Client
from cerebro_db.requests.searching import ExtendRequest, SearchRequest
from cerebro_db.runs import decisions
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import resume
from cerebro_db.runs.searches.extending import extend
from cerebro_db.runs.searches.search import search

SPACE = Space(
    (1, 2),
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log']}, "
    "{'optimizer': ['SGD'], 'lr': [0.01, 0.1, 0.3], 'momentum': [0.5, 0.95, 'log_near_one']}]}",
    "{'batch_size': [4, 16, 'log']}",
)
LISTED = Space(
    (1, 2),
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.1]}]}",
    "{'batch_size': [8, 16]}",
)
NUMBERS = Space(
    (1,),
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log'], "
    "'beta_1': [0.8, 0.95, 'linear', 0.05]}]}",
    "{'batch_size': [8]}",
)
METHODS: dict[str, dict[str, Any]] = {
    "grid": {"num_iterations": 2},
    "random": {"num_configs": 5, "num_iterations": 2},
    "successive_halving": {"num_configs": 6, "R": 4, "eta": 2},
    "hyperband": {"R": 4, "eta": 2},
    "asha": {"num_configs": 8, "R": 4, "eta": 2},
    "tpe": {"num_configs": 10, "num_iterations": 1, "num_startup": 4},
    "bohb": {"R": 4, "eta": 2, "num_startup": 3},
    "pbt": {"population": 4, "num_iterations": 3},
    "cma-es": {"num_configs": 8, "num_iterations": 1},
}
LONG = {"num_configs": 4, "num_iterations": 150}
# The last bracket of hyperband goes on with trials that were stopped, as there are no more.
SPACES = {"grid": LISTED, "hyperband": LISTED, "cma-es": NUMBERS}


def request(
    method: str,
    name: str,
    workers: int,
    client: Client,
    *,
    params: dict[str, Any] | None = None,
    space: Space | None = None,
    **more: Any,
) -> SearchRequest:
    """A search over small nets."""
    known, space = LONG if method == "long" else METHODS[method], space or SPACES.get(method, SPACE)
    method = "random" if method == "long" else method
    given = {
        "automl_method": method,
        "automl_params": ", ".join(f"{key}={value}" for key, value in (params or known).items()),
        "objective": "val_accuracy",
        "name": name,
        "validation_table": "val",
        "num_workers": workers,
    }
    return SearchRequest(
        source_table="packed",
        model_output_table=name,
        model_arch_table="models",
        model_selection_table=None,
        model_id_list=space.model_ids,
        compile_params_grid=space.compile_params_grid,
        fit_params_grid=space.fit_params_grid,
        **(given | more),
        search_path=client.search_path,
        cores=client.cores,
    )


def kill_at(when: str, number: int) -> None:
    """Have the process die around a decision."""
    store = decisions.add_decision

    def dying(catalog: Any, run_id: int, made: int, *more: Any) -> None:
        store(catalog, run_id, made, *more)
        if made == number:
            if when == "after":
                catalog.session.run("COMMIT")
            os.kill(os.getpid(), signal.SIGKILL)

    decisions.add_decision = dying


def main(
    dsn: str, name: str, workers: str, method: str, run_id: str = "", when: str = "", at: str = "0"
) -> None:
    """Begin the search, or go on with it."""
    client = Client.of(dsn)
    if when:
        kill_at(when, int(at))
    if method == "extend":
        extend(client.pool, client.dialect, ExtendRequest(int(run_id), "num_configs=2"))
    elif run_id:
        resume(client.pool, client.dialect, int(run_id), Limits(num_workers=int(workers)))
    else:
        rule = "patience=1, median_after=3" if method.endswith("+") else None
        asked = request(
            method.rstrip("+"), name, int(workers), client, early_stopping=rule,
            max_epochs=None if method == "long" else 60,
        )  # fmt: skip
        search(client.pool, client.dialect, asked)
    client.pool.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
