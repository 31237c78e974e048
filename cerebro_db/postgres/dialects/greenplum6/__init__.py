"""Dialect of Greenplum 6: what differs from PostgreSQL."""
