"""Results as tables of text: what is shown in a terminal and what stands in the documentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import search

Results = Mapping[str, Any]
Figure = Callable[[Results], float]


@dataclass(frozen=True)
class Table:
    """A heading and rows; the first column is text, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Goal:
    """Goal: a figure of a workload, and its limit."""

    workload: str
    text: str
    unit: str
    limit: float
    at_least: bool
    figure: Figure

    def row(self, results: Results) -> tuple[str, ...] | None:
        """A row of the table of goals; None where the workload was not measured."""
        try:
            value = self.figure(results)
        except (KeyError, TypeError):
            return None
        reached = value >= self.limit if self.at_least else value <= self.limit
        sign = "≥" if self.at_least else "≤"
        goal, got = f"{sign} {_short(self.limit)}{self.unit}", f"{_short(value)}{self.unit}"
        return (self.workload, self.text, goal, got, "yes" if reached else "no")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def tables(results: Results) -> Iterator[Table]:
    """All tables of the results."""
    for name, workload in results["workloads"].items():
        yield _sides(name, workload)
        if "rotation_idle_share" in workload["figures"]:
            yield _schedules(name, workload)
    if "packing" in results:
        yield _packing(results["packing"])
    if "predict" in results:
        yield _predictions(results["predict"])
    for name, found in results.get("search", {}).items():
        yield _searches(name, found)
    yield _goals(results)


