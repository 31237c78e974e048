"""Segments that a packed table is spread over, by ``distribution_rules``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, UndefinedColumn, UndefinedTable, WrongObjectType
from cerebro_db.postgres.calls.gpus import hosts_with_gpus, servers_of
from cerebro_db.postgres.dialects.statements.hosts import Hosts, Server
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.postgres.tables.relations import Relation, find

ALL_SEGMENTS, GPU_SEGMENTS = "all_segments", "gpu_segments"
_ROLE = "distribution_rules"
_COLUMN = "dbid"
_WHOLE = ("smallint", "integer", "bigint")


@dataclass(frozen=True)
class Chosen:
    """The segments of a packed table.

    Attributes:
        every: all there are, in their order; none where the server has none.
        segments: the numbers of those that are chosen; None for all.
        like: segment keys of a training table, where they are those of its partitions.
    """

    every: tuple[Server, ...] = ()
    segments: tuple[int, ...] | None = None
    like: tuple[int, ...] = ()

    @property
    def dbids(self) -> list[int] | None:
        """The chosen ones as the server names them; None for all."""
        if self.segments is None:
            return None
        return sorted(server.dbid for server in self.every if server.content in self.segments)

    def followed(self, used: Sequence[int]) -> Chosen:
        """The choice with the segments that a training table uses."""
        if not self.like:
            return self
        return Chosen(self.every, None if len(used) == len(self.every) else tuple(used))


def choose_segments(
    session: Session, hosts: Hosts, rule: str | None, training: PackedTable | None
) -> Chosen:
    """Segments that a rule means.

    Args:
        session: has the caller's rights, and knows the search path for a table's name.
        hosts: of the dialect.
        rule: as given; NULL for the segments of the training table, or for all.
        training: the table that is followed, of a validation table.

    Raises:
        InvalidArgument: there are no such segments.
    """
    word, servers = _word(rule), servers_of(session, hosts)
    if not servers:
        _check_without_segments(rule)
        return Chosen()
    every = _segments(servers)
    if rule is None and training is not None:
        keys = (partition.segment_key for partition in training.partitions)
        return Chosen(every, like=tuple(key for key in keys if key is not None))
    if word == ALL_SEGMENTS:
        return Chosen(every)
    if word == GPU_SEGMENTS:
        return Chosen(every, on_hosts(every, hosts_with_gpus(session, hosts, servers)))
    relation = _rules(session, rule)
    rows = session.run(
        f"SELECT t.{_COLUMN}::bigint, pg_catalog.count(*) FROM {relation.name.sql} t "
        "GROUP BY 1 ORDER BY 1 LIMIT %s",
        (len(servers) + 1,),
    )
    return Chosen(every, of_dbids(servers, rows, str(relation.name)))


def _check_without_segments(rule: str | None) -> None:
    """Refuse what makes no sense on a server without segments."""
    if _word(rule) != ALL_SEGMENTS:
        raise InvalidArgument(
            f"{_ROLE}: got {shown(rule)}; "
            f"allowed on PostgreSQL: '{ALL_SEGMENTS}', as there are no segments to choose from",
            hint="use num_partitions to say how many workers can train side by side",
        )


def on_hosts(every: Sequence[Server], hosts: set[str]) -> tuple[int, ...]:
    """The segments of some hosts."""
    found = tuple(server.content for server in every if server.hostname in hosts)
    if not found:
        names = sorted({server.hostname for server in every})
        raise InvalidArgument(
            f"{_ROLE}: got '{GPU_SEGMENTS}'; there is no GPU on {', '.join(names)}",
            hint="cerebro.cerebro_gpu_configuration lists the GPUs of each host",
        )
    return found


def of_dbids(
    servers: Sequence[Server], rows: Sequence[tuple[int | None, int]], table: str
) -> tuple[int, ...]:
    """The segments of a table's dbids.

    Args:
        servers: of the cluster.
        rows: each dbid and how often it is there.
        table: its name, for messages.
    """
    segments = {server.dbid: server.content for server in _segments(servers)}
    allowed = f"allowed: those of primary segments, {', '.join(map(str, sorted(segments)))}"
    if not rows:
        raise InvalidArgument(f"{_ROLE}: {table} has no rows; {allowed}")
    known = {server.dbid: server.what for server in servers}
    for dbid, count in rows:
        if dbid is None or dbid not in segments:
            what = f", which is {known[dbid]}" if dbid in known else ""
            got = "NULL" if dbid is None else dbid
            raise InvalidArgument(f"{_ROLE}: {table} has the dbid {got}{what}; {allowed}")
        if count > 1:
            raise InvalidArgument(
                f"{_ROLE}: {table} has the dbid {dbid} {count} times; allowed: each once"
            )
    return tuple(sorted(segments[dbid] for dbid, _ in rows if dbid is not None))


def _segments(servers: Sequence[Server]) -> tuple[Server, ...]:
    found = (server for server in servers if server.is_segment)
    return tuple(sorted(found, key=lambda server: server.content))


def _rules(session: Session, rule: str | None) -> Relation:
    try:
        relation = find(session, rule, _ROLE)
    except UndefinedTable as error:
        near = nearest(_word(rule), [ALL_SEGMENTS, GPU_SEGMENTS])
        raise UndefinedTable(
            f"{_ROLE}: got {shown(rule)}; allowed: '{ALL_SEGMENTS}', '{GPU_SEGMENTS}' or the "
            f"name of a table with a column {_COLUMN}",
            hint=near if near.startswith("Did") else error.hint,
        ) from None
    kinds = {column.name: column.base_type for column in relation.columns}
    if _COLUMN not in kinds:
        raise UndefinedColumn(
            f"{_ROLE}: {relation.name} has no column {_COLUMN}; its columns are: "
            f"{', '.join(kinds)}",
            hint=f"{_COLUMN} names a segment as gp_segment_configuration does",
        )
    if kinds[_COLUMN] not in _WHOLE:
        raise WrongObjectType(
            f"{_ROLE}: the column {_COLUMN} of {relation.name} is of type {kinds[_COLUMN]}; "
            f"allowed: {', '.join(_WHOLE)}",
            hint=f"cast the column in a view, as in SELECT {_COLUMN}::integer AS {_COLUMN}",
        )
    return relation


def _word(rule: str | None) -> str:
    return ALL_SEGMENTS if rule is None else rule.strip().lower()
