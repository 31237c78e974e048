"""Pictures of the comparison, as SVG: ``python benchmarks/paper/pictures.py RESULTS.json FOLDER``.

Needs matplotlib only, which is in the environment of the documentation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_STYLES = ("-", "--", "-.", ":")


def main() -> None:
    """Draw."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cerebro"
    results = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    for case in results["cases"]:
        _curves(case, folder / f"comparison-{case['name']}.svg")
    _moved(results["cases"], folder / "comparison-moved.svg")


def _curves(case: dict[str, Any], file: Path) -> None:
    """The best accuracy of any model, by epochs and by seconds."""
    from matplotlib import pyplot

    figure, (by_epoch, by_time) = pyplot.subplots(1, 2, figsize=(12, 4.2), sharey=True)
    for number, (name, one) in enumerate(case["strategies"].items()):
        points = _envelope(one["curves"])
        look = {"label": name, "linestyle": _STYLES[number % len(_STYLES)], "linewidth": 1.4}
        by_epoch.plot([epoch for epoch, _, _ in points], [100 * best for _, _, best in points], **look)  # fmt: skip
        by_time.plot([when for _, when, _ in points], [100 * best for _, _, best in points], **look)
    for axes, text in ((by_epoch, "epochs"), (by_time, "seconds")):
        axes.axhline(100 * case["target"], color="grey", linewidth=0.8)
        axes.set_xlabel(text)
        axes.grid(alpha=0.3)
    by_time.set_xscale("log")
    by_epoch.set_ylabel("accuracy of the best model, %")
    lowest = min(point[2] for one in case["strategies"].values() for point in _envelope(one["curves"]))  # fmt: skip
    by_epoch.set_ylim(100 * max(lowest, case["target"] - 0.2), None)
    by_time.legend(fontsize="small", bbox_to_anchor=(1.02, 1.02), loc="upper left")
    figure.suptitle(case["title"])
    _save(figure, file)


def _envelope(curves: dict[str, list[list[float]]]) -> list[tuple[int, float, float]]:
    """For each epoch: when the last model had trained it, and the best accuracy so far."""
    found: list[tuple[int, float, float]] = []
    best = 0.0
    for epoch in sorted({int(point[0]) for curve in curves.values() for point in curve}):
        here = [point for curve in curves.values() for point in curve if point[0] == epoch]
        best = max(best, *(point[2] for point in here))
        found.append((epoch, max(point[1] for point in here), best))
    return found


def _moved(cases: list[dict[str, Any]], file: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 4.2))
    names = list(cases[0]["strategies"])
    width = 0.8 / len(cases)
    for number, case in enumerate(cases):
        sizes = [case["strategies"].get(name, {}).get("moved", 0) / 1e6 for name in names]
        places = [place + width * (number - (len(cases) - 1) / 2) for place in range(len(names))]
        axes.bar(places, sizes, width, label=case["title"])
    axes.set_yscale("log")
    axes.set_ylabel("MB per epoch and worker")
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize="small")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small")
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
