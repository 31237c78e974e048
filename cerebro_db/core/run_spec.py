"""The spec of a run: what it was asked for, with all names and defaults resolved, which never changes.

It is one struct from the request to the state machine, and one JSON in ``cerebro._runs.spec``, which views keep some
columns of. Whoever resumes, extends or replays a run reads that JSON back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import Meta, field, structs

from cerebro_db.core.folds import Folds
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import EVERY_HOP, TRAINING, Hop
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.wire import Wire, convert, decode_stored, encode

if TYPE_CHECKING:
    from cerebro_db.core.strategies import Strategy
else:
    Strategy = Any  # in JSON its name and its parameters, which it is made of when they are read

_Count = Annotated[int, Meta(ge=1)]


class Workers(Wire, frozen=True):
    """The workers of a run.

    Attributes:
        count: how many.
        bound: whether each partition belongs to one of them, and others never read its rows.
        most_hops: of one partition that a task may have.
    """

    count: int = 1
    bound: bool = False
    most_hops: int = 1

    def serves(self, worker: int, partition_key: int) -> bool:
        """True if a worker, by its number, may have a partition.

        Those that have joined the run, with numbers from ``count`` on, have no partition of their own.
        """
        is_any = not self.bound or self.count < 1 or worker >= self.count
        return is_any or partition_key % self.count == worker


class RunSpec(Wire, frozen=True, tag_field="version", tag=1):
    """Spec of a run.

    Each driver finds out anew, so that it is not stored: ``partitions``, ``scans_wait``, ``is_open`` and what workers
    are bound to.

    Attributes:
        epochs: budget of the configurations that the run begins with.
        frequency: epochs between measures.
        partitions: keys of the partitions of each data set.
        strategy: that makes its hops, with its parameters.
        durability: which states outlive a crash: those of every hop, or those at the end of an epoch.
        scans_wait: whether a scan waits for all configurations, as partitions do not fit into memory.
        is_open: whether decisions may change the set of configurations while the run goes on.
        workers: of this driver; in JSON those that the run began with.
        threads: of a worker.
        use_caching: whether workers keep decoded partitions in memory.
        warm_start: whether it goes on from the models of its output table, and replaces them.
        source_table, validation_table, model_selection_table, model_arch_table, object_table: for people; no
            table of configurations for one model.
        search: what the configurations are from; None where they are all known.
        folds: of cross-validation; None where all trainings see all rows.
        session: settings of the session that began it, which all that work for it have.
        cerebro_version: of the package with which it began.
    """

    epochs: _Count
    seed: int
    frequency: _Count
    partitions: Mapping[str, tuple[int, ...]]
    strategy: Strategy
    durability: Literal["hop", "epoch"] = "hop"
    use_gpus: bool = False
    scans_wait: bool = False
    is_open: bool = False
    workers: Workers = Workers()
    threads: _Count = 1
    use_caching: bool = True
    warm_start: bool = False
    name: str | None = None
    description: str | None = None
    source_table: str = ""
    validation_table: str | None = None
    model_selection_table: str | None = None
    model_arch_table: str = ""
    object_table: str | None = None
    search: SearchSpec | None = None
    folds: Folds | None = None
    session: Mapping[str, str] = field(default_factory=dict)
    cerebro_version: str = ""

    @property
    def scored(self) -> tuple[str, ...]:
        """The data sets on which configurations are scored."""
        measured = () if self.search is None else self.search.measured
        return measured or tuple(self.partitions)

    def stored(self, dataset: str) -> str:
        """Data set whose rows a worker keeps for another one: a fold is rows of the training table."""
        return dataset if self.folds is None else TRAINING

    @property
    def every_hop(self) -> bool:
        """True if all states outlive a crash."""
        return self.durability == EVERY_HOP

    @property
    def hops_an_epoch(self) -> int:
        """Number of hops of a configuration in an epoch."""
        return len(self.partitions[TRAINING]) * self.strategy.rounds

    @property
    def together(self) -> int:
        """Hops that begin with the same state, and leave one, in all rounds of the strategy."""
        return len(self.partitions[TRAINING]) if self.strategy.has_rounds else 1

    def round_size(self, hop: Hop) -> int:
        """Hops that begin with the same state as this one, and leave one with it."""
        return self.together if self.strategy.has_rounds else hop.group

    def is_joined(self, hop: Hop) -> bool:
        """True if a hop is made at the same time as the others of its round."""
        return self.strategy.is_side_by_side or hop.group > 1

    @property
    def measured_epochs(self) -> list[int]:
        """Epochs after which configurations are measured that are trained for all of them."""
        epochs = range(1, self.epochs + 1)
        return [one for one in epochs if one % self.frequency == 0 or one == self.epochs]

    def version(self, hop: Hop) -> int:
        """Hops that a configuration has done before this one."""
        return (hop.epoch - 1) * self.hops_an_epoch + hop.position

    def base(self, hop: Hop) -> int:
        """The version of the state that a hop begins with."""
        version = self.version(hop)
        return version - version % self.round_size(hop)

    def left(self, hop: Hop) -> int:
        """The version of the state that a hop leaves; where that is averaged, a negative number."""
        if self.strategy.averages:
            return -1 - self.version(hop)
        return self.base(hop) + self.round_size(hop)

    def round_of(self, hop: Hop) -> int:
        """The round that a hop belongs to, from 0, of those in which its partition is trained on."""
        return hop.position // self.together if self.strategy.has_rounds else 0

    def begins_epoch(self, hop: Hop) -> bool:
        """True if a hop begins with the state after the epoch before."""
        return self.base(hop) % self.hops_an_epoch == 0

    # -- JSON ------------------------------------------------------------------------------------
    def to_text(self) -> str:
        """The JSON that is stored."""
        found: Any = structs.replace(
            self,
            partitions={},
            strategy=cast(Any, _NamedStrategy(self.strategy.name, self.strategy.text)),
            scans_wait=False,
            is_open=False,
            workers=Workers(self.workers.count),
        )
        return encode(found)

    @classmethod
    def from_text(
        cls, text: str, parse_strategy: Callable[[str | None, str | None], Strategy]
    ) -> RunSpec:
        """Read the result of ``to_text``.

        Args:
            text: the JSON.
            parse_strategy: makes a strategy of its name and parameters.

        Raises:
            InvalidData: it is something else, with the path of what is wrong.
        """
        found = decode_stored(cls, text, "spec", _CHANGED)
        try:
            named = convert(_NamedStrategy, found.strategy, "spec.strategy")
            return structs.replace(found, strategy=parse_strategy(named.name, named.params))
        except InvalidArgument as error:
            raise InvalidData(error.message, hint=_CHANGED) from None


_CHANGED = "the row of the run was changed by hand; begin a new run"


class _NamedStrategy(Wire, frozen=True):
    """A strategy in JSON."""

    name: str
    params: str = ""
