"""Yields what the server lacks for Cerebro-DB, as (message, hint)."""

import json
import os
import pwd
import subprocess
import sys
import textwrap

# What the virtual environment has, asked of its own Python. The server indents bodies, strings in them too.
REPORT = """
import json, sys
found = {"python": list(sys.version_info[:2]), "cerebro_db": None}
try:
    import cerebro_db
    found["cerebro_db"] = cerebro_db.__version__
    from cerebro_db.configs.frameworks import frameworks, installed
    found["installed"] = list(installed())
    found["extras"] = [extra for one in frameworks().values() for extra in one.extras]
except ImportError:
    pass
print(json.dumps(found))
"""
USER = pwd.getpwuid(os.geteuid()).pw_name
PYTHON, PACKAGE = TOLD["interpreter"], TOLD["package"]
PIP = os.path.join(os.path.dirname(PYTHON), "pip")


def outdated():
    if sys.version_info < (3, 6):
        yield (
            "the server's plpython3u runs Python {}.{}; allowed: 3.6 or later".format(
                *sys.version_info
            ),
            "Use a server whose plpython3u is newer.",
        )


def unreadable():
    relay = os.path.join(PACKAGE, "relay", "__init__.py")
    if not os.access(relay, os.R_OK):
        yield (
            'the server cannot read the package "{}"'.format(PACKAGE),
            'It must exist on the server\'s machine, and operating system user "{}"'
            " must be allowed to read it and every directory above it.".format(USER),
        )


def report():
    try:
        answer = subprocess.run(
            [PYTHON, "-I", "-c", textwrap.dedent(REPORT)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
        return json.loads(answer.stdout.decode()), None
    except (OSError, ValueError) as error:
        return None, error


def lacking():
    found, error = report()
    if found is None:
        yield (
            'the server cannot run the Python "{}": {}'.format(PYTHON, error),
            'It must exist on the server\'s machine, and operating system user "{}"'
            " must be allowed to run it.".format(USER),
        )
        return
    if found["cerebro_db"] != TOLD["version"]:
        yield (
            "{} has {}; needed: cerebro-db {}".format(
                PYTHON,
                "cerebro-db " + found["cerebro_db"] if found["cerebro_db"] else "no cerebro-db",
                TOLD["version"],
            ),
            'Install it there, on the server\'s machine: {} install "cerebro-db[cpu]=={}"'.format(
                PIP, TOLD["version"]
            ),
        )
    elif not found.get("installed", True):
        first, others = found["extras"][0], found["extras"][1:]
        yield (
            "{} has no framework that computes".format(PYTHON),
            'Install one there, on the server\'s machine: {} install "cerebro-db[{}]" (or {}).'.format(
                PIP, first, ", ".join("[{}]".format(one) for one in others)
            ),
        )


def homeless():
    directory = TOLD["directory"]
    own = os.path.join(directory, "cerebro-{}".format(os.geteuid()))
    if not os.path.isdir(directory):
        yield (
            'the server finds no folder "{}" for keepers'.format(directory),
            "Make it on the server's machine, or name another one: --keeper-directory",
        )
    elif not os.path.isdir(own) and not os.access(directory, os.W_OK | os.X_OK):
        yield (
            'operating system user "{}" may not make a folder in "{}"'.format(USER, directory),
            "Let it, or name another folder: --keeper-directory",
        )


for check in (outdated, unreadable, lacking, homeless):
    found = list(check())
    if found:
        yield from found
        break
