"""Compile and fit parameters: parsed from MADlib's texts to frozen values, written back, and changed in part."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct

from cerebro_db.configs.architectures.freezing import DTYPE_POLICY, parse_freeze
from cerebro_db.configs.arguments import (
    Argument,
    flag,
    fraction,
    nearest,
    number,
    unknown,
    whole,
)
from cerebro_db.configs.functions.callbacks import CallbackSpec, parse_callbacks
from cerebro_db.configs.functions.losses import LOSSES, LossSpec, parse_loss
from cerebro_db.configs.functions.metrics import METRICS, TOP_K, MetricSpec, parse_metrics
from cerebro_db.configs.functions.optimizers import (
    ARGUMENT_ALIASES,
    DECAY,
    OPTIMIZERS,
    SCHEDULES,
    OptimizerSpec,
    parse_optimizer,
)
from cerebro_db.configs.grammar import Call, call_of, named_values, parse_keywords
from cerebro_db.configs.grids.groups import PARAM_GROUPS, Groups, parse_groups
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, hinted
from cerebro_db.wire import Wire

# In the order of MADlib's documentation, followed by what is ours, as they are written.
COMPILE_KEYS = (
    "optimizer", "metrics", "loss", "loss_weights", "l1", "l2", "dropout", "freeze", "dtype_policy",
    "loss_per_member", "param_groups",
)  # fmt: skip
FIT_KEYS = ("epochs", "batch_size", "shuffle", "class_weight", "mixup", "callbacks", "verbose")
DEFAULT_BATCH_SIZE, MOST_MIXUP = 32, 100.0
# A search reads the text of a configuration several times; what it stands for never changes.
T = TypeVar("T")
_MOST_TEXTS = 4096

_REGULARISATION = {
    argument.name: argument
    for argument in (number("l1", None), number("l2", None), fraction("dropout", None))
}
_FIT = {
    argument.name: argument
    for argument in (
        whole("epochs", 1, low=1, high=1_000_000),
        whole("batch_size", DEFAULT_BATCH_SIZE, low=1, high=1_000_000),
        flag("shuffle", True),
        number("mixup", None, high=MOST_MIXUP),
    )
}
NUMERIC_ARGUMENTS: Mapping[str, Argument] = {
    **_REGULARISATION,
    **{name: argument for name, argument in _FIT.items() if argument.kind.is_numeric},
}
# By the rows of each class, as in scikit-learn.
BALANCED: Literal["balanced"] = "balanced"
_CLASS_ID = whole("class_weight", None, low=0, required=True)
_CLASS_WEIGHT = number("class_weight", None, required=True)
_LOSS_WEIGHT = number("loss_weights", None, required=True)
_NOT_YET = "it is not supported in this release; leave it out"
_PER_MEMBER = flag("loss_per_member", False)
_REFUSED_COMPILE = (
    "weighted_metrics", "sample_weight_mode", "run_eagerly",
    "steps_per_execution", "jit_compile", "auto_scale_loss", "target_tensors",
)  # fmt: skip
REFUSED_FIT = (
    "initial_epoch", "steps_per_epoch", "sample_weight", "validation_data",
    "validation_split", "validation_steps", "validation_batch_size", "validation_freq",
    "max_queue_size", "workers", "use_multiprocessing", "x", "y",
)  # fmt: skip


class ConfigurationText(Wire, frozen=True, array_like=True):
    """A row of the model selection table."""

    model_id: int
    compile_params: str
    fit_params: str


MAX_OUTPUTS = 100


class ByOutput(Struct, Generic[T], frozen=True):
    """One value for each output.

    Attributes:
        values: in the order of the outputs, or of ``names``.
        names: of the outputs; None where the order counts.
    """

    values: tuple[T, ...]
    names: tuple[str, ...] | None = None

    def of(self, outputs: Sequence[str], what: str) -> tuple[T | None, ...]:
        """The values in the order of a model's outputs, None for those that are not named.

        Raises:
            InvalidArgument: there are more or fewer, or a name that no output has.
        """
        if self.names is None:
            if len(self.values) != len(outputs):
                raise InvalidArgument(
                    f"{what}: got {len(self.values)} for the {len(outputs)} outputs of the model; "
                    "allowed: one for each output, in their order"
                )
            return self.values
        for name in self.names:
            if outputs.count(name) != 1:
                raise InvalidArgument(
                    f"{what}: got {shown(name)}; allowed: names of outputs, which are the layers "
                    f"that make them. {nearest(name[:80], outputs)}"
                )
        found = dict(zip(self.names, self.values, strict=True))
        return tuple(found.get(name) for name in outputs)


def by_output(value: object, parse: Callable[[object], T], what: str) -> ByOutput[T]:
    """Read a list, or a dictionary from names of outputs.

    Raises:
        InvalidArgument: it is empty or too long, or a key is no text.
    """
    names: tuple[str, ...] | None = None
    values: list[object] = []
    if isinstance(value, dict):
        values = list(value.values())
        names = tuple(name for name in value if isinstance(name, str) and name)
    elif isinstance(value, list | tuple):
        values = list(value)
    if not 0 < len(values) <= MAX_OUTPUTS or (names is not None and len(names) != len(values)):
        raise InvalidArgument(
            f"{what}: got {shown(value)}; it must be a list with one element for each output, or a "
            f"dictionary from names of outputs, for at most {MAX_OUTPUTS} of them"
        )
    return ByOutput(tuple(parse(element) for element in values), names)


class CompileParams(Struct, frozen=True):
    """Parsed ``compile_params`` of a configuration.

    Attributes:
        loss, metrics: of the one output, or of all outputs; the first loss where each has its own.
        losses, output_metrics, loss_weights: what the outputs have of their own.
        l1, l2: strength put on every kernel of the architecture, replacing its regularizer.
        dropout: rate of every dropout layer of the architecture.
        freeze: patterns of names of layers that do not train.
        dtype_policy: of every layer, replacing its own; None for those of the architecture.
        loss_per_member: whether training compares each member of an output with the target, not their mean.
        param_groups: parameters with a learning rate or a weight decay of their own.
    """

    optimizer: OptimizerSpec
    loss: LossSpec
    metrics: tuple[MetricSpec, ...] = ()
    l1: float | None = None
    l2: float | None = None
    dropout: float | None = None
    freeze: tuple[str, ...] = ()
    losses: ByOutput[LossSpec] | None = None
    output_metrics: ByOutput[tuple[MetricSpec, ...]] | None = None
    loss_weights: ByOutput[float] | float | None = None
    dtype_policy: str | None = None
    loss_per_member: bool = False
    param_groups: Groups = ()


class FitParams(Struct, frozen=True):
    """Parameters of training on a partition; `epochs` are passes within one hop.

    Attributes:
        mixup: of the Beta distribution of the share of a row that is mixed with another one; None for no mixing.
    """

    batch_size: int = DEFAULT_BATCH_SIZE
    epochs: int = 1
    shuffle: bool = True
    class_weight: tuple[tuple[int, float], ...] | Literal["balanced"] | None = None
    callbacks: tuple[CallbackSpec, ...] = ()
    mixup: float | None = None


def _remembered(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser that knows the texts that it has parsed last; tables of others may hold no texts."""
    known = functools.lru_cache(maxsize=_MOST_TEXTS)(parse)

    def parsed(text: str) -> T:
        return known(text) if isinstance(text, str) else parse(text)

    return parsed


