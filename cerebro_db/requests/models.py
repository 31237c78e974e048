"""Architectures, configurations, files of models and functions for them."""

from __future__ import annotations

from cerebro_db.requests import declared as sql


@sql.function(
    "cerebro_load_model",
    "integer",
    entry="models.load_model",
    job=sql.Job(reads=("packed_table",)),
    overloads=(
        sql.Overload("model_arch", "jsonb", "The same with the architecture as jsonb."),
        sql.Overload(
            "model_arch",
            "text",
            "The same with the architecture as text: JSON, or the name of a net such as ResNet50, which is made for the rows and classes of packed_table.",
        ),
    ),
)
class LoadRequest(sql.Request):
    """Puts a model into an architecture table, which is made if it is not there, and returns its model_id.
    model_arch: the text of a model's to_json() of Keras 3 or 2, checked against a list of allowed layers and by
    building the model; model_weights: where training starts, float32 in the order of get_weights();
    packed_table: whose shapes it gets where it leaves them open.

    Attributes:
        model_arch_table: made where it does not exist; otherwise it gets one more row. One of your own may
            have jsonb columns
        model_arch: as json, jsonb or text, the text of `model.to_json()` of Keras 3, or of Keras 2: a
            Sequential or Functional model of [allowed layers](#layers) and [operations](#operations) with a
            fixed input shape. As text also the [name of a net](#nets-by-name)
        model_weights: where training starts, instead of the seed: float32, the arrays of `get_weights()` one
            after another. In Python: `b"".join(w.astype("float32").tobytes() for w in model.get_weights())`
        name, description: free text
        packed_table: a packed table that the model is for: it gets the shapes and numbers of classes that its
            JSON leaves open (`"batch_shape": null` of an input, `"units": null` of a `Dense` layer that makes
            an output), and is refused here already where it does not fit. What a net that is named is made
            for
    """

    model_arch_table: sql.Text
    model_arch: sql.Json
    model_weights: sql.Bytes = None
    name: sql.Text = None
    description: sql.Text = None
    packed_table: sql.Text = None


@sql.function("cerebro_delete_model", "void", entry="models.delete_model")
class DeleteModelRequest(sql.Request):
    """Deletes a model from an architecture table, and the table with its last model.

    Attributes:
        model_arch_table: a table of architectures
        model_id: a model in it
    """

    model_arch_table: sql.Text
    model_id: sql.Integer


@sql.function("cerebro_mlp", "json", entry="models.mlp", job=sql.READS)
class MlpRequest(sql.Request):
    """The JSON of a multilayer perceptron for cerebro_load_model. inputs and outputs that are NULL are filled in
    there from packed_table.

    Attributes:
        inputs: numbers of a row; NULL for the shape that `packed_table` tells when the model is loaded,
            whatever it is
        hidden: units of each hidden layer, one after another; an empty array for none
        outputs: numbers of the output; NULL for the classes, or the numbers, of the target of `packed_table`
        activation: of the hidden layers: one of Keras, or `custom.name` of an
            [expression](configurations.md#expressions)
        dropout: rate of the dropout after each hidden layer; 0 for none
        output_activation: NULL for `softmax` of several outputs, or of the classes of `packed_table`, and
            `linear` of numbers
    """

    inputs: sql.Integer = None
    hidden: sql.Integers = (64, 64)
    outputs: sql.Integer = None
    activation: sql.Text = "relu"
    dropout: sql.Number = 0
    output_activation: sql.Text = None


@sql.function("cerebro_tabular", "json", entry="models.tabular", job=sql.READS)
class TabularRequest(sql.Request):
    """The JSON of a net for the rows and the target of a packed table, for cerebro_load_model. Columns that were packed
    with the encoding ids are embedded. kind: mlp for hidden layers one after another, resnet for residual blocks, tabm for
    nets that share layers, pnn for products of each two columns, transformer for attention between columns.

    Attributes:
        packed_table: a packed table, best of [cerebro_pack_columns](packing.md#cerebro_pack_columns): its inputs
            and targets make the first and the last layers
        kind: `'mlp'`: `depth` hidden layers one after another. `'resnet'`: `depth` residual blocks, each a
            normalization and two layers, after Gorishniy et al. 2021. `'tabm'`: `members` nets that
            share `depth` hidden layers, after Gorishniy et al. 2025, to be trained with
            [`loss_per_member`](configurations.md#compile-parameters). `'pnn'`: hidden layers over the inner products
            of each two columns, after Qu et al. 2016. `'transformer'`: `depth` blocks of attention between columns,
            the FT-Transformer of Gorishniy et al. 2021 with the mean of the columns at its end. The last two take up
            to 200 columns, or the numbers of an array
        units: of each hidden layer, 1 to 100,000; the inner layer of a block has twice as many. Of `'transformer'`
            also the numbers that stand for a column: 32 to 192 are usual
        depth: hidden layers or blocks, 0 to 100
        dropout: rate of the dropout after each hidden layer, and of attention; 0 for none
        embedding: numbers that stand for an id of a column that was packed with `ids`, 1 to 4096; of `'pnn'` the
            numbers that stand for each column
        activation: of the hidden layers: one of Keras, or `custom.name` of an
            [expression](configurations.md#expressions)
        members: of `'tabm'`, 1 to 1024
    """

    packed_table: sql.Text
    kind: sql.Text = "mlp"
    units: sql.Integer = 256
    depth: sql.Integer = 2
    dropout: sql.Number = 0.1
    embedding: sql.Integer = 8
    activation: sql.Text = "relu"
    members: sql.Integer = 32


