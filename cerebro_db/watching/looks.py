"""Time between two looks at a run: looking takes no more than a fiftieth of one core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SECONDS = 2.0
# Times as long as a look has taken, which is more than it has computed.
_PATIENCE = 50.0


def pause_after(began: float, seconds: float = SECONDS) -> float:
    """Seconds until the next look.

    Args:
        began: when this one began, by ``time.monotonic``.
        seconds: at least.
    """
    return max(seconds, _PATIENCE * (time.monotonic() - began))


def wait(pause: float, seconds: float, is_over: Callable[[], bool]) -> None:
    """Wait for the next look; not beyond the end of the run, which is small to ask for.

    Args:
        pause: seconds to wait.
        seconds: between questions.
        is_over: asks whether the run is.
    """
    end = time.monotonic() + pause
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, seconds))
        if left > seconds and is_over():
            return


def until_stopped(stop: threading.Event, look: Callable[[], None], seconds: float) -> None:
    """Look at a run at intervals until a call has ended, and once more then.

    Args:
        stop: is set at the end of the call.
        look: at the run.
        seconds: before the first look, and between two at least.
    """
    ended, pause = False, seconds
    while not ended:
        ended = stop.wait(pause)
        began = time.monotonic()
        look()
        pause = pause_after(began, seconds)