class Vocabulary(NamedTuple):
    """The names that a framework has for what compile parameters name; each parses a value of the text."""

    loss: Callable[[object, str], LossSpec]
    metrics: Callable[[object, str], tuple[MetricSpec, ...]]
    optimizer: Callable[[object, str], OptimizerSpec]


def parser_of(vocabulary: Vocabulary) -> Callable[[str], CompileParams]:
    """The parser of compile parameters with these names, which remembers what it has parsed last."""
    return _remembered(functools.partial(_compile_params, vocabulary))


@hinted(
    "compile_params are such as loss='mse',optimizer='Adam(lr=0.01)',metrics=['mae']; "
    "docs/sql/configurations.md lists them under Compile parameters"
)
def _compile_params(vocabulary: Vocabulary, text: str) -> CompileParams:
    what = "compile_params"
    given = parse_keywords(text, what)
    _check_keys(given, COMPILE_KEYS, _REFUSED_COMPILE, what)
    for key in ("optimizer", "loss"):
        if given.get(key) is None:
            raise InvalidArgument(f"{what}: got {shown(text)} without {key}; it must be given")
    regularisation = {
        key: argument.validated(given.get(key), what) for key, argument in _REGULARISATION.items()
    }
    losses, metrics = _losses(given["loss"], vocabulary, what), given.get("metrics")
    several = _is_by_output(metrics)
    return CompileParams(
        optimizer=vocabulary.optimizer(given["optimizer"], what),
        loss=losses.values[0] if losses else vocabulary.loss(given["loss"], what),
        metrics=() if several else vocabulary.metrics(metrics, what),
        losses=losses,
        output_metrics=by_output(metrics, lambda one: vocabulary.metrics(one, what), what)
        if several
        else None,
        loss_weights=_loss_weights(given.get("loss_weights"), what),
        freeze=parse_freeze(given.get("freeze") or (), what),
        dtype_policy=DTYPE_POLICY.validated(given.get("dtype_policy"), what),
        loss_per_member=bool(_PER_MEMBER.validated(given.get("loss_per_member", False), what)),
        param_groups=parse_groups(given.get(PARAM_GROUPS), what),
        **regularisation,
    )


