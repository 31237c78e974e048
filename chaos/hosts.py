"""A cluster with mirrors whose servers and hosts are lost: all of it on this machine.

A host is a network namespace with what runs there. What was lost is copied again from what has
taken over, as ``gprecoverseg -F`` and ``gpinitstandby`` do, which need Python 2.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import psycopg2.extensions

from cerebro_db.install import embedded
from chaos.segments import Control, NotHere
from chaos.server import until

_SECONDS = 180.0
_COORDINATOR = -1
_SLOT = "internal_wal_replication_slot"


@dataclass(frozen=True)
class Node:
    """A server of a cluster, as gp_segment_configuration has it."""

    dbid: int
    content: int
    role: str
    status: str
    mode: str
    address: str
    port: int
    folder: Path

    @property
    def pid(self) -> int | None:
        """Number of its first process."""
        return embedded.read_pid(self.folder / "postmaster.pid")


class Hosts:
    """The servers of a cluster.

    Args:
        dsn: of a superuser, on the coordinator.

    Raises:
        NotHere: a server is not on this machine, or another user's, or is down.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._controls = {node.folder: _control(node) for node in self.nodes()}

    # -- what is seen ------------------------------------------------------------
    def nodes(self) -> list[Node]:
        """All servers, primaries first."""
        rows = self._fetch(self.dsn, _NODES)
        return [Node(*row[:-1], Path(row[-1])) for row in rows]

    def node(self, content: int, role: str) -> Node | None:
        """The server that has that role for a content now."""
        found = (one for one in self.nodes() if (one.content, one.role) == (content, role))
        return next(found, None)

    def host(self, node: Node) -> list[Node]:
        """All servers of the host of one.

        Raises:
            NotHere: it shares our network.
        """
        if self._controls[node.folder].network.is_ours:
            raise NotHere(f"{node.address} is no host of its own: it has no network namespace")
        return [one for one in self.nodes() if one.address == node.address]

    # -- what is done to them ----------------------------------------------------
    def kill(self, node: Node) -> None:
        """Kill its first process; the others may go on."""
        assert node.pid is not None
        os.kill(node.pid, signal.SIGKILL)

    def lose(self, nodes: Sequence[Node]) -> None:
        """The host of all these: it says nothing any more, not even that connections have ended."""
        self._link(nodes[0], "down")
        for node in nodes:
            _end(node.folder)

    def take_over(self) -> None:
        """Lose the coordinator, and promote its standby."""
        lost, standby = self.node(_COORDINATOR, "p"), self.node(_COORDINATOR, "m")
        assert lost is not None
        assert standby is not None
        _end(lost.folder)
        self._controls[standby.folder].run("promote")
        self.dsn = psycopg2.extensions.make_dsn(self.dsn, host=standby.address, port=standby.port)
        until(self._answers, _SECONDS, "the standby coordinator takes over", pause=0.5)
        add = "SELECT gp_add_master_standby(%s, %s, %s, %s)"
        values = (lost.address, lost.address, str(lost.folder), lost.port)
        self._fetch(self.dsn, add, values, "-c gp_session_role=utility")

    def rejoin(self) -> None:
        """Copy the lost servers anew, and wait until all are in step."""
        for node in self.nodes():
            if not self._controls[node.folder].network.is_ours:
                self._link(node, "up")
        until(self._rejoined, _SECONDS, "all servers are up and in step", pause=1.0)

    # -- inside --------------------------------------------------------------------
    def _rejoined(self) -> bool:
        """Probe; copy what has ended meanwhile."""
        self._fetch(self.dsn, "SELECT gp_request_fts_probe_scan()")
        nodes = self.nodes()
        for node in nodes:
            if node.role == "m" and not _runs(node):
                self._copy(node, next(one for one in nodes if one.content == node.content))
        return all(node.mode == "s" for node in nodes if node.role == "m")

    def _copy(self, node: Node, primary: Node) -> None:
        _end(node.folder)
        control = self._controls[node.folder]
        for path in node.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        control.program(
            "pg_basebackup", "--xlog-method=stream", f"--slot={_SLOT}", "-R", "-c", "fast",
            "-D", str(node.folder), "-h", primary.address, "-p", str(primary.port),
            "--target-gp-dbid", str(node.dbid),
        )  # fmt: skip
        control.start()

    def _link(self, node: Node, state: str) -> None:
        entering = self._controls[node.folder].network.entering
        command = [*entering, "ip", "link", "set", "group", "default", state]
        subprocess.run(command, check=True)

    def _answers(self) -> bool:
        with suppress(psycopg2.OperationalError):
            return bool(self._fetch(self.dsn, "SELECT 1 FROM gp_dist_random('gp_id')"))
        return False

    def _fetch(
        self, dsn: str, sql: str, values: Sequence[object] = (), options: str = ""
    ) -> list[tuple[object, ...]]:
        with closing(psycopg2.connect(dsn, options=options)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetchall()


def _control(node: Node) -> Control:
    if node.pid is None or not embedded.works_in(node.pid, node.folder):
        raise NotHere(f"{node.folder} of {node.address} is not on this machine, or down")
    return Control.of(node.pid, node.folder)


def _runs(node: Node) -> bool:
    return node.pid is not None and embedded.works_in(node.pid, node.folder)


def _end(folder: Path) -> None:
    """Kill all processes that work in a folder."""

    def killed() -> bool:
        pids = embedded.processes_in(folder)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    until(killed, _SECONDS, f"processes in {folder} end")


_NODES = """
SELECT dbid, content, role::text, status::text, mode::text, address, port, datadir
  FROM gp_segment_configuration ORDER BY content, role DESC
"""
