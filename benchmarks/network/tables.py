"""Tables of the figures, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show(results: Mapping[str, Any]) -> None:
    """Tables of all networks."""
    if "why_not" in results:
        print(results["why_not"])
        return
    for network in results["networks"]:
        _show_network(results, network)


def _show_network(results: Mapping[str, Any], network: Mapping[str, Any]) -> None:
    reached = network["reached"]
    counted = [
        row["interface_by_counted"]
        for net in network["nets"].values()
        for case in net["computing"].values()
        for row in case["patterns"].values()
    ]
    print(
        f"\n## {results['hosts']} hosts, {network['megabits']:,} Mbit/s, {results['delay_ms']} ms one way\n\n"
        f"Reached: {reached['megabits_of_one_link']:,.0f} Mbit/s from one host to another, "
        f"{reached['megabits_of_each_of_four']:,.0f} from each to the next at once; "
        f"{reached['round_trip_ms']:.2f} ms for a small message and its answer "
        f"({reached['processors']} processors, load {reached['load']:.1f}). "
        f"Interfaces count {min(counted):.3f} to {max(counted):.3f} times the bytes of the tables, with headers"
    )
    if reached["short_of_processors"]:
        print(
            "\nProcessors, not links, are what is short where all hosts send at once: hopping, task, allreduce and pipe "
            "would be faster on four machines, next to a parameter server, which waits for one link"
        )
    for name, net in network["nets"].items():
        for computing, case in net["computing"].items():
            print(
                f"\n### {name}: {net['floats']:,} numbers, a gradient takes {case['step_ms']:.2f} ms ({computing}); "
                f"{results['steps']} steps of each host in an epoch of 4 models\n"
            )
            _show_case(case)


def _show_case(case: Mapping[str, Any]) -> None:
    print("| pattern | ms | of one | epoch s | exchanging | MB of a host | of the busiest |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name, row in case["patterns"].items():
        print(
            f"| {name} | {row['each_ms']:.2f} | {row['each']} | {row['epoch_seconds']:.3f} "
            f"| {100 * row['communication']:.1f} % | {row['megabytes']:.1f} | {row['megabytes_of_busiest']:.1f} |"
        )
    print("\n| | measured | in the papers | direction agrees |\n|---|---:|---|---|")
    for one in case["ratios"]:
        agrees = "yes" if one["agrees"] else f"no: {one['but']}" if one.get("but") else "no"
        print(f"| {one['name']} | {one['value']:.2f} | {one['paper']} | {agrees} |")
