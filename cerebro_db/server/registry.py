"""Entries of the functions of the model registry, and of cerebro_export."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.names import export_format
from cerebro_db.models import export as driver
from cerebro_db.models import registry
from cerebro_db.requests.models import ExportRequest
from cerebro_db.requests.registry import (
    DescribeModelRequest,
    DropModelRequest,
    GrantModelRequest,
    RegisterRequest,
    RevokeModelRequest,
    RollbackAliasRequest,
    SetAliasRequest,
)
from cerebro_db.server.caller import caller_session
from cerebro_db.server.computing import Tick, computing
from cerebro_db.server.entry import entry, entry_of, in_session
from cerebro_db.server.host import Host
from cerebro_db.server.joined import first_part, next_part, take_joined
from cerebro_db.server.memory import recall

set_alias = in_session(SetAliasRequest, registry.set_alias)
rollback_alias = in_session(RollbackAliasRequest, registry.rollback_alias)
describe = in_session(DescribeModelRequest, registry.describe)
grant = in_session(GrantModelRequest, registry.grant)
revoke = in_session(RevokeModelRequest, registry.revoke)
drop = in_session(DropModelRequest, registry.drop)


@entry_of(RegisterRequest)
def register(plpy: Any, gd: dict[str, Any], request: RegisterRequest) -> int:
    """Copy a model of a run into the registry."""
    with caller_session(plpy, writes=True) as session:
        return registry.register(session, request)


@entry_of(ExportRequest)
def export(plpy: Any, gd: dict[str, Any], request: ExportRequest) -> bytes:
    """A model as the bytes of a file."""
    host = Host.apart(plpy, gd, writes=False)
    return b"".join(driver.export(host.pool, request, host.search_path))


@entry
@computing
def export_model(
    tick: Tick, gd: dict[str, Any], task: str | None, wanted: str | None, state: int | None
) -> bytes | None:
    """Write the file of a model whose state is joined in this worker; returns the first part, then each further one.

    Args:
        task: of the model, as JSON; None for the next part, which is None after the last one.
        wanted: the format.
        state: token of the state.
    """
    if task is None:
        return next_part(gd)
    known = recall(gd).architectures
    from cerebro_db.training.tasks import export

    return first_part(gd, export(task, take_joined(gd, state), export_format(wanted), known, tick))
