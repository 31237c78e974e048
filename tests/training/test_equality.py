"""Training by hops equals plain Keras training through the same batches in the same order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.functions.optimizers import OPTIMIZERS, SCHEDULES, parse_optimizer
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.partitions import Partition
from cerebro_db.training.scores.targets import TargetFacts
from tests.training.conftest import CLASSES, FEATURES, Data, hop, net, order_of, weights_of

EPOCHS = 2
# Optimizers with schedules, copies of weights, and numbers of their own.
PARTS = (
    '{".*/kernel": Adam(ExponentialDecay(0.01, 10, 0.9)), '
    '".*/bias": RMSprop(0.001, centered=True), ".*/gamma": ScheduleFreeAdamW(0.01, warmup_steps=5)}'
)
OPTIMIZER_TEXTS = [
    "Adam(lr=0.01,beta_1=0.85)",
    "SGD(lr=0.05)",
    "SGD(lr=0.05,momentum=0.9,nesterov=True)",
    "RMSprop(lr=0.001,momentum=0.5,rho=0.8)",
    "AdamW(lr=0.01,weight_decay=0.01)",
    "Nadam(lr=0.002)",
    "Adadelta()",
    "Adagrad()",
    "Adamax()",
    "Ftrl()",
    "Lion()",
    "Lamb()",
    "Adafactor()",
    "Adam(lr=0.01,clipnorm=0.5)",
    "SGD(lr=0.01,gradient_accumulation_steps=3)",
    "Adam(lr=0.01,loss_scale_factor=8.0)",
    "SGD(lr=0.05,clipvalue=0.01)",
    "SGD(lr=0.05,global_clipnorm=0.1)",
    "RMSprop(lr=0.001,centered=True)",
    "Muon(lr=0.01,adam_lr_ratio=0.5)",
    "Adam(lr=0.01,amsgrad=True)",
    "Adam(ExponentialDecay(0.01, 10, 0.9))",
    "SGD(lr=CosineDecay(0.01, 30, alpha=0.1, warmup_target=0.1, warmup_steps=7), momentum=0.9)",
    "SGD(lr=CosineDecayRestarts(0.1, 8, t_mul=1.5, m_mul=0.9))",
    "AdamW(lr=InverseTimeDecay(0.01, 5, 0.5, staircase=True))",
    "RMSprop(lr=PiecewiseConstantDecay([6, 20], [0.01, 0.001, 0.0001]))",
    "SGD(lr=PolynomialDecay(0.1, 12, power=2.0, cycle=True))",
    "SGD(lr=0.1,decay=0.01,nesterov=True,momentum=0.8)",
    "ScheduleFreeAdamW(lr=0.01,beta_1=0.8,warmup_steps=5,weight_decay=0.01)",
    'MultiOptimizer(OptimizerMap(Adam(0.01), {".*/kernel": SGD(0.05, momentum=0.9)}))',
    f"MultiOptimizer(OptimizerMap(Lion(), {PARTS}), loss_scale_factor=8.0)",
]


def plain_keras(
    recipe: Any,
    data: Data,
    encode: Callable[[np.ndarray], np.ndarray],
    optimizer: Any = None,
    **fit: Any,
) -> list[np.ndarray]:
    """Weights after ``model.fit`` over the same batches."""
    from cerebro_db.training.backends.tensorflow import models

    model = models.build(recipe.architecture, seed=7, dropout=recipe.compile_params.dropout)
    optimizer = optimizer or models.make_optimizer(recipe.compile_params.optimizer, model)
    model.compile(optimizer=optimizer, loss=models.make_loss(recipe.compile_params.loss))
    # fit builds it where what ScheduleFreeAdamW takes from the weights is lost.
    optimizer.build(model.trainable_variables)
    for epoch in range(1, EPOCHS + 1):
        for partition in range(len(data.features)):
            order = order_of(5, epoch, partition, shuffle=recipe.fit_params.shuffle)
            whole = Partition(data.buffers, data.features[partition], data.targets[partition])
            for subepoch in range(recipe.fit_params.epochs):
                rows = order.whole(subepoch, whole)
                model.fit(
                    data.features[partition][rows],
                    encode(data.targets[partition][rows]),
                    batch_size=recipe.fit_params.batch_size,
                    shuffle=False,
                    verbose=0,
                    **fit,
                )
    return [np.asarray(weight) for weight in model.get_weights()]


def by_hops(recipe: Any, data: Data, **options: Any) -> list[np.ndarray]:
    """Weights after the same by hops, the state as bytes in between."""
    from cerebro_db.training.programs import Programs

    programs, state = Programs(), None
    for epoch in range(1, EPOCHS + 1):
        for partition in range(len(data.features)):
            state, _ = hop(
                recipe, data, state, epoch=epoch, partition=partition, programs=programs, **options
            )
    assert state is not None
    return weights_of(state)


def lstm_net() -> str:
    """A net with a layer that has another one in it."""
    import keras

    layers = keras.layers
    inputs = keras.Input((FEATURES,))
    seen = layers.Dense(4, name="seen")(inputs)
    hidden = layers.LSTM(4, name="memory")(layers.Reshape((2, 2))(seen))
    outputs = layers.Dense(CLASSES, activation="softmax", name="out")(hidden)
    return str(keras.Model(inputs, outputs).to_json())


def one_hot(targets: np.ndarray) -> np.ndarray:
    return np.eye(CLASSES, dtype=np.float32)[targets]


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("optimizer", OPTIMIZER_TEXTS)
def test_hops_equal_plain_keras_to_the_bit(
    recipe: Callable[..., Any], full_net: str, data: Data, optimizer: str
) -> None:
    given = recipe(full_net, f"loss='categorical_crossentropy',optimizer='{optimizer}'")
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot))


@pytest.mark.parametrize(
    ("excluded", "by_adamw"),
    [
        ("['out']", {"out/kernel"}),
        ("'cell/recurrent'", {"memory/lstm_cell/recurrent_kernel"}),
        ("['^seen/', 'out']", {"seen/kernel", "out/kernel"}),
        ("['lstm_cell_[0-9]']", set()),
    ],
)
def test_muon_leaves_out_the_layers_that_are_named(
    recipe: Callable[..., Any], data: Data, excluded: str, by_adamw: set[str]
) -> None:
    """However many layers of a kind the process has made before, whose names Keras counts."""
    from cerebro_db.training.backends.tensorflow import models

    optimizer = f"Muon(lr=0.01,rms_rate=None,exclude_layers={excluded})"
    given = recipe(lstm_net(), f"loss='categorical_crossentropy',optimizer=\"{optimizer}\"")
    if excluded == "['out']":
        assert_same(by_hops(given, data), plain_keras(given, data, one_hot))
    spec = given.compile_params.optimizer
    for _ in range(2):
        model = models.build(given.architecture, seed=7)
        made = models.make_optimizer(spec, model)
        matrices = [one for one in model.trainable_variables if len(one.shape) == 2]
        found = {one.path for one in matrices if made._should_use_adamw(one)}
        assert {re.sub(r"_[0-9]+(?=/)", "", path) for path in found} == by_adamw


def test_several_optimizers_are_chosen_as_keras_does(
    recipe: Callable[..., Any], data: Data
) -> None:
    """By a map that Keras itself reads, where no name is counted by the process."""
    import keras

    net = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, name="hidden"),
            keras.layers.Dense(CLASSES, activation="softmax", name="out"),
        ]
    )
    optimizer = (
        'MultiOptimizer(OptimizerMap(SGD(0.1), {"out/kernel": Adam(0.05), "out/.*": SGD(0.0)}))'
    )
    loss = "loss='categorical_crossentropy'"
    given = recipe(net.to_json(), f"{loss},optimizer='{optimizer}'")
    optimizers = keras.optimizers
    theirs = plain_keras(
        given,
        data,
        one_hot,
        optimizer=optimizers.MultiOptimizer(
            optimizers.OptimizerMap(
                optimizers.SGD(0.1),
                {"out/kernel": optimizers.Adam(0.05), "out/.*": optimizers.SGD(0.0)},
            )
        ),
    )
    ours = by_hops(given, data)
    assert_same(ours, theirs)
    assert not ours[3].any()
    assert ours[1].any()


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        (
            "'nothing/.*': SGD()",
            "got 'nothing/.*', which fits no weight that trains; there are seen/",
        ),
        ("'seen/.*': SGD(), '.*/bias': SGD()", "got 2 patterns for the weight 'seen/bias'"),
    ],
)
def test_patterns_of_weights_that_decide_nothing_are_refused(
    recipe: Callable[..., Any], patterns: str, told: str
) -> None:
    from cerebro_db.training.backends.tensorflow import models

    optimizer = f"MultiOptimizer(OptimizerMap(Adam(), {{{patterns}}}))"
    given = recipe(lstm_net(), f"loss='categorical_crossentropy',optimizer={optimizer}")
    model = models.build(given.architecture, seed=7)
    with pytest.raises(InvalidArgument, match=re.escape(told)):
        models.make_optimizer(given.compile_params.optimizer, model)


def test_several_optimizers_of_layers_without_names(recipe: Callable[..., Any]) -> None:
    """Nor does it matter what the process has made before; the model's own name is no part of a path."""
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.naming import named_variables

    def dense(units: int) -> dict[str, Any]:
        return {"module": "keras.layers", "class_name": "Dense", "config": {"units": units}}

    first = {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {"batch_shape": [None, FEATURES]},
    }
    config = {"name": "small", "layers": [first, dense(4), dense(CLASSES)]}
    text = json.dumps({"module": "keras", "class_name": "Sequential", "config": config})
    states = []
    for key in ("dense/kernel", "dense/kernel", "dense/bias"):
        optimizer = f"MultiOptimizer(OptimizerMap(Adam(), {{'{key}': SGD()}}))"
        given = recipe(text, f"loss='categorical_crossentropy',optimizer={optimizer}")
        model = models.build(given.architecture, seed=7)
        made = models.make_optimizer(given.compile_params.optimizer, model, given.architecture)
        made.build(model.trainable_variables)
        assert len(made.optimizers[0]._trainable_variables) == 2
        states.append({name for name in named_variables(model, made) if "optimizer" in name})
    assert states[0] == states[1]
    assert states[0].isdisjoint(states[2])  # slots of other weights are not taken over


