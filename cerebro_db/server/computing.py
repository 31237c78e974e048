"""Work that TensorFlow does in a trainer, with errors that name their cause."""

from __future__ import annotations

import functools
import re
import resource
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from cerebro_db.errors import CerebroError, OutOfMemory
from cerebro_db.training.causes import of_the_model

P = ParamSpec("P")
R = TypeVar("R")
Tick = Callable[[], None]

_TENSOR = re.compile(r"shape(\[[\d,]*\])")


def as_ours(error: Exception) -> Exception:
    """An error of TensorFlow, or of Python, about memory as one of ours."""
    if type(error).__name__ == "ResourceExhaustedError":
        found = _TENSOR.search(str(error))
        what = f"a tensor of shape {found[1]}" if found else "a tensor"
    elif isinstance(error, MemoryError):
        what = "the data of this worker"
    else:
        return error
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    allowed = f"; allowed: {limit // 2**20} MB a worker" if limit != resource.RLIM_INFINITY else ""
    return OutOfMemory(f"got no memory for {what}{allowed}")


def compute(plpy: Any, work: Callable[[Tick], R]) -> R:
    """Do ``work``.

    Args:
        plpy: the server's interface, which knows when the call is to end.
        work: gets a tick, to be called now and then; an exception of it ends the work.

    Raises:
        CerebroError: of the work; what Keras and TensorFlow raise there becomes its cause.
    """
    try:
        return work(plpy.listen)
    except (CerebroError, plpy.Error):
        raise
    except Exception as error:
        raise of_the_model(as_ours(error)) from None


def computing(function: Callable[Concatenate[Tick, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Decorate what computes: it is called with ``plpy``, and gets a tick in its place."""

    @functools.wraps(function)
    def wrapper(plpy: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return compute(plpy, lambda tick: function(tick, *args, **kwargs))

    return wrapper
