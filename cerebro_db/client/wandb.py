"""A run as offline runs of Weights & Biases, which ``wandb sync`` sends where its user wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cerebro_db.client.run import curves_of
from cerebro_db.errors import InvalidArgument, MissingPackage
from cerebro_db.watching import reading
from cerebro_db.watching.hyperparameters import hyperparameters
from cerebro_db.watching.reading import Source

PROJECT = "cerebro"


def write_run(source: Source, run_id: int, directory: Path, project: str | None) -> Path:
    """Write an offline run for each configuration, in a group of their run; returns the folder of all of them.

    Args:
        source: whose role may see the run.
        run_id: of the run.
        directory: in which the folder ``wandb`` is made.
        project: None for ``cerebro``.

    Raises:
        UndefinedRun: the caller has no such run.
        MissingPackage: wandb is not installed.
        InvalidArgument: the folder cannot be made.
    """
    facts = reading.run_facts(source, run_id)
    curves = curves_of(source, facts.run_id)
    wandb = _wandb()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"directory: got {directory}; {error.strerror}") from None
    # Nothing is told of this machine, where nothing was trained.
    settings = wandb.Settings(
        host="", silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True,
        x_disable_meta=True, x_disable_machine_info=True,
    )  # fmt: skip
    for one in reading.standings(source, facts.run_id):
        texts = {"compile_params": one.compile_params, "fit_params": one.fit_params}
        parameters = hyperparameters(one.compile_params, one.fit_params, one.model_id)
        logged = wandb.init(
            mode="offline", dir=str(directory), project=project or PROJECT, group=facts.title,
            name=f"run {facts.run_id} configuration {one.mst_key}", settings=settings, reinit="create_new",
            config={**parameters, **texts, "rank": one.rank, "status": one.status},
        )  # fmt: skip
        for epoch, values in sorted(curves.get(one.mst_key, {}).items()):
            logged.log(values, step=epoch)
        logged.finish()
    return directory / "wandb"


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise MissingPackage(
            "Weights & Biases is not installed", hint="pip install 'cerebro-db[wandb]'"
        ) from None
    return wandb
