"""The command line: arguments, one call, an exit code."""

from cerebro_db.cli.app import main

__all__ = ["main"]
