"""What every backend promises: states, steps, gradients, scores, sizes and files, by the protocol alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cerebro_db.configs import frameworks
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.frameworks import Framework
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.names import Format
from cerebro_db.errors import (
    CerebroError,
    InvalidArchitecture,
    InvalidArgument,
    InvalidState,
    MissingLibrary,
)
from cerebro_db.training import backends
from cerebro_db.training.backends import Backend
from cerebro_db.training.mixing import Partners
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.sums import add_partials
from cerebro_db.training.state import LEARNING_RATE, from_bytes, to_bytes
from tests.training.conftest import hop

ROWS, FEATURES, CLASSES = 24, 6, 3
SOFTMAX = "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
SGD = "loss='categorical_crossentropy',optimizer='SGD(learning_rate=0.1)',metrics=['accuracy']"
LIMITS = ArchitectureLimits()


# A framework of a folder of its own, as one that is added would be in the package's.
EXAMPLE, FOLDER = "linear", Path(__file__).parent / "example"


@pytest.fixture(params=[*frameworks.frameworks(), EXAMPLE])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each of the frameworks, and the smallest one, which is found by its files."""
    if request.param == EXAMPLE:
        added(monkeypatch)
    elif request.param not in frameworks.installed():
        pytest.skip(f"{request.param} is not installed")
    yield request.param
    forget()


