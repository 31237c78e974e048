"""Cerebro-DB from Python: a database, its runs, and their results as frames, models and pictures."""

from cerebro_db.client.database import Database, connect
from cerebro_db.client.model import Model
from cerebro_db.client.run import Run

__all__ = ["Database", "Model", "Run", "connect"]
