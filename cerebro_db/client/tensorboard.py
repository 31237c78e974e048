"""Learning curves of a run as event files for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from cerebro_db.client.run import curves_of
from cerebro_db.errors import InvalidArgument, MissingPackage
from cerebro_db.training import environment, events
from cerebro_db.training.folders import Folder
from cerebro_db.watching import reading
from cerebro_db.watching.reading import Source


def write_run(source: Source, run_id: int, logdir: Path) -> Path:
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
    curves = curves_of(source, facts.run_id)
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
