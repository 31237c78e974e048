"""The model registry: versions out of runs, aliases, grants, removal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import cerebro_db
from cerebro_db.configs.names import (
    ModelReference,
    alias_name,
    checked_description,
    checked_tags,
    model_name,
    model_reference,
)
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    ObjectInUse,
    UndefinedModel,
    WrongRunStatus,
)
from cerebro_db.models.registered import stored_facts
from cerebro_db.models.trained import ModelTable, load_model_table, load_models
from cerebro_db.postgres.catalog.registry import NewVersion, Registry
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.locks import lock
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.fingerprint import fingerprint
from cerebro_db.postgres.tables.packed import packed_of
from cerebro_db.requests.registry import RegisterRequest


def lineage_of(
    session: Session, run: StoredRun, mst_key: int, promotion: Mapping[str, Any] | None = None
) -> str:
    """The lineage of one configuration of a run, as JSON.

    Args:
        session: in a transaction.
        run: which one.
        mst_key: of the configuration.
        promotion: what it was compared with to get an alias; None where it was not.
    """
    spec, tables = run.spec, run.tables
    found: dict[str, Any] = {
        "run": {
            "run_id": run.run_id,
            "name": spec.name,
            "model_output_table": str(tables.output),
            "model_selection_table": spec.model_selection_table,
            "model_arch_table": spec.model_arch_table,
            "num_iterations": spec.epochs,
            "warm_start": spec.warm_start,
            "seed": spec.seed,
            "cerebro_version": spec.cerebro_version,
            **_who_and_when(session, run.run_id),
        },
        "training": {
            "table": spec.source_table,
            "fingerprint": tables.source.fingerprint,
            "rows": _rows(session, *tables.source),
        },
        "validation": None,
        "configuration": _configuration(session, run.run_id, mst_key),
        "results": _results(session, run.run_id, mst_key),
        "manifest": run.manifest,
        "registered_with": cerebro_db.__version__,
    }
    if tables.validation is not None:
        found["validation"] = {
            "table": spec.validation_table,
            "fingerprint": tables.validation.fingerprint,
            "rows": _rows(session, *tables.validation),
        }
    if promotion is not None:
        found["promotion"] = promotion
    return json.dumps(found)


def _who_and_when(session: Session, run_id: int) -> dict[str, Any]:
    rows = session.run(
        "SELECT num_partitions, owner::text, created::text, started::text, finished::text FROM cerebro.runs "
        "WHERE run_id = %s",
        (run_id,),
    )
    names = ("num_partitions", "owner", "created", "started", "finished")
    return dict(zip(names, rows[0], strict=True))


def _configuration(session: Session, run_id: int, mst_key: int) -> dict[str, Any]:
    names = ("mst_key", "model_id", "compile_params", "fit_params", "initial_seed", "is_warm")
    for row in Catalog(session).configurations(run_id):
        if row.mst_key == mst_key:
            return {name: getattr(row, name) for name in names}
    return {"mst_key": mst_key}  # of an earlier run, kept by a warm start


def _rows(session: Session, oid: int, mark: str | None) -> int | None:
    """Rows of a packed table; None where it is no longer what the run has read."""
    try:
        with session.attempt():
            packed = packed_of(session, oid, "source_table")
            same = fingerprint(session, packed, mark) == mark
    except CerebroError:  # dropped since, or no longer to be read
        return None
    return packed.rows if same else None


def _results(session: Session, run_id: int, mst_key: int) -> dict[str, Any]:
    """The last loss and metrics on each data set; names by values, as far as JSON has them."""
    rows = session.run(
        "SELECT DISTINCT ON (dataset) dataset, epoch, loss::text, metric_names, metrics::text[] "
        "FROM cerebro._metrics WHERE run_id = %s AND mst_key = %s ORDER BY dataset, epoch DESC",
        (run_id, mst_key),
    )
    return {
        dataset: {
            "epoch": epoch,
            "loss": _number(loss),
            "metrics": {name: _number(value) for name, value in zip(names, values, strict=True)},
        }
        for dataset, epoch, loss, names, values in rows
    }


def _number(text: str | None) -> float | None:
    """A number as JSON has it: neither NaN nor infinite."""
    value = float(text or "nan")
    return value if abs(value) < float("inf") else None


_ALIASES = "cerebro.registered_versions shows the versions and their aliases"


def register(
    session: Session, request: RegisterRequest, promotion: Mapping[str, Any] | None = None
) -> int:
    """Copy a model of a finished run into the registry; returns the number of the new version.

    Args:
        session: in a transaction.
        request: what to register.
        promotion: what the model was compared with, for its lineage.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it has not finished, or its output table is another run's by now.
        InvalidArgument: a name that is not allowed, or a key that no model has.
    """
    reference = model_name(request.name, "name")
    if reference.owner is not None:
        raise InvalidArgument(
            f"name: got {request.name!r}; allowed: a name without owner, as a model belongs to "
            "the role that registers it"
        )
    description, tags = checked_description(request.description), checked_tags(request.tags)
    run = Catalog(session).run(request.run_id)
    table = models_of(session, run)
    mst_key = table.only_key() if request.mst_key is None else request.mst_key
    table.check_key(mst_key)
    model = load_models(session, table, [mst_key])[0]
    new = NewVersion(
        description=description,
        tags=tags,
        run_id=run.run_id,
        mst_key=mst_key,
        model_arch=model.architecture,
        compile_params=model.compile_text,
        fit_params=model.fit_text,
        facts=stored_facts(table),
        lineage=lineage_of(session, run, mst_key, promotion),
    )
    return add_version(session, reference, new, state_chunks(session, table.states, new.mst_key))


def set_alias(session: Session, name: str | None, alias: str | None, version: int | None) -> None:
    """Let an alias mean a version; None removes it.

    Raises:
        UndefinedModel: the caller has no such model, or it has no such version or alias.
    """
    reference, word = model_name(name, "name"), alias_name(alias)
    registry, model_id = _kept(session, reference)
    last = registry.alias(model_id, word)
    if version is not None:
        registry.check_version(model_id, reference, version)
    elif last is None or last[1] is None:
        raise UndefinedModel(
            f"got the alias {word!r}; {reference} has no such alias", hint=_ALIASES
        )
    if last is None or last[1] != version:
        registry.set_alias(model_id, word, version, last[0] if last else None)


def rollback_alias(session: Session, name: str | None, alias: str | None) -> int | None:
    """Let an alias mean again what it meant before; returns that version, None for none.

    Raises:
        UndefinedModel: there is nothing to go back to.
    """
    reference, word = model_name(name, "name"), alias_name(alias)
    registry, model_id = _kept(session, reference)
    last = registry.alias(model_id, word)
    if last is None or last[2] is None:
        raise UndefinedModel(
            f"got the alias {word!r}; {reference} has no such alias with an earlier version",
            hint=_ALIASES,
        )
    version, previous = registry.alias_change(last[2])
    if version is not None:
        registry.check_version(model_id, reference, version)
    registry.set_alias(model_id, word, version, previous)
    return version


def describe(session: Session, name: str | None, description: str | None, tags: str | None) -> None:
    """Set the description and the tags of a model or of one version; None leaves what is there."""
    reference = model_reference(name, "name")
    text, checked = checked_description(description), checked_tags(tags)
    if reference.alias is not None:
        raise InvalidArgument(
            f"name: got {reference}; allowed: a name, or name:version, as an alias may move"
        )
    registry, model_id = _kept(session, reference)
    if reference.version is not None:
        registry.check_version(model_id, reference, reference.version)
    registry.describe(model_id, reference.version, text, checked)


def keep_report(session: Session, reference: ModelReference, report: str) -> None:
    """Keep what the report of a version has.

    Args:
        session: in a transaction.
        reference: a version of the caller's.
        report: JSON.
    """
    registry, model_id = _kept(session, reference)
    assert reference.version is not None
    registry.check_version(model_id, reference, reference.version)
    registry.report(model_id, reference.version, report)


def grant(session: Session, name: str | None, role: str | None) -> None:
    """Let the members of a role use all versions of a model."""
    registry, model_id = _kept(session, model_name(name, "name"))
    registry.grant(model_id, registry.role(role))


def revoke(session: Session, name: str | None, role: str | None) -> None:
    """Take back what was granted.

    Raises:
        InvalidArgument: the role was not granted it.
    """
    reference = model_name(name, "name")
    registry, model_id = _kept(session, reference)
    if not registry.revoke(model_id, registry.role(role)):
        raise InvalidArgument(
            f"role: got {role!r}; it was not granted {reference}",
            hint="granted_to in cerebro.registered_models tells to whom a model is granted",
        )


def drop(session: Session, name: str | None, version: int | None = None) -> None:
    """Remove a version, or the model with all versions; also an administrator may.

    Raises:
        ObjectInUse: the version has an alias.
    """
    reference = model_name(name, "name")
    registry, model_id = _kept(session, reference, by_administrator=True)
    if version is None:
        registry.drop(model_id)
        return
    registry.check_version(model_id, reference, version)
    if aliases := registry.aliases_of(model_id, version):
        raise ObjectInUse(
            f"version: got {version}, which has the aliases: {', '.join(aliases)}",
            hint="cerebro.cerebro_set_alias gives them to another version",
        )
    registry.drop_version(model_id, version)


def _kept(
    session: Session, reference: ModelReference, by_administrator: bool = False
) -> tuple[Registry, int]:
    """A model of the caller's that nobody else changes until the transaction ends."""
    registry = Registry(session)
    model_id = registry.kept(reference, by_administrator=by_administrator)
    registry.lock(model_id)
    return registry, model_id


