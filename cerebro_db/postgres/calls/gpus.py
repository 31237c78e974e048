"""The GPUs of each host of a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cerebro_db.configs.frameworks import default
from cerebro_db.errors import RunFailed
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.hosts import LOCALHOST, Hosts, Server
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import GPUS
from cerebro_db.postgres.tables.outputs import new_outputs, replaced
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.requests.administration import GpuRequest
from cerebro_db.training.devices import NVIDIA, checked_source

# A server without segments.
_ITSELF = Server(1, 0, "p", LOCALHOST)


def write_configuration(
    session: Session, pool: SessionPool, dialect: PostgreSQL, request: GpuRequest
) -> None:
    """Make a table with a row for each GPU.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        pool: of sessions that ask the hosts, and see no tables.
        request: what is asked for.
    """
    source = checked_source(request.source)
    outputs = new_outputs(
        session, request.output_table, "output_table", GPUS, replace=request.replace
    )
    output = outputs.name
    with control_session(pool, None) as control:
        servers = servers_of(control, dialect.hosts)
        found = gpus_of_hosts(control, dialect.hosts, servers, source)
    with replaced(session, outputs):
        session.run(
            f"CREATE TABLE {output.sql} (hostname text NOT NULL, gpu_descr text NOT NULL)"
            f"{session.anywhere}; {GPUS.comment(output)}"
        )
        for row in [(host, line) for host, lines in sorted(found.items()) for line in lines]:
            session.run(f"INSERT INTO {output.sql} VALUES (%s, %s)", row)


def servers_of(session: Session, hosts: Hosts) -> list[Server]:
    """All servers of the cluster; none where there are no segments."""
    if hosts.servers is None:
        return []
    return [Server(*row) for row in session.run(hosts.servers)]


def hosts_of(session: Session, hosts: Hosts, table: QualifiedName) -> dict[int, str]:
    """The host of each partition of a packed table; nothing where there are no segments."""
    sql = hosts.places_of(table)
    if sql is None:
        return {}
    names = {one.content: one.hostname for one in servers_of(session, hosts) if one.is_segment}
    return {partition_key: names[segment] for partition_key, segment in session.run(sql)}


def gpus_of_hosts(
    session: Session, hosts: Hosts, servers: Sequence[Server], source: str
) -> dict[str, list[str]]:
    """GPUs of each host, by its name; an empty list for none.

    Args:
        session: has the caller's rights.
        hosts: of the dialect.
        servers: of the cluster.
        source: who is asked, ``nvidia`` or a framework.
    """
    names = first_segments(servers) or {0: LOCALHOST}
    rows = session.run(*hosts.gpus(list(names), source))
    return {names[segment]: list(found) for segment, found in rows}


def hosts_with_gpus(session: Session, hosts: Hosts, servers: Sequence[Server]) -> set[str]:
    """Hosts where the default framework sees any GPU."""
    found = gpus_of_hosts(session, hosts, servers, default())
    return {name for name, gpus in found.items() if gpus}


def first_segments(servers: Sequence[Server]) -> dict[int, str]:
    """First segment of each host, with the host's name."""
    found: dict[str, int] = {}
    for server in servers:
        if server.is_segment:
            found[server.hostname] = min(found.get(server.hostname, server.content), server.content)
    return {segment: name for name, segment in sorted(found.items())}


def gpu_places(session: Session, hosts: Hosts, use_gpus: bool) -> dict[int, int]:
    """The place of each segment among those of its host; nothing where no GPU is to be shared."""
    return places_on_hosts(servers_of(session, hosts)) if use_gpus else {}


def places_on_hosts(servers: Sequence[Server]) -> dict[int, int]:
    """The place of each segment among those of its host, from 0."""
    places: dict[int, int] = {}
    taken: Counter[str] = Counter()
    for server in sorted(servers, key=lambda server: server.content):
        if server.is_segment:
            places[server.content] = taken[server.hostname]
            taken[server.hostname] += 1
    return places


def check_gpus(session: Session, hosts: Hosts, tables: Sequence[PackedTable]) -> None:
    """Refuse to compute on GPUs where the host of the server, or of a segment with rows, has none.

    Args:
        session: has the caller's rights.
        hosts: of the dialect.
        tables: that are read by what computes on GPUs; none where nothing does.

    Raises:
        RunFailed: naming the hosts.
    """
    servers = _used(session, hosts, tables)
    if not servers:
        return
    # The first source answers at once, but is not there for every kind of GPU.
    for source in (NVIDIA, default()):
        found = gpus_of_hosts(session, hosts, servers, source)
        servers = [server for server in servers if not found[server.hostname]]
        if not servers:
            return
    hint = "use_gpus := false computes on processors"
    if hosts.servers is None:
        raise RunFailed("got use_gpus := true; there is no GPU on the server's host", hint=hint)
    raise RunFailed(
        f"got use_gpus := true; there is no GPU on {', '.join(sorted({s.hostname for s in servers}))}",
        hint=f"{hint}; distribution_rules := 'gpu_segments' of cerebro.cerebro_pack spreads rows over "
        "hosts with GPUs only",
    )


def _used(session: Session, hosts: Hosts, tables: Sequence[PackedTable]) -> list[Server]:
    """Segments that have rows of the tables; all of them where a view is among these.

    Where there are no segments, the server itself.
    """
    if hosts.servers is None:
        return [_ITSELF] if tables else []
    servers = [server for server in servers_of(session, hosts) if server.is_segment]
    used: set[int] = set()
    for table in tables if servers else ():
        sql = hosts.segments_of(table.relation.name) if table.relation.kind == "r" else None
        rows = [(s.content,) for s in servers] if sql is None else session.run(sql)
        used.update(segment for (segment,) in rows)
    return [server for server in servers if server.content in used]
