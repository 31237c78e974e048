"""Ensembles as architectures: models side by side in one, whose output is the mean of theirs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from cerebro_db.configs.architectures.graphs import Graph

Config = dict[str, Any]


def mean_of(
    members: Sequence[Config], inputs: Sequence[tuple[int, ...]], counts: Sequence[int], units: int
) -> str:
    """The JSON of a model that predicts the mean of others.

    Args:
        members: checked architectures of the same inputs and one output.
        inputs: shapes of a row.
        counts: how often each member counts.
        units: of the output.
    """
    graph = Graph()
    rows = [
        graph.input("features" if place == 0 else f"features_{place}", tuple(shape))
        for place, shape in enumerate(inputs)
    ]
    made = [
        graph.model(f"member_{place}", copy.deepcopy(member), rows, (units,))
        for place, member in enumerate(members, 1)
    ]
    # A layer that takes a tensor several times weighs it by that.
    repeated = [one for one, count in zip(made, counts, strict=True) for _ in range(count)]
    graph.outputs.append(graph.add("Average", "outputs", *repeated))
    return graph.to_json("ensemble")
