"""Refuses strategies that cannot be had: on this server, with these partitions, workers and optimizers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from cerebro_db.configs.settings import PEER_NETWORK_HINT
from cerebro_db.core.spec import (
    ALLREDUCE,
    AUTO,
    AVERAGING,
    HOPPER,
    SERVED,
    SIDE_BY_SIDE,
    Configuration,
    RunSpec,
)
from cerebro_db.core.strategies import ChosenStrategy
from cerebro_db.errors import InvalidArgument, NotSupported, TooManyConnections
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql.hosts import PostgreSQLHosts
from cerebro_db.postgres.gpus import hosts_of
from cerebro_db.postgres.packed import PackedTable
from cerebro_db.postgres.sessions import Session
from cerebro_db.runs.request import FitRequest
from cerebro_db.runs.served import scales_loss


def check_way(strategy: str, packed: PackedTable, neighbours: int, network: str) -> None:
    """Refuse trainers that have no way to each other.

    Args:
        strategy: of the run.
        packed: what is trained on.
        neighbours: of its partitions, the most that are on one host.
        network: in which those of several hosts may meet; empty for none.

    Raises:
        NotSupported: they are on several hosts, and are allowed no network, or could not use one.
    """
    if strategy not in SIDE_BY_SIDE or neighbours == len(packed.partitions):
        return
    if strategy in SERVED:
        raise not_on_one_host(strategy, packed, neighbours, _OVER_A_NETWORK)
    if not network:
        hint = f"{PEER_NETWORK_HINT}; strategy := {HOPPER!r} moves nothing but states"
        raise no_way(f"strategy: got {strategy!r}", packed, neighbours, hint)


def no_way(got: str, packed: PackedTable, neighbours: int, hint: str) -> NotSupported:
    """Error of trainers that are on several hosts, where no network is allowed to them."""
    why = "the setting peer_network is empty, so that trainers of others have no way to each other"
    return NotSupported(_apart(got, packed, neighbours, why), hint=hint)


_OVER_A_NETWORK = (
    f"strategy := {ALLREDUCE!r}, which has the weights of a synchronous parameter server, exchanges gradients "
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
    session: Session, hosts: PostgreSQLHosts, spec: RunSpec, packed: PackedTable, network: str
) -> dict[int, str]:
    """The host of each partition, where trainers of several hosts exchange gradients; else nothing.

    Raises:
        NotSupported: they do, and are allowed no network, or could not use one.
    """
    if spec.schedule not in SIDE_BY_SIDE and spec.largest_group == 1:
        return {}
    found = hosts_of(session, hosts, packed.relation.name)
    counts = Counter(found.values())
    if len(counts) < 2:
        return {}
    most = max(counts.values())
    if spec.schedule in SERVED:
        hint = "resume the run when these segments are on one host again"
        raise not_on_one_host(spec.schedule, packed, most, hint)
    if not network:
        # A run that has begun keeps its strategy.
        got = f"strategy: got {spec.schedule!r}"
        raise no_way(got, packed, most, PEER_NETWORK_HINT)
    return found


def check_groups(strategy: str, at_once: int, num_workers: int) -> None:
    """Refuse fewer workers than the groups that a run has chosen."""
    if strategy == AUTO and num_workers < at_once:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed: from {at_once}, as the run has begun with "
            f"strategy := {AUTO!r}, and so many train a configuration together",
            hint="leave it out",
        )


def check_enough(strategy: str, num_workers: int | None, packed: PackedTable) -> None:
    """Refuse fewer workers than must work together."""
    least = len(packed.partitions)
    if strategy in SIDE_BY_SIDE and num_workers is not None and num_workers < least:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed with strategy := {strategy!r}: from {least}, as "
            f"each of the {least} partitions of {packed.relation.name} has a worker at the same time",
            hint=f"leave it out, or pack the source with num_partitions := {num_workers}",
        )


def check_rounds(
    chosen: ChosenStrategy, configurations: Sequence[Configuration], packed: PackedTable
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


def check_averages(chosen: ChosenStrategy, configurations: Sequence[Configuration]) -> None:
    """Refuse optimizers that hold what has no mean: the scale of a loss is a power of 2."""
    if chosen.name != AVERAGING or chosen.resets:
        return
    for one in configurations:
        if scales_loss(one):
            raise InvalidArgument(
                f"configuration {one.mst_key}: got an optimizer that scales its loss, as the model "
                f"computes in float16; allowed with strategy := {AVERAGING!r}: optimizers whose numbers "
                "can be averaged",
                hint="strategy_params := 'optimizer=reset' has it begin each round anew",
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


def check_strategy(dialect: PostgreSQL, request: FitRequest) -> None:
    """Refuse a strategy that the server cannot do."""
    name = request.chosen.name
    if name in dialect.strategies:
        return
    what = "schedule" if request.strategy is None else "strategy"
    raise NotSupported(
        f"{what}: got {name!r}; allowed on this server: {', '.join(map(repr, dialect.strategies))}, "
        "as no statement can train on segments side by side",
        hint=f"leave it out: {AUTO if request.one is not None else HOPPER!r} is the default",
    )