def test_several_optimizers_of_layers_that_keras_counts(recipe: Callable[..., Any]) -> None:
    """However many layers of a kind the process has made before; rates are no part of a state."""
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.naming import named_variables

    optimizer = "MultiOptimizer(OptimizerMap(Adam(), {'memory/lstm_cell/.*': SGD()}))"
    given = recipe(lstm_net(), f"loss='categorical_crossentropy',optimizer={optimizer}")
    for _ in range(2):
        model = models.build(given.architecture, seed=7)
        made = models.make_optimizer(given.compile_params.optimizer, model)
        made.build(model.trainable_variables)
        assert not [name for name in named_variables(model, made) if "rate" in name]
        of_cell, others = made.optimizers
        assert (type(of_cell).__name__, type(others).__name__) == ("SGD", "Adam")
        assert {one.path.split("/")[0] for one in of_cell._trainable_variables} == {"memory"}
        assert len(of_cell._trainable_variables) == 3


@pytest.mark.parametrize("first", ["dense", "input"])
def test_residual_nets_equal_plain_keras_to_the_bit(
    recipe: Callable[..., Any], data: Data, first: str
) -> None:
    """A sum of a dense layer and its input can be one kernel, which rounds once instead of twice."""
    import keras

    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    both = [keras.layers.Dense(8)(hidden), hidden]
    total = keras.layers.add(both if first == "dense" else both[::-1])
    outputs = keras.layers.Dense(CLASSES, activation="softmax")(total)
    given = recipe(keras.Model(inputs, outputs).to_json())
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot))


