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


def loaded(page: Path, folder: Path, size: tuple[int, int] = (1280, 3000)) -> str:
    """The document as it is after its scripts have run."""
    return _run(page, folder, size, "--dump-dom")


def screenshot(page: Path, picture: Path, folder: Path, size: tuple[int, int]) -> None:
    """A picture of a page."""
    _run(page, folder, size, f"--screenshot={picture}")


def _run(page: Path, folder: Path, size: tuple[int, int], what: str) -> str:
    assert BROWSER is not None
    window = f"--window-size={size[0]},{size[1]}"
    done = subprocess.run(
        [BROWSER, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", window, what, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
