"""Studies: what a scan computes over the rows of a partition beside loss and metrics, one class a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.fields import Fields
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.studies.calibration import (
    Isotonic,
    Reliability,
    Temperature,
    Threshold,
)
from cerebro_db.training.scores.studies.dependence import Dependence
from cerebro_db.training.scores.studies.importance import Importance
from cerebro_db.training.scores.studies.outputs import Outputs
from cerebro_db.training.scores.studies.study import Studied, Study

KINDS: dict[str, type[Study]] = {
    one.kind: one
    for one in (Importance, Dependence, Reliability, Temperature, Isotonic, Threshold, Outputs)
}


def recipe_for(fields: Fields, recipe: Recipe) -> Recipe:
    """The recipe that a configuration of a scan is scored by: for a study of logits with a loss that takes such.

    Args:
        fields: of the configuration.
        recipe: of the model.
    """
    if not fields.has("study") or not _kind(task := fields.object("study")).takes_logits:
        return recipe
    one, several = "BinaryCrossentropy", "SparseCategoricalCrossentropy"
    loss = LossSpec(one if task.flag("is_one") else several, (("from_logits", True),))
    params = structs.replace(
        recipe.compile_params, loss=loss, losses=None, metrics=(), output_metrics=None
    )
    return replace(recipe, compile_params=params)


def study_of(task: Fields, studied: Studied) -> Study:
    """The study that a task names, of one partition."""
    return _kind(task)(task, studied)


def combined(task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
    """The result of a study, from what it left of each partition, in their order."""
    return _kind(task).combined(task, recipe, parts)


def _kind(task: Fields) -> type[Study]:
    name = task.text("kind")
    if name not in KINDS:
        raise InvalidArgument(f"study: got the kind {name!r}; allowed: {', '.join(KINDS)}")
    return KINDS[name]
