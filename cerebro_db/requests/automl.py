"""From a table to a registered model in one call."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cerebro_db.requests import declared as sql

Seconds = Annotated[float, Meta(ge=1, le=30 * 86_400)]
Share = Annotated[float, Meta(ge=0.05, le=0.5)]
Holdout = Annotated[float, Meta(ge=0, le=0.5)]
Partitions = Annotated[int, Meta(ge=1, le=2**31 - 1)] | None
Trials = Annotated[int, Meta(ge=1, le=10_000)] | None
Seed = Annotated[int, sql.BIGINT, Meta(ge=0, le=2**31 - 1)]


@sql.function(
    "cerebro_automl",
    "integer",
    entry="automl.automl",
    job=sql.Job(makes="output_table", reads=("source_table",)),
)
class AutomlRequest(sql.Request):
    """Trains models that tell a column of a table from the others, for so many seconds, registers the best one
    and gives it the alias champion: chooses the task, splits the rows, encodes the columns, makes nets, and searches
    architectures and parameters. Each step is shown as the SQL that does it. Where the model has a champion the
    new one takes its place only if it is better on the rows for validation. Returns the version, NULL where it is
    no better.

    Attributes:
        source_table: a table or view, with a row for each example
        model: the name of the model, which is registered for the calling role
        target: the column that is to be predicted. Rows in which it is NULL are left out
        max_seconds: how long the call may take, 1 second to 30 days. It ends by then, or at most 10 seconds later (of
            long budgets 5 %); where that is not enough for a first model it says what is
        max_configs, max_epochs: trials of the search, and epochs of a model, at most. Default: as many as there is time
            for. With both, and enough time, the same call makes the same models
        task: `'classes'` or `'number'`. Default: by the type and the values of the target, as a NOTICE tells
        metric: by which models are compared, on the rows for validation: `'accuracy'` or `'auc'` of classes,
            `'rmse'`, `'mae'` or `'r2'` of numbers, or `'loss'`. Default: `'auc'` of two classes,
            `'accuracy'` of more, `'rmse'` of numbers
        excluded: columns that the model must not see, separated by commas
        validation_share: the share of the rows for validation, 0.05 to 0.5
        holdout_share: the share of the rows that no encoding, no model and no choice of one sees, up to 0.5; on them the
            new champion is measured at the end. 0 for none. Both shares together are at most 0.8
        time_column: a date, time or number: the last rows are for validation, instead of some at random, and the very
            last ones are the holdout
        group_column: a column whose equal values stay together: a person, a device, a shop
        num_partitions: as in `cerebro_pack`
        seed: of the split, the encodings, the weights and the search; from 0
        output_table: keeps the tables of the call: the trained models under this name, and others whose names
            begin with it. Default: they are dropped when it ends
    """

    source_table: sql.Text
    model: sql.Text
    target: sql.Text
    max_seconds: Seconds = 300.0
    max_configs: Trials = None
    max_epochs: Trials = None
    task: Literal["classes", "number"] | None = None
    metric: Literal["accuracy", "auc", "loss", "rmse", "mae", "r2"] | None = None
    excluded: sql.Text = None
    validation_share: Share = 0.2
    holdout_share: Holdout = 0.0
    time_column: sql.Text = None
    group_column: sql.Text = None
    num_partitions: Partitions = None
    seed: Seed = 0
    output_table: sql.Text = None


@sql.function("cerebro_replay_automl", "integer", entry="automl.replay", job=sql.Job())
class ReplayAutomlRequest(sql.Request):
    """Makes a version of cerebro_automl again, with the same weights to the bit: splits and packs the same rows by the
    recorded steps, repeats the recorded decisions of the search, and registers what comes of it as the next version
    of a model. Returns that version. Where the weights differ, as the rows have changed, it is an error.

    Attributes:
        model: a version of your own that `cerebro_automl` has made, such as `'visits@champion'`; its run is still
            there
        name: of the model that gets the new version, without owner; it may be the same one
    """

    model: sql.Text
    name: sql.Text
