"""The command that has this machine take part in a run."""

from __future__ import annotations

import signal
import socket
import sys
from typing import Annotated

import typer

from cerebro_db.cli.commands import Dsn
from cerebro_db.cli.output import show
from cerebro_db.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(worker)


def worker(
    run: Annotated[int, typer.Option(help="The run to join, as cerebro.runs shows it.")],
    dsn: Dsn = "",
    once: Annotated[bool, typer.Option("--once", help="Make one hop, and leave.")] = False,
    idle_seconds: Annotated[
        float, typer.Option(help="Leave after so many seconds without a hop.")
    ] = 600.0,
    grace_seconds: Annotated[
        float, typer.Option(help="That a hop may still take when the worker is asked to leave.")
    ] = 60.0,
    threads: Annotated[
        int | None,
        typer.Option(help="Of the trainer. Default: those of the run.", show_default=False),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(
            help="That the trainer may use. Default: the setting max_worker_mb.", show_default=False
        ),
    ] = None,
    cache_mb: Annotated[
        int | None,
        typer.Option(
            help="Of decoded partitions to keep. Default: as the run's workers, at most half of --memory-mb.",
            show_default=False,
        ),
    ] = None,
    use_gpus: Annotated[bool, typer.Option("--use-gpus", help="Train on GPUs.")] = False,
    any_machine: Annotated[
        bool,
        typer.Option("--any-machine", help="Join also where hops would have other bits."),
    ] = False,
    keeper_directory: Annotated[
        str, typer.Option(help="Where the processes beside this one have their folder.")
    ] = "/tmp",
) -> None:
    """Joins a run from any machine: reads partitions, trains hops, writes states; leaves at any time."""
    for name, value, least in (
        ("idle-seconds", idle_seconds, 0), ("grace-seconds", grace_seconds, 0), ("threads", threads, 1),
        ("memory-mb", memory_mb, 1), ("cache-mb", cache_mb, 0),
    ):  # fmt: skip
        if value is not None and not value >= least:
            raise InvalidArgument(f"--{name}: got {value:g}; allowed: from {least}")
    import cerebro_db
    from cerebro_db.executors.direct_worker import DirectWorker, WorkerOptions
    from cerebro_db.install.sources import package_directory
    from cerebro_db.relay.keepers import Installation

    installation = Installation(
        sys.executable, package_directory(), keeper_directory, cerebro_db.__version__
    )
    options = WorkerOptions(
        dsn=dsn, run_id=run, once=once, idle_seconds=idle_seconds, grace_seconds=grace_seconds,
        threads=threads, memory_mb=memory_mb, cache_mb=cache_mb, use_gpus=use_gpus,
        any_machine=any_machine, host=socket.gethostname(),
    )  # fmt: skip
    found = DirectWorker(options, installation, show)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: found.ask_to_leave())
    found.run()
