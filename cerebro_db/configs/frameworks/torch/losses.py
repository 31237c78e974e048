"""Losses by the names of ``torch.nn.functional`` and ``torch.nn``, with torch's arguments; and Keras' where torch has them."""

from __future__ import annotations

from typing import Any, ClassVar

from cerebro_db.configs.arguments import (
    FLOATS,
    Argument,
    Declaration,
    Declarations,
    Target,
    choice,
    flag,
    number,
    unknown,
    whole,
)
from cerebro_db.configs.functions.losses import LOSSES, LossSpec, parse_loss
from cerebro_db.configs.grammar import Call, call_of
from cerebro_db.configs.names import is_custom
from cerebro_db.errors import InvalidArgument

_PREFIXES = ("torch.nn.functional.", "nn.functional.", "functional.", "F.", "torch.nn.", "nn.")
_REDUCTION = choice("reduction", "mean", "mean", "sum")
_IGNORED = whole("ignore_index", None, low=None)
_WEIGHT = Argument("weight", FLOATS, low=0.0, optional=True)


def _loss(name: str, names: str, target: Target, *own: Argument) -> Declaration:
    return Declaration(name, own, names=tuple(names.split()), target=target)


TORCH_LOSSES = Declarations(
    "nn.functional",
    "loss",
    (
        _loss(
            "cross_entropy", "CrossEntropyLoss", Target.IDS, _WEIGHT, _IGNORED, _REDUCTION,
            number("label_smoothing", 0.0, high=1.0),
        ),
        _loss("nll_loss", "NLLLoss", Target.IDS, _WEIGHT, _IGNORED, _REDUCTION),
        _loss(
            "bce_with_logits", "binary_cross_entropy_with_logits BCEWithLogitsLoss", Target.BINARY,
            Argument("pos_weight", FLOATS, low=0.0, optional=True), _REDUCTION,
        ),
        _loss("bce_loss", "binary_cross_entropy BCELoss", Target.BINARY, _REDUCTION),
        _loss("mse_loss", "MSELoss", Target.FLOAT, _REDUCTION),
        _loss("l1_loss", "L1Loss", Target.FLOAT, _REDUCTION),
        _loss("smooth_l1_loss", "SmoothL1Loss", Target.FLOAT, _REDUCTION, number("beta", 1.0)),
        _loss(
            "huber_loss", "HuberLoss", Target.FLOAT, _REDUCTION, number("delta", 1.0, low_open=True)
        ),
        _loss(
            "kl_div", "KLDivLoss", Target.FLOAT,
            choice("reduction", "mean", "mean", "sum", "batchmean"), flag("log_target", False),
        ),
        _loss(
            "poisson_nll_loss", "PoissonNLLLoss", Target.FLOAT, flag("log_input", True),
            flag("full", False), number("eps", 1e-8, low_open=True), _REDUCTION,
        ),
    ),
)  # fmt: skip
# Of these, outputs become probabilities by a softmax or a sigmoid; logarithms of probabilities do, too.
_OF_LOGITS = frozenset({"cross_entropy", "nll_loss", "bce_with_logits"})
# Of Keras, with the same values; the others are not written for torch.
_OF_KERAS = frozenset(
    {
        "BinaryCrossentropy", "CategoricalCrossentropy", "CategoricalHinge", "CosineSimilarity",
        "Hinge", "Huber", "KLDivergence", "LogCosh", "MeanAbsoluteError",
        "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError", "Poisson",
        "SparseCategoricalCrossentropy", "SquaredHinge",
    }
)  # fmt: skip


class TorchLoss(LossSpec, frozen=True):
    """A loss of torch, with the arguments that differ from the defaults."""

    declared: ClassVar = TORCH_LOSSES

    @property
    def compares_each(self) -> bool:
        """True if each output is compared by itself, as a probability."""
        return self.name in ("bce_with_logits", "bce_loss")

    def all_arguments(self) -> dict[str, Any]:
        """Every argument with its value, and whether outputs are logits, as Keras' losses tell it."""
        return {**super().all_arguments(), "from_logits": self.name in _OF_LOGITS}


def bare(name: str) -> str:
    """A name without the modules of torch before it."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def parse_torch_loss(value: object, what: str = "loss") -> LossSpec:
    """Parse ``'cross_entropy'``, ``'F.huber_loss(delta=2.0)'``, ``'CrossEntropyLoss'``, or a loss of Keras.

    Raises:
        InvalidArgument: PyTorch models are not trained with it.
    """
    call = call_of(value, "loss", what)
    name = bare(call.name)
    if is_custom(call.name):
        raise InvalidArgument(
            f"{what}: got {call.name} for a PyTorch model; allowed: losses of torch or Keras",
            "registered functions compute with Keras",
        )
    if TORCH_LOSSES.has(name):
        found = TORCH_LOSSES.find(name, what)
        given = Call(name, call.arguments, call.values)
        return TorchLoss(found.name, found.validated(given, f"{what}: {found.name}"))
    if not LOSSES.has(name.rpartition(".")[2]):
        raise unknown(what, "loss", call.name, [*TORCH_LOSSES, *sorted(_OF_KERAS)])
    spec = parse_loss(value, what)
    if spec.name not in _OF_KERAS:
        raise InvalidArgument(
            f"{what}: got the loss {spec.name} for a PyTorch model; allowed: "
            f"{', '.join(TORCH_LOSSES)}, and of Keras {', '.join(sorted(_OF_KERAS))}"
        )
    return spec
