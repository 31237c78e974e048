"""A report of runs: one HTML file, with all that it draws and the library that draws it."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import cerebro_db
from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.studies import Importance
from cerebro_db.errors import CerebroError, MissingPackage, UndefinedRun
from cerebro_db.watching import reading, texts
from cerebro_db.watching.busy import shares
from cerebro_db.watching.comparing import Comparison, compare
from cerebro_db.watching.hyperparameters import Value, axes, hyperparameters, importance, varying
from cerebro_db.watching.models import ModelSection, listed, model_section
from cerebro_db.watching.reading import (
    LOSS,
    Hopped,
    Measured,
    RunFacts,
    Source,
    Standing,
)
from cerebro_db.watching.statements import statement_of

# Each is a bar that is drawn; of more hops the file has the share of time that workers were busy.
MOST_BARS = 4000
BINS = 500
MOST_ROWS = 1000
MOST_RUNS = 10


@dataclass(frozen=True)
class RunReport:
    """Contents of a report about a run.

    Attributes:
        board: rows of its leaderboard, the best one first.
        curves: of the winner, as ``cerebro._curves`` has them; None where there are none.
        no_curves: why there are none.
        times: of the workers, as ``cerebro._worker_times`` has them.
        importances: of a search, as ``cerebro_importance`` tells; None of another run.
    """

    facts: RunFacts
    board: Sequence[Standing]
    measured: Sequence[Measured]
    hops: Sequence[Hopped]
    lineage: Sequence[reading.Lineage]
    goal: str
    statement: str
    curves: Any = None
    no_curves: str = ""
    parameters: Sequence[Mapping[str, Value]] = field(default_factory=list)
    times: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    importances: Sequence[Importance] | None = None
    drift: Sequence[reading.Drifted] = ()

    @functools.cached_property
    def names(self) -> list[str]:
        """The hyperparameters that differ, or all of a single configuration."""
        if len(self.parameters) == 1:
            return list(self.parameters[0])
        return varying(self.parameters)

    @functools.cached_property
    def columns(self) -> list[str]:
        """The results that there are, those of the validation table first."""
        found = dict.fromkeys(name for one in self.board for name in one.results())
        return sorted(found, key=lambda name: (not name.startswith("val_"), name != "val_" + LOSS))


def read(source: Source, run_id: int | None, with_curves: bool = True) -> RunReport:
    """Read the contents of the report of a run.

    Args:
        source: whose role may see the run.
        run_id: None for the newest.
        with_curves: whether the winner is scored on the validation table, which takes a worker.

    Raises:
        UndefinedRun: the caller has no such run.
    """
    facts = reading.run_facts(source, run_id)
    board = reading.standings(source, facts.run_id)
    curves, why = _curves(source, facts, board) if with_curves else (None, "not asked for")
    return RunReport(
        facts,
        board,
        reading.measures(source, facts.run_id),
        reading.hops(source, facts.run_id),
        reading.lineage(source, facts.run_id),
        reading.goal_of(source, facts.run_id),
        statement_of(source, facts),
        curves,
        why,
        [hyperparameters(one) for one in board],
        reading.worker_times(source, facts.run_id),
        None if facts.search is None else _importances(source, facts.run_id),
        reading.drift(source, facts),
    )


def _importances(source: Source, run_id: int) -> list[Importance]:
    """Importances of hyperparameters by ``cerebro_importance``; none where a search has too few results."""
    try:
        rows = source.run("SELECT * FROM cerebro.cerebro_importance(%s)", (run_id,))
    except CerebroError:
        return []
    return [Importance(str(name), float(value), int(trials)) for name, value, trials in rows]


def _curves(source: Source, facts: RunFacts, board: Sequence[Standing]) -> tuple[Any, str]:
    """The curves of the winner; none where it is no longer there, or its target has no classes."""
    if facts.status != "finished" or not board or board[0].epoch is None:
        return None, "the run has no models yet"
    if facts.validation_table is None:
        return None, "the run had no validation table"
    try:
        rows = source.run(
            "SELECT cerebro._curves(%s, %s, %s)::text",
            (facts.model_output_table, facts.validation_table, board[0].mst_key),
        )
    except CerebroError as error:
        return None, error.message
    return rows[0][0], ""


def html(source: Source, run_ids: Sequence[int | None], with_curves: bool = True) -> str:
    """The file.

    Args:
        source: whose role may see the runs.
        run_ids: None for the newest run.
        with_curves: as above.

    Raises:
        UndefinedRun: the caller has no such run.
        MissingPackage: Plotly, which draws, is not installed.
    """
    library = _library()
    runs = [read(source, run_id, with_curves) for run_id in dict.fromkeys(run_ids)]
    compared = compare(source, [one.facts.run_id for one in runs]) if len(runs) > 1 else None
    return rendered(runs, compared, library)


def model_html(source: Source, model: str) -> str:
    """The file of a registered version, with those of the runs that made it that are still there.

    Args:
        source: whose role may see the version.
        model: such as ``visits@champion``.

    Raises:
        UndefinedModel: the caller has no such version.
        MissingPackage: Plotly, which draws, is not installed.
    """
    library = _library()
    section = model_section(source, model)
    runs = []
    for run_id in section.run_ids:
        with suppress(UndefinedRun):
            runs.append(read(source, run_id, with_curves=False))
    return rendered(runs, None, library, section)


def rendered(
    runs: Sequence[RunReport],
    compared: Comparison | None,
    library: bytes,
    model: ModelSection | None = None,
) -> str:
    """The file of what was read."""
    environment = Environment(
        loader=PackageLoader("cerebro_db.watching", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": texts.number, "duration": texts.duration}
    environment.filters |= {"short": texts.short, "parameters": texts.parameters}
    environment.filters |= {"arguments": listed}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("report.html").render(
        runs=runs,
        compared=compared,
        model=model,
        data=[*(drawn(one) for one in runs), *([model.drawn] if model else [])],
        script=_source(environment, "report.js"),
        style=_source(environment, "report.css"),
        library=base64.b64encode(library).decode("ascii"),
        made=datetime.now(UTC),
        version=cerebro_db.__version__,
        most=MOST_ROWS,
        flat=_flat,
    )


def _source(environment: Environment, name: str) -> Markup:
    """A file of ours, as it is."""
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0])


def _library() -> bytes:
    """Plotly's JavaScript, compressed.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingPackage(
            "a report needs the package plotly, which draws it",
            hint="pip install 'cerebro-db[report]'",
        ) from None
    return gzip.compress(get_plotlyjs().encode(), 6, mtime=0)


