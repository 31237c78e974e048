"""How the SQL functions are called: the hint where a message tells all but that."""

from __future__ import annotations

import functools
import re

from cerebro_db.install.sources import sql_directory

# Of the text that an installation is made of: asking the server for it would need a statement, in a
# session whose transaction may have failed, and which on some servers may run none.
_DEFINITION = re.compile(
    r"^CREATE OR REPLACE FUNCTION cerebro\.(cerebro_\w+)\((.*?)\)\s*(?:RETURNS|LANGUAGE)\s",
    re.M | re.S,
)
_OUTPUT = re.compile(r",?\s*OUT [^,]*")


def usage(name: str) -> str | None:
    """Signature of a function, such as ``cerebro.cerebro_pause(run_id bigint)``; None where unknown."""
    return _signatures().get(name)


@functools.cache
def _signatures() -> dict[str, str]:
    """Of each function; overloads have the same names of arguments, of which the first is shown."""
    found: dict[str, str] = {}
    try:
        texts = [
            path.read_text("utf-8") for path in sorted((sql_directory() / "objects").glob("*"))
        ]
    except (OSError, StopIteration):  # the folder has gone since: there is no hint, then
        return found
    for name, arguments in _DEFINITION.findall("\n".join(texts)):
        shown = " ".join(_OUTPUT.sub("", arguments).split())
        found.setdefault(name, f"cerebro.{name}({shown})")
    return found
