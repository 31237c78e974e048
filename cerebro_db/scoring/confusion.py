"""Confusion matrices: how many rows of each class a model takes for which class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_db.configs.exactness import CONFUSION
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.registered import Origin, named_models, origin_of
from cerebro_db.models.trained import ModelTable, load_models
from cerebro_db.postgres.control import Notify, control_session, no_notice, transaction
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import new_outputs, replaced
from cerebro_db.postgres.packed import load_packed
from cerebro_db.postgres.sessions import Session, SessionPool
from cerebro_db.postgres.table_kinds import CONFUSION as CONFUSION_MATRICES
from cerebro_db.scoring.class_texts import shown_classes
from cerebro_db.scoring.evaluation import EvaluationRequest, ScoringJob, check_alike

_MOST_ROWS = 10_000


def confusion_matrix(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: EvaluationRequest,
    notify: Notify = no_notice,
) -> QualifiedName:
    """Count the rows of a packed table by class and predicted class; returns the table's name.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: as for an evaluation.
        notify: is told of fewer workers.

    Raises:
        InvalidArgument: the target has no classes, or the test table was not packed like the
            training table.
    """
    with control_session(pool, request.search_path) as control:
        table = named_models(control, request.model_table)
        if all(target.kind != "class" for target in table.targets.each):
            names = ", ".join(map(repr, table.dependent_varnames))
            raise InvalidArgument(
                f"model_table: {table.relation.name} predicts {names}, a float "
                "target; allowed: classes",
                hint="cerebro.cerebro_evaluate scores models of float targets",
            )
        test = load_packed(control, request.test_table, "test_table")
        check_alike(table, test)
        if request.mst_key is not None:
            table.check_key(request.mst_key)
        keys = table.mst_keys if request.mst_key is None else (request.mst_key,)
        models = load_models(control, table, keys)
        outputs = new_outputs(
            control,
            request.output_table,
            "output_table",
            CONFUSION_MATRICES,
            replace=request.replace,
        )
        details = {model.mst_key: CONFUSION for model in models}
        job = ScoringJob(pool, dialect, table, test, models, details)
        results = job.run(control, bool(request.use_gpus), notify)
        origin = origin_of(table)
        kinds, styles = table.class_kinds, request.styles
        values = shown_classes(control, table.class_values, kinds, styles)
        rows = _rows(replace(table, class_values=values), results, origin)
        with transaction(control), replaced(control, outputs):
            _write(control, outputs.name, rows, table, origin)
    return outputs.name


def _rows(
    table: ModelTable, results: Mapping[int, dict[str, Any]], origin: Origin
) -> list[list[Any]]:
    names, values = table.dependent_varnames, table.class_values
    return [
        [origin.key(mst_key), names[place], values[place][actual], values[place][predicted], count]
        for mst_key, result in results.items()
        for place, actual, predicted, count in result["counts"]
    ]


def _write(
    session: Session,
    output: QualifiedName,
    rows: Sequence[Sequence[Any]],
    table: ModelTable,
    origin: Origin,
) -> None:
    several = len(table.dependent_varnames) > 1
    columns = ["mst_key integer", *(["class_name text"] if several else [])]
    columns += ["actual text", "predicted text", "num_rows bigint", *origin.columns]
    session.run(
        f"CREATE TABLE {output.sql} ({', '.join(columns)}); {CONFUSION_MATRICES.comment(output)}"
    )
    for start in range(0, len(rows), _MOST_ROWS):
        listed = [list(column) for column in zip(*rows[start : start + _MOST_ROWS], strict=True)]
        session.run(
            f"INSERT INTO {output.sql} SELECT u.mst_key, {'u.name, ' if several else ''}u.actual, "
            f"u.predicted, u.num_rows{', %s' * len(origin.values)} FROM "
            "unnest(%s::integer[], %s::text[], %s::text[], %s::text[], %s::bigint[]) "
            "AS u(mst_key, name, actual, predicted, num_rows)",
            [*origin.values, *listed],
        )
