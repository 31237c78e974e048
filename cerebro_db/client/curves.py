"""Learning curves of a run in other tools: event files for TensorBoard, offline runs of Weights & Biases.

``wandb sync`` sends these where their user wants them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cerebro_db.errors import InvalidArgument, MissingPackage
from cerebro_db.training import environment, events
from cerebro_db.training.folders import Folder
from cerebro_db.watching import reading
from cerebro_db.watching.hyperparameters import hyperparameters
from cerebro_db.watching.reading import Source

PROJECT = "cerebro"


def to_tensorboard(source: Source, run_id: int, logdir: Path) -> Path:
    """Write what is not there yet; returns the folder of the run, with one for each configuration.

    Args:
        source: whose role may see the run.
        run_id: of the run.
        logdir: that TensorBoard is given.

    Raises:
        UndefinedRun: the caller has no such run.
        MissingPackage: TensorFlow, whose writer this is, is not installed.
        InvalidArgument: the folder cannot be written into.
    """
    facts = reading.run_facts(source, run_id)
    folder = f"run_{facts.run_id}"
    curves = _curves(source, facts.run_id)
    series = [
        events.Series(f"{folder}/configuration_{mst_key}", tuple(sorted(epochs.items())))
        for mst_key, epochs in curves.items()
    ]
    environment.set_environment(threads=1, use_gpus=False)
    try:
        with Folder.of_caller(logdir) as opened:
            events.write(opened, series)
    except ImportError:
        raise MissingPackage(
            "event files are written by TensorFlow, which is not installed",
            hint="pip install 'cerebro-db[cpu]'",
        ) from None
    except OSError as error:
        raise InvalidArgument(f"logdir: got {logdir}; {error.strerror}") from None
    return logdir / folder


def to_wandb(source: Source, run_id: int, directory: Path, project: str | None) -> Path:
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
    curves = _curves(source, facts.run_id)
    wandb = _wandb()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"directory: got {directory}; {error.strerror}") from None
    # Nothing is said of this machine, where nothing was trained.
    settings = wandb.Settings(
        host="", silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True,
        x_disable_meta=True, x_disable_machine_info=True,
    )  # fmt: skip
    for one in reading.standings(source, facts.run_id):
        texts = {"compile_params": one.compile_params, "fit_params": one.fit_params}
        parameters = hyperparameters(one)
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


def _curves(source: Source, run_id: int) -> dict[int, dict[int, dict[str, float]]]:
    """Finite results by mst_key, epoch and name; names on the validation table begin with ``val_``."""
    curves: dict[int, dict[int, dict[str, float]]] = {}
    for one in reading.measures(source, run_id):
        of_epoch = curves.setdefault(one.mst_key, {}).setdefault(one.epoch, {})
        of_epoch |= {name: value for name, value in one.results().items() if math.isfinite(value)}
    return curves
