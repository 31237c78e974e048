"""Packing, encoding and splitting tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from cerebro_db.requests import declared as sql

LARGEST_INTEGER = 2**31 - 1
MAX_CATEGORIES = 10_000
Count = Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1), sql.BIGINT]
FoldKind = Literal["stratified", "group", "time"]


class PackingRequest(sql.Request):
    """A request to pack a table: what those of all functions say, and what an argument is where one has it not."""

    source_table: sql.Text
    output_table: sql.Text
    dependent_varname: sql.Text
    independent_varname: sql.Text

    @property
    def buffer_size(self) -> int | None:
        """Most rows in a buffer."""
        return None

    @property
    def normalizing_const(self) -> float | None:
        """Divisor of the features."""
        return 1.0

    @property
    def num_classes(self) -> int | Sequence[int | None] | str | None:
        """Number of classes, of each target."""
        return None

    @property
    def num_partitions(self) -> int | None:
        """Number of partitions."""
        return None

    @property
    def seed(self) -> int:
        """Seed of the shuffle."""
        return 0

    @property
    def sample_weight(self) -> str | None:
        """Column of the weights of rows."""
        return None

    @property
    def distribution_rules(self) -> str | None:
        """Segments that the rows are spread over."""
        return None

    @property
    def replace(self) -> bool | None:
        """True if earlier tables of the name give way."""
        return False

    @property
    def encoding_of(self) -> str | None:
        """Packed table or models whose encoding holds here, too."""
        return None

    @property
    def on_error(self) -> str:
        """Way to go on when an image cannot be read."""
        return "stop"

    @property
    def fold_kind(self) -> str | None:
        """Rule by which rows are in a fold."""
        return None

    @property
    def fold_column(self) -> str | None:
        """Column which that rule looks at."""
        return None


@sql.function(
    "cerebro_pack",
    "void",
    entry="packing.pack",
    job=sql.Job(makes="output_table", reads=("source_table", "encoding_of"), steps="pack"),
    overloads=(
        sql.Overload(
            "num_classes",
            "integer[]",
            "The same with the number of classes of each of several outputs; NULL for float targets.",
        ),
        sql.Overload(
            "num_classes",
            "text",
            "The same with the numbers of classes as the text of an array, such as {3,NULL}.",
        ),
    ),
)
class PackRequest(PackingRequest):
    """Packs a table for training: rows shuffled by the seed, spread evenly over partitions, and packed into
    buffers of float32 features and class ids (or float32 targets). Makes output_table and
    <output_table>_summary. buffer_size: most rows in a buffer (default: about 8 MB of features);
    normalizing_const: every feature is divided by it; num_classes: at least the classes found;
    dependent_varname, independent_varname: columns separated by commas for models of several inputs and
    outputs; distribution_rules: where there are segments, all_segments, gpu_segments for those of hosts with
    GPUs, or the name of a table with a column dbid; num_partitions: default the cores of the server;
    sample_weight: a column of weights of the rows in training; encoding_of: a packed table or models, whose
    classes, shapes and normalizing constant hold here, too; fold_kind: how cross-validation over the table
    chooses folds: stratified, group or time, by the values of fold_column.

    Attributes:
        source_table: a table, view, materialized view, partitioned or foreign table, with a row for each
            example
        output_table: the packed table to be made; `<output_table>_summary` comes beside it
        dependent_varname: the column to be predicted. `smallint`, `integer`, `bigint`, text, `boolean`, dates
            and times, enumerations, `uuid` and network addresses are **classes**, and so are arrays of whole
            numbers that are one-hot in every row: the place of the 1, from 0. `real`, `double precision`,
            `numeric` and all other arrays of numbers (several labels, vectors) are **float targets**. Several
            columns, separated by commas, for models of several outputs
        independent_varname: the column of features: an array of `smallint`, `integer`, `bigint`, `real`,
            `double precision` or `numeric`, of any number of dimensions, the same shape in every row, no
            NULLs. Several columns, separated by commas, for models of several inputs: each has its own type
            and shape, and may also be a single number
        buffer_size: most rows in a buffer, at least 1. Default: as many as make about 8 MB of features, at
            most 131,072. The buffers of a partition differ by one row at most
        normalizing_const: every feature is divided by it, in double precision; finite, not 0. NULL means 1
        num_classes: at least the number of classes found, which is the default; NULL for float targets. Of
            several outputs an array, or the text of one: `ARRAY[3, NULL]`, `'{3,NULL}'`
        distribution_rules: on Greenplum, the [segments that the rows are spread over](#distribution-rules):
            `'all_segments'` (also NULL), `'gpu_segments'`, or the name of a table. On PostgreSQL only
            `'all_segments'`
        num_partitions: from 1 to the number of rows. Default: the processors of the server, and not more than
            rows. It decides how many workers can train side by side, and it is part of what decides the
            results. On Greenplum at most the number of segments that `distribution_rules` allows, which is
            the default there
        seed: of the shuffle; any `bigint`
        sample_weight: a column of numbers from 0, no NULLs, by which training multiplies the loss of each
            row, as Keras' `sample_weight`; beside `class_weight` both count. Scores, of losses and metrics,
            are without weights. Default: none
        replace: whether [earlier tables](../sql.md#output-tables) of the name give way
        encoding_of: a packed table or models, whose classes, shapes and normalizing constant [hold here,
            too](#earlier-encodings)
        fold_kind: how [`folds`](training.md#cross-validation) of runs over this table choose rows:
            `'stratified'`: each value of `fold_column` in all folds alike; `'group'`: rows with the same value
            in one fold; `'time'`: each fold is validated on later rows than it is trained on. Default: by
            chance
        fold_column: the column which that looks at; of `'stratified'` by default the first target. Its values
            are compared as `ORDER BY` does; NULL is a value of its own, and refused in a time
    """

    source_table: sql.Text
    output_table: sql.Text
    dependent_varname: sql.Text
    independent_varname: sql.Text
    buffer_size: Count = None
    normalizing_const: sql.Number = 1.0
    num_classes: sql.Integer = None
    distribution_rules: sql.Text = "all_segments"
    num_partitions: Count = None
    seed: Seed = 0
    sample_weight: sql.Text = None
    replace: sql.Flag = False
    encoding_of: sql.Text = None
    fold_kind: FoldKind | None = None
    fold_column: sql.Text = None


@sql.function(
    "cerebro_pack_columns",
    "void",
    entry="packing.pack_columns",
    job=sql.Job(makes="output_table", reads=("source_table", "encoding_of"), steps="pack"),
)
class PackColumnsRequest(PackingRequest):
    """Packs columns of mixed types for training: numbers, booleans, categories, dates and times become the column
    features, with an encoding that is computed from the source and recorded. independent_varname: columns
    separated by commas, or * for all but the dependent variable and those of excluded. numbers: standardize,
    minmax, none, robust, log1p, quantile or ple, such as ple(32, target); categories: onehot or integer, for the
    max_categories most frequent ones of a column, ids, which are an input of their own, or target; both: auto; encodings: JSON from columns to methods of their own. encoding_of: a packed table, a table of models or a
    registered model such as model:name@alias, whose encoding and classes are used instead of new ones.
    min_coverage: the share of values that the most frequent categories of each column must have, from 0 to 1.
    Makes output_table, <output_table>_summary and <output_table>_encoding.

    Attributes:
        source_table, output_table, dependent_varname, buffer_size, num_classes, num_partitions, seed,
            sample_weight, distribution_rules: as in `cerebro_pack`, but for one dependent variable;
            `<output_table>_encoding` is made as well. For several, `cerebro_pack` takes what
            [`cerebro_encode`](#cerebro_encode) writes
        independent_varname: columns separated by commas, such as `'age, "Zip code"'`; or `'*'`, all but the
            dependent variable and those of `excluded`
        numbers: the encoding of numbers, dates and times: `'standardize'`, `'minmax'`, `'none'`, `'robust'`,
            `'log1p'`, `'quantile'`, `'ple'` or `'auto'`, perhaps with options, such as `'ple(32, target)'`: below
        categories: the encoding of text, enumerations, `uuid` and network addresses: `'onehot'`,
            `'integer'`, `'ids'`, `'target'` or `'auto'`
        max_categories: of a column of `onehot` or `integer`, 1 to 10,000: where there are more, the most
            frequent ones count, and a NOTICE tells so
        min_coverage: the share of a column's values, 0 to 1, that the most frequent categories must have:
            else an error, SQLSTATE `22000`, that says how many categories there are and how many would do. A
            text that differs in nearly every row is no category: `excluded`, or a view that groups it. Not
            used with `encoding_of`
        encodings: an object from columns to encodings of their own, such as `'{"zip": "integer", "year":
            "onehot"}'`. Numbers, booleans, dates and times may be categories; text cannot be a number
        excluded: columns that `'*'` does not stand for, separated by commas
        replace: as in `cerebro_pack`
        encoding_of: a packed table or models, whose encoding and classes are used; by default the rows are
            surveyed anew: [below](#earlier-encodings)
        fold_kind, fold_column: as in `cerebro_pack`; `'*'` leaves out a column of groups or times, too
    """

    source_table: sql.Text
    output_table: sql.Text
    dependent_varname: sql.Text
    independent_varname: sql.Text
    buffer_size: Count = None
    numbers: sql.Text = "standardize"
    categories: sql.Text = "onehot"
    max_categories: Annotated[int, Meta(ge=1, le=MAX_CATEGORIES)] = 100
    encodings: sql.Json = None
    excluded: sql.Text = None
    num_classes: sql.Integer = None
    num_partitions: Count = None
    seed: Seed = 0
    sample_weight: sql.Text = None
    distribution_rules: sql.Text = "all_segments"
    replace: sql.Flag = False
    encoding_of: sql.Text = None
    min_coverage: Annotated[float, Meta(ge=0, le=1)] = 0.5
    fold_kind: FoldKind | None = None
    fold_column: sql.Text = None


@sql.function(
    "cerebro_encode",
    "void",
    entry="packing.encode",
    job=sql.Job(makes="output_table", reads=("source_table", "training_table")),
)
class EncodeRequest(sql.Request):
    """The features of the rows of a table, by the encoding that cerebro_pack_columns has recorded with
    training_table, which may also be a table of models trained on it, or a registered model. Makes output_table
    with the id and features.

    Attributes:
        source_table: a table or view with the columns of the encoding, in types of the same kinds
        training_table: a table that `cerebro_pack_columns` made, a table of models that were trained on one,
            or a [registered model](../registry.md)
        output_table: made, with the id and `features`, a `double precision[]`
        id_col: the column that names a row, or several separated by commas
        replace: as in `cerebro_pack`
    """

    source_table: sql.Text
    training_table: sql.Text
    output_table: sql.Text
    id_col: sql.Text
    replace: sql.Flag = False


@sql.function(
    "cerebro_create_encoder",
    "void",
    entry="packing.create_encoder",
    job=sql.Job(reads=("source_table", "training_table")),
)
class EncoderRequest(sql.Request):
    """Makes a function from a row of source_table to its features, for cerebro_predict_row in queries and
    triggers, by the encoding that training_table has: a table that cerebro_pack_columns made, a table of models
    trained on it, or a registered model.

    Attributes:
        source_table: a table or view whose rows it takes: with the columns of the encoding, in types of the
            same kinds. It cannot be dropped without the function
        training_table: as in [`cerebro_encode`](#cerebro_encode)
        function_name: made, perhaps in another schema: `'sales.features'`
        replace: whether such a function that is there already is replaced, in place: views and grants stay
    """

    source_table: sql.Text
    training_table: sql.Text
    function_name: sql.Text
    replace: sql.Flag = False


@sql.function(
    "cerebro_pack_validation",
    "void",
    entry="packing.pack_validation",
    job=sql.Job(makes="output_table", reads=("source_table", "training_table"), steps="pack"),
)
class PackValidationRequest(PackingRequest):
    """Packs a validation table with the class values, row shape, normalizing constant and number of partitions of
    training_table, a table that cerebro_pack or cerebro_pack_columns made; with the encoding of the latter,
    where independent_varname may be NULL. As many columns, separated by commas, as the training table has. Rows
    keep their order. distribution_rules: as in cerebro_pack; by default the segments of training_table.
    on_error: as in cerebro_pack_images, of images.

    Attributes:
        source_table, output_table, dependent_varname, independent_varname, buffer_size: as in `cerebro_pack`
        training_table: a table that one of the packing functions above made. After `cerebro_pack_columns`
            `independent_varname` is NULL, `'*'` or the recorded columns; after `cerebro_pack_images` a column
            of images, NULL for the recorded one
        distribution_rules: on Greenplum, the segments: as in `cerebro_pack`. By default, those on which the
            training table lies, so that the workers that train also score
        replace: as in `cerebro_pack`
        on_error: of images that cannot be read: as in [`cerebro_pack_images`](#damaged-images)
    """

    source_table: sql.Text
    output_table: sql.Text
    dependent_varname: sql.Text
    independent_varname: sql.Text
    training_table: sql.Text
    buffer_size: Count = None
    distribution_rules: sql.Text = None
    replace: sql.Flag = False
    on_error: sql.OnError = "stop"


@sql.function(
    "cerebro_convert_bytea_to_real_array",
    "real[]",
    body='return relay.numbers(data, "f")',
    volatility="IMMUTABLE",
    job=sql.READS,
)
class RealArrayRequest(sql.Request):
    """The numbers in a column of features, or of float targets, of a packed table, one row after another.

    Attributes:
        data: float32, four bytes each; 16 MB at most: `substring` takes a part of more
    """

    data: sql.Bytes


@sql.function(
    "cerebro_convert_bytea_to_integer_array",
    "integer[]",
    body='return relay.numbers(data, "i")',
    volatility="IMMUTABLE",
    job=sql.READS,
)
class IntegerArrayRequest(sql.Request):
    """The numbers of classes in a column of a packed table, one row after another.

    Attributes:
        data: int32, four bytes each; 16 MB at most
    """

    data: sql.Bytes


@sql.function(
    "cerebro_train_test_split",
    "void",
    entry="packing.train_test_split",
    job=sql.Job(makes="output_table", suffixes=("", "_train", "_test"), reads=("source_table",)),
)
class SplitRequest(sql.Request):
    """Splits the rows of a table at random into rows to train with and rows to test with, the same for the same
    seed whatever the physical order of the rows. grouping_cols: columns by which the split is stratified.
    target_cols: columns of the output, by default all. Makes output_table with a column split, 1 to train with
    and 0 to test with; or, with separate_output_tables, <output_table>_train and <output_table>_test.

    Attributes:
        source_table: a table or view of any kind, not packed
        output_table: a table with a row for each row that is kept, and a column `split`: 1 to train with, 0
            to test with
        train_proportion: the share of the rows to train with, between 0 and 1
        test_proportion: the share to test with; together at most 1. Default: all other rows
        grouping_cols: columns whose values make strata, separated by commas: each stratum is split in the
            same proportion. Default: the whole table is one
        target_cols: columns of the output. Default, or `'*'`: all
        with_replacement: only `false`: no row is in both parts
        separate_output_tables: whether there are two tables instead, `<output_table>_train` and
            `<output_table>_test`, without the column `split`
        seed: of the choice; any `bigint`
        replace: as in `cerebro_pack`
    """

    source_table: sql.Text
    output_table: sql.Text
    train_proportion: sql.Number
    test_proportion: sql.Number = None
    grouping_cols: sql.Text = None
    target_cols: sql.Text = None
    with_replacement: sql.Flag = False
    separate_output_tables: sql.Flag = False
    seed: Seed = 0
    replace: sql.Flag = False


@sql.function(
    "cerebro_image_array",
    "real[]",
    entry="packing_rows.values",
    by="trainer",
    volatility="STABLE",
    job=sql.READS,
)
class ImageArrayRequest(sql.Request):
    """The values of an image as an array of image_shape, each divided by normalizing_const: for queries and views
    that have images among several inputs. image_format as in cerebro_pack_images. NULL for NULL.

    Attributes:
        image: one image
        image_shape, image_format, normalizing_const: as in `cerebro_pack_images`
    """

    image: sql.Bytes
    image_shape: sql.Integers
    image_format: sql.Text = "encoded"
    normalizing_const: sql.Number = 255.0


@sql.function(
    "cerebro_pack_images",
    "void",
    entry="packing.pack_images",
    job=sql.Job(makes="output_table", reads=("source_table", "encoding_of"), steps="pack"),
)
class PackImagesRequest(PackingRequest):
    """Packs a column of images of type bytea for training. image_format: encoded for JPEG and PNG, which are
    resized to image_shape (height, width, channels); raw for images of that shape, one byte a value. Every
    value is divided by normalizing_const. Makes output_table and <output_table>_summary, which records how, for
    validation tables and predictions. on_error: stop at an image that cannot be read, or ignore its row, with
    a NOTICE. encoding_of: a packed table or models, whose images, classes and normalizing constant hold here,
    too; image_shape may then be NULL.

    Attributes:
        source_table, output_table, dependent_varname, buffer_size, num_classes, num_partitions, seed,
            sample_weight, distribution_rules: as in `cerebro_pack`, but for one dependent variable
        independent_varname: a column of type `bytea`, no NULLs unless `on_error` is `'ignore'`
        image_shape: of `'encoded'` images: height, width, and 1 (grey), 3 (red, green, blue) or 4 channels
            (with opacity); without channels grey. Of `'raw'` ones up to four sizes. At most 16,777,216 values
        image_format: `'encoded'`: JPEG or PNG, which are resized (bilinear, without regard to their
            proportions) and converted to the channels. `'raw'`: one byte a value, rows first
        normalizing_const: every value, 0 to 255, is divided by it
        replace: as in `cerebro_pack`
        on_error: of an image that cannot be read, or is NULL: `'stop'` is an error that names the row;
            `'ignore'` leaves the row out: [below](#damaged-images)
        encoding_of: a packed table or models, whose images, classes and normalizing constant [hold here,
            too](#earlier-encodings); `image_shape` may be NULL then
        fold_kind, fold_column: as in `cerebro_pack`
    """

    source_table: sql.Text
    output_table: sql.Text
    dependent_varname: sql.Text
    independent_varname: sql.Text
    image_shape: sql.Integers
    image_format: sql.Text = "encoded"
    buffer_size: Count = None
    normalizing_const: sql.Number = 255.0
    num_classes: sql.Integer = None
    num_partitions: Count = None
    seed: Seed = 0
    sample_weight: sql.Text = None
    distribution_rules: sql.Text = "all_segments"
    replace: sql.Flag = False
    on_error: sql.OnError = "stop"
    encoding_of: sql.Text = None
    fold_kind: FoldKind | None = None
    fold_column: sql.Text = None
