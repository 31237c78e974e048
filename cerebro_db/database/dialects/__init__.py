"""All that differs between servers, chosen by capability when a job starts."""

from cerebro_db.database.dialects.postgresql import PostgreSQL

__all__ = ["PostgreSQL"]