KERAS = Vocabulary(parse_loss, parse_metrics, parse_optimizer)
_parse_keras = parser_of(KERAS)


def parse_compile_params(text: str) -> CompileParams:
    """Parse for example ``loss='mse',optimizer='Adam(lr=0.1)',metrics=['mae'],l2=0.001``, with the names of Keras."""
    return _parse_keras(text)


@_remembered
@hinted(
    "fit_params are such as batch_size=32,epochs=1; docs/sql/configurations.md lists them under Fit parameters"
)
def parse_fit_params(text: str) -> FitParams:
    """Parse for example ``batch_size=16,epochs=1``; verbose is accepted and ignored."""
    what = "fit_params"
    given = parse_keywords(text, what)
    _check_keys(given, FIT_KEYS, REFUSED_FIT, what)
    values = {
        key: argument.validated(given[key], what) for key, argument in _FIT.items() if key in given
    }
    if values.get("mixup") == 0:
        values["mixup"] = None
    return FitParams(
        **values,
        class_weight=_class_weight(given.get("class_weight"), what),
        callbacks=parse_callbacks(given.get("callbacks") or (), what),
    )


def _losses(value: object, vocabulary: Vocabulary, what: str) -> ByOutput[LossSpec] | None:
    """The losses of several outputs; None for one loss."""
    if not isinstance(value, dict | list | tuple):
        return None
    return by_output(value, lambda one: vocabulary.loss(one, what), f"{what}: loss")


def _is_by_output(metrics: object) -> bool:
    """True if each output has metrics of its own; a plain list may be of one output."""
    listed = isinstance(metrics, list | tuple)
    return isinstance(metrics, dict) or (
        listed and any(one is None or isinstance(one, list | tuple) for one in metrics)  # type: ignore[attr-defined]
    )


def _loss_weights(value: object, what: str) -> ByOutput[float] | float | None:
    def weight(one: object) -> float:
        return float(_LOSS_WEIGHT.validated(one, what))

    if value is None:
        return None
    if not isinstance(value, dict | list | tuple):
        return weight(value)
    return by_output(value, weight, f"{what}: loss_weights")


def _check_keys(
    given: Mapping[str, object], allowed: tuple[str, ...], refused: tuple[str, ...], what: str
) -> None:
    for key, value in given.items():
        if key in refused and value is not None:
            raise InvalidArgument(f"{what}: got {key!r}; {_NOT_YET}")
        if key not in allowed and key not in refused:
            raise unknown(what, "parameter", key, allowed)


def _class_weight(
    value: object, what: str
) -> tuple[tuple[int, float], ...] | Literal["balanced"] | None:
    if value is None:
        return None
    if value == BALANCED:
        return BALANCED
    if not isinstance(value, dict) or not value:
        raise InvalidArgument(
            f"{what}: got class_weight={shown(value)}; it must be 'balanced', or a dictionary "
            "from class ids to weights, such as {0: 1.0, 1: 2.5}"
        )
    return tuple(
        sorted(
            (_CLASS_ID.validated(class_id, what), _CLASS_WEIGHT.validated(weight, what))
            for class_id, weight in value.items()
        )
    )


