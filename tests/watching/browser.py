"""A headless browser, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs a browser: apt-get install chromium"
)
# No network at all: what the page needs must be in it.
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=60000", "--disable-dev-shm-usage",
)  # fmt: skip


def loaded(page: Path, picture: Path, folder: Path, size: tuple[int, int]) -> str:
    """The document as it is after its scripts have run, and a picture of it: one start of the browser makes both."""
    assert BROWSER is not None
    what = ("--dump-dom", f"--screenshot={picture}")
    window = f"--window-size={size[0]},{size[1]}"
    done = subprocess.run(
        [BROWSER, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", window, *what, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