@sql.function("cerebro_image", "json", entry="models.image", job=sql.READS)
class ImageRequest(sql.Request):
    """The JSON of a net for the images and the target of a packed table, for cerebro_load_model. kind: convnet for two
    convolutions a stage, resnet for a residual block a stage.

    Attributes:
        packed_table: a packed table of one input of images, of any size: those of
            [cerebro_pack_images](packing.md#cerebro_pack_images), or arrays `[height][width]` or
            `[height][width][channels]`
        kind: `'convnet'`: `depth` stages of two convolutions of 3 by 3. `'resnet'`: `depth` stages of a residual block,
            normalized first, after He et al. 2016
        filters: of the first stage, 1 to 4096; each further one has twice as many
        depth: stages, 1 to 10; height and width are halved from one to the next
        units: of a hidden layer behind the stages, 0 to 100,000; 0 for none
        dropout: rate before the outputs; 0 for none
        activation: as in `cerebro_tabular`
    """

    packed_table: sql.Text
    kind: sql.Text = "convnet"
    filters: sql.Integer = 32
    depth: sql.Integer = 3
    units: sql.Integer = 128
    dropout: sql.Number = 0.2
    activation: sql.Text = "relu"


@sql.function(
    "cerebro_generate_configs",
    "void",
    entry="models.generate_configs",
    job=sql.Job(makes="model_selection_table", reads=("model_arch_table",)),
)
class GridRequest(sql.Request):
    """Writes configurations (mst_key, model_id, compile_params, fit_params) into a model selection table and makes
    <table>_summary; a table that exists and is of the same architectures gets those that it does not have.
    Grids are dictionaries of lists, such as {'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam'],
    'lr': [0.001, 0.01]}], 'metrics': ['mae']} and {'batch_size': [32, 256]}. search_type: grid for all
    combinations; random for num_configs of them, where [low, high, 'linear'|'log'|'log_near_one'] is a range;
    random_state makes that reproducible.

    Attributes:
        model_arch_table: where the models are
        model_selection_table: made where it does not exist. One that exists, for the same architectures, gets
            the configurations that it does not have, under further keys
        model_id_list: models, each once
        compile_params_grid: a dictionary from [compile parameters](#compile-parameters) to lists of
            alternatives. `optimizer_params_list` holds dictionaries, each of optimizers and lists of their
            arguments; a dictionary without `optimizer` means RMSprop. `model_params_list` holds dictionaries
            of what is said of some models only: `[{'model_id': [2], 'dropout': [0.1, 0.5]}]`
        fit_params_grid: the same for [fit parameters](#fit-parameters)
        search_type: `'grid'` or `'random'`, or the beginning of one of them
        num_configs: for a random search: how many different ones, 1 to 100,000. For a grid it must be NULL
        random_state: for a random search: makes it reproducible; at least 0. For a grid it must be NULL
        object_table: an [object table](registering-functions.md#cerebro_load_custom_function): names in `loss` and
            `metrics` that it has mean the functions that are registered under them, and are stored as
            `custom.<name>`; those of Keras win. NULL for none
        replace: whether [earlier tables](../sql.md#output-tables) of the name give way; otherwise they get
            what they do not have
    """

    model_arch_table: sql.Text
    model_selection_table: sql.Text
    model_id_list: sql.Integers
    compile_params_grid: sql.Text
    fit_params_grid: sql.Text
    search_type: sql.Text = "grid"
    num_configs: sql.Integer = None
    random_state: sql.Integer = None
    object_table: sql.Text = None
    replace: sql.Flag = False


@sql.function(
    "cerebro_load_configs",
    "void",
    entry="models.load_configs",
    job=sql.Job(makes="model_selection_table", reads=("model_arch_table",)),
)
class ListRequest(sql.Request):
    """Makes a model selection table and <table>_summary with every combination of models, compile parameters, such
    as loss='mse',optimizer='Adam(lr=0.1)',metrics=['mae'], and fit parameters, such as batch_size=32,epochs=1.

    Attributes:
        model_arch_table, model_id_list, object_table: as in `cerebro_generate_configs`
        model_selection_table: must not exist
        compile_params_list: texts of [compile parameters](#compile-parameters)
        fit_params_list: texts of [fit parameters](#fit-parameters)
        replace: as in `cerebro_pack`
    """

    model_arch_table: sql.Text
    model_selection_table: sql.Text
    model_id_list: sql.Integers
    compile_params_list: sql.Texts
    fit_params_list: sql.Texts
    object_table: sql.Text = None
    replace: sql.Flag = False


