"""Cerebro-DB: deep-learning model selection inside PostgreSQL and Greenplum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_db.client import Database, Model, Run, connect

__version__ = "0.1.0.post0"
__all__ = ["Database", "Model", "Run", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    """Imports what users take from here at its first use: processes beside the server need none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cerebro_db import client

    return getattr(client, name)