def test_every_optimizer_that_is_allowed_is_tested() -> None:
    found = [parse_optimizer(text) for text in OPTIMIZER_TEXTS]
    assert {spec.name for spec in found} == set(OPTIMIZERS)
    assert {spec.schedule.name for spec in found if spec.schedule} == set(SCHEDULES)


def test_streamed_buffers_give_the_same_as_a_partition_in_memory(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    given = recipe(full_net, fit_params="batch_size=8,epochs=2")
    assert_same(by_hops(given, data, cache_bytes=0), by_hops(given, data))
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot))


def test_the_number_of_steps_of_a_call_does_not_matter(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    many, few = recipe(full_net, steps_per_call=100), recipe(full_net, steps_per_call=1)
    assert_same(by_hops(many, data), by_hops(few, data))


def test_compiled_by_xla_it_is_the_same_within_float_tolerance(
    recipe: Callable[..., Any], data: Data
) -> None:
    import keras

    given = recipe(net(keras.layers.BatchNormalization()), jit=True)
    for ours, theirs in zip(by_hops(given, data), plain_keras(given, data, one_hot), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_class_weights_are_those_of_keras(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    given = recipe(full_net, fit_params="batch_size=8,class_weight={0: 0.5, 2: 3.0}")
    theirs = plain_keras(given, data, one_hot, class_weight={0: 0.5, 1: 1.0, 2: 3.0})
    assert_same(by_hops(given, data), theirs)


def test_sparse_losses_take_the_ids(recipe: Callable[..., Any], full_net: str, data: Data) -> None:
    given = recipe(full_net, "loss='sparse_categorical_crossentropy',optimizer='Adam'")
    assert_same(by_hops(given, data), plain_keras(given, data, lambda ids: ids))


def test_a_binary_target_trains_one_sigmoid(recipe: Callable[..., Any], data: Data) -> None:
    data.targets[:] = data.targets % 2
    facts = TargetFacts("class", 2, ())
    given = recipe(
        net(units=1, activation="sigmoid"),
        "loss='binary_crossentropy',optimizer='Adam'",
        targets=facts,
    )
    theirs = plain_keras(given, data, lambda ids: ids.astype(np.float32)[:, None])
    assert_same(by_hops(given, data), theirs)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_regression(recipe: Callable[..., Any], data: Data, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(1)
    rows = data.features.shape[:2]
    data.targets = generator.normal(size=(*rows, *shape)).astype(np.float32)
    given = recipe(
        net(units=shape[0] if shape else 1, activation="linear"),
        "loss='mse',optimizer='Adam'",
        targets=TargetFacts("float", 0, shape),
    )
    theirs = plain_keras(given, data, lambda y: y if shape else y[:, None])
    assert_same(by_hops(given, data), theirs)


def test_l2_of_a_configuration_is_the_regularizer_of_keras(
    recipe: Callable[..., Any], data: Data
) -> None:
    import keras

    regularized = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(
                8, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01)
            ),
            keras.layers.Dense(
                CLASSES, activation="softmax", kernel_regularizer=keras.regularizers.L2(0.01)
            ),
        ]
    )
    loss = "loss='categorical_crossentropy',optimizer='Adam'"
    theirs = plain_keras(recipe(regularized.to_json(), loss), data, one_hot)
    assert_same(by_hops(recipe(net(), f"{loss},l2=0.01"), data), theirs)


def test_dropout_of_a_configuration_replaces_that_of_the_architecture(
    recipe: Callable[..., Any], data: Data
) -> None:
    import keras

    loss = "loss='categorical_crossentropy',optimizer='Adam'"
    ours = by_hops(recipe(net(keras.layers.Dropout(0.1)), f"{loss},dropout=0.4"), data)
    assert_same(ours, plain_keras(recipe(net(keras.layers.Dropout(0.4)), loss), data, one_hot))


def test_without_shuffle_rows_stay_as_they_are(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    given = recipe(full_net, fit_params="batch_size=8,shuffle=False")
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot))
    shuffled = by_hops(recipe(full_net), data)
    assert any((a != b).any() for a, b in zip(by_hops(given, data), shuffled, strict=True))


