"""Facts of an architecture, and the memory that training it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cerebro_db.errors import InvalidArgument

_MOST = 10**30
_LONGEST_NAME = 63
Shapes = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True)
class ArchitectureFacts:
    """Facts of an architecture that the estimates are made from.

    Args:
        parameters: number of trainable weights.
        multiply_adds: of the forward pass of one row.
        has_random: whether layers draw random numbers while they train, as dropout does.
        layers: number of layers, nested ones included.
        input_shapes, output_shapes: without the batch dimension; None where a size is free.
        row_bytes: of all tensors of a forward pass in training, for each row.
        largest_bytes: of the largest of them, for each row.
        fixed_bytes: of tensors that do not grow with the batch.
        framework: of the architecture, by its name; empty in facts of earlier versions.
    """

    parameters: int
    multiply_adds: int
    has_convolution: bool
    has_random: bool
    layers: int
    input_shapes: Shapes
    output_shapes: Shapes
    row_bytes: int = 0
    largest_bytes: int = 0
    fixed_bytes: int = 0
    framework: str = ""

    def to_json(self) -> str:
        """Returns canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ArchitectureFacts:
        """Reads what `to_json` wrote; a table of models may hold anything else, too."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or set(values) | _LATER != set(_READERS):
                raise ValueError("not the facts of a model")
            return cls(**{key: _READERS[key](value) for key, value in values.items()})
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgument(
                f"architecture facts: got {text[:80]!r}; {error}",
                hint="cerebro.cerebro_load_model writes the column model_facts; set it to NULL to have it found anew",
            ) from error


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ValueError("a count is not a whole number from 0")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("a truth value is neither true nor false")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError("the framework is no name")
    return value


def _shapes(value: Any) -> Shapes:
    if not isinstance(value, list) or not all(isinstance(shape, list) for shape in value):
        raise ValueError("the shapes are not lists of sizes")
    return tuple(tuple(None if size is None else _count(size) for size in shape) for shape in value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "parameters": _count,
    "multiply_adds": _count,
    "layers": _count,
    "has_convolution": _truth,
    "has_random": _truth,
    "input_shapes": _shapes,
    "output_shapes": _shapes,
    "row_bytes": _count,
    "largest_bytes": _count,
    "fixed_bytes": _count,
    "framework": _name,
}
# Tables of earlier versions lack these; a worker finds them anew before it trains.
_LATER = {"row_bytes", "largest_bytes", "fixed_bytes", "framework"}
_MB = 2**20
# Measured on x86-64, resident, peaks: what a hop holds of a model at once, as multiples of the bytes of its
# parameters (gradients, updates) and of its whole state (as it comes, in variables, in the next state's bytes and
# their copy for the row). What a framework takes itself is its footprint.
_PARAMETERS, _STATE = 3.0, 5.2
# And of gradients that are exchanged: joined in one array, in memory that is shared, the share of their mean
# that is made here in double precision, the mean, and its parts.
_EXCHANGED = 6.0
# Share of the machine's memory that all workers may use together, and the least that one gets:
# enough for a framework and a small net.
_USABLE = 0.8
_LEAST_MB = 2048
# Scoring splits rows such that a tensor has 16 MB, unless one row has more; some are there at once.
_SCORING_BYTES = 16 * _MB
_SCORING_TENSORS = 4
# Arrays as large as the parameters that an optimizer keeps; those that are not here keep two.
_SLOTS = {"SGD": 1, "Adagrad": 1, "Adafactor": 1, "Lion": 1}
_DEFAULT_SLOTS = 2
_FLOAT_BYTES = 4


class Footprint(NamedTuple):
    """Megabytes that a framework takes in a process that computes.

    Attributes:
        base: before it trains anything.
        program: of a program.
        compiled: of one that is compiled to machine code.
    """

    base: int
    program: int
    compiled: int


@dataclass(frozen=True)
class Load:
    """Demand of one configuration on a worker.

    Attributes:
        program: equal for configurations that share a program.
        parameters: of the model.
        optimizer: name of the class.
        compiled: whether XLA compiles the program.
        averages: whether the optimizer keeps averages of the parameters.
        batch_size: rows of a batch in training; 0 where the model is only loaded, or predicts.
        row_bytes: of all tensors of a row in training.
        largest_bytes: of the largest of them.
        fixed_bytes: of tensors that do not grow with the batch.
        exchanges: whether its gradients are exchanged with those of other workers.
        framework: that computes it, by its name; empty for the default one.
    """

    program: object
    parameters: int
    optimizer: str
    compiled: bool
    averages: bool = False
    batch_size: int = 0
    row_bytes: int = 0
    largest_bytes: int = 0
    fixed_bytes: int = 0
    exchanges: bool = False
    framework: str = ""

    @property
    def state_bytes(self) -> int:
        """Of the whole state."""
        slots = _SLOTS.get(self.optimizer, _DEFAULT_SLOTS)
        if not self.batch_size:
            slots = 0
        return _FLOAT_BYTES * self.parameters * (1 + slots + self.averages)

    @property
    def training_bytes(self) -> int:
        """Of the model while it is trained or asked: states, gradients, updates."""
        arrays = _PARAMETERS + (_EXCHANGED if self.exchanges else 0.0)
        gradients = arrays * _FLOAT_BYTES * self.parameters if self.batch_size else 0.0
        return int(gradients + _STATE * self.state_bytes)

    @property
    def activation_bytes(self) -> int:
        """Of the tensors of a batch, in training or in scoring."""
        scoring = _SCORING_TENSORS * max(_SCORING_BYTES, self.largest_bytes)
        return self.fixed_bytes + max(scoring, self.batch_size * self.row_bytes)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a worker is expected to need at most.

    Attributes:
        base: with its frameworks, before it trains anything.
        cache: decoded partitions.
        programs: compiled ones.
        states: of the largest model, while it is trained.
        activations: of the largest batch.
        frameworks: that it has, in words.
    """

    base: int
    cache: int
    programs: int
    states: int
    activations: int
    frameworks: str = "framework"

    @property
    def total(self) -> int:
        """All of them."""
        return self.base + self.cache + self.programs + self.states + self.activations

    def __str__(self) -> str:
        parts = {
            self.frameworks: self.base,
            "data": self.cache,
            "programs": self.programs,
            "states": self.states,
            "activations": self.activations,
        }
        return ", ".join(f"{name} {size // _MB} MB" for name, size in parts.items())


