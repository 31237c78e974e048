"""Processes that persist and take jobs from one queue, as the peers use them."""

from __future__ import annotations

import multiprocessing
import os
import queue
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

Handler = Callable[[Any], Any]


class PeerFailed(Exception):
    """A process of a peer failed or died."""


def run_jobs(
    prepare: Callable[..., Handler],
    arguments: Sequence[Any],
    jobs: Sequence[Any],
    processes: int,
    environment: Mapping[str, str],
) -> list[Any]:
    """The results of all jobs, in the order in which they ended.

    Args:
        prepare: called once in each process, with the arguments; returns what handles a job.
        arguments: pickled.
        jobs: handed out in their order.
        processes: started anew, with the environment, and ended.
    """
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for job in [*jobs, *[None] * processes]:
        todo.put(job)
    crew = [
        context.Process(target=_work, args=(prepare, arguments, todo, done), daemon=True)
        for _ in range(processes)
    ]
    with _environment(environment):
        for process in crew:
            process.start()
    try:
        results = [_next(done, crew) for _ in jobs]
    except BaseException:
        for process in crew:
            process.terminate()
        raise
    finally:
        for process in crew:
            process.join()
    return results


def _work(prepare: Callable[..., Handler], arguments: Sequence[Any], todo: Any, done: Any) -> None:
    _silence()
    try:
        handle = prepare(*arguments)
        while (job := todo.get()) is not None:
            done.put((True, handle(job)))
    except BaseException:
        done.put((False, traceback.format_exc()))


def _silence() -> None:
    """Discard the output of TensorFlow at its start; errors come back through the queue."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _next(done: Any, crew: Sequence[Any]) -> Any:
    while True:
        try:
            succeeded, result = done.get(timeout=5)
        except queue.Empty:
            if any(process.exitcode for process in crew):
                codes = [process.exitcode for process in crew]
                raise PeerFailed(f"a process died: {codes}") from None
            continue
        if not succeeded:
            raise PeerFailed(result)
        return result


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """For processes that are started inside: some variables count at the first import only."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
