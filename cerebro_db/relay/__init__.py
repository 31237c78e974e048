"""Relay: what Cerebro-DB runs inside of server processes, and nothing else of it.

Standard library only, Python 3.6 or later, so that it runs with whatever Python the server's plpython3u
has. It hands calls to processes beside the server, and passes on what comes back: results, notices,
errors, and statements that are to run in the caller's transaction.
"""

from .calls import Relay

__all__ = ["Relay"]
