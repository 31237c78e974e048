"""States of several models as that of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cerebro_db.configs.architectures.ensembles import mean_of
from tests.training.conftest import CLASSES, FEATURES, Data, hop, net


def test_an_ensemble_predicts_the_weighed_mean(recipe: Callable[..., Any], data: Data) -> None:
    """Of nets with averages of batches, generators and averages of weights, with one member twice."""
    import keras

    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.joined_states import joined
    from cerebro_db.training.state import from_bytes

    loss = "loss='categorical_crossentropy'"
    first = recipe(
        net(keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)),
        f"{loss},optimizer='Adam(lr=0.01,use_ema=True)'",
    )
    second = recipe(
        net(keras.layers.Dense(5, "tanh"), keras.layers.Dropout(0.2)),
        f"{loss},optimizer='SGD(lr=0.1)'",
    )
    states, outputs = [], []
    for one in (first, second):
        state = from_bytes(hop(one, data, None)[0])
        scorer = Scorer(one)
        scorer.load(state, one.compile_params)
        states.append(state)
        outputs.append(scorer.predict(data.features[0])[0])
    text = mean_of([first.architecture, second.architecture], [(FEATURES,)], [1, 2], CLASSES)
    whole = recipe(text, f"{loss},optimizer='SGD(lr=0.1)'")
    scorer = Scorer(whole)
    scorer.load(from_bytes(joined(states)), whole.compile_params)
    found = scorer.predict(data.features[0])[0]
    np.testing.assert_allclose(found, (outputs[0] + 2 * outputs[1]) / 3, atol=1e-6)
    assert not np.allclose(outputs[0], outputs[1], atol=1e-3)
