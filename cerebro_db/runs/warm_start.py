"""Checks that another run can go on from the tables of an earlier one, and replace them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from cerebro_db.columns.encoded import Recorded
from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.core.spec import Configuration
from cerebro_db.errors import (
    InvalidArgument,
    InvalidState,
    WrongObjectType,
    is_infrastructure_failure,
)
from cerebro_db.models.trained import (
    ModelTable,
    TrainedModel,
    load_model_table,
    one_or_all,
    recipe,
)
from cerebro_db.postgres.calls.host import control_session, preparation
from cerebro_db.postgres.names import HERE, shown_literal
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import HISTORY_SUFFIX, STATES_SUFFIX
from cerebro_db.postgres.tables.relations import find_if_there
from cerebro_db.runs.setup import RunSetup

ROLE = "model_output_table"
_HISTORY = ("mst_key", "iteration", "run_id", "dataset")


def check_previous(session: Session, pool: SessionPool, setup: RunSetup) -> None:
    """Compare what is to be trained with what was.

    Args:
        session: of the driver.
        pool: has a session for TensorFlow, where an architecture is another one.
        setup: of the run.

    Raises:
        InvalidArgument: the models were trained on other classes, or another kind of target; or an
            architecture cannot take over the weights of the model that goes on in it.
        WrongObjectType: a table that a run would replace was made by someone else.
    """
    _check_history(session, setup)
    if not _has_states(session, setup):
        return  # no model was trained to the end: all start fresh
    earlier = load_model_table(session, str(setup.output))
    _check_targets(setup, earlier)
    _check_features(setup, earlier)
    if changed := _changed(session, setup, earlier):
        with control_session(pool, None) as other:
            _check_weights(other, setup, earlier, changed)


def _check_history(session: Session, setup: RunSetup) -> None:
    table = setup.output.suffixed(HISTORY_SUFFIX)
    found = find_if_there(session, str(table), ROLE)
    if found is not None and not all(map(found.has, _HISTORY)):
        raise WrongObjectType(
            f"{ROLE}: {table} was not made by cerebro.cerebro_fit_multiple, and warm_start := true would "
            "replace it",
            hint="rename that table",
        )


def _has_states(session: Session, setup: RunSetup) -> bool:
    """True where models have states to begin with; each model must have one."""
    output, states = setup.output, setup.output.suffixed(STATES_SUFFIX)
    models = f"SELECT m.mst_key FROM {output.sql} m"
    info = find_if_there(session, str(output.suffixed("_info")), ROLE)
    if info is not None and info.has("mst_key") and info.has("status"):
        models += f" UNION SELECT i.mst_key FROM {info.name.sql} i WHERE i.status IN ('finished', 'stopped')"
    there = {row[0] for row in session.run(f"SELECT DISTINCT mst_key FROM {states.sql}")}
    trained = {row[0] for row in session.run(models)}
    gone = sorted({one.mst_key for one in setup.configurations} & trained - there)
    if gone:
        raise WrongObjectType(
            f"{ROLE}: {states} has no state of the models {gone[:5]} of {output}, from which "
            "warm_start := true goes on",
            hint=f"its rows were deleted; train them anew under {_elsewhere(setup)}",
        )
    return bool(there)


def _elsewhere(setup: RunSetup) -> str:
    """The start of a model that begins anew."""
    if setup.is_single:
        return "another model_output_table"
    return f"another mst_key in {setup.spec.model_selection_table}, or another model_output_table"


def _check_targets(setup: RunSetup, earlier: ModelTable) -> None:
    targets = setup.packed.targets
    given = (
        one_or_all([target.kind for target in targets]),
        one_or_all([target.shape for target in targets]),
        one_or_all([target.class_values for target in targets]),
    )
    wanted = (
        one_or_all([target.kind for target in earlier.targets.each]),
        one_or_all([target.shape for target in earlier.targets.each]),
        one_or_all(earlier.class_values),
    )
    for what, got, allowed in zip(_TOLD, given, wanted, strict=True):
        if got != allowed:
            raise InvalidArgument(
                f"source_table: got {setup.packed.relation.name} with {what} {got}; the models of "
                f"{earlier.relation.name}, from which warm_start := true goes on, have {allowed}",
                hint=f"pack it with encoding_of := {shown_literal(str(earlier.relation.name))}",
            )


def _check_features(setup: RunSetup, earlier: ModelTable) -> None:
    """Refuse features that mean something else, however many they are; other means and scales are taken."""
    if _meaning(setup.packed.encoding) != _meaning(earlier.encoding):
        name = earlier.relation.name
        raise InvalidArgument(
            f"source_table: {setup.packed.relation.name} has other features than the models of {name}, from which "
            "warm_start := true goes on, were trained with",
            hint=f"pack it with encoding_of := {shown_literal(str(name))}",
        )


def _meaning(encoding: Recorded | None) -> object:
    """The meaning of each feature, as its encoding says."""
    return None if encoding is None else encoding.meaning


_TOLD = ("a target of the kind", "a target of shape", "the class values")


def _changed(session: Session, setup: RunSetup, earlier: ModelTable) -> list[Configuration]:
    """The configurations that go on from a model of another architecture."""
    found = {one.mst_key: one for one in setup.configurations}
    # Most are as they were: texts that differ are fetched only, and these may still mean the same.
    sql = (
        f"SELECT m.mst_key, m.model_arch::text FROM {earlier.relation.name.sql} m "
        "JOIN unnest(%s::integer[], %s::text[]) AS t(mst_key, now) ON t.mst_key = m.mst_key "
        "WHERE pg_catalog.md5(m.model_arch::text) IS DISTINCT FROM t.now"
    )
    texts = [hashlib.md5(one.architecture.text.encode()).hexdigest() for one in found.values()]
    rows = session.run(sql, (list(found), texts))
    return [found[key] for key, text in rows if _fingerprint(text) != found[key].architecture.id]


def _fingerprint(text: str | None) -> str | None:
    """Fingerprint of an architecture in a table that anyone may have changed."""
    try:
        return fingerprint(json.loads(text or ""))
    except ValueError:
        return None


def _check_weights(
    session: Session, setup: RunSetup, earlier: ModelTable, changed: Sequence[Configuration]
) -> None:
    """Give the weights that are there to the models that shall go on from them, as to predict."""
    session.run(*preparation(use_gpus=False))
    sql = (
        "SELECT cerebro._begin_prediction(%s, "
        "cerebro.cerebro_joined_state(s.state ORDER BY s.chunk)) "
        f"FROM {earlier.states.sql} s, {HERE} WHERE s.mst_key = %s HAVING pg_catalog.count(*) > 0"
    )
    for one in changed:
        try:
            session.run(sql, (_task(one, setup, earlier), one.mst_key))
        except StatementFailed as error:
            if error.sqlstate == InvalidState.sqlstate:
                raise _another_model(session, one, setup, earlier, error.message) from None
            if is_infrastructure_failure(error.sqlstate):
                raise
            # Else it cannot be built, which its first hop tells of: the others go on.


def _task(configuration: Configuration, setup: RunSetup, earlier: ModelTable) -> str:
    """Task for a worker that checks whether a configuration takes over the weights."""
    shapes = tuple(tuple(one.shape) for one in setup.packed.inputs)
    model = TrainedModel(
        configuration.mst_key,
        configuration.architecture.text,
        configuration.architecture.id,
        configuration.compile_text,
        configuration.fit_text,
    )
    given = {"format": "state", "shape": list(shapes[0]), "divisor": 1.0}
    ranks = {"ranks": [0] * len(earlier.targets.each)}
    return json.dumps(recipe(model, replace(earlier, input_shapes=shapes)) | given | ranks)


def _another_model(
    session: Session,
    one: Configuration,
    setup: RunSetup,
    earlier: ModelTable,
    reason: str,
) -> InvalidArgument:
    now, had = one.architecture.model_id, _had(session, earlier, one.mst_key)
    elsewhere = (
        "another model_output_table, where it starts fresh"
        if setup.is_single
        else f"another mst_key in {setup.spec.model_selection_table}, under which it starts fresh"
    )
    return InvalidArgument(
        f"configuration {one.mst_key}: got model_id {now} of {setup.spec.model_arch_table}, which cannot go on "
        f"from the model of mst_key {one.mst_key} in {earlier.relation.name}{had}: "
        f"{reason}",
        hint=f"give model_id {now} {elsewhere}; or name the model_id that the earlier run had",
    )


def _had(session: Session, earlier: ModelTable, mst_key: int) -> str:
    """Architecture of the earlier run, if its table of facts is of the model that is there."""
    if not (earlier.info.has("model_id") and earlier.info.has("status")):
        return ""
    sql = (
        f"SELECT i.model_id FROM {earlier.info.name.sql} i "
        "WHERE i.mst_key = %s AND i.status NOT IN ('failed', 'cancelled')"
    )
    rows = session.run(sql, (mst_key,))
    return f", which was model_id {rows[0][0]}" if rows else ""