@pytest.mark.parametrize("size", [2, 3])
def test_convolutions_equal_plain_keras_to_the_bit(
    recipe: Callable[..., Any], data: Data, size: int
) -> None:
    """Also where values of a pooling window are equal."""
    import keras

    generator = np.random.default_rng(1)
    shape = (*data.features.shape[:2], 13, 11, 1)
    data.features = generator.integers(0, 3, shape).astype(np.float32)
    layers = keras.layers
    image_net = keras.Sequential(
        [
            keras.Input((13, 11, 1)),
            layers.MaxPooling2D(size),
            layers.Conv2D(4, 2, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    loss = "loss='categorical_crossentropy',optimizer='Adam'"
    given = recipe(image_net.to_json(), loss)
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot))


@pytest.mark.parametrize("text", ["SGD(lr=0.1,momentum=-0.4)", "SGD(lr=0.1,momentum=-0.4,nesterov=True)",
                                  "RMSprop(lr=0.1,rho=0.8,momentum=-0.4)",
                                  "RMSprop(lr=0.1,rho=0.8,momentum=-0.4,centered=True)"])  # fmt: skip
def test_negative_momentum(recipe: Callable[..., Any], data: Data, text: str) -> None:
    """By the formulas in NumPy: Keras has no such momentum."""
    from cerebro_db.training.backends.tensorflow.program import Program

    given = recipe(net(), f"loss='categorical_crossentropy',optimizer='{text}'")
    program = Program(given)
    program.prepare(given.compile_params, given.fit_params)
    program.load(program.initial_state(given, 3, None))
    weights = program.weights().astype(np.float64)
    velocity, squares, mean = (np.zeros_like(weights) for _ in range(3))
    for _ in range(4):
        _, gradients = program.gradients(*data.pieces(0)[0])
        program.apply(gradients)
        rate = 0.1 * gradients.astype(np.float64)
        if text.startswith("SGD"):
            velocity = -0.4 * velocity - rate
            weights += -0.4 * velocity - rate if "nesterov" in text else velocity
        else:
            squares = 0.8 * squares + 0.2 * gradients**2
            mean = 0.8 * mean + 0.2 * gradients
            spread = squares - mean**2 if "centered" in text else squares
            velocity = -0.4 * velocity + rate / np.sqrt(spread + 1e-7)
            weights -= velocity
        np.testing.assert_allclose(program.weights(), weights, rtol=1e-4, atol=1e-5)


def test_balanced_classes_are_those_of_scikit_learn(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    from dataclasses import replace

    from sklearn.utils.class_weight import compute_class_weight

    labels = data.targets.reshape(-1)
    counts = tuple(np.bincount(labels, minlength=CLASSES).tolist())
    facts = TargetFacts("class", CLASSES, (), counts=counts)
    wanted = compute_class_weight("balanced", classes=np.arange(CLASSES), y=labels)
    assert facts.balanced == pytest.approx(wanted)
    assert replace(facts, counts=(4, 0, 12)).balanced == (2.0, 1.0, 16 / 24)
    given = recipe(full_net, fit_params="batch_size=8,class_weight='balanced'", targets=facts)
    theirs = dict(enumerate(facts.balanced))
    other = recipe(full_net, fit_params=f"batch_size=8,class_weight={theirs}")
    assert_same(by_hops(given, data), by_hops(other, data))
    assert_same(by_hops(given, data), plain_keras(given, data, one_hot, class_weight=theirs))
