"""Mixed rows: as soft targets of mixed features, with the same bits whether rows are streamed or in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.grids.parameters import changed, parse_fit_params
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.mixing import mixed
from cerebro_db.training.tasks import Architectures, hop_of
from tests.training.conftest import CLASSES, SOFTMAX, Data, net, order_of
from tests.training.conftest import hop as made

SGD = SOFTMAX.replace("Adam(lr=0.01)", "SGD(lr=0.1)") + ",l2=0.01"


@pytest.mark.parametrize("jit", [False, True])
def test_a_hop_is_that_of_soft_targets(recipe: Callable[..., Any], data: Data, jit: bool) -> None:
    """Against Keras itself: features and one-hot targets are mixed alike, of each batch by its own number."""
    import keras

    given = recipe(net(), SGD, "batch_size=8,mixup=0.4,class_weight={0: 2.0}", jit=jit)
    from cerebro_db.training import state as states
    from cerebro_db.training.programs import Programs

    programs = Programs()
    after, report = made(given, data, None, programs=programs)
    begun = programs.get(given)[0].initial_state(given, 7, None)
    model = keras.models.model_from_json(json.dumps(given.architecture))
    before, wanted = (_weights(one) for one in (begun, states.from_bytes(after)))
    model.set_weights(before)
    order, total = order_of(5, 1, 0), 0.0
    places = [data.buffers.ids.index(one) for one in order.buffers(0, data.buffers.ids)]
    pieces = data.pieces(0)
    taken = [order.rows(0, place, len(pieces[place][0])) for place in places]
    features, targets = (
        np.concatenate([pieces[p][part][rows] for p, rows in zip(places, taken, strict=True)])
        for part in (0, 1)
    )
    optimizer = keras.optimizers.SGD(0.1)
    for number, first in enumerate(range(0, 37, 8)):
        x, y = features[first : first + 8], targets[first : first + 8]
        rows, (others, shares) = mixed(x, y, 0.4, (7, 1, 0), number, 8)
        share = float(shares[0])
        assert 0 < share < 1
        weights = np.asarray([2.0, 1.0, 1.0])
        soft = sum(
            part * np.eye(CLASSES)[each] * weights[each][:, None]
            for part, each in ((share, y), (1 - share, others))
        )
        total += _step(model, optimizer, rows, soft) * len(x)
    for ours, theirs in zip(wanted, model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)
    assert report.loss == pytest.approx(total / 37, rel=1e-5)


def _weights(state: dict[str, Any]) -> list[Any]:
    return [one for name, one in state.items() if name.startswith("weights/")]


def _step(model: Any, optimizer: Any, features: Any, targets: Any) -> float:
    """A step by the cross-entropy with soft targets, which need not have the sum 1, and the penalty."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        found = tf.math.log(model(features, training=True))
        loss = -tf.reduce_mean(tf.reduce_sum(targets.astype(np.float32) * found, axis=1))
        kernels = [one for one in model.trainable_weights if one.path.endswith("kernel")]
        loss += 0.01 * sum(tf.reduce_sum(tf.square(one)) for one in kernels)
    gradients = tape.gradient(loss, model.trainable_weights)
    optimizer.apply(gradients, model.trainable_weights)
    return float(loss)


def test_streamed_rows_are_mixed_as_those_in_memory(recipe: Callable[..., Any], data: Data) -> None:
    given = recipe(net(), fit_params="batch_size=8,mixup=0.2,epochs=2", steps_per_call=2)
    whole, _ = made(given, data, None)
    streamed, _ = made(given, data, None, cache_bytes=0)
    plain, _ = made(recipe(net(), fit_params="batch_size=8,mixup=0,epochs=2"), data, None)
    wanted, _ = made(recipe(net(), fit_params="batch_size=8,epochs=2"), data, None)
    assert whole == streamed
    assert plain == wanted != whole


def test_rows_of_a_batch_have_a_share_and_partners_in_it() -> None:
    features = np.arange(20, dtype=np.float32)[:, None]
    rows, (partners, shares) = mixed(features, np.arange(20), 1.0, (1, 2, 3), 5, 8)
    for start, stop in ((0, 8), (8, 16), (16, 20)):
        assert sorted(partners[start:stop]) == list(range(start, stop))
        assert len(set(shares[start:stop].tolist())) == 1
    np.testing.assert_allclose(
        rows[:, 0], shares * features[:, 0] + (1 - shares) * features[partners, 0], rtol=1e-6
    )
    again = mixed(features[8:], np.arange(8, 20), 1.0, (1, 2, 3), 6, 8)
    np.testing.assert_array_equal(again[0], rows[8:])
    draws = [mixed(features, features, 0.2, (seed,), 0, 1)[1].shares for seed in range(50)]
    # Beta(0.2, 0.2) has the mean 1/2 and the variance 1 / (4 * 1.4).
    assert np.mean(draws) == pytest.approx(0.5, abs=0.04)
    assert np.var(draws) == pytest.approx(1 / 5.6, abs=0.02)


@pytest.mark.parametrize("value", ["-0.1", "101", "'x'", "True"])
def test_what_cannot_be_mixed_by_is_refused(value: str) -> None:
    with pytest.raises(InvalidArgument, match=r"mixup"):
        parse_fit_params(f"mixup={value}")


def test_a_change_may_name_it() -> None:
    assert changed(SOFTMAX, "batch_size=4", "mixup=0.3")[1] == "batch_size=4,mixup=0.3"


def test_rows_of_a_round_are_not_mixed(recipe: Callable[..., Any]) -> None:
    given = recipe(net())
    task = {
        "run_id": 1, "dataset": "training", "partition_key": 0,
        "architecture": json.dumps(given.architecture), "architecture_id": given.architecture_id,
        "compile_params": SOFTMAX, "fit_params": "mixup=0.2", "jit": False, "steps_per_call": 1,
        "targets": {"kind": "class", "num_classes": CLASSES, "shape": []}, "part": {},
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match=r"got mixup=0.2 with a strategy whose rounds share"):
        hop_of(json.dumps(task), 1, Architectures())
