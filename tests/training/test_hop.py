"""Programs are shared, bad states and losses are seen, a cancel is noticed between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.errors import ConfigurationFailed, InvalidData, InvalidState
from cerebro_db.training.partitions import Buffers
from tests.training.conftest import Data, hop, net, weights_of

LOSS = "loss='categorical_crossentropy'"


def test_learning_rate_and_other_scalars_share_a_program(
    recipe: Callable[..., Any], data: Data
) -> None:
    from cerebro_db.training.programs import Programs

    programs, architecture = Programs(), net()
    compiled = []
    states = []
    for text in ("Adam(lr=0.01)", "Adam(lr=0.001)", "Adam(lr=0.01,beta_1=0.5)", "SGD(lr=0.01)"):
        given = recipe(architecture, f"{LOSS},optimizer='{text}'")
        state, report = hop(given, data, None, programs=programs)
        compiled.append(report.compiled)
        states.append(weights_of(state)[0])
    assert compiled == [True, False, False, True]
    assert all((states[0] != other).any() for other in states[1:])


@pytest.mark.parametrize(("jit", "made"), [(False, [True, False, False]), (True, [True] * 3)])
def test_batch_sizes_share_a_program_unless_xla_compiles_it(
    recipe: Callable[..., Any], data: Data, jit: bool, made: list[bool]
) -> None:
    from cerebro_db.training.programs import Programs

    programs, architecture = Programs(), net()
    for size, is_made in zip((4, 1000, 7), made, strict=True):
        given = recipe(architecture, fit_params=f"batch_size={size}", jit=jit)
        shared, report = hop(given, data, None, programs=programs)
        assert report.compiled == is_made
        assert shared == hop(given, data, None)[0]


def test_a_shared_program_trains_as_a_fresh_one(recipe: Callable[..., Any], data: Data) -> None:
    from cerebro_db.training.programs import Programs

    programs, architecture = Programs(), net()
    first = recipe(architecture, f"{LOSS},optimizer='Adam(lr=0.1,beta_2=0.9)',l2=0.5")
    second = recipe(architecture, f"{LOSS},optimizer='Adam(lr=0.01)',l2=0.01")
    hop(first, data, None, programs=programs)
    shared, _ = hop(second, data, None, programs=programs)
    fresh, _ = hop(second, data, None)
    assert shared == fresh


def test_the_report_counts_rows_and_loss(recipe: Callable[..., Any], data: Data) -> None:
    _, report = hop(recipe(net(), fit_params="batch_size=8,epochs=3"), data, None)
    assert report.rows == 3 * data.buffers.total
    assert 0.5 < report.loss < 3.0
    assert report.memory_mb > 100


def test_a_loss_that_is_not_finite_fails_the_configuration(
    recipe: Callable[..., Any], data: Data
) -> None:
    given = recipe(net(activation="linear"), "loss='mse',optimizer='SGD(lr=1e30)'")
    with pytest.raises(ConfigurationFailed, match=r"the loss became (nan|inf).*partition 0"):
        hop(given, data, None)


def test_a_state_of_another_model_is_refused(recipe: Callable[..., Any], data: Data) -> None:
    import keras

    state, _ = hop(recipe(net()), data, None)
    with pytest.raises(InvalidState, match="another model"):
        hop(recipe(net(keras.layers.Dense(4))), data, state)
    with pytest.raises(InvalidState, match="another model"):
        hop(recipe(net(), f"{LOSS},optimizer='SGD'"), data, state)


def test_a_missing_state_is_not_replaced_by_a_fresh_one(
    recipe: Callable[..., Any], data: Data
) -> None:
    from cerebro_db.training.hop import Hop, HopTask
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs
    from tests.training.conftest import order_of

    task = HopTask(recipe(net()), order_of(5, 1, 0), data.buffers, (1, "training", 0), 7, False)
    with pytest.raises(InvalidState, match="no state"):
        Hop(task, None, None, Programs(), PartitionCache(0), lambda: None)


def test_a_hop_without_its_buffers_is_refused(recipe: Callable[..., Any], data: Data) -> None:
    from cerebro_db.training.hop import Hop, HopTask
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs
    from tests.training.conftest import order_of

    task = HopTask(recipe(net()), order_of(5, 1, 0), data.buffers, (1, "training", 0), 7, True)
    hop = Hop(task, None, None, Programs(), PartitionCache(2**20), lambda: None)
    with pytest.raises(InvalidData, match="got 0 rows"):
        hop.finish()


def test_given_weights_are_the_start(recipe: Callable[..., Any]) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow.program import Program

    architecture = net()
    model = keras.models.model_from_json(architecture)
    data = b"".join(np.asarray(w).astype(np.float32).tobytes() for w in model.get_weights())
    given = recipe(architecture)
    state = Program(given).initial_state(given, 7, data)
    ours = [array for name, array in state.items() if name.startswith("weights/")]
    for a, b in zip(ours, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InvalidState, match=r"got model_weights of 4 bytes.*83 weights"):
        Program(given).initial_state(given, 7, b"1234")


def test_the_tick_is_called_between_calls_and_may_stop_the_hop(
    recipe: Callable[..., Any], data: Data
) -> None:
    calls = []

    def tick() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hop(recipe(net(), steps_per_call=1), data, None, tick=tick)
    assert len(calls) == 4


@pytest.mark.parametrize("cache_bytes", [2**20, 0], ids=["in memory", "streamed"])
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ((21, 17), "got buffer 0 with 20 rows of features and 20 of targets; allowed: 21 of each"),
        ((20, 16), "got buffer 1 with 17 rows of features and 17 of targets; allowed: 16 of each"),
    ],
)
def test_a_buffer_of_another_size_is_refused(
    recipe: Callable[..., Any], data: Data, rows: tuple[int, int], told: str, cache_bytes: int
) -> None:
    pieces = data.pieces(0)
    data.buffers = Buffers((0, 1), rows)
    data.pieces = lambda partition: pieces  # type: ignore[method-assign]
    with pytest.raises(InvalidData, match=told):
        hop(recipe(net()), data, None, cache_bytes=cache_bytes)
