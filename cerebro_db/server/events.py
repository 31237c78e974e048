"""Entry of a worker that writes event files for TensorBoard."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidArgument, RunFailed
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry
from cerebro_db.server.files import root_of
from cerebro_db.server.settings import settings_of
from cerebro_db.training.environment import configure_once
from cerebro_db.training.events import EventsTask, series_of, write
from cerebro_db.training.folders import Folder
from cerebro_db.wire import decode

_ROLE = "SELECT current_user::pg_catalog.text AS name"


@entry
def write_events(plpy: Any, gd: dict[str, Any], task: str | None) -> None:
    """Write what is not there yet; without configurations, only check that it could be done.

    Raises:
        InvalidArgument: nothing may be written outside of the database, or no event files.
        RunFailed: a file cannot be written.
    """
    settings = settings_of(plpy)
    with _root(settings) as root:
        given = decode(EventsTask, task, "task")
        if given.configurations:
            role = plpy.execute(_ROLE)[0]["name"]
            compute(plpy, lambda tick: _write(tick, root, settings, role, given))


def _write(tick: Tick, root: Folder, settings: Settings, role: str, given: EventsTask) -> None:
    # Where there are segments this is a process of the coordinator, which has not trained.
    configure_once(threads=1)
    # No name of a role is a way out of the directory.
    own = quote(role, safe="").replace(".", "%2E")
    try:
        with root.below(*settings.tensorboard_dir.split("/"), own) as folder:
            write(folder, series_of(given))
    except OSError as error:
        where = f" to {error.filename}, which" if error.filename else ":"
        raise RunFailed(f"TensorBoard: cannot write{where} {error.strerror}") from None


def _root(settings: Settings) -> Folder:
    if not settings.tensorboard_dir:
        raise InvalidArgument(
            "TensorBoard: got a configuration that writes files on the server; allowed: where the setting "
            "tensorboard_dir names a folder for them",
            hint="an administrator can name one: SELECT cerebro.cerebro_set('tensorboard_dir', 'tensorboard')",
        )
    return root_of(settings, "TensorBoard")
