"""The exact area under the ROC curve: ties, parts, nothing to compare."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score


def told(outputs, truth):
    from cerebro_db.training.scores.scan import _packed

    return {"positive": _packed([outputs[truth]]), "negative": _packed([outputs[~truth]])}


def test_ties_count_half_and_parts_add_up(tensorflow):
    from cerebro_db.training.scores.scan import exact_auc

    generator = np.random.default_rng(5)
    outputs = (generator.integers(0, 20, 500) / 20).astype(np.float32)
    truth = generator.random(500) < outputs
    wanted = roc_auc_score(truth, outputs)
    assert exact_auc([told(outputs, truth)]) == pytest.approx(wanted, abs=1e-14)
    parts = [told(outputs[part], truth[part]) for part in (slice(0, 7), slice(7, 500))]
    assert exact_auc(parts) == exact_auc([told(outputs, truth)])


def test_one_class_has_no_curve(tensorflow):
    from cerebro_db.training.scores.scan import exact_auc

    assert math.isnan(exact_auc([told(np.ones(3, np.float32), np.ones(3, bool))]))


def test_what_is_exact():
    from cerebro_db.configs.grids.outputs import is_exact
    from cerebro_db.configs.grids.parameters import parse_compile_params

    texts = {
        "'AUC'": True,
        "AUC(num_thresholds=50)": True,
        "AUC(curve='PR')": False,
        "AUC(multi_label=True)": False,
        "'accuracy'": False,
    }
    for text, exact in texts.items():
        params = parse_compile_params(f"loss='mse',optimizer='SGD()',metrics=[{text}]")
        assert [is_exact(spec) for spec in params.metrics] == [exact], text