# -- what is drawn ---------------------------------------------------------------
def drawn(run: RunReport) -> dict[str, Any]:
    """Contents of the drawings of a run as plain values, with configurations in the order of the leaderboard."""
    keys = [one.mst_key for one in run.board]
    names = run.names
    return {
        "id": run.facts.run_id,
        "keys": keys,
        "ranks": [one.rank for one in run.board],
        "labels": [
            f"{one.mst_key}: {texts.parameters(values, names)}"
            for one, values in zip(run.board, run.parameters, strict=True)
        ],
        "series": series(run.measured, keys),
        "first": first_series(run),
        "axes": [_axis(axis) for axis in axes(run.parameters)],
        "results": {
            name: [_short(one.results().get(name)) for one in run.board] for name in run.columns
        },
        "importance": _importance(run),
        "work": work(run.hops, run.times),
        "curves": run.curves if run.curves is None else _parsed(run.curves),
    }


def _parsed(curves: Any) -> Any:
    return json.loads(curves) if isinstance(curves, str) else curves


def first_series(run: RunReport) -> str:
    """The name of what configurations are ranked by."""
    columns = run.columns
    names = next((one.names for one in run.board if one.names), ())
    wanted = LOSS if run.goal == LOSS or not names else names[0]
    return next((one for one in (f"val_{wanted}", wanted) if one in columns), "")


