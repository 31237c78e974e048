"""Results as Markdown: the part of docs/comparison.md between its markers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.markdown import between, table
from benchmarks.paper.cases import PARTITIONS, ROWS, STRATEGIES
from benchmarks.paper.claims import looked_at

DOCUMENT = Path(__file__).parents[2] / "docs" / "comparison.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
Results = Mapping[str, Any]


def write(results: Results, document: Path = DOCUMENT) -> None:
    """Put results into the document, in place of those that it had."""
    document.write_text(between(document.read_text(), BEGIN, END, markdown(results)))


def markdown(results: Results) -> str:
    """All tables."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    parts = [
        f"Measured on {machine['measured']} on {machine['processor']} ({machine['cores_used']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}); {versions}. Rows: {results['scale']:g} times the usual number.",
    ]
    for case in results["cases"]:
        parts += [f"### {case['title'].capitalize()}", _about(case), _figures(case), _picture(case)]
    parts += ["### Moved", _moved_picture(), "### What holds, and what is lost", _promises(results)]
    parts += ["### Claims of the literature", _claims(results)]
    parts += ["### Over a network", *_network(results["network"])]
    return "\n\n".join(parts)


def _about(case: Mapping[str, Any]) -> str:
    return (
        f"{case['data']}: {case['rows']:,} rows to train on, {case['held_out']:,} to validate on; {case['models']} models "
        f"(learning rates {', '.join(f'{rate:g}' for rate in case['rates'])}), {case['epochs']} epochs, {PARTITIONS} "
        f"partitions, {ROWS} rows an update. A model has {case['weight_bytes'] / 1e6:.2f} MB of weights, and a state of "
        f"{case['state_bytes'] / 1e6:.2f} MB. The target is what `hopper` has reached at the end, less half a point: "
        f"{100 * case['target']:.1f} %."
    )


def _figures(case: Mapping[str, Any]) -> str:
    columns = (
        "strategy", "best accuracy", "epochs to target", "seconds to target", "rows/s", "idle",
        "CPU s", "moved MB", "states MB", "trainers MB",
    )  # fmt: skip
    rows = []
    for name, one in case["strategies"].items():
        epochs, seconds = one["reached"] or (None, None)
        rows.append(
            (
                name,
                f"{100 * one['best']:.2f} %",
                "not reached" if epochs is None else str(epochs),
                "" if seconds is None else f"{seconds:.1f}",
                f"{one['rows_per_second']:,.0f}",
                f"{100 * one['idle']:.1f} %",
                f"{one['cpu']:.0f}",
                f"{one['moved'] / 1e6:,.1f}",
                f"{one['stored_bytes'] / 1e6:,.1f}",
                f"{one['memory_mb']:,}",
            )
        )
    return table(columns, rows)


def _picture(case: Mapping[str, Any]) -> str:
    return f"![Accuracy over time: {case['title']}](images/comparison-{case['name']}.svg)"


def _moved_picture() -> str:
    return "![Bytes moved per epoch and worker](images/comparison-moved.svg)"


def _promises(results: Results) -> str:
    same = results["same_bits"]
    rows = [
        (
            one.name,
            {True: "yes", False: "no"}.get(same.get(one.name), "not tried"),
            one.lost,
        )
        for one in STRATEGIES
    ]
    return table(("strategy", "two runs, same bits", "made again when a worker dies"), rows)


def _claims(results: Results) -> str:
    rows = []
    for case in results["cases"]:
        for text, source, figure, agrees in looked_at(case["strategies"]):
            rows.append((text, source, case["title"], figure, agrees))
    order = [row[0] for row in rows]
    rows = sorted(rows, key=lambda row: order.index(row[0]))
    return table(("claim", "from", "measured with", "figure", "direction agrees"), rows)


def _network(found: Mapping[str, Any]) -> list[str]:
    """Table of an epoch over each network by each pattern, and the claims."""
    if "why_not" in found:
        return [found["why_not"][:1].upper() + found["why_not"][1:] + "."]
    parts = []
    for network in found["networks"]:
        reached = network["reached"]
        parts.append(
            f"**{network['megabits']:,} Mbit/s, {found['delay_ms']:g} ms one way**; reached: {reached['megabits_of_one_link']:,.0f} Mbit/s "
            f"from one host to another, {reached['round_trip_ms']:.2f} ms for a small message and its answer. Seconds of an epoch "
            f"of four models, of {found['steps']} gradients of each host, the share of it in which hosts exchange and compute nothing, "
            "and what a host sends and receives:"
        )
        parts += [_patterns(network["nets"]), _ratios(network["nets"])]
    return parts


_AS_LONG, _MEASURED = "as an all-reduce", "measured"


def _patterns(nets: Mapping[str, Any]) -> str:
    cases = {name: _computing(net) for name, net in nets.items()}
    columns = ["pattern"]
    for name, case in cases.items():
        columns += [f"{name} ({case['step_ms']:.1f} ms a gradient)", "exchanging", "MB"]
    rows = []
    for pattern in next(iter(cases.values()))["patterns"]:
        row = [pattern]
        for case in cases.values():
            one = case["patterns"][pattern]
            row += [
                f"{one['epoch_seconds']:.2f} s",
                f"{100 * one['communication']:.0f} %",
                f"{one['megabytes']:,.1f}",
            ]
        rows.append(row)
    return table(columns, rows)


def _computing(net: Mapping[str, Any]) -> Mapping[str, Any]:
    """The case whose gradients take as long as was measured, or else as an all-reduce."""
    cases: Mapping[str, Mapping[str, Any]] = net["computing"]
    return cases.get(_MEASURED, cases[_AS_LONG])


def _ratios(nets: Mapping[str, Any]) -> str:
    rows = [
        (
            f"{one['name']} ({name}, {net['computing'][_AS_LONG]['step_ms']:.1f} ms a gradient)",
            f"{one['value']:.2f}",
            one["paper"],
            "yes" if one["agrees"] else f"no: {one['but']}" if one.get("but") else "no",
        )
        for name, net in nets.items()
        for one in net["computing"][_AS_LONG]["ratios"]
    ]
    return table(("where a gradient takes as long as an all-reduce", "measured", "in the papers", "direction agrees"), rows)  # fmt: skip
