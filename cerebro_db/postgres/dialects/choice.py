"""Dialect of a server, chosen by capability when a job starts."""

from cerebro_db.postgres.dialects.capabilities import HAS_SEGMENTS
from cerebro_db.postgres.dialects.greenplum import Greenplum
from cerebro_db.postgres.dialects.greenplum_packing import GreenplumPacking as SpreadPacking
from cerebro_db.postgres.dialects.greenplum_packing import Spreading
from cerebro_db.postgres.dialects.greenplum_prediction import Brought
from cerebro_db.postgres.dialects.greenplum_prediction import (
    GreenplumPrediction as SpreadPrediction,
)
from cerebro_db.postgres.dialects.postgresql import PostgreSQL
from cerebro_db.postgres.dialects.postgresql_hosts import Server

__all__ = [
    "HAS_SEGMENTS",
    "Brought",
    "PostgreSQL",
    "Server",
    "SpreadPacking",
    "SpreadPrediction",
    "Spreading",
    "dialect_of",
]


def dialect_of(server_version: int, has_segments: bool) -> PostgreSQL:
    """Dialect of a server.

    Args:
        server_version: as libpq tells it.
        has_segments: what the server answers to ``HAS_SEGMENTS``.
    """
    return Greenplum(server_version) if has_segments else PostgreSQL(server_version)
