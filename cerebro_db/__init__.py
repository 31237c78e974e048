"""Cerebro-DB: deep-learning model selection inside PostgreSQL and Greenplum."""

__version__ = "0.1.0.post0"