def optimizer_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Text of an optimizer, such as ``Adam(lr=0.001)``."""
    return f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"


def compile_text(values: Mapping[str, Any]) -> str:
    """Text of compile parameters, such as ``optimizer='Adam(lr=0.1)',metrics=['accuracy'],loss='mse'``."""
    return _text({**values, "metrics": _metrics(values.get("metrics"))}, COMPILE_KEYS)


def fit_text(values: Mapping[str, Any]) -> str:
    """Text of fit parameters, such as ``epochs=10,batch_size=64``."""
    return _text(values, FIT_KEYS)


def _text(values: Mapping[str, Any], order: tuple[str, ...]) -> str:
    known = [key for key in order if values.get(key) is not None]
    others = [key for key in values if key not in order and values[key] is not None]
    return ",".join(f"{key}={values[key]!r}" for key in (*known, *others))


def _metrics(value: object) -> list[Any] | dict[Any, Any] | None:
    """One metric or several make a list; a dictionary tells those of each output."""
    if value is None or isinstance(value, dict):
        return value
    return list(value) if isinstance(value, list | tuple) else [value]


_OPTIMIZER = "optimizer"


@hinted(
    "changes are such as 'lr=0.003, batch_size=64': compile parameters, fit parameters, and "
    "arguments of the optimizer"
)
def changed(
    compile_params: str, fit_params: str, changes: str, what: str = "changes"
) -> tuple[str, str]:
    """The compile and fit parameters after changes such as ``'lr=0.003, batch_size=64'``.

    A name is a compile parameter, a fit parameter, or else an argument of the optimizer; with another
    ``optimizer`` the arguments of the one before are gone.

    Raises:
        InvalidArgument: there is no such parameter, or it cannot have that value.
    """
    compiling = parse_keywords(compile_params, "compile_params")
    fitting = parse_keywords(fit_params, "fit_params")
    arguments: dict[str, Any] = {}
    for key, value in parse_keywords(changes, what).items():
        place = compiling if key in COMPILE_KEYS else fitting if key in FIT_KEYS else arguments
        place[key] = value
    if arguments:
        compiling[_OPTIMIZER] = _with_arguments(compiling[_OPTIMIZER], arguments, what)
    from cerebro_db.configs.frameworks import meaning  # which knows these parameters

    texts = compile_text(compiling), fit_text(fitting)
    meaning(texts[0])
    parse_fit_params(texts[1])
    return texts


def _with_arguments(optimizer: object, arguments: dict[str, Any], what: str) -> str:
    """The text of an optimizer with other arguments."""
    call = call_of(optimizer, _OPTIMIZER, what)
    from cerebro_db.configs.frameworks import optimizer_named

    name, arguments_of = optimizer_named(call.name, what)
    places = [] if name not in OPTIMIZERS else OPTIMIZERS[name].arguments
    allowed = (*COMPILE_KEYS, *FIT_KEYS, *arguments_of, *ARGUMENT_ALIASES, DECAY.name)
    by_place = OPTIMIZERS[name].by_place if places else 0
    found = named_values(call, tuple(one.name for one in places[:by_place]), what)
    for key, value in arguments.items():
        if key not in allowed:
            raise unknown(what, "parameter", key, allowed)
        for other in [one for one in found if _same(one, key)]:
            del found[other]
        found[key] = value
    return repr(Call(name, tuple(found.items())))


def _same(name: str, other: str) -> bool:
    return ARGUMENT_ALIASES.get(name, name) == ARGUMENT_ALIASES.get(other, other)


def is_taken(name: str) -> bool:
    """True if Keras has an optimizer, loss, metric or schedule of a name."""
    return any(table.has(name) for table in (OPTIMIZERS, LOSSES, METRICS, SCHEDULES))


def is_top_k(name: str) -> bool:
    """True for MADlib's ``top_3_accuracy``, with any number."""
    return bool(TOP_K.fullmatch(name))