def series(measured: Sequence[Measured], keys: Sequence[int]) -> dict[str, Any]:
    """Learning curves by name: epochs, and of each configuration its values, None where it has none."""
    places = {key: place for place, key in enumerate(keys)}
    epochs: dict[str, dict[int, int]] = {}
    points: dict[str, list[tuple[int, int, float | None]]] = {}
    for one in measured:
        if one.mst_key in places:
            for name, value in one.results().items():
                points.setdefault(name, []).append((places[one.mst_key], one.epoch, _short(value)))
    found: dict[str, Any] = {}
    for name, values in points.items():
        order = sorted({epoch for _, epoch, _ in values})
        epochs[name] = {epoch: place for place, epoch in enumerate(order)}
        lines: list[list[float | None]] = [[] for _ in keys]
        for place, epoch, known in values:
            line, column = lines[place], epochs[name][epoch]
            line.extend([None] * (column + 1 - len(line)))
            line[column] = known
        found[name] = {"epochs": order, "values": lines}
    return found


def _axis(axis: Any) -> dict[str, Any]:
    values = [_short(one) for one in axis.values]
    return {
        "name": axis.name,
        "values": values,
        "categories": list(axis.categories),
        "log": axis.is_log,
    }


def _importance(run: RunReport) -> dict[str, Any]:
    """Importance of hyperparameters: of a search that of the SQL function, for its objective."""
    measure = first_series(run)
    scores = {one.mst_key: _ranked_by(measure, one) for one in run.board}
    if run.importances is None:
        method, found = importance(run.board, scores)
    else:
        method, found, measure = "fANOVA", list(run.importances), _objective(run.facts)
    return {
        "method": method,
        "of": measure,
        "names": [one.parameter for one in found],
        "values": [_short(one.value) for one in found],
        "trials": [one.trials for one in found],
    }


def _ranked_by(measure: str, one: Standing) -> float:
    """The result that a configuration is ranked by; NaN where there is none."""
    results = one.results()
    return results.get(measure, results.get(measure.removeprefix("val_"), math.nan))


def _objective(facts: RunFacts) -> str:
    """The first objective of a search, as Keras names it."""
    try:
        return SearchSpec.from_text(json.dumps(facts.search)).objectives[0].monitor
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    ):  # its owner may have written anything
        return ""


def work(hops: Sequence[Hopped], times: Mapping[int, tuple[float, float]]) -> dict[str, Any]:
    """Work of the workers by time: hops, or of many hops the share of each interval that they were busy.

    Args:
        hops: of the run; seconds are since the first one began.
        times: of each worker, the shares with nothing to do, and in scans and the like.
    """
    if not hops:
        return {"workers": [], "idle": [], "scoring": [], "seconds": 0}
    workers = sorted({one.worker for one in hops})
    places = {worker: place for place, worker in enumerate(workers)}
    place = np.array([places[one.worker] for one in hops])
    began = np.array([one.started for one in hops])
    ended = np.array([one.finished for one in hops])
    first = float(began.min())
    began, ended = began - first, ended - first
    seconds = max(float(ended.max()), 1e-3)
    parts = [times.get(one, (0.0, 0.0)) for one in workers]
    found: dict[str, Any] = {
        "workers": workers,
        "idle": [_short(idle) for idle, _ in parts],
        "scoring": [_short(scoring) for _, scoring in parts],
        "seconds": _short(seconds),
        "hops": len(hops),
    }
    if len(hops) > MOST_BARS:
        cells = shares(place, began, ended, len(workers), seconds, BINS)
        return found | {"bin": seconds / BINS, "busy": np.round(cells, 3).tolist()}
    return found | {
        "bars": [
            [int(at), round(start, 4), round(end, 4), one.mst_key, one.epoch, one.partition_key]
            for at, start, end, one in zip(place, began.tolist(), ended.tolist(), hops, strict=True)
        ]
    }


def _short(value: float | None) -> float | None:
    """A number with five digits; None where it is none."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The entries of a manifest, those of objects spread."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append((prefix + name, shown))
    return found
