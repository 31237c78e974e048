"""Puts Cerebro-DB into a database, and runs the embedded PostgreSQL."""
