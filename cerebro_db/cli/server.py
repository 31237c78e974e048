"""The commands of the embedded PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_db.cli.output import show

if TYPE_CHECKING:
    from cerebro_db.install.embedded import Cluster

app = typer.Typer(
    help="The embedded PostgreSQL: a folder, a Unix socket, nothing else.", no_args_is_help=True
)

# As pg_ctl status.
_EXIT_NOT_RUNNING = 3

Home = Annotated[
    Path | None,
    typer.Option(
        help="Its folder. Default: $CEREBRO_HOME, or /var/lib/cerebro-db for root,"
        " ~/.local/share/cerebro-db for others.",
        show_default=False,
    ),
]
OsUser = Annotated[
    str | None,
    typer.Option(help="Who runs it where root starts it.", show_default="postgres"),
]


@app.command()
def start(home: Home = None, os_user: OsUser = None) -> None:
    """Starts it, and makes it where there is none."""
    cluster = _cluster(home, os_user)
    cluster.start()
    show(f"The server runs: {cluster.dsn()}")


@app.command()
def stop(home: Home = None, os_user: OsUser = None) -> None:
    """Stops it."""
    stopped = _cluster(home, os_user).stop()
    show("The server is stopped." if stopped else "The server was not running.")


@app.command()
def status(home: Home = None, os_user: OsUser = None) -> None:
    """Tells whether it runs; exit code 3 where it does not."""
    cluster = _cluster(home, os_user)
    pid = cluster.pid()
    if pid is None:
        show(f"No server runs in {cluster.home}.")
        raise typer.Exit(_EXIT_NOT_RUNNING)
    show(f"The server runs: process {pid}, {cluster.dsn()}")


@app.command()
def dsn(home: Home = None, os_user: OsUser = None) -> None:
    """Prints the connection string, and nothing else."""
    cluster = _cluster(home, os_user)
    cluster.require_running()
    show(cluster.dsn())


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context, home: Home = None, os_user: OsUser = None) -> None:
    """Opens psql on it; further arguments are psql's."""
    cluster = _cluster(home, os_user)
    cluster.require_running()
    os.execv(cluster.psql(), ["psql", "-d", cluster.dsn(), *context.args])


@app.command()
def destroy(
    home: Home = None,
    os_user: OsUser = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Stops it and removes it with all its data."""
    cluster = _cluster(home, os_user)
    if not yes:
        typer.confirm(f"Remove the server in {cluster.home} with all its data?", abort=True)
    cluster.destroy()
    show("The server is removed.")


def _cluster(home: Path | None, os_user: str | None) -> Cluster:
    from cerebro_db.install.account import server_account
    from cerebro_db.install.embedded import Cluster, default_home

    return Cluster(home or default_home(), server_account(os_user))
