"""Yields what the Python inside the server lacks for Cerebro-DB, as (message, hint)."""

import importlib.machinery
import os
import pwd
import site
import sys


def search_path():
    """The directories that the functions of Cerebro-DB will import from, in their order."""
    before = list(sys.path)
    try:
        for path in PYTHON_PATHS:
            site.addsitedir(path)
        return sorted(sys.path, key=before.__contains__)
    finally:
        sys.path[:] = before


def wrong_version():
    server = "{}.{}".format(*sys.version_info)
    if PYTHON_VERSION not in (None, server):
        yield (
            f"the server's plpython3u runs Python {server}, got a package for Python {PYTHON_VERSION}",
            f"Install Cerebro-DB into a virtual environment made with Python {server} of the server:"
            f" on Debian, {sys.prefix}/bin/python3 -m venv /opt/cerebro-db",
        )


def unreadable():
    user = pwd.getpwuid(os.geteuid()).pw_name
    for path in PYTHON_PATHS:
        if not os.access(path, os.R_OK | os.X_OK):
            yield (
                f'the server cannot read the Python path "{path}"',
                f'It must exist on the server\'s machine, and operating system user "{user}"'
                " must be allowed to read it and every directory above it.",
            )


def absent(path):
    def lacks(module):
        return importlib.machinery.PathFinder.find_spec(module, path) is None

    where = ", ".join(PYTHON_PATHS)
    pip = os.path.join(PYTHON_PATHS[0].partition("/lib/python")[0], "bin", "pip")
    if lacks("cerebro_db"):
        yield (
            f"the server finds no package cerebro_db in {where}",
            f'Install it there, on the server\'s machine: {pip} install "cerebro-db[cpu]"',
        )
    if lacks("tensorflow"):
        yield (
            f"the server finds no TensorFlow in {where}",
            f'Install it there, on the server\'s machine: {pip} install "cerebro-db[cpu]"'
            ' (or "cerebro-db[gpu]").',
        )


yield from wrong_version()
yield from unreadable()
yield from absent(search_path())
