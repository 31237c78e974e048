"""Explanations of trained models."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from cerebro_db.requests import declared as sql
from cerebro_db.requests.packing import Seed
from cerebro_db.requests.predicting import ScoringRequest


@sql.function(
    "cerebro_explain",
    "void",
    entry="results.explain",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table")),
)
class ExplainRequest(ScoringRequest):
    """Permutation importance of the columns of a model, on a packed table or on raw rows: how much worse the model
    becomes when the values of a column are those of other rows. Makes output_table with a row for each column,
    the most important one first: column_name, importance, deviation, rank, measure, baseline, mst_key; of a
    registered model also model and version_id. All features of a column are permuted together.

    Attributes:
        model_table: as in `cerebro_evaluate`, registered ones too
        test_table: as in `cerebro_evaluate`; best of rows that the model was not trained on
        output_table: the table to be made
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: the model; may be left out where the table has one, and for a registered model
        replace: as in `cerebro_pack`
        dependent_varname, independent_varname, on_error: of raw rows, as in `cerebro_evaluate`
        metric: what becomes worse: `'loss'`, or a metric of the model by its name in `metrics_type` of
            `cerebro_evaluate`. By default its first metric, or the loss where it has none
        repeats: how often each column is permuted, 1 to 1000
        seed: of the permutations; any `bigint`
    """

    metric: sql.Text = None
    repeats: Annotated[int, Meta(ge=1, le=1000)] = 5
    seed: Seed = 0


@sql.function(
    "cerebro_contributions",
    "void",
    entry="results.contributions",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table", "background_table")),
)
class ContributionsRequest(sql.Request):
    """Contributions of columns to the prediction of each row: Shapley values by sampling, against rows of
    background_table. Makes output_table with the id, class_name, class_value, column_name, contribution, base and
    prediction: a row for each column of each row. The contributions of a row and base, the mean prediction of the
    background, add up to prediction: a probability, or the value of a float target.

    Attributes:
        model_table: a table that `cerebro_fit_multiple` made, or a [registered model](../registry.md):
            `'model:plants@champion'`; of one target, of classes or numbers
        test_table: as in `cerebro_predict`
        id_col: as in `cerebro_predict`; not `class_name`, `class_value`, `column_name`, `contribution`, `base`
            or `prediction`
        independent_varname: as in `cerebro_predict`, of both tables
        output_table: the table to be made
        class_value: the class whose probability is explained; NULL for the most probable one of each row
        background_table: the rows that are compared with: raw or packed ones, such as the training rows. By
            default those of test_table
        samples: how many rows of it, drawn by the seed, 1 to 1000. For each of them every column is changed
            twice, at different places of an order
        seed: of the draw and the orders; any `bigint`
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: the model; may be left out where the table has one, and for a registered model
        num_workers: as in `cerebro_predict`
        replace: as in `cerebro_pack`
        on_error: of images that cannot be read: as in [`cerebro_pack_images`](packing.md#damaged-images)
    """

    model_table: sql.Text
    test_table: sql.Text
    id_col: sql.Text
    independent_varname: sql.Text
    output_table: sql.Text
    class_value: sql.Text = None
    background_table: sql.Text = None
    samples: Annotated[int, Meta(ge=1, le=1000)] = 64
    seed: Seed = 0
    use_gpus: sql.Flag = False
    mst_key: sql.Integer = None
    num_workers: sql.Workers = None
    replace: sql.Flag = False
    on_error: sql.OnError = "stop"


@sql.function(
    "cerebro_dependence",
    "void",
    entry="results.dependence",
    job=sql.Job(makes="output_table", reads=("model_table", "test_table")),
)
class DependenceRequest(ScoringRequest):
    """Partial dependence: what a model predicts on average for the rows of a table when a column has the same value in
    all of them, for several values of each column. Makes output_table with column_name, value, number,
    class_value, estimated, num_rows and mst_key; of a registered model also model and version_id.

    Attributes:
        model_table: as in `cerebro_evaluate`, registered ones too; of one target, of classes or numbers
        test_table: as in `cerebro_evaluate`. Raw rows where columns were encoded: the values are theirs
        output_table: the table to be made
        use_gpus: as in `cerebro_fit_multiple`
        mst_key: the model; may be left out where the table has one, and for a registered model
        replace: as in `cerebro_pack`
        dependent_varname, independent_varname, on_error: of raw rows, as in `cerebro_evaluate`
        columns: the columns, as `column_name` of `cerebro_explain` has them; default all
        grid: values of a column at most, 2 to 1000: quantiles of numbers, dates and times with the least and
            the greatest, the most frequent categories
        max_rows: how many rows the mean is of, drawn by the seed, 1 to 100,000
        seed: of the draw; any `bigint`
    """

    columns: sql.Texts = None
    grid: Annotated[int, Meta(ge=2, le=1000)] = 20
    max_rows: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    seed: Seed = 0
