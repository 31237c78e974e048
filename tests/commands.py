"""Commands of the program ``cerebro``, in this process: none has to import anything anew."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from cerebro_db.cli import main


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What a command prints, and its exit code."""
    texts = [str(one) for one in arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    before = signal.getsignal(signal.SIGTERM)  # some commands have one of their own
    try:
        with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["cerebro", *texts]):  # fmt: skip
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(texts, code, out.getvalue(), err.getvalue())
