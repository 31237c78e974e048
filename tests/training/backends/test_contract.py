"""What every backend promises: states, steps, gradients, scores, sizes and files, by the protocol alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.names import Format
from cerebro_db.errors import CerebroError, InvalidArchitecture, InvalidState
from cerebro_db.training import backends
from cerebro_db.training.backends import Backend
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.sums import add_partials
from cerebro_db.training.state import LEARNING_RATE, from_bytes, to_bytes

ROWS, FEATURES, CLASSES = 24, 6, 3
SOFTMAX = "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
SGD = "loss='categorical_crossentropy',optimizer='SGD(learning_rate=0.1)',metrics=['accuracy']"
LIMITS = ArchitectureLimits()


@pytest.fixture(params=backends.NAMES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each of the backends."""
    return backends.backend(request.param)


@pytest.fixture
def given(backend: Backend, recipe: Callable[..., Recipe], full_net: str) -> Recipe:
    """A configuration with dropout and batch normalization, trained with Adam in batches of 8."""
    return replace(recipe(full_net), backend=backend.name)


@pytest.fixture
def plain(backend: Backend, recipe: Callable[..., Recipe], plain_net: str) -> Recipe:
    """A configuration without anything random, trained with SGD."""
    return replace(recipe(plain_net, SGD), backend=backend.name)


@pytest.fixture(scope="session")
def plain_net() -> str:
    """Two dense layers."""
    import keras

    layers = [keras.Input((FEATURES,)), keras.layers.Dense(8, activation="relu")]
    return str(keras.Sequential([*layers, keras.layers.Dense(CLASSES, "softmax")]).to_json())