def describe(results: Results) -> str:
    """The machine, in a sentence or two."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    text = (
        f"{machine['processor']}, {machine['cores_used']} of {machine['cores']} cores used, "
        f"{machine['memory_gb']} GB of memory, {machine['system']}; {versions}; "
        f"{_segments(results)}{results['workers']} workers; measured {machine['measured']}"
    )
    return text if results["scale"] == 1 else f"{text}; scale {results['scale']:g}"


def _segments(results: Results) -> str:
    count = results.get("segments", 0)
    return f"{count} segments, " if count else ""


def _sides(name: str, workload: Results) -> Table:
    facts, sides = workload["facts"], workload["sides"]
    shape = " x ".join(map(str, facts["shape"]))
    title = (
        f"{name}: {facts['rows']:,} rows of {shape} ({facts['data']}), "
        f"{facts['configurations']} configurations, {facts['epochs']} epochs, "
        f"{facts['partitions']} partitions"
    )
    columns = ("side", "wall s", "CPU s", "wall ratio", "CPU ratio", "other CPU s", "best accuracy")
    ours = sides["cerebro"]
    rows = tuple(_side(label, side, ours) for label, side in sides.items())
    return Table(title, columns, rows)


def _schedules(name: str, workload: Results) -> Table:
    figures, sides = workload["figures"], workload["sides"]
    rows = tuple(
        (
            schedule,
            f"{sides[side]['wall']:.2f}",
            f"{figures[prefix + 'hops_seconds']:.2f}",
            f"{100 * figures[prefix + 'idle_share']:.1f}",
        )
        for schedule, side, prefix in (
            ("hopper", "cerebro", ""),
            ("rotation", "cerebro, rotation", "rotation_"),
        )
    )
    columns = ("schedule", "wall s", "first to last hop s", "idle %")
    return Table(f"{name}: schedules", columns, rows)


_LABELS = {
    "cerebro": "Cerebro-DB",
    "cerebro with packing": "... with packing",
    "cerebro, second run": "... second run",
    "cerebro, streaming": "... streaming",
    "cerebro, rotation": "... rotation",
    "floor": "floor",
    "export": "export, Keras fit",
    "export, oneDNN on": "... oneDNN on",
}


def _side(label: str, side: Results, ours: Results) -> tuple[str, ...]:
    accuracy = "" if side["accuracy"] is None else f"{side['accuracy']:.4f}"
    return (
        _LABELS[label],
        f"{side['wall']:.2f}",
        f"{side['cpu']:.2f}",
        f"{side['wall'] / ours['wall']:.2f}",
        f"{side['cpu'] / ours['cpu']:.2f}",
        f"{side['others']:.1f}",
        accuracy,
    )


def _packing(packing: Results) -> Table:
    title = f"packing: {packing['rows']:,} rows of {packing['columns']} real numbers, medians"
    columns = ("", "wall s", "CPU s", "wall / COPY", "CPU / COPY")
    copy = packing["costs"]["COPY"]
    rows = tuple(
        (
            name,
            f"{cost['wall']:.2f}",
            f"{cost['cpu']:.2f}",
            _quotient(cost["wall"], copy["wall"]),
            _quotient(cost["cpu"], copy["cpu"]),
        )
        for name, cost in packing["costs"].items()
    )
    return Table(title, columns, rows)


def _quotient(a: float, b: float) -> str:
    return f"{a / b:.2f}" if b else ""


def _predictions(predict: Results) -> Table:
    title = f"predict: {predict['rows']:,} rows of {predict['columns']} real numbers, medians"
    columns = ("", "wall s", "rows a second and worker")
    rows = [
        (name, f"{call['seconds']:.2f}", f"{call['rate']:,}")
        for name, call in predict["calls"].items()
    ]
    row, peer = predict["row_ms"], predict["peer_ms"]
    rows += [
        ("Keras, one row at a time", "", f"{1000 / peer:,.0f}"),
        ("cerebro_predict_row, warm", "", f"{1000 / row['median']:,.0f}"),
        ("... its first call in a session", f"{row['first'] / 1000:.2f}", ""),
    ]
    return Table(title, columns, tuple(rows))


def _searches(name: str, found: Results) -> Table:
    columns = (
        "side", "seed", "wall s", "CPU s", "CPU s to 0.5 points", "epochs",
        "best validation accuracy", "idle %",
    )  # fmt: skip
    sides = [("grid of 27", 0, found["grid"])]
    for method, runs in found["searches"].items():
        sides += [(method, seed, one) for seed, one in enumerate(runs)]
    for label, side in (("asha, 9 epochs", "beside"), ("Optuna, Keras fit, 9 epochs", "optuna")):
        sides += [(label, seed, one) for seed, one in enumerate(found[side])]
    rows = [
        (
            label,
            str(seed),
            f"{one['wall']:.2f}",
            f"{one['cpu']:.2f}",
            _near(found, one),
            str(one.get("epochs", "")),
            f"{one['accuracy']:.4f}",
            f"{100 * one['idle']:.1f}" if "idle" in one else "",
        )
        for label, seed, one in sides
    ]
    rows.append(("tpe", "0", "", "", "", "", "", f"{100 * found['idle']['tpe']:.1f}"))
    title = f"search on {name}: {found['rows']:,} rows"
    return Table(title, columns, tuple(rows))


def _near(found: Results, one: Results) -> str:
    if "curve" not in one:
        return ""
    seconds = search.near(found, one)
    return f"{seconds:.2f}" if math.isfinite(seconds) else "never"


def _of_search(workload: str, figure: Callable[..., float], *more: str) -> Figure:
    return lambda results: figure(results["search"][workload], *more)


def _idle(workload: str, method: str) -> Figure:
    return lambda results: 100 * float(results["search"][workload]["idle"][method])


def _goals(results: Results) -> Table:
    goals = _GOALS_ON_SEGMENTS if results.get("segments") else _GOALS
    rows = [row for goal in goals if (row := goal.row(results)) is not None]
    return Table("goals", ("workload", "what", "goal", "measured", "reached"), tuple(rows))


def _ratio(workload: str, side: str, ours: str, kind: str = "wall", up: bool = True) -> Figure:
    def figure(results: Results) -> float:
        sides = results["workloads"][workload]["sides"]
        a, b = float(sides[side][kind]), float(sides[ours][kind])
        return a / b if up else b / a

    return figure


def _figure(workload: str, name: str, factor: float = 1.0) -> Figure:
    return lambda results: factor * float(results["workloads"][workload]["figures"][name])


def _seconds(workload: str, side: str) -> Figure:
    return lambda results: float(results["workloads"][workload]["sides"][side]["wall"])


def _failed(workload: str) -> Figure:
    return lambda results: len(results["workloads"][workload]["figures"]["failed"])


def _pack_to_copy(results: Results) -> float:
    costs = results["packing"]["costs"]
    return float(costs["cerebro_pack"]["cpu"]) / float(costs["COPY"]["cpu"])


def _rate(results: Results) -> float:
    return float(results["predict"]["calls"]["response, 1 worker"]["rate"])


def _stored(workload: str) -> Figure:
    def figure(results: Results) -> float:
        figures = results["workloads"][workload]["figures"]
        return float(figures["packed_mb"]) / float(figures["rows_mb"])

    return figure


_WITH, _COLD = "cerebro with packing", "cerebro"
_GOALS = (
    Goal("tabular", "times faster than export, with packing", "", 6, True,
         _ratio("tabular", "export", _WITH)),
    Goal("tabular", "time against the floor", "", 1.05, False, _figure("tabular", "to_floor")),
    Goal("tabular", "CPU time against the floor", "", 1.10, False,
         _ratio("tabular", "floor", _COLD, "cpu", up=False)),
    Goal("tabular", "streaming: time against having it in memory", "", 1.10, False,
         _figure("tabular", "streaming_to_memory")),
    Goal("tabular", "packed table against its rows as bytes", "", 1.10, False, _stored("tabular")),
    Goal("images", "times faster than export, with packing", "", 1.5, True,
         _ratio("images", "export", _WITH)),
    Goal("images", "time against the floor", "", 1.05, False, _figure("images", "to_floor")),
    Goal("images", "CPU time against the floor", "", 1.10, False,
         _ratio("images", "floor", _COLD, "cpu", up=False)),
    Goal("toy", "first run of a session, keeper warm", " s", 3, False, _seconds("toy", _COLD)),
    Goal("toy", "second run of a session", " s", 1.9, False,
         _seconds("toy", "cerebro, second run")),
    Goal("toy", "warm: a hop beyond its steps", " ms", 10, False,
         _figure("toy", "hop_overhead_ms")),
    Goal("toy", "warm: the same, with all between hops", " ms", 20, False,
         _figure("toy", "hop_overhead_between_ms")),
    Goal("mixed", "workers idle between first and last hop", " %", 5, False,
         _figure("mixed", "idle_share", 100)),
    *(
        Goal(name, "configurations that failed", "", 0, False, _failed(name))
        for name in ("toy", "tabular", "images", "mixed")
    ),
    *(
        Goal(name, "accuracies differ from the floor's by", "", 0, False,
             _figure(name, "floor_differs_by"))
        for name in ("toy", "tabular", "images", "mixed")
    ),
    Goal("predict", "rows a second and worker", "", 20_000, True, _rate),
    Goal("predict", "to Keras, one row at a time", "x", 100, True,
         lambda results: _rate(results) * results["predict"]["peer_ms"] / 1000),
    Goal("predict", "cerebro_predict_row, warm", " ms", 1, False,
         lambda results: float(results["predict"]["row_ms"]["median"])),
    *(
        goal
        for name in ("tabular", "images")
        for method in ("hyperband", "asha", "bohb")
        for goal in (
            Goal(f"search, {name}", f"{method}: the grid's CPU time to that until near its best", "x", 4,
                 True, _of_search(name, search.saved, method)),
            Goal(f"search, {name}", f"{method}: points below the grid's best", "", 0.5, False,
                 _of_search(name, search.missed, method)),
        )
    ),
    *(
        Goal(f"search, {name}", "times faster than Optuna with Keras fit", "", least, True,
             _of_search(name, search.faster))
        for name, least in (("tabular", 4), ("images", 1.2))
    ),
    *(
        Goal(f"search, {name}", "points below Optuna's best", "", 0.5, False,
             _of_search(name, search.worse))
        for name in ("tabular", "images")
    ),
    *(
        Goal(f"search, {name}", f"{method}: workers idle", " %", 8, False, _idle(name, method))
        for name in ("tabular", "images")
        for method in ("hyperband", "asha", "tpe")
    ),
    Goal("packing", "CPU time against COPY of the same rows", "", 3, False, _pack_to_copy),
)  # fmt: skip
_GOALS_ON_SEGMENTS = (
    Goal("toy", "second run of a session", " s", 5, False,
         _seconds("toy", "cerebro, second run")),
    Goal("toy", "warm: a hop beyond its steps", " ms", 40, False,
         _figure("toy", "hop_overhead_ms")),
    Goal("toy", "warm: the same, with all between hops", " ms", 40, False,
         _figure("toy", "hop_overhead_between_ms")),
    *(
        Goal(name, "time against the floor", "", 1.10, False, _figure(name, "to_floor"))
        for name in ("tabular", "images")
    ),
    Goal("mixed", "segments idle between first and last hop", " %", 5, False,
         _figure("mixed", "idle_share", 100)),
    Goal("mixed", "rotation: accuracies differ from the hopper's by", "", 0, False,
         _figure("mixed", "rotation_differs_by")),
    *(
        Goal(name, "configurations that failed", "", 0, False, _failed(name))
        for name in ("toy", "tabular", "images", "mixed")
    ),
    *(
        Goal(name, "accuracies differ from the floor's by", "", 0, False,
             _figure(name, "floor_differs_by"))
        for name in ("toy", "tabular", "images", "mixed")
    ),
)  # fmt: skip
