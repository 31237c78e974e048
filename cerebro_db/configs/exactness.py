"""Metrics that have an exact value, where all predictions are at hand."""

from __future__ import annotations

from cerebro_db.configs.parameters import MetricSpec

# What a scan is asked for beside loss and metrics: both need every prediction.
AUC, CONFUSION = "auc", "confusion"
# Of several labels, weighted ones, given thresholds and other curves the value is that of Keras.
_ONE_CURVE = {"curve": "ROC", "multi_label": False, "thresholds": None, "label_weights": None}


def is_exact(spec: MetricSpec) -> bool:
    """True if a metric is the area under one ROC curve."""
    given = dict(spec.arguments)
    return spec.name == "AUC" and all(
        given.get(name, value) == value for name, value in _ONE_CURVE.items()
    )
