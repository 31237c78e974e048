"""Dialect of PostgreSQL, from which the others derive."""
