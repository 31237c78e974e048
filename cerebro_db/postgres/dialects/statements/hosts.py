"""The hosts of a server and what an installation checks of them; PostgreSQL has one, that of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cerebro_db.postgres.names import QualifiedName

# Runs a query of an installation; the second argument names it where it fails.
Rows = Callable[[str, str], list[tuple[object, ...]]]
# What this host is called where there is no other.
LOCALHOST = "localhost"


class Server(NamedTuple):
    """A process of a cluster that serves a part of it.

    Attributes:
        dbid: its number in the cluster.
        content: the number of its segment, negative for the coordinator.
        role: ``p`` for the one that serves, ``m`` for its mirror.
        hostname: where it runs.
    """

    dbid: int
    content: int
    role: str
    hostname: str

    @property
    def is_segment(self) -> bool:
        """True if it is a segment that serves."""
        return self.content >= 0 and self.role == "p"

    @property
    def what(self) -> str:
        """In words."""
        if self.content < 0:
            return "the coordinator" if self.role == "p" else "the standby of the coordinator"
        return f"{'a' if self.role == 'p' else 'the mirror of'} segment {self.content}"


class Hosts:
    """Texts of the statements."""

    # All servers of the cluster, as of Server; None where there are no segments.
    servers: str | None = None

    def segments_of(self, table: QualifiedName) -> str | None:
        """The segments on which a table has rows; None where there are none."""
        return None

    def places_of(self, table: QualifiedName) -> str | None:
        """Partition keys of a packed table, and the segment of each; None where there are no segments."""
        return None

    def gpus(self, segments: Sequence[int], source: str) -> tuple[str, list[Any]]:
        """The segment and the GPUs of its host, for each of ``segments``; here for the server.

        Args:
            segments: one on each host.
            source: who is asked.
        """
        return "SELECT 0, cerebro._gpus(%s)", [source]

    def check_versions(self, rows: Rows, expected: Mapping[str, str]) -> int:
        """Check what segments run on, and return their number.

        Args:
            rows: of a query.
            expected: versions of Cerebro-DB and of libraries, by name.

        Raises:
            InstallationFailed: one of them has something else than the coordinator.
        """
        return 0

    def warnings(self, rows: Rows, segments: int, settings: str) -> Iterable[str]:
        """Warnings about hosts, and about limits that hold runs up.

        Args:
            rows: of a query.
            segments: how many there are.
            settings: of Cerebro-DB, a JSON as a literal of SQL.

        Raises:
            InstallationFailed: copies of the catalog differ.
        """
        return ()
