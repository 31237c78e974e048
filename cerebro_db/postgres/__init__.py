"""Server sessions, names, named queries and the dialects."""
