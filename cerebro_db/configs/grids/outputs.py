"""The outputs of a model, each with its loss, its metrics and its weight in the total loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.functions.metrics import MetricSpec
from cerebro_db.configs.grids.parameters import ByOutput, CompileParams
from cerebro_db.errors import InvalidArgument

_WHAT = "compile_params"
_LOSS = "loss"


class OutputSpec(Struct, frozen=True):
    """One output of a model, compiled.

    Attributes:
        name: of the layer that makes it.
        loss: of its own.
        metrics: of its own; their labels are those of results.
        weight: of its loss in the total; None for 1.
    """

    name: str
    loss: LossSpec
    metrics: tuple[MetricSpec, ...]
    weight: float | None = None


def output_names(architecture: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the outputs of a checked architecture, as Keras gives them."""
    config = architecture.get("config")
    ends = config.get("output_layers") if isinstance(config, dict) else None
    if not isinstance(ends, list) or not ends:
        return (_last_layer(config),)
    if not isinstance(ends[0], list):
        return (str(ends[0]),)
    return tuple(str(end[0]) for end in ends if isinstance(end, list) and end)


def _last_layer(config: Any) -> str:
    """The name of the layer that ends a sequential model."""
    layers = config.get("layers") if isinstance(config, dict) else None
    last = layers[-1] if isinstance(layers, list) and layers else {}
    return str(last.get("config", {}).get("name", ""))


def outputs_of(params: CompileParams, names: Sequence[str]) -> tuple[OutputSpec, ...]:
    """Loss, metrics and weight of each output of a model.

    Args:
        params: of a configuration.
        names: of the outputs, in their order.

    Raises:
        InvalidArgument: lists or names do not fit the outputs.
    """
    losses = _losses(params, names)
    metrics = _metrics(params, names)
    weights = _weights(params.loss_weights, names)
    if len(names) == 1:
        return (OutputSpec(names[0], losses[0], metrics[0], weights[0]),)
    taken: dict[str, int] = {}
    return tuple(
        OutputSpec(name, loss, _labelled(name, own, taken), weight)
        for name, loss, own, weight in zip(names, losses, metrics, weights, strict=True)
    )


def metric_names(outputs: Sequence[OutputSpec]) -> list[str]:
    """The names of the metrics, and of the losses of several outputs behind them, as in Keras."""
    return [metric.label for metric in _all_metrics(outputs)]


def first_metric(outputs: Sequence[OutputSpec]) -> MetricSpec | None:
    """The metric that models are compared by."""
    return next((metric for output in outputs for metric in output.metrics), None)


def with_all_metrics(params: CompileParams, outputs: Sequence[OutputSpec]) -> CompileParams:
    """The parameters with what results have of all outputs, under the labels of results."""
    return structs.replace(params, metrics=tuple(_all_metrics(outputs)), output_metrics=None)


def loss_names(outputs: Sequence[OutputSpec]) -> str:
    """The classes of the losses, in the order of the outputs."""
    return ", ".join(output.loss.name for output in outputs)


def _all_metrics(outputs: Sequence[OutputSpec]) -> list[MetricSpec]:
    """Metrics, and of several outputs the loss of each behind them."""
    metrics = [metric for output in outputs for metric in output.metrics]
    if len(outputs) == 1:
        return metrics
    return metrics + [MetricSpec(_LOSS, (), f"{output.name}_{_LOSS}") for output in outputs]


def _losses(params: CompileParams, names: Sequence[str]) -> tuple[LossSpec, ...]:
    if params.losses is None:
        return (params.loss,) * len(names)
    found = params.losses.of(names, f"{_WHAT}: loss")
    if None in found:
        missing = names[found.index(None)]
        raise InvalidArgument(
            f"{_WHAT}: loss: got none for the output {missing!r}; allowed: one for each output"
        )
    return tuple(loss for loss in found if loss is not None)


def _metrics(params: CompileParams, names: Sequence[str]) -> tuple[tuple[MetricSpec, ...], ...]:
    if params.output_metrics is not None:
        found = params.output_metrics.of(names, f"{_WHAT}: metrics")
        return tuple(metrics or () for metrics in found)
    given = params.metrics
    if len(names) == 1:
        return (given,)
    if len(given) == len(names):  # as Keras reads a list
        return tuple((metric,) for metric in given)
    if len(given) > 1:
        raise InvalidArgument(
            f"{_WHAT}: metrics: got {len(given)} for the {len(names)} outputs of the model; allowed: "
            "one for all, one for each, or a list for each such as [['mae'], ['accuracy', 'auc']]"
        )
    return (given,) * len(names)


def _weights(
    given: ByOutput[float] | float | None, names: Sequence[str]
) -> tuple[float | None, ...]:
    if isinstance(given, ByOutput):
        found = given.of(names, f"{_WHAT}: loss_weights")
        return tuple(1.0 if weight is None else weight for weight in found)
    if given is not None and len(names) > 1:
        raise InvalidArgument(
            f"{_WHAT}: got loss_weights={given}; allowed for a model of {len(names)} outputs: a list "
            "of numbers, or a dictionary from names of outputs"
        )
    return (given,) * len(names)


def _labelled(
    name: str, metrics: Sequence[MetricSpec], taken: dict[str, int]
) -> tuple[MetricSpec, ...]:
    """The metrics of one of several outputs, under the names that Keras gives them."""
    labelled = []
    for metric in metrics:
        label = f"{name}_{metric.label}"
        count = taken.get(label, 0)
        taken[label] = count + 1
        labelled.append(structs.replace(metric, label=f"{label}_{count}" if count else label))
    return tuple(labelled)


# What a scan is asked for beside loss and metrics: they need every prediction.
AUC, CONFUSION, CURVES = "auc", "confusion", "curves"
# Of several labels, averages over classes, given thresholds and other curves the value is that of Keras.
_ONE_CURVE: dict[str, tuple[object, ...]] = {
    "curve": ("ROC",), "multi_label": (False,), "thresholds": (None,), "label_weights": (None,),
    "average": (None, "micro"),
}  # fmt: skip


def is_exact(spec: MetricSpec) -> bool:
    """True if a metric is the area under one ROC curve."""
    given = dict(spec.arguments)
    return spec.name == "AUC" and all(
        given.get(name, values[0]) in values for name, values in _ONE_CURVE.items()
    )