@sql.function("cerebro_export", "bytea", entry="registry.export", job=sql.READS)
class ExportRequest(sql.Request):
    """A trained model, of a table or registered, as the bytes of a file. format: keras for Keras' own file, onnx,
    npz for arrays of NumPy, or pt2 and safetensors of PyTorch models. mst_key may be left out where there is one model.

    Attributes:
        model_table: a table that `cerebro_fit_multiple` made, or a registered model
        mst_key: the model; may be left out where the table has one, and for a registered model
        format: `'keras'`: Keras' own file; `'onnx'`, for which the virtual environment needs the extra
            `onnx`, checked before it is returned, where `onnxruntime` is installed by predicting two rows;
            `'npz'`: arrays of NumPy, without pickle; of PyTorch models also `'pt2'`, for `torch.export.load`, and
            `'safetensors'`
    """

    model_table: sql.Text
    mst_key: sql.Integer = None
    format: sql.Text = "keras"


@sql.function("cerebro_load_model_file", "integer", entry="models.load_model_file")
class FileRequest(sql.Request):
    """Puts the model of a .keras or .pt2 file into an architecture table, as cerebro_load_model does, and returns its
    model_id. Architecture and weights are read, nothing else of the file.

    Attributes:
        model_arch_table, name, description: as in `cerebro_load_model`
        file: the bytes of a file that Keras 3 saved, or `torch.export.save`, less than 1 GB, as any value of the server
    """

    model_arch_table: sql.Text
    file: sql.Bytes
    name: sql.Text = None
    description: sql.Text = None


@sql.function("cerebro_register_function", "void", entry="models.register_function", by="trainer")
class RegisterFunctionRequest(sql.Request):
    """Lets custom.name mean a function of an installed Python package, package.module:function, as loss, metric or
    schedule of a LearningRateScheduler. For members of cerebro_admin.

    Attributes:
        name: lower-case letters, digits and `_`, at most 63; not a name that Keras has, nor one that is
            registered
        path: module and function, such as `package.module:function`, of a package that is installed in the
            virtual environment. Python's own library, Cerebro-DB and what is private (a leading `_`) are
            refused, also from administrators
    """

    name: sql.Text
    path: sql.Text


@sql.function("cerebro_register_expression", "void", entry="models.register_expression")
class RegisterExpressionRequest(sql.Request):
    """Lets custom.name mean an expression: of y_true and y_pred as loss or metric, of x as activation. It is
    parsed and checked, and never run as code. For members of cerebro_admin.

    Attributes:
        name: as in `cerebro_register_function`, whose names are the same ones
        expression: of `y_true` and `y_pred` for a loss or a metric, of `x` for an activation
    """

    name: sql.Text
    expression: sql.Text


@sql.function("cerebro_unregister_function", "void", entry="models.unregister_function")
class UnregisterFunctionRequest(sql.Request):
    """Takes back what cerebro_register_function or cerebro_register_expression did. For members of cerebro_admin.

    Attributes:
        name: without `custom.`
    """

    name: sql.Text


@sql.function("cerebro_load_custom_function", "void", entry="models.load_custom_function")
class LoadFunctionRequest(sql.Request):
    """Adds a name to an object table (id, name, description, object), which is made if it is not there: with
    object_table in a call, the name in its parameters means the function that is registered as custom.name.
    object, the pickled function of MADlib, is neither read nor kept.

    Attributes:
        object_table: the table
        object: what MADlib gets: a pickled function. It must not be NULL, and is neither read nor kept, since to
            unpickle is to run code; column `object` is NULL, which a NOTICE says
        name: a function that is [registered](#cerebro_register_expression), without `custom.`; not one that Keras
            has, nor one that the table has already
        description: any text
    """

    object_table: sql.Text
    object: sql.Bytes
    name: sql.Text
    description: sql.Text = None


@sql.function(
    "cerebro_load_top_k_accuracy_function", "void", entry="models.load_top_k_accuracy_function"
)
class LoadTopKRequest(sql.Request):
    """Adds the name top_k_accuracy to an object table, which is made if it is not there. The metric is built in, for
    any k, and needs no object table.

    Attributes:
        object_table: made where it does not exist
        k: at least 1
    """

    object_table: sql.Text
    k: sql.Integer


@sql.function("cerebro_delete_custom_function", "void", entry="models.delete_custom_function")
class DeleteFunctionRequest(sql.Request):
    """Deletes a function from an object table, and the table with its last one.

    Attributes:
        object_table: the table
        id: of the row
    """

    object_table: sql.Text
    id: sql.Integer


@sql.function("cerebro_delete_custom_function", "void", entry="models.delete_named_function")
class DeleteNamedFunctionRequest(sql.Request):
    """The same by the name of the function.

    Attributes:
        object_table: the table
        name: of the function
    """

    object_table: sql.Text
    name: sql.Text
