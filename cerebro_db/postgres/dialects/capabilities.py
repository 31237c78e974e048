"""Capabilities of a server, asked of itself: no decision is made by a product's name or version."""

from __future__ import annotations

# Of a server whose tables are spread over segments; the same server may run alone, without any. It is
# asked in sessions with any search_path.
HAS_SEGMENTS = (
    "(pg_catalog.to_regclass('pg_catalog.gp_distribution_policy') IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_settings s "
    "WHERE s.name OPERATOR(pg_catalog.=) 'gp_role' AND s.setting OPERATOR(pg_catalog.=) 'utility'))"
)


# A source of one row without columns that are read: an aggregation over it and a table runs in the
# session's own process. Over a table alone, of which each segment has a copy, it may run on one.
HERE = "(SELECT FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) AS here"
