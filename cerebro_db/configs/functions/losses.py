"""The losses of Keras 3.15 that may be used: declared with their arguments and targets, and parsed."""

from __future__ import annotations

from typing import ClassVar

from cerebro_db.configs.arguments import (
    FLOATS,
    INTS,
    Argument,
    Declaration,
    Declarations,
    Named,
    Target,
    choice,
    flag,
    fraction,
    number,
    whole,
)
from cerebro_db.configs.grammar import call_of
from cerebro_db.configs.names import is_custom, parse_custom

_REDUCTION = choice(
    "reduction", "sum_over_batch_size", "sum_over_batch_size", "sum", "mean",
    "mean_with_sample_weight",
)  # fmt: skip
_AXIS = whole("axis", -1, low=None)
_AXES = Argument("axis", INTS, optional=True)
_LOGITS = flag("from_logits", False)
_SMOOTHING = number("label_smoothing", 0.0, high=1.0)
_GAMMA = number("gamma", 2.0)


def _loss(name: str, names: str, target: Target, *own: Argument) -> Declaration:
    return Declaration(name, (*own, _REDUCTION), names=tuple(names.split()), target=target)


LOSSES = Declarations(
    "losses",
    "loss",
    (
        _loss(
            "BinaryCrossentropy", "binary_crossentropy bce", Target.BINARY,
            _LOGITS, _SMOOTHING, _AXIS,
        ),
        _loss(
            "BinaryFocalCrossentropy", "binary_focal_crossentropy", Target.BINARY,
            flag("apply_class_balancing", False), number("alpha", 0.25, high=1.0), _GAMMA,
            _LOGITS, _SMOOTHING, _AXIS,
        ),
        _loss(
            "CategoricalCrossentropy", "categorical_crossentropy", Target.ONEHOT,
            _LOGITS, _SMOOTHING, _AXIS,
        ),
        _loss(
            "CategoricalFocalCrossentropy", "categorical_focal_crossentropy", Target.ONEHOT,
            Argument("alpha", FLOATS, 0.25, 0.0), _GAMMA, _LOGITS, _SMOOTHING, _AXIS,
        ),
        _loss(
            "CategoricalGeneralizedCrossEntropy", "categorical_generalized_cross_entropy",
            Target.IDS, fraction("q", 0.5, low_open=True),
        ),
        _loss("CategoricalHinge", "categorical_hinge", Target.ONEHOT),
        _loss(
            "Circle", "circle", Target.IDS,
            number("gamma", 80.0, low_open=True), number("margin", 0.4, high=1.0),
            flag("remove_diagonal", True),
        ),
        _loss("CosineSimilarity", "cosine_similarity", Target.FLOAT, _AXIS),
        _loss("Dice", "dice", Target.BINARY, _AXES),
        _loss("Hinge", "hinge", Target.BINARY),
        _loss("Huber", "huber huber_loss", Target.FLOAT, number("delta", 1.0, low_open=True)),
        _loss(
            "KLDivergence", "kl_divergence kld kullback_leibler_divergence", Target.ONEHOT
        ),
        _loss("LogCosh", "log_cosh logcosh", Target.FLOAT),
        _loss("MeanAbsoluteError", "mean_absolute_error mae", Target.FLOAT),
        _loss("MeanAbsolutePercentageError", "mean_absolute_percentage_error mape",
              Target.FLOAT),
        _loss("MeanSquaredError", "mean_squared_error mse", Target.FLOAT),
        _loss("MeanSquaredLogarithmicError", "mean_squared_logarithmic_error msle",
              Target.FLOAT),
        _loss("Poisson", "poisson", Target.FLOAT),
        _loss(
            "SparseCategoricalCrossentropy", "sparse_categorical_crossentropy", Target.IDS,
            _LOGITS, whole("ignore_class", None, low=None), _AXIS,
        ),
        _loss("SquaredHinge", "squared_hinge", Target.BINARY),
        _loss(
            "Tversky", "tversky", Target.BINARY,
            number("alpha", 0.5), number("beta", 0.5), _AXES,
        ),
    ),
    {
        "CTC": "it needs targets of varying length, which this release does not support",
        "Loss": "it is the abstract base class",
    },
)  # fmt: skip


class LossSpec(Named, frozen=True):
    """A loss: its class in Keras, or a registered function, with the arguments that differ from the defaults."""

    declared: ClassVar = LOSSES

    @property
    def target(self) -> Target:
        """Form in which the loss wants the target of a row."""
        # A registered function gets targets in the shape of the output.
        return Target.FLOAT if is_custom(self.name) else self.declared[self.name].target

    @property
    def compares_each(self) -> bool:
        """True if each output is compared by itself, as a probability."""
        return self.name.startswith("Binary")


def parse_loss(value: object, what: str = "loss") -> LossSpec:
    """Parse ``'mse'``, ``'Huber(delta=2.0)'`` or the same without quotes."""
    call = call_of(value, "loss", what)
    if is_custom(call.name):
        return LossSpec(parse_custom(call, what))
    found = LOSSES.find(call.name, what)
    return LossSpec(found.name, found.validated(call, f"{what}: {found.name}"))
