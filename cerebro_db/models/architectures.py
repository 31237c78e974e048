"""Architecture tables: models by model_id, with what estimates need to know of them."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.frameworks import check_architecture, framework_of
from cerebro_db.core.spec import Architecture
from cerebro_db.errors import CerebroError, InvalidArgument, WrongObjectType
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.sessions.parts import joined
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation


def inspect(session: Session, text: str, weights: bytes | None) -> str:
    """Build a model in a worker session; returns its facts as JSON.

    Raises:
        StatementFailed: the model cannot be built, or the weights do not fit.
    """
    token = None if weights is None else joined(session.run, weights)
    return str(session.run("SELECT cerebro._inspect_model(%s, %s)", (text, token))[0][0])


def read_file(session: Session, file: bytes) -> tuple[str, bytes]:
    """The architecture and the weights in a file of Keras, which a worker session reads.

    Raises:
        StatementFailed: it is no such file, or the model cannot be built.
    """
    sql = "SELECT f.model_arch, f.model_weights FROM cerebro._read_model_file(%s) f"
    ((text, part),) = session.run(sql, (joined(session.run, file),))
    weights = io.BytesIO()  # what it holds is not copied once more
    while part is not None:
        weights.write(part)
        part = session.run(sql, (None,))[0][1]
    return text, weights.getvalue()


def limits_of(session: Session) -> ArchitectureLimits:
    """Limits of the architectures of this database."""
    return ArchitectureLimits.of(Catalog(session).settings())


def load_architectures(
    session: Session, table: Relation, model_ids: Collection[int]
) -> dict[int, Architecture]:
    """The architectures of some ids.

    Raises:
        InvalidArgument: an id is not in the table, or twice.
        InvalidArchitecture: the JSON is refused.
    """
    for name in ("model_id", "model_arch", "model_weights"):
        if not table.has(name):
            raise WrongObjectType(
                f"model_arch_table: {table.name} has no column {name}",
                hint="cerebro.cerebro_load_model makes such tables",
            )
    settings = Catalog(session).settings()
    # Where a run may be refused for its memory, what a user's table tells of a model is no basis.
    known = table.has("model_facts") and not settings.max_worker_mb
    facts = "model_facts::text" if known else "NULL"
    rows = session.run(
        f"SELECT model_id, model_arch::text, model_weights IS NOT NULL, {facts} "
        f"FROM {table.name.sql} WHERE model_id = ANY (%s)",
        (sorted(model_ids),),
    )
    found = [row[0] for row in rows]
    wrong = sorted(set(model_ids) - set(found)) or sorted({i for i in found if found.count(i) > 1})
    if wrong:
        raise InvalidArgument(
            f"model_id: got {_some(wrong)}; allowed: those that {table.name} has exactly once",
            hint=f"SELECT model_id FROM {table.name} shows those there are",
        )
    limits = ArchitectureLimits.of(settings)
    return {row[0]: _architecture(session, row, limits) for row in rows}


def _some(model_ids: Sequence[int]) -> str:
    """The first ones, as a text."""
    more = f" and {len(model_ids) - 5} more" if len(model_ids) > 5 else ""
    return ", ".join(map(str, model_ids[:5])) + more


def _architecture(
    session: Session, row: tuple[int, str, bool, str | None], limits: ArchitectureLimits
) -> Architecture:
    model_id, text, has_weights, facts = row
    try:
        config = check_architecture(text, limits)
    except CerebroError as error:
        error.message = f"model_id {model_id}: {error.message}"
        raise
    if facts is None:  # a table that was not filled by cerebro_load_model
        facts = inspect(session, text, None)
    return Architecture(
        model_id=model_id,
        id=fingerprint(config),
        text=json.dumps(config, sort_keys=True),
        facts=replace(
            ArchitectureFacts.from_json(facts or ""), framework=framework_of(config).name
        ),
        has_weights=has_weights,
    )