def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the folder of the example on the path of frameworks and of backends."""
    for package in (frameworks, backends):
        own = str(FOLDER / package.__name__.rpartition(".")[2])
        monkeypatch.setattr(package, "__path__", [*package.__path__, own])
    forget()


def forget() -> None:
    """Look for frameworks again."""
    frameworks.frameworks.cache_clear()
    frameworks.installed.cache_clear()
    frameworks.framework_in.cache_clear()


@pytest.fixture
def backend(framework: str) -> Backend:
    """The backend of a framework."""
    return backends.backend(framework)


class Nets(NamedTuple):
    """Architectures of a framework.

    Attributes:
        full: with dropout and batch normalization where it has them.
        plain: without anything random.
        parameters: of the plain one.
        untrained: floats of the full one that no gradient changes.
    """

    full: str
    plain: str
    parameters: int
    untrained: int


@pytest.fixture
def nets(framework: str, request: pytest.FixtureRequest) -> Nets:
    """The architectures of a framework, from the function of its name."""
    return MADE[framework](request)


def of_tensorflow(request: pytest.FixtureRequest) -> Nets:
    import keras

    layers = [keras.Input((FEATURES,)), keras.layers.Dense(8, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(CLASSES, "softmax")])
    full = request.getfixturevalue("full_net")
    return Nets(full, str(model.to_json()), FEATURES * 8 + 8 + 8 * CLASSES + CLASSES, 16)


def of_torch(request: pytest.FixtureRequest) -> Nets:
    import torch

    from cerebro_db.client.exporting import exported

    torch.manual_seed(7)
    first, last = torch.nn.Linear(FEATURES, 8), (torch.nn.Linear(8, CLASSES), torch.nn.Softmax(1))
    full = torch.nn.Sequential(
        first, torch.nn.ReLU(), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), *last
    )
    plain = torch.nn.Sequential(first, torch.nn.ReLU(), *last)
    texts = [exported(one, (torch.zeros(2, FEATURES),))[0] for one in (full, plain)]
    return Nets(*texts, FEATURES * 8 + 8 + 8 * CLASSES + CLASSES, 16)


def of_linear(request: pytest.FixtureRequest) -> Nets:
    text = json.dumps({"framework": EXAMPLE, "features": FEATURES, "classes": CLASSES})
    return Nets(text, text, (FEATURES + 1) * CLASSES, 0)


MADE: dict[str, Callable[[pytest.FixtureRequest], Nets]] = {
    "tensorflow": of_tensorflow,
    "torch": of_torch,
    EXAMPLE: of_linear,
}


@pytest.fixture
def given(nets: Nets, recipe: Callable[..., Recipe]) -> Recipe:
    """A configuration of the full net, trained with Adam in batches of 8."""
    return recipe(nets.full)


@pytest.fixture
def plain(nets: Nets, recipe: Callable[..., Recipe]) -> Recipe:
    """A configuration without anything random, trained with SGD."""
    return recipe(nets.plain, SGD)


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


def test_rows_that_are_mixed_are_compared_with_both_targets(
    backend: Backend, plain: Recipe, nets: Nets, recipe: Callable[..., Recipe]
) -> None:
    (features, targets), share = rows(8), np.float32(0.3)
    others = targets[::-1].copy()
    mixing, apart = begun(backend, recipe(nets.plain, SGD, "mixup=0.2")), begun(backend, plain)
    partners = Partners(others, np.full(8, share))
    summed = mixing.train(features, targets, partners)
    found = [apart.gradients(features, one) for one in (targets, others)]
    loss, gradients = (share * one + (1 - share) * other for one, other in zip(*found, strict=True))
    apart.apply(gradients)
    assert summed == pytest.approx(8 * loss, rel=1e-5)
    for ours, theirs in zip(mixing.save().values(), apart.save().values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_weights_are_pushed_and_pulled(backend: Backend, plain: Recipe) -> None:
    server, worker = begun(backend, plain), begun(backend, plain, seed=8)
    _, gradients = server.gradients(*rows(8))
    weights = server.updated(gradients)
    assert weights.tobytes() == server.weights().tobytes()
    worker.take(weights)
    ours, theirs = worker.save(), server.save()
    assert all(np.array_equal(ours[name], theirs[name]) for name in server.trained)


def test_what_no_gradient_changes_is_named(backend: Backend, given: Recipe, nets: Nets) -> None:
    program = begun(backend, given)
    state = program.save()
    assert set(program.untrained) <= set(state) - program.trained
    assert sum(program.untrained.values()) == nets.untrained


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
    backend: Backend, recipe: Callable[..., Recipe], nets: Nets
) -> None:
    one = recipe(nets.full)
    rate = recipe(nets.full, SOFTMAX.replace("0.01", "0.02"))
    other = recipe(nets.full, SGD)
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


def test_sizes_are_measured_and_bounded(backend: Backend, plain: Recipe, nets: Nets) -> None:
    size = backend.check_size(plain.architecture, LIMITS, None)
    facts = backend.facts(plain.architecture, LIMITS, None, None)
    assert size.parameters == facts.parameters == nets.parameters
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


def test_expressions_become_functions() -> None:
    backend = backends.backend(frameworks.default())
    function = backend.function(parse_expression("mean(abs(y_true - y_pred))"), "mae")
    found = function(np.array([1.0, 2.0], np.float32), np.array([2.0, 4.0], np.float32))
    assert float(found) == 1.5


def test_versions_name_the_framework(backend: Backend) -> None:
    assert backend.name in backend.versions()


def test_hops_are_made_to_the_same_bits(plain: Recipe, data: Any) -> None:
    """All that is between rows and a backend needs no line for another one."""
    states: list[bytes | None] = [None, None]
    for partition in (0, 1):
        states = [hop(plain, data, state, partition=partition)[0] for state in states]
    assert states[0] == states[1]
    assert hop(plain, data, states[0])[1].loss < hop(plain, data, None)[1].loss


# -- what is known without importing the framework -------------------------------------------------
@pytest.fixture
def known(framework: str) -> Framework:
    """What is known of a framework."""
    return frameworks.frameworks()[framework]


def test_names_are_those_of_files(known: Framework, backend: Backend, framework: str) -> None:
    assert known.name == backend.name == framework
    assert next(iter(frameworks.frameworks())) == frameworks.default()


def test_an_architecture_is_of_one_framework(known: Framework, nets: Nets) -> None:
    for text in nets[:2]:
        owners = [one for one in frameworks.frameworks().values() if one.owns(json.loads(text))]
        assert owners == [known]
        config = frameworks.check_architecture(text)
        assert frameworks.framework_of(config) is frameworks.framework_in(text) is known
        assert frameworks.check_architecture(json.dumps(config, sort_keys=True)) == config


def test_outputs_have_names(known: Framework, nets: Nets) -> None:
    (name,) = known.output_names(frameworks.check_architecture(nets.plain))
    assert name


def test_parameters_about_layers_are_refused_where_there_are_none(
    known: Framework, nets: Nets
) -> None:
    config = frameworks.check_architecture(nets.plain)
    assert known.may_train(config)
    with pytest.raises(InvalidArchitecture, match="dropout"):
        known.with_dropout(config, 0.5)
    with pytest.raises(InvalidArchitecture, match="no_such_layer"):
        known.with_frozen(config, ("no_such_layer",))
    with pytest.raises(InvalidArchitecture, match="loss_per_member"):
        known.check_members(config)


def test_parameters_are_parsed(known: Framework) -> None:
    params = known.compile_params(SOFTMAX)
    assert [one.label for one in params.metrics] == ["accuracy"]
    for wrong in (SOFTMAX.replace("Adam", "Adamant"), SOFTMAX.replace("categorical", "no")):
        with pytest.raises(InvalidArgument, match="unknown"):
            known.compile_params(wrong)


def test_formats_that_it_does_not_write_are_refused(known: Framework, nets: Nets) -> None:
    config = frameworks.check_architecture(nets.plain)
    for wanted in Format:
        if wanted in known.formats:
            frameworks.check_format(config, wanted)
        else:
            with pytest.raises(InvalidArgument, match=f"format: got '{wanted}'"):
                frameworks.check_format(config, wanted)


def test_a_framework_that_is_not_there() -> None:
    with pytest.raises(InvalidArchitecture, match="got the framework 'abacus'; allowed: 'tensorf"):
        frameworks.check_architecture('{"framework": "abacus"}')
    with pytest.raises(InvalidArgument, match="frameworks: got 'abacus'"):
        frameworks.named("tensorflow,abacus")


def test_a_framework_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch)
    known = frameworks.frameworks()[EXAMPLE]
    monkeypatch.setattr(type(known), "packages", ("no_such_package",))
    with pytest.raises(MissingLibrary, match="linear, which is not installed") as caught:
        frameworks.require_installed(EXAMPLE)
    assert '"cerebro-db[linear]"' in (caught.value.hint or "")
    forget()
