"""Ensembles of trained models."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cerebro_db.requests import declared as sql

Candidates = Annotated[int, Meta(ge=2, le=200)]
Members = Annotated[int, Meta(ge=2, le=50)]


@sql.function(
    "cerebro_ensemble",
    "integer",
    entry="results.ensemble",
    job=sql.Job(reads=("validation_table",)),
)
class EnsembleRequest(sql.Request):
    """Registers the mean of several models of a finished run as one model, the next version of the caller's model of a
    name: greedy selection (Caruana et al. 2004) adds the model with which the mean is best on the rows for validation,
    again and again. Returns the version, NULL where no mean is better than the best model alone.

    Attributes:
        run_id: the run, whose output tables are still there; of one target
        name: without owner: the model belongs to the caller
        validation_table: rows to compare by, as `test_table` of `cerebro_evaluate`. Default: the validation table of
            the run
        candidates: so many of the best models, by the rule of `cerebro.leaderboard`, are tried: 2 to 200
        members: how many models are added at most, 2 to 50; a model that is added several times counts as much more
        metric: which the mean is best by: `'loss'` (log loss), `'accuracy'` or `'auc'` of classes, `'rmse'` or
            `'mae'` of numbers. Default: `'loss'` or `'rmse'`
        description: of the version
    """

    run_id: sql.BigInt
    name: sql.Text
    validation_table: sql.Text = None
    candidates: Candidates = 20
    members: Members = 10
    metric: Literal["loss", "accuracy", "auc", "rmse", "mae"] | None = None
    description: sql.Description = None
