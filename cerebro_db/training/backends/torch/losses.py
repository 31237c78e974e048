"""Losses by names of Keras and of torch, as functions of outputs and targets.

Where torch has a loss, that one computes the mean of a batch. Where rows have weights, and in scoring, its values row
by row are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.names import is_custom
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.scores.sums import ROWS, STEPS, SUM
from cerebro_db.training.scores.targets import TargetFacts

Given = Mapping[str, Any]
# Of outputs, targets and a reduction (``none`` or ``mean``).
Values = Callable[[torch.Tensor, torch.Tensor, Given, str], torch.Tensor]
_SMALL = 1e-7
_IGNORED = -100


class Kind(NamedTuple):
    """A loss.

    Attributes:
        values: for ``none`` one number or more for each row, for ``mean`` their mean.
        logits: whether outputs are logits, whatever the arguments; None where an argument says so.
        binary: whether each output is compared by itself, as a probability.
    """

    values: Values
    logits: bool | None = False
    binary: bool = False


def _softmax_loss(
    outputs: torch.Tensor, ids: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    """Cross entropy of logits and ids; classes are the last dimension."""
    weight = given.get("weight")
    return F.cross_entropy(
        _classes_second(outputs),
        ids,
        None if weight is None else torch.tensor(weight, dtype=outputs.dtype),
        ignore_index=_ignored(given),
        reduction=reduction,
        label_smoothing=float(given.get("label_smoothing") or 0.0),
    )


def _ignored(given: Given) -> int:
    for name in ("ignore_index", "ignore_class"):
        if given.get(name) is not None:
            return int(given[name])
    return _IGNORED


def _classes_second(outputs: torch.Tensor) -> torch.Tensor:
    return outputs if outputs.dim() == 2 else outputs.movedim(-1, 1)


def _log_loss(
    outputs: torch.Tensor, ids: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    weight = given.get("weight")
    weights = None if weight is None else torch.tensor(weight, dtype=outputs.dtype)
    return F.nll_loss(
        _classes_second(outputs), ids, weights, ignore_index=_ignored(given), reduction=reduction
    )


def _sparse(outputs: torch.Tensor, ids: torch.Tensor, given: Given, reduction: str) -> torch.Tensor:
    """Keras' loss of ids: of logits that of torch."""
    if given.get("from_logits"):
        return _softmax_loss(outputs, ids, given, reduction)
    return F.nll_loss(
        _classes_second(_logs(outputs)), ids, ignore_index=_ignored(given), reduction=reduction
    )


def _logs(probabilities: torch.Tensor) -> torch.Tensor:
    """Logarithms of probabilities of classes, which are made to add up to one."""
    shares = probabilities / probabilities.sum(-1, keepdim=True)
    return shares.clamp(_SMALL, 1 - _SMALL).log()


