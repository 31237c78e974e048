"""Run by other Pythons: loads the relay as a server process does, and calls a trainer.

Standard library only, Python 3.6 or later. Prints the JSON of what came back.
"""

import importlib.util
import json
import os
import sys

TOLD = json.loads(sys.argv[1])


class Plpy:
    """What the server hands to bodies of functions."""

    class Error(Exception):
        """An error of the server."""

    SPIError = Error

    def __init__(self):
        self.notices = []

    def notice(self, text):
        self.notices.append(text)

    def commit(self):
        """Only newer servers have it."""


def main():
    folder = TOLD["package"] + "/relay"
    spec = importlib.util.spec_from_file_location(
        "cerebro_relay", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    module = sys.modules["cerebro_relay"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from cerebro_relay import backend

    # This is no server process.
    backend.owner = lambda: ["/data", 1, 10]
    backend.listen = lambda plpy: None
    backend.statement_began = lambda: 1
    plpy = Plpy()
    relay = module.Relay(plpy, TOLD)
    versions = relay.trainer("settings.libraries")
    # Rows of an aggregate: some wait for no answer.
    token = relay.step("training.join_state", None, True, b"no state" * 10**5)
    for _ in range(3):
        assert relay.step("training.join_state", token, False, b"more" * 10**5) == token
    try:
        relay.trainer("training.state_weights", token)
    except Plpy.Error as error:
        failed = [type(error).__name__, str(error), error.sqlstate]
    found = {
        "python": list(sys.version_info[:2]),
        "versions": versions,
        "failed": failed,
        "token": token,
        "cores": relay.cores(),
        "memory_mb": relay.memory_mb(),
        "foreign": [name for name in ("numpy", "psycopg2", "cerebro_db") if name in sys.modules],
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    os.chdir("/")
    main()
