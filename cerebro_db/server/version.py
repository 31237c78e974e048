"""The version of the package that runs in this backend."""

import os

import cerebro_db


def installed() -> str:
    """Returns the package's version, for example ``0.1.0``."""
    return cerebro_db.__version__


def cores() -> int:
    """The processor cores that this server may use."""
    return len(os.sched_getaffinity(0))
