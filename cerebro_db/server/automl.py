"""Entry of cerebro_automl."""

from __future__ import annotations

from typing import Any

from cerebro_db.requests.automl import AutomlRequest, ReplayAutomlRequest
from cerebro_db.runs.automl.again import replay as make_again
from cerebro_db.runs.automl.course import automl as make_model
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of(AutomlRequest)
def automl(plpy: Any, gd: dict[str, Any], request: AutomlRequest) -> int | None:
    """Make a model of a table; returns the version."""
    return make_model(Host.apart(plpy, gd), request)


@entry_of(ReplayAutomlRequest)
def replay(plpy: Any, gd: dict[str, Any], request: ReplayAutomlRequest) -> int:
    """Make a version again; returns the new one."""
    return make_again(Host.apart(plpy, gd), request)