def rows(count: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Random rows, ``float32[rows, features]``, and ids of classes, ``int32[rows]``."""
    generator = np.random.default_rng(1)
    features = generator.normal(size=(count, FEATURES)).astype(np.float32)
    return features, generator.integers(0, CLASSES, count).astype(np.int32)


def begun(backend: Backend, recipe: Recipe, seed: int = 7) -> Any:
    """A program that holds the initial state of a seed."""
    program = backend.program(recipe)
    program.prepare(recipe.compile_params, recipe.fit_params)
    program.load(program.initial_state(recipe, seed, None))
    return program


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """True if two states are the same to the bit."""
    return to_bytes(one) == to_bytes(other)


def test_a_seed_decides_the_initial_state(backend: Backend, given: Recipe) -> None:
    program = backend.program(given)
    first, again, other = (program.initial_state(given, seed, None) for seed in (7, 7, 8))
    assert equal(first, again)
    assert not equal(first, other)
    assert all(name.startswith(("weights/", "optimizer/", "others/")) for name in first)


def test_a_state_is_saved_as_it_was_loaded(backend: Backend, given: Recipe) -> None:
    program = begun(backend, given)
    program.train(*rows())
    state = program.save()
    program.load(from_bytes(to_bytes(state)))
    assert equal(program.save(), state)


def test_a_state_of_another_model_is_refused(backend: Backend, given: Recipe) -> None:
    program = begun(backend, given)
    state = program.save()
    name = next(iter(state))
    for wrong in (state | {name: np.zeros((1, 2, 3), np.float32)}, {name: state[name]}):
        with pytest.raises(InvalidState):
            program.load(wrong)


def test_a_state_goes_on_in_another_program_to_the_same_bits(
    backend: Backend, given: Recipe
) -> None:
    first, second = begun(backend, given), backend.program(given)
    first.train(*rows())
    second.prepare(given.compile_params, given.fit_params)
    second.load(first.save())
    assert first.train(*rows()) == second.train(*rows())
    assert equal(first.save(), second.save())


def test_calls_of_whole_batches_are_one_call(backend: Backend, given: Recipe) -> None:
    features, targets = rows()
    at_once, apart = begun(backend, given), begun(backend, given)
    loss = at_once.train(features, targets)
    size = given.fit_params.batch_size
    losses = [
        apart.train(features[first : first + size], targets[first : first + size])
        for first in range(0, ROWS, size)
    ]
    assert equal(at_once.save(), apart.save())
    assert loss == pytest.approx(sum(losses), rel=1e-6)


def test_training_lowers_the_loss(backend: Backend, plain: Recipe) -> None:
    program = begun(backend, plain)
    losses = [program.train(*rows()) for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]


def test_gradients_and_apply_are_a_step(backend: Backend, plain: Recipe) -> None:
    features, targets = rows(plain.fit_params.batch_size)
    whole, parts = begun(backend, plain), begun(backend, plain)
    summed = whole.train(features, targets)
    loss, gradients = parts.gradients(features, targets)
    assert gradients.shape == (parts.gradient_size,)
    assert gradients.dtype == np.float32
    parts.apply(gradients)
    assert loss * len(features) == pytest.approx(summed, rel=1e-5)
    for ours, theirs in zip(parts.save().values(), whole.save().values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_weights_are_pushed_and_pulled(backend: Backend, plain: Recipe) -> None:
    server, worker = begun(backend, plain), begun(backend, plain, seed=8)
    _, gradients = server.gradients(*rows(8))
    weights = server.updated(gradients)
    assert weights.tobytes() == server.weights().tobytes()
    worker.take(weights)
    ours, theirs = worker.save(), server.save()
    assert all(np.array_equal(ours[name], theirs[name]) for name in server.trained)


def test_what_no_gradient_changes_is_named(backend: Backend, given: Recipe) -> None:
    program = begun(backend, given)
    state = program.save()
    assert set(program.untrained) <= set(state) - program.trained
    assert sum(program.untrained.values()) == 16  # mean and variance of 8 units


def test_a_new_optimizer_keeps_weights_and_rate(backend: Backend, given: Recipe) -> None:
    program = begun(backend, given)
    program.train(*rows())
    state = program.save()
    fresh = program.with_new_optimizer(state, given)
    changed = {name for name in state if not np.array_equal(state[name], fresh[name])}
    assert changed
    assert all(name.startswith("optimizer/") for name in changed - {LEARNING_RATE})
    assert LEARNING_RATE not in changed


def test_weights_that_are_given_begin_a_state(backend: Backend, plain: Recipe) -> None:
    program = begun(backend, plain)
    state = program.save()
    named = [name for name in state if name.startswith("weights/")]
    weights = b"".join(np.full_like(state[name], 0.5).tobytes() for name in named)
    found = program.initial_state(plain, 7, weights)
    assert all((found[name] == 0.5).all() for name in named)
    with pytest.raises(InvalidState):
        program.initial_state(plain, 7, weights[4:])


def test_configurations_share_a_program_by_its_key(
    backend: Backend, recipe: Callable[..., Recipe], full_net: str
) -> None:
    one = recipe(full_net)
    rate = recipe(full_net, SOFTMAX.replace("0.01", "0.02"))
    other = recipe(full_net, SGD)
    assert backend.program_key(one) == backend.program_key(rate)
    assert backend.program_key(one) != backend.program_key(other)


def test_sums_of_parts_are_those_of_the_whole(backend: Backend, plain: Recipe) -> None:
    features, targets = rows()
    scorer = backend.scorer(plain)
    assert (scorer.units, scorer.shapes, scorer.row) == ((CLASSES,), ((FEATURES,),), (FEATURES,))
    scorer.load(begun(backend, plain).save(), plain.compile_params)
    whole = scorer.measure(features, targets)
    parts = add_partials(
        [scorer.measure(features[:9], targets[:9]), scorer.measure(features[9:], targets[9:])]
    )
    assert parts.rows == whole.rows == ROWS
    assert parts.loss(plain.outputs) == pytest.approx(whole.loss(plain.outputs), rel=1e-5)
    accuracy = (scorer.predict(features)[0].argmax(axis=1) == targets).mean()
    assert backend.metrics(plain, parts) == pytest.approx([accuracy])


def test_a_row_is_predicted_as_it_is_with_others(backend: Backend, plain: Recipe) -> None:
    features, _ = rows()
    scorer = backend.scorer(plain)
    scorer.load(begun(backend, plain).save(), plain.compile_params)
    (together,) = scorer.predict(features)
    (alone,) = scorer.predict_row(features[:1])
    assert together.shape == (ROWS, CLASSES)
    np.testing.assert_allclose(alone, together[:1], rtol=1e-5)
    np.testing.assert_allclose(together.sum(axis=1), 1, rtol=1e-5)


def test_sizes_are_measured_and_bounded(backend: Backend, plain: Recipe) -> None:
    size = backend.check_size(plain.architecture, LIMITS, None)
    facts = backend.facts(plain.architecture, LIMITS, None, None)
    assert size.parameters == facts.parameters == FEATURES * 8 + 8 + 8 * CLASSES + CLASSES
    assert facts.row_bytes == size.row_bytes > 0
    assert (facts.input_shapes, facts.output_shapes) == (((FEATURES,),), ((CLASSES,),))
    with pytest.raises(InvalidArchitecture, match="parameters"):
        backend.check_size(plain.architecture, replace(LIMITS, parameters=10), None)
    with pytest.raises(CerebroError, match="may need"):
        backend.check_size(plain.architecture, LIMITS, 1)


def test_arrays_of_a_model_are_exported(backend: Backend, plain: Recipe) -> None:
    import io

    state = begun(backend, plain).save()
    file = backend.export(plain, state, Format.NPZ, {"facts": "{}"}, lambda: None)
    with np.load(io.BytesIO(file), allow_pickle=False) as arrays:
        assert str(arrays["facts"]) == "{}"
        weights = [name for name in arrays.files if name.startswith("weights/")]
        assert weights
        assert all(np.array_equal(arrays[name], state[name]) for name in weights)


def test_expressions_become_functions(backend: Backend) -> None:
    function = backend.function(parse_expression("mean(abs(y_true - y_pred))"), "mae")
    found = function(np.array([1.0, 2.0], np.float32), np.array([2.0, 4.0], np.float32))
    assert float(found) == 1.5


def test_versions_name_the_framework(backend: Backend) -> None:
    assert backend.name in backend.versions()
