"""Losses of configurations that are compared: the value of one says nothing about that of another."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.configs.grids.outputs import OutputSpec
from cerebro_db.core.spec import Configuration
from cerebro_db.scoring.prediction_models import LOSS, common_goal


def different_losses(configurations: Sequence[Configuration]) -> list[str]:
    """The losses of configurations, and their weights, where not all have the same; none where they have."""
    found = sorted({_written(one.outputs) for one in configurations})
    return found if len(found) > 1 else []


def different_penalties(configurations: Sequence[Configuration]) -> list[str]:
    """The names of the penalties, which are parts of the loss, that not all configurations have alike."""
    return [
        name
        for name in ("l1", "l2")
        if len({getattr(one.compile_params, name) for one in configurations}) > 1
    ]


def notice_of_losses(configurations: Sequence[Configuration]) -> str | None:
    """Notice that a leaderboard compares values of different losses; None where it does not."""
    losses = different_losses(configurations)
    if not losses or common_goal(one.outputs for one in configurations) != LOSS:
        return None
    return (
        f"the leaderboard compares values of different losses ({', '.join(losses)}), which say nothing about each "
        "other: give all configurations the same first metric, by which they are ranked then"
    )


def _written(outputs: Sequence[OutputSpec]) -> str:
    return " and ".join(map(_loss, outputs))


def _loss(output: OutputSpec) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in output.loss.arguments)
    weight = "" if output.weight in (None, 1) else f" times {output.weight:g}"
    return (
        f"{output.loss.name}({arguments}){weight}" if arguments else f"{output.loss.name}{weight}"
    )
