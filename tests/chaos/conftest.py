"""One server to be killed, and one run that nobody disturbs, for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Last, so that the package that is tested is the one that is installed.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from chaos import grid
from chaos.server import Server, server
from chaos.suite import Reference

EPOCHS = 4


@pytest.fixture(scope="module")
def victim() -> Iterator[Server]:
    """A server with the tables of the trials."""
    with server() as running:
        grid.load(running)
        yield running


@pytest.fixture(scope="module")
def reference(victim: Server) -> Reference:
    """What an undisturbed run leaves."""
    return Reference.of(victim, EPOCHS)
