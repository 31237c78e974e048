"""A run: how it stands, what came of it, and what can be made of that."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db.client import outside
from cerebro_db.client import progress as bars
from cerebro_db.client.model import Model
from cerebro_db.client.values import Frame, frame
from cerebro_db.errors import InvalidArgument, WrongRunStatus
from cerebro_db.postgres.sessions.connections import Connections
from cerebro_db.watching import reading
from cerebro_db.watching.comparing import Comparison, compare
from cerebro_db.watching.hyperparameters import hyperparameters, varying
from cerebro_db.watching.reading import RunFacts, Standing

if TYPE_CHECKING:
    from os import PathLike

_HEIGHT = 800


@dataclass(frozen=True)
class Report:
    """A report as one file of HTML; a notebook shows it."""

    html: str

    def save(self, path: str | PathLike[str]) -> Path:
        """Write it into a file."""
        path = Path(path)
        path.write_text(self.html, "utf-8")
        return path

    def _repr_html_(self) -> str:
        """A frame of its own, whose scripts reach nothing of the notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )


class Run:
    """A run of a database.

    Args:
        connections: to it.
        run_id: as ``cerebro.runs`` shows it.
    """

    def __init__(self, connections: Connections, run_id: int) -> None:
        self._connections, self.run_id = connections, run_id

    def __repr__(self) -> str:
        """The number and the status of the run."""
        return f"<Run {self.run_id}: {self.status}>"

    def _repr_html_(self) -> str:
        facts, pace = self.facts, reading.pace(self._connections, self.run_id)
        return (
            f'<progress value="{pace.share:.4f}" max="1"></progress> '
            f"{html.escape(bars.line(facts, pace))}"
        )

    # -- how it stands -----------------------------------------------------------
    @property
    def facts(self) -> RunFacts:
        """Request of the run, and its standing now."""
        return reading.run_facts(self._connections, self.run_id)

    @property
    def status(self) -> str:
        """Such as ``running`` or ``finished``."""
        return self.facts.status

    def progress(self, timeout: float | None = None) -> str:
        """Show a progress bar until the run has stopped; returns its status.

        Raises:
            TimeoutError: so many seconds are over.
        """
        bar = bars.shown() if bars.is_shown(None) else None
        return bars.follow(self._connections, self.run_id, timeout, bar).status

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has stopped.

        Raises:
            TimeoutError: so many seconds are over.
        """
        bars.follow(self._connections, self.run_id, timeout)
        return self

    # -- results -----------------------------------------------------------------
    def leaderboard(self) -> Frame:
        """A row a configuration, the best first: the hyperparameters that differ, and results."""
        board = reading.standings(self._connections, self.run_id)
        found = [hyperparameters(one) for one in board]
        names = [name for name in varying(found) if name != "model_id"]
        results = list(dict.fromkeys(name for one in board for name in one.results()))
        columns = ["rank", "mst_key", "model_id", "status", "epoch"]
        return frame(
            [*columns, *names, *results, "error"],
            [
                [
                    *(getattr(one, name) for name in columns),
                    *(values.get(name) for name in names),
                    *(one.results().get(name) for name in results),
                    one.error,
                ]
                for one, values in zip(board, found, strict=True)
            ],
        )

    def metrics(self) -> Frame:
        """A row for each configuration, data set and epoch, with loss and metrics."""
        measured = reading.measures(self._connections, self.run_id)
        names = list(dict.fromkeys(name for one in measured for name in one.values()))
        return frame(
            ["mst_key", "epoch", "dataset", *names, "elapsed"],
            [
                [one.mst_key, one.epoch, one.dataset, *map(one.values().get, names), one.elapsed]
                for one in measured
            ],
        )

    def hops(self) -> Frame:
        """A row a hop, as ``cerebro.hops`` has it."""
        sql = "SELECT * FROM cerebro.hops WHERE run_id = %s ORDER BY started, mst_key"
        return frame(*self._connections.table(sql, (self.run_id,)))

    def decisions(self) -> Frame:
        """A row a decision, as ``cerebro.decisions`` has it."""
        sql = "SELECT * FROM cerebro.decisions WHERE run_id = %s ORDER BY number, mst_key"
        return frame(*self._connections.table(sql, (self.run_id,)))

    def best(self) -> Model:
        """The first model of the leaderboard.

        Raises:
            WrongRunStatus: the run has not ended with models.
        """
        return self._model(None)

    def model(self, mst_key: int) -> Model:
        """The model of a configuration.

        Raises:
            WrongRunStatus: the run has not ended with models.
            InvalidArgument: it has no such model.
        """
        return self._model(mst_key)

    def _model(self, mst_key: int | None) -> Model:
        facts = self.facts
        if facts.status != "finished":
            raise WrongRunStatus(
                f"run {self.run_id} is {facts.status}; allowed: a run that is finished",
                hint="run.progress() waits for it",
            )
        board = [
            one
            for one in reading.standings(self._connections, self.run_id)
            if one.status not in ("failed", "cancelled")
        ]
        chosen = [one for one in board if mst_key in (None, one.mst_key)]
        if not chosen:
            known = ", ".join(str(one.mst_key) for one in board[:20])
            raise InvalidArgument(
                f"mst_key: got {mst_key}; run {self.run_id} has models of {known}"
            )
        return self._as_model(facts, chosen[0])

    def _as_model(self, facts: RunFacts, one: Standing) -> Model:
        parameters = hyperparameters(one)
        return Model(
            self._connections, self.run_id, one.mst_key, facts.model_output_table, parameters,
            one.results(),
        )  # fmt: skip

    def compare(self, *others: Run | int) -> Comparison:
        """Compare this run with others, side by side."""
        keys = [one.run_id if isinstance(one, Run) else one for one in others]
        return compare(self._connections, [self.run_id, *keys])

    # -- a search whose configurations come from outside --------------------------
    def add(
        self,
        model_id: int,
        compile_params: str,
        fit_params: str = "",
        num_iterations: int | None = None,
    ) -> int:
        """Add a configuration to a search that goes on; returns its mst_key.

        Args:
            model_id: of the architectures of the search.
            compile_params, fit_params: as in SQL.
            num_iterations: its epochs; None for those of the search.
        """
        return outside.add(
            self._connections, self.run_id, model_id, compile_params, fit_params, num_iterations
        )

    def objective(self, mst_key: int, timeout: float | None = None) -> float | None:
        """Wait until a configuration of a search is trained to its epochs, or stopped; its first objective.

        Returns:
            The value after the last epoch that was measured; None where there is none, as the configuration
            has failed or was cancelled.

        Raises:
            TimeoutError: so many seconds are over.
            WrongRunStatus: the search goes on no more, and the configuration has not come to its end.
        """
        found = self.objectives(mst_key, timeout)
        return found[0] if found else None

    def objectives(self, mst_key: int, timeout: float | None = None) -> tuple[float, ...]:
        """Wait as :meth:`objective` does; all objectives of the search, or none."""
        return outside.objectives(self._connections, self.run_id, mst_key, timeout)

    def finish(self) -> None:
        """End a search: nothing more is begun, and its tables are made, which :meth:`wait` waits for."""
        self._connections.run("SELECT cerebro.cerebro_finish(%s)", (self.run_id,))

    # -- what is done with it ----------------------------------------------------
    def cancel(self, mst_key: int | None = None) -> str:
        """Stop the run, or one of its configurations; returns the status afterwards."""
        sql = "SELECT cerebro.cerebro_cancel(run_id := %s, mst_key := %s)"
        return str(self._connections.run(sql, (self.run_id, mst_key))[0][0])

    def pause(self) -> str:
        """Stop the run such that its call returns; returns the status afterwards."""
        return str(self._connections.run(_PAUSE, (self.run_id,))[0][0])

    def resume(self, *, wait: bool = True, progress: bool | None = None, **options: Any) -> Run:
        """Go on with the run, as ``Database.resume`` does."""
        from cerebro_db.client.database import Database

        found: Run = Database(self._connections).resume(
            self.run_id, wait=wait, progress=progress, **options
        )
        return found

    def drop(self) -> None:
        """Forget the run; its output tables stay."""
        self._connections.run("SELECT cerebro.cerebro_drop_run(%s)", (self.run_id,))

    def report(self, *others: Run | int, curves: bool = True) -> Report:
        """A report of the run, and of others beside it; needs the extra ``report``.

        Args:
            others: runs that it is compared with.
            curves: whether the winner is scored on the validation table.
        """
        from cerebro_db.watching.report import html as written

        keys = [one.run_id if isinstance(one, Run) else one for one in others]
        return Report(written(self._connections, [self.run_id, *keys], curves))

    def to_mlflow(
        self,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        with_model: bool = True,
    ) -> str:
        """Write the run into MLflow, a child run for each configuration; returns the run's id there.

        Args:
            tracking_uri: None for that of MLflow's own settings.
            experiment: by default ``cerebro``.
            with_model: whether the winner is logged as a model with a signature, which imports Keras.
        """
        from cerebro_db.client.mlflow import write_run

        return write_run(self, tracking_uri, experiment, with_model)

    def to_tensorboard(self, logdir: str | PathLike[str]) -> Path:
        """Write event files for TensorBoard: a folder for each configuration; returns the run's folder."""
        from cerebro_db.client.curves import to_tensorboard

        return to_tensorboard(self._connections, self.run_id, Path(logdir))

    def to_wandb(self, directory: str | PathLike[str] = ".", project: str | None = None) -> Path:
        """Write offline runs for Weights & Biases, one for each configuration; returns their folder.

        Args:
            directory: in which the folder ``wandb`` is made, for ``wandb sync``.
            project: by default ``cerebro``.
        """
        from cerebro_db.client.curves import to_wandb

        return to_wandb(self._connections, self.run_id, Path(directory), project)

    @property
    def connections(self) -> Connections:
        """Connections to the database of the run."""
        return self._connections

    @property
    def parameters(self) -> Mapping[int, Mapping[str, Any]]:
        """The hyperparameters of each configuration, by mst_key."""
        return {
            one.mst_key: hyperparameters(one)
            for one in reading.standings(self._connections, self.run_id)
        }


_PAUSE = "SELECT cerebro.cerebro_pause(%s)"
