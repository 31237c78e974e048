"""Partial dependence: what a model predicts on average for each of several values of a column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_db.columns.encoded import Encoding
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.models.registered import Origin, named_models, origin_of
from cerebro_db.models.trained import ModelTable
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import DEPENDENCES
from cerebro_db.postgres.tables.outputs import Outputs, replaced
from cerebro_db.postgres.tables.packed import PackedTable, is_packed
from cerebro_db.postgres.tables.relations import Relation
from cerebro_db.requests.explaining import DependenceRequest
from cerebro_db.scoring import grids
from cerebro_db.scoring.contributions import check_one_output
from cerebro_db.scoring.evaluation import ScoringJob, resolved, test_rows
from cerebro_db.scoring.explaining import chosen_key
from cerebro_db.scoring.grids import Value
from cerebro_db.scoring.prediction_models import shown_classes
from cerebro_db.scoring.user_columns import UserColumn, user_columns

# Numbers of a task, the features of all values; and bytes of the rows that a trainer keeps.
_MOST_NUMBERS, _MOST_BYTES = 2_000_000, 256 * 2**20
_ROWS_AT_ONCE = 10_000
_COLUMNS = (
    "column_name text",
    "value text",
    "number double precision",
    "class_value text",
    "estimated double precision",
    "num_rows integer",
    "mst_key integer",
)
Grid = list[tuple[UserColumn, list[Value]]]


def dependence(host: JobHost, request: DependenceRequest) -> None:
    """Write the partial dependence of a model on columns into a new table.

    Args:
        host: of the call; gets notices of fewer workers.
        request: what to explain.

    Raises:
        InvalidArgument: there are several models and none is named, or no such column.
        WrongObjectType: the values of the columns are not in the table.
    """
    with control_session(host.pool, host.search_path) as control:
        table = named_models(control, request.model_table)
        key = chosen_key(table, request.mst_key)
        check_one_output(table)
        _check_rows(table, request.max_rows)
        columns = _columns(table, request.columns)
        found, models, outputs = resolved(control, table, request, DEPENDENCES, (key,))
        known = _encoded(control, table, found, columns, request.grid)
        with test_rows(host, control, table, request, found) as test:
            grid = _grid(control, table, test, columns, request.grid, known)
            job = ScoringJob(host, table, test, models, {}, _study(request, grid, test))
            result = job.run(control, bool(request.use_gpus))[key]["study"]
        kinds, styles = table.class_kinds, host.styles
        (values,) = shown_classes(control, table.class_values, kinds, styles)
        rows = _rows(grid, result["means"], values or (None,))
        with transaction(control), replaced(control, outputs):
            _write(control, outputs, rows, (result["rows"], key), origin_of(table))


def _check_rows(table: ModelTable, rows: int) -> None:
    """Refuse more rows than a trainer keeps.

    Raises:
        InvalidArgument: there are.
    """
    of_row = 4 * sum(math.prod(shape) for shape in table.input_shapes)
    if rows * of_row > _MOST_BYTES:
        raise InvalidArgument(
            f"max_rows: got {rows} rows of {of_row // 4} features; allowed: up to {max(1, _MOST_BYTES // of_row)}"
        )


def _columns(table: ModelTable, names: Sequence[str | None] | None) -> list[UserColumn]:
    """The columns that are named, or all."""
    crossed = _crossed(table)
    every = {one.name: one for one in user_columns(table) if one.name not in crossed}
    for name in names or ():
        if name not in every:
            listed = ", ".join(map(repr, list(every)[:20])) + (", ..." if len(every) > 20 else "")
            raise InvalidArgument(
                f"columns: got {'NULL' if name is None else shown(name)}; allowed: {listed}",
                hint=nearest(name or "", every),
            )
    found = (
        list(every.values())
        if names is None
        else [every[str(name)] for name in dict.fromkeys(names)]
    )
    if not found:
        raise InvalidArgument("columns: got an empty array; allowed: NULL, or at least one column")
    if not isinstance(table.encoding, Encoding) and any(one.stop - one.start > 1 for one in found):
        wide = next(one for one in found if one.stop - one.start > 1)
        raise WrongObjectType(
            f"model_table: {table.relation.name} takes {wide.name!r}, rows of {wide.stop - wide.start} numbers that "
            "are one column; allowed: columns of single values",
            hint="cerebro.cerebro_contributions and cerebro.cerebro_explain take such columns",
        )
    return found


def _crossed(table: ModelTable) -> set[str]:
    """Crosses, whose values are those of other columns."""
    if not isinstance(table.encoding, Encoding):
        return set()
    return {one.name for one in table.encoding.columns if one.sources != (one.name,)}


def _encoded(
    session: Session, table: ModelTable, found: Relation, columns: Sequence[UserColumn], grid: int
) -> dict[str, list[Value]]:
    """Values of columns that are encoded, out of the raw rows."""
    if not isinstance(table.encoding, Encoding):
        return {}
    if is_packed(found):
        raise WrongObjectType(
            f"test_table: got {found.name}, which is packed and has no values of columns any more; allowed for "
            "models with an encoding of columns: raw rows",
        )
    with transaction(session):
        return grids.of_encoded(session, found, table, [one.name for one in columns], grid)


def _grid(
    session: Session,
    table: ModelTable,
    test: PackedTable,
    columns: Sequence[UserColumn],
    grid: int,
    known: Mapping[str, list[Value]],
) -> Grid:
    values = known or grids.of_arrays(session, test, columns, grid, table.normalizing_const)
    found = [(one, values[one.name]) for one in columns]
    numbers = sum(len(each) * (one.stop - one.start) for one, each in found)
    if numbers > _MOST_NUMBERS:
        raise InvalidArgument(
            f"grid: got {grid} values of {len(columns)} columns, {numbers} features; allowed: up to {_MOST_NUMBERS}",
            hint="name some columns only: columns := ARRAY[...]",
        )
    return found


def _study(request: DependenceRequest, grid: Grid, test: PackedTable) -> Mapping[str, Any]:
    total, wanted = test.rows, min(request.max_rows, test.rows)
    ends = list(itertools.accumulate((one.rows for one in test.partitions), initial=0))
    shares = [end * wanted // total for end in ends]
    keys = [one.partition_key for one in test.partitions]
    return {
        "kind": "dependence",
        "columns": [
            one.task() | {"grid": [list(value.features) for value in values]}
            for one, values in grid
        ],
        "seed": request.seed,
        "rows": {
            str(key): last - first
            for key, (first, last) in zip(keys, itertools.pairwise(shares), strict=True)
        },
    }


def _rows(grid: Grid, means: Sequence[Any], classes: Sequence[str | None]) -> list[tuple[Any, ...]]:
    return [
        (column.name, value.text, value.number, name, estimated)
        for (column, values), of_column in zip(grid, means, strict=True)
        for value, of_value in zip(values, of_column, strict=True)
        for name, estimated in zip(classes, of_value, strict=True)
    ]


def _write(
    session: Session,
    outputs: Outputs,
    rows: Sequence[tuple[Any, ...]],
    common: tuple[int, int],
    origin: Origin,
) -> None:
    count, key = common
    output, columns = outputs.table(), ", ".join((*_COLUMNS, *origin.columns))
    session.run(f"CREATE TABLE {output.sql} ({columns}); {DEPENDENCES.comment(output)}")
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        listed = map(list, zip(*rows[start : start + _ROWS_AT_ONCE], strict=True))
        session.run(
            f"INSERT INTO {output.sql} SELECT u.*, %s, %s{', %s' * len(origin.values)} FROM "
            "unnest(%s::text[], %s::text[], %s::double precision[], %s::text[], %s::double precision[]) u",
            [count, origin.key(key), *origin.values, *listed],
        )