def models_of(session: Session, run: StoredRun) -> ModelTable:
    """The output tables of a run, if they are still its own."""
    if run.status != "finished":
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which is {run.status}; allowed: a run that is finished"
        )
    output = run.tables.output
    table = load_model_table(session, output.text)
    sql = f"SELECT s.run_id FROM {output.suffixed('_summary').sql} s"
    found = [row[0] for row in session.run(sql)]
    if found != [run.run_id]:
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, whose output table {output} is that of run "
            f"{', '.join(map(str, found))} by now; allowed: the last run of a table"
        )
    return table


def kept_model(session: Session, reference: ModelReference) -> None:
    """Refuse a model that is not the caller's.

    Raises:
        UndefinedModel: the caller has none of that name.
    """
    Registry(session).kept(reference)


def add_version(
    session: Session,
    reference: ModelReference,
    new: NewVersion,
    state: Iterable[bytes],
) -> int:
    """Add a version to the caller's model of a name, which is made where there is none; returns its number.

    Args:
        session: in a transaction.
        reference: names the model.
        new: the version.
        state: its chunks, in their order.
    """
    registry = Registry(session)
    role = session.run("SELECT cerebro._role()::bigint")[0][0]
    lock(session, f"models of role {role}")
    model_id = registry.made(reference)
    version = registry.add_version(model_id, new)
    for chunk, data in enumerate(state):
        registry.add_chunk(model_id, version, chunk, data)
    return version


def state_chunks(session: Session, states: QualifiedName, key: int) -> Iterator[bytes]:
    """The chunks of a state in a table of states, in their order, one in memory at a time."""
    numbers = session.run(
        f"SELECT s.chunk FROM {states.sql} s WHERE s.mst_key = %s ORDER BY 1", (key,)
    )
    for (chunk,) in numbers:
        sql = f"SELECT s.state FROM {states.sql} s WHERE s.mst_key = %s AND s.chunk = %s"
        yield bytes(session.run(sql, (key, chunk))[0][0])