def worker_memory(loads: Collection[Load], data_bytes: int, cache_bytes: int) -> MemoryEstimate:
    """Estimate the peak of a worker that may meet every configuration.

    Args:
        loads: of the configurations.
        data_bytes: of all packed tables of the run, decoded.
        cache_bytes: of them that a worker may keep.
    """
    from cerebro_db.configs import frameworks  # whose modules know memory

    programs = {load.program: _program_bytes(load) for load in loads}
    held = frameworks.held_for({load.framework or frameworks.default() for load in loads})
    return MemoryEstimate(
        base=sum(one.footprint.base for one in held) * _MB,
        cache=min(data_bytes, cache_bytes),
        programs=sum(programs.values()),
        states=max((load.training_bytes for load in loads), default=0),
        activations=max((load.activation_bytes for load in loads), default=0),
        frameworks=" and ".join(one.title for one in held),
    )


def _program_bytes(load: Load) -> int:
    from cerebro_db.configs import frameworks

    found = frameworks.frameworks()[load.framework or frameworks.default()].footprint
    return (found.compiled if load.compiled else found.program) * _MB


def usable_mb(memory_mb: int) -> int:
    """Megabytes of a machine that all workers may use together."""
    return int(_USABLE * memory_mb)


def worker_limit_mb(setting: int, memory_mb: int, cores: int) -> int:
    """Megabytes that one worker may use.

    Args:
        setting: ``max_worker_mb``, 0 where nobody has set it.
        memory_mb, cores: of the machine.
    """
    usable = usable_mb(memory_mb)
    return setting or min(usable, max(usable // max(cores, 1), _LEAST_MB))


_LESS = "use a smaller batch_size or model, fewer different programs in one run, or use_caching := false"
FEWER_MODELS = "ask fewer models at a time"


def check_worker_memory(
    estimate: MemoryEstimate, limit_mb: int, what: str, remedy: str = _LESS
) -> None:
    """Refuse what may need more memory than a worker may use.

    Args:
        estimate: of the worker.
        limit_mb: megabytes that it may use.
        what: names what was asked for.
        remedy: how to ask for less.

    Raises:
        InvalidArgument: with the estimate and what it is made of.
    """
    if estimate.total > limit_mb * _MB:
        raise InvalidArgument(
            f"got {what} for which a worker may need {estimate.total // _MB} MB "
            f"({estimate}); allowed: {limit_mb} MB",
            hint=f"{remedy}; an administrator can allow more: "
            "SELECT cerebro.cerebro_set('max_worker_mb', '...')",
        )
