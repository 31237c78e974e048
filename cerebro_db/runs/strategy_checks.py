"""Refuses strategies that cannot be had: on this server, with these partitions, workers and optimizers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from cerebro_db.configs.settings import PEER_NETWORK_HINT
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import Configuration
from cerebro_db.core.strategies import Strategy
from cerebro_db.decide.strategies import DEFAULT, STRATEGIES, listed
from cerebro_db.decide.strategies.allreduce import AllReduce
from cerebro_db.errors import InvalidArgument, NotSupported, TooManyConnections
from cerebro_db.postgres.calls.gpus import hosts_of
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.hosts import Hosts
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable


def check_way(strategy: Strategy, packed: PackedTable, neighbours: int, network: str) -> None:
    """Refuse trainers that have no way to each other.

    Args:
        strategy: of the run.
        packed: what is trained on.
        neighbours: of its partitions, the most that are on one host.
        network: in which those of several hosts may meet; empty for none.

    Raises:
        NotSupported: they are on several hosts, and are allowed no network, or could not use one.
    """
    if not strategy.is_side_by_side or neighbours == len(packed.partitions):
        return
    if strategy.has_weight_server:
        raise not_on_one_host(strategy.name, packed, neighbours, _OVER_A_NETWORK)
    if not network:
        hint = f"{PEER_NETWORK_HINT}; strategy := {DEFAULT!r} moves nothing but states"
        raise no_way(f"strategy: got {strategy.name!r}", packed, neighbours, hint)


def check_mixing(strategy: Strategy, configurations: Sequence[Configuration]) -> None:
    """Refuse mixed rows where several workers share those of a round.

    Raises:
        InvalidArgument: a configuration mixes rows, and its hops do not train alone.
    """
    mixing = [one.mst_key for one in configurations if one.fit_params.mixup is not None]
    if mixing and not strategy.takes_folds:
        allowed = listed(one.name for one in STRATEGIES.values() if one.takes_folds)
        raise InvalidArgument(
            f"strategy: got {strategy.name!r} with mixup in the configuration {mixing[0]}; allowed: {allowed}, whose "
            "hops train alone"
        )


def no_way(got: str, packed: PackedTable, neighbours: int, hint: str) -> NotSupported:
    """Error of trainers that are on several hosts, where no network is allowed to them."""
    why = "the setting peer_network is empty, so that trainers of others have no way to each other"
    return NotSupported(_apart(got, packed, neighbours, why), hint=hint)


_OVER_A_NETWORK = (
    f"strategy := {AllReduce.name!r}, which has the weights of a synchronous parameter server, exchanges gradients "
    "between hosts"
)


def not_on_one_host(strategy: str, packed: PackedTable, neighbours: int, hint: str) -> NotSupported:
    """Error of trainers on several hosts, of which one holds the weights in memory that all of them share."""
    why = "one trainer holds the weights, in memory that all of them share"
    return NotSupported(_apart(f"strategy: got {strategy!r}", packed, neighbours, why), hint=hint)


def _apart(got: str, packed: PackedTable, neighbours: int, why: str) -> str:
    return (
        f"{got} for {packed.relation.name}, whose {len(packed.partitions)} partitions are on segments of several "
        f"hosts, at most {neighbours} of them on one; allowed: partitions on one host, as {why}"
    )


def hosts_of_peers(
    session: Session, hosts: Hosts, spec: RunSpec, packed: PackedTable, network: str
) -> dict[int, str]:
    """The host of each partition, where trainers of several hosts exchange gradients; else nothing.

    Raises:
        NotSupported: they do, and are allowed no network, or could not use one.
    """
    if not spec.strategy.is_side_by_side and spec.strategy.largest_group == 1:
        return {}
    found = hosts_of(session, hosts, packed.relation.name)
    counts = Counter(found.values())
    if len(counts) < 2:
        return {}
    most = max(counts.values())
    if spec.strategy.has_weight_server:
        hint = "resume the run when these segments are on one host again"
        raise not_on_one_host(spec.strategy.name, packed, most, hint)
    if not network:
        # A run that has begun keeps its strategy.
        got = f"strategy: got {spec.strategy.name!r}"
        raise no_way(got, packed, most, PEER_NETWORK_HINT)
    return found


def check_groups(strategy: Strategy, at_once: int, num_workers: int) -> None:
    """Refuse fewer workers than the groups that a run has chosen."""
    if strategy.chooses_groups and num_workers < at_once:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed: from {at_once}, as the run has begun with "
            f"strategy := {strategy.name!r}, and so many train a configuration together",
            hint="leave it out",
        )


def check_enough(strategy: Strategy, num_workers: int | None, packed: PackedTable) -> None:
    """Refuse fewer workers than must work together."""
    least = len(packed.partitions)
    if strategy.is_side_by_side and num_workers is not None and num_workers < least:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed with strategy := {strategy.name!r}: from {least}, as "
            f"each of the {least} partitions of {packed.relation.name} has a worker at the same time",
            hint=f"leave it out, or pack the source with num_partitions := {num_workers}",
        )


def check_rounds(
    chosen: Strategy, configurations: Sequence[Configuration], packed: PackedTable
) -> None:
    """Refuse more rounds of an epoch than any configuration has batches for: the others would be empty."""
    largest = max(one.rows for one in packed.partitions)
    least = min(one.fit_params.batch_size for one in configurations)
    most = math.ceil(largest / least)
    if chosen.rounds > most:
        raise InvalidArgument(
            f"strategy_params of {chosen.name}: got rounds={chosen.rounds}; allowed: 1 to {most}, as the "
            f"largest partition of {packed.relation.name} has {largest} rows, so {most} batches of {least}",
            hint=f"rounds={most} ends a round after each batch",
        )


def check_together(strategy: str, at_once: int, workers: int) -> None:
    """Refuse fewer workers than must work at the same time."""
    if workers < at_once:
        raise TooManyConnections(
            f"got {workers} workers; strategy := {strategy!r} needs {at_once} at a time, "
            "which train a configuration together",
            hint="the NOTICE tells what there is too little of; strategy := 'averaging' works with any "
            "number of workers",
        )


def check_strategy(dialect: PostgreSQL, chosen: Strategy, what: str, default: str) -> None:
    """Refuse a strategy that the server cannot do.

    Args:
        dialect: of the server.
        chosen: the strategy.
        what: the argument that has named it.
        default: name of the one that a call without it has.
    """
    if not chosen.drives_segments or dialect.rotation is not None:
        return
    allowed = listed(one.name for one in STRATEGIES.values() if not one.drives_segments)
    raise NotSupported(
        f"{what}: got {chosen.name!r}; allowed on this server: {allowed}, "
        "as no statement can train on segments side by side",
        hint=f"leave it out: {default!r} is the default",
    )