def _categorical(
    outputs: torch.Tensor, shares: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    smoothing = float(given.get("label_smoothing") or 0.0)
    if smoothing:
        shares = shares * (1 - smoothing) + smoothing / shares.shape[-1]
    logs = F.log_softmax(outputs, -1) if given.get("from_logits") else _logs(outputs)
    return _reduced(-(shares * logs).sum(-1), reduction)


def _binary(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    smoothing = float(given.get("label_smoothing") or 0.0)
    if smoothing:
        truth = truth * (1 - smoothing) + 0.5 * smoothing
    if given.get("from_logits"):
        return F.binary_cross_entropy_with_logits(outputs, truth, reduction=reduction)
    clipped = outputs.clamp(_SMALL, 1 - _SMALL)
    return _reduced(-(truth * clipped.log() + (1 - truth) * (1 - clipped).log()), reduction)


def _plain_binary(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    return F.binary_cross_entropy(outputs, truth, reduction=reduction)


def _with_logits(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    weight = given.get("pos_weight")
    positive = None if weight is None else torch.tensor(weight, dtype=outputs.dtype)
    return F.binary_cross_entropy_with_logits(
        outputs, truth, pos_weight=positive, reduction=reduction
    )


def _square(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    return F.mse_loss(outputs, truth, reduction=reduction)


def _absolute(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    return F.l1_loss(outputs, truth, reduction=reduction)


def _smooth(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    return F.smooth_l1_loss(outputs, truth, reduction=reduction, beta=float(given.get("beta", 1.0)))


def _huber(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    return F.huber_loss(outputs, truth, reduction=reduction, delta=float(given.get("delta", 1.0)))


def _divergence(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    """torch's, of logarithms of probabilities."""
    return F.kl_div(outputs, truth, reduction=reduction, log_target=bool(given.get("log_target")))


def _poisson(
    outputs: torch.Tensor, truth: torch.Tensor, given: Given, reduction: str
) -> torch.Tensor:
    return F.poisson_nll_loss(
        outputs,
        truth,
        log_input=bool(given.get("log_input", True)),
        full=bool(given.get("full", False)),
        eps=float(given.get("eps", 1e-8)),
        reduction=reduction,
    )


def _plain_poisson(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return outputs - truth * (outputs + _SMALL).log()


def _percentage(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return 100.0 * ((truth - outputs) / truth.abs().clamp_min(_SMALL)).abs()


def _logarithmic(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    first, second = (one.clamp_min(_SMALL).add(1.0).log() for one in (outputs, truth))
    return (first - second).square()


def _log_cosh(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    far = outputs - truth
    return far + F.softplus(-2.0 * far) - 0.6931471805599453


def _plain_divergence(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    found, wanted = outputs.clamp(_SMALL, 1), truth.clamp(_SMALL, 1)
    return (wanted * (wanted / found).log()).sum(-1)


def _signed(truth: torch.Tensor) -> torch.Tensor:
    """Targets of 0 and 1 as -1 and 1."""
    return torch.where((truth == 0) | (truth == 1), 2.0 * truth - 1.0, truth)


def _hinge(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return (1.0 - _signed(truth) * outputs).clamp_min(0.0)


def _squared_hinge(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return _hinge(outputs, truth).square()


def _class_hinge(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    right = (truth * outputs).sum(-1)
    return ((1.0 - truth) * outputs).amax(-1).sub(right).add(1.0).clamp_min(0.0)


def _cosine(outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return -(F.normalize(outputs, dim=-1) * F.normalize(truth, dim=-1)).sum(-1)


def _without(compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Kind:
    """A loss without arguments of its own."""
    return Kind(
        lambda outputs, truth, given, reduction: _reduced(compute(outputs, truth), reduction)
    )


def _reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    return values if reduction == "none" else values.mean()


# By names without underscores and without "loss".
KINDS: Mapping[str, Kind] = {
    "crossentropy": Kind(_softmax_loss, True),
    "nll": Kind(_log_loss),
    "sparsecategoricalcrossentropy": Kind(_sparse, None),
    "categoricalcrossentropy": Kind(_categorical, None),
    "binarycrossentropy": Kind(_binary, None, True),
    "bce": Kind(_plain_binary, False, True),
    "bcewithlogits": Kind(_with_logits, True, True),
    "meansquarederror": Kind(_square),
    "mse": Kind(_square),
    "meanabsoluteerror": Kind(_absolute),
    "l1": Kind(_absolute),
    "smoothl1": Kind(_smooth),
    "huber": Kind(_huber),
    "kldiv": Kind(_divergence),
    "poissonnll": Kind(_poisson),
    "poisson": _without(_plain_poisson),
    "meanabsolutepercentageerror": _without(_percentage),
    "meansquaredlogarithmicerror": _without(_logarithmic),
    "logcosh": _without(_log_cosh),
    "kldivergence": _without(_plain_divergence),
    "hinge": _without(_hinge),
    "squaredhinge": _without(_squared_hinge),
    "categoricalhinge": _without(_class_hinge),
    "cosinesimilarity": _without(_cosine),
}
_ALIASES = {"binarycrossentropywithlogits": "bcewithlogits", "mae": "meanabsoluteerror"}


def kind_of(spec: LossSpec) -> Kind:
    """The loss of a name.

    Raises:
        InvalidArgument: there is none such for PyTorch models.
    """
    name = spec.name.lower().replace("_", "").removesuffix("loss")
    found = KINDS.get(_ALIASES.get(name, name))
    if found is None or is_custom(spec.name):
        raise InvalidArgument(
            f"loss: got {spec.name} for a PyTorch model; allowed: {', '.join(sorted(KINDS))}",
            hint="names of losses of Keras and of torch.nn.functional, with underscores or without",
        )
    return found


def takes_logits(spec: LossSpec) -> bool:
    """True if the outputs of the model are logits."""
    found = kind_of(spec).logits
    return bool(spec.all_arguments().get("from_logits")) if found is None else found


def check_weights(spec: LossSpec, units: int) -> None:
    """Refuse weights that are not as many as the outputs that they are of.

    Raises:
        InvalidArgument: telling how many there are.
    """
    for name in ("weight", "pos_weight"):
        given = spec.all_arguments().get(name)
        count = len(given) if isinstance(given, tuple) else 1
        if given is not None and count not in ((units,) if name == "weight" else (1, units)):
            raise InvalidArgument(
                f"loss: {spec.name}: got {name} of {count} numbers; allowed: {units}, one for each output of the model"
            )


class Loss:
    """The loss of one output.

    Args:
        spec: which.
        encoding: of the targets.
        facts: of the targets.
    """

    def __init__(self, spec: LossSpec, encoding: str, facts: TargetFacts) -> None:
        self._kind = kind_of(spec)
        self._given = spec.all_arguments()
        self._encoding, self._facts = encoding, facts
        self._reduction = str(self._given.get("reduction") or "mean")
        self.kind = self._kind_of_sums()
        self.count = 2 if self.kind == STEPS else 1

    def _kind_of_sums(self) -> str:
        if self._reduction == "sum":
            return SUM
        names = ("ignore_index", "ignore_class", "weight")
        return STEPS if any(self._given.get(name) is not None for name in names) else ROWS

    def encode(self, stored: torch.Tensor) -> torch.Tensor:
        """Stored targets as the loss takes them."""
        if self._encoding == "onehot":
            return F.one_hot(stored.long(), self._facts.num_classes).float()
        if self._encoding == "binary":
            return stored.float().unsqueeze(1)
        if self._encoding == "ids":
            return stored.long()
        return stored.unsqueeze(1) if self._facts.shape == () else stored

    def mean(self, outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """The loss of a batch."""
        if self._reduction == "sum":
            return self._values(outputs, truth).sum()
        if self._reduction == "batchmean":
            return self._values(outputs, truth).sum() / len(outputs)
        return self._kind.values(outputs, truth, self._given, "mean")

    def weighted(
        self, outputs: torch.Tensor, truth: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """The loss of a batch whose rows have weights, divided by what it is without them, as in Keras."""
        values = self._values(outputs, truth)
        weights = weights.reshape(-1, *([1] * (values.dim() - 1)))
        total = (values * weights).sum()
        if self._reduction in ("sum", "batchmean"):
            return total if self._reduction == "sum" else total / len(outputs)
        if self._reduction == "mean_with_sample_weight":
            return total / weights.expand_as(values).sum().clamp_min(_SMALL)
        return total / values.numel()

    def sums(self, outputs: torch.Tensor, truth: torch.Tensor) -> tuple[float, ...]:
        """What adds up over batches, by the kinds of ``training.scores.sums``."""
        values = self._values(outputs, truth).double()
        if self.kind == SUM:
            return (float(values.sum()),)
        if self.kind == STEPS:
            return (float(values.sum()), float(self._counted(outputs, truth)))
        rows = len(outputs)
        return (
            float(values.sum() / values.numel() * rows)
            if self._reduction != "batchmean"
            else float(values.sum()),
        )

    def _counted(self, outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """The weights of the targets that count."""
        counts = truth != _ignored(self._given)
        if self._given.get("weight") is None:
            return counts.double().sum()
        weights = torch.tensor(self._given["weight"], dtype=torch.float64)
        return weights[truth.clamp_min(0)][counts].sum()

    def _values(self, outputs: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        return self._kind.values(outputs, truth, self._given, "none")
