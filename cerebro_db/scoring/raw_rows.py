"""Raw rows to be scored: each model sees them packed as its training rows were."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from cerebro_db.columns.encoded import Encoding
from cerebro_db.configs.messages import shown
from cerebro_db.errors import CerebroError, InvalidArgument
from cerebro_db.models.registered import name_of
from cerebro_db.models.trained import ModelTable
from cerebro_db.packing import pack as packing
from cerebro_db.packing.features import exactly, names_in
from cerebro_db.postgres.calls.host import JobHost
from cerebro_db.postgres.calls.settings import as_seen, is_seen, isolation
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.leftovers import scratch_tables
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.postgres.tables.relations import Relation, column
from cerebro_db.requests.packing import PackValidationRequest

# The row of a copy has no address that a user could look up.
_ADDRESS = re.compile(r", (?:gp_segment_id \d+, )?ctid \(\d+,\d+\)")


@dataclass(frozen=True)
class RawRows:
    """A table or view with a row for each example.

    Attributes:
        table: as it was found.
        dependent, independent: columns of targets and features; None for those of the models.
        on_error: of images that cannot be read.
    """

    table: Relation
    dependent: str | None = None
    independent: str | None = None
    on_error: Literal["stop", "ignore"] = "stop"

    def targets_of(self, models: ModelTable) -> str:
        """The columns of the targets."""
        return self.dependent or listed_names(models.dependent_varnames)

    def features_of(self, models: ModelTable) -> str | None:
        """The columns of the features; None where an encoding names them.

        Raises:
            InvalidArgument: an earlier version has registered the models without them.
        """
        if self.independent is not None or models.encoding is not None:
            return self.independent
        if not models.independent_varnames:
            raise InvalidArgument(
                f"independent_varname: got NULL; allowed: the column of the features of {self.table.name}, as "
                f"{models.relation.name} was registered without it, by an earlier version"
            )
        return listed_names(models.independent_varnames)

    def read_for(self, models: ModelTable) -> list[str]:
        """The columns that are read.

        Raises:
            UndefinedColumn: one is not there.
        """
        features, role = self.features_of(models), "independent_varname"
        encoding = models.encoding
        if encoding is not None and (features is None or isinstance(encoding, Encoding)):
            names = list(map(exactly, encoding.names))
        else:
            names = [name or str(features) for name in names_in(self.table, features, role)]
        found = [column(self.table, name, role).name for name in names]
        role, targets = "dependent_varname", self.targets_of(models)
        return [
            *found,
            *(column(self.table, name, role).name for name in names_in(self.table, targets, role)),
        ]


@contextmanager
def packed_rows(
    host: JobHost, control: Session, models: ModelTable, rows: RawRows
) -> Iterator[PackedTable]:
    """Raw rows as a packed table that is there as long as this lasts.

    Args:
        host: of the call; gets notices of rows that are left out.
        control: a session of it, in no transaction.
        models: whose encoding and classes are used.
        rows: to be packed.

    Raises:
        InvalidData: a row cannot be packed, or has a class that the models do not have.
        UndefinedColumn: the table lacks a column.
    """
    with scratch_tables(control) as base:
        yield _packed(host, control, models, rows, base)


@contextmanager
def same_rows(
    host: JobHost, control: Session, each: Sequence[ModelTable], rows: RawRows
) -> Iterator[list[PackedTable]]:
    """The same raw rows as a packed table for each of several models, of one snapshot.

    Args:
        host, control: as above.
        each: models, each with an encoding and classes of its own.
        rows: to be packed.

    Raises:
        CerebroError: as above, with the models that cannot see the rows.
    """
    with scratch_tables(control) as base:
        copy = replace(rows, table=_copied(host, control, each, rows, base))
        found = []
        for place, models in enumerate(each, 1):
            try:
                output = QualifiedName(base.schema, f"{base.name}_{place}")
                found.append(_packed(host, control, models, copy, output))
            except CerebroError as error:
                text = _ADDRESS.sub("", error.message.replace(str(base), str(rows.table.name)))
                error.message = f"{name_of(models)} cannot see the rows: {text}"
                raise
        yield found


def _copied(
    host: JobHost,
    control: Session,
    each: Sequence[ModelTable],
    rows: RawRows,
    copy: QualifiedName,
) -> Relation:
    """A copy of the columns that the models need, as the caller sees them."""
    names = list(dict.fromkeys(name for models in each for name in rows.read_for(models)))
    listed = ", ".join(map(quote, names))
    query = f"TABLE {copy.sql} AS SELECT {listed} FROM {rows.table.name.sql}"
    anywhere = host.dialect.anywhere
    text = f"CREATE {query}{anywhere}" if anywhere else f"CREATE UNLOGGED {query}"
    is_seen(control, rows.table)  # or refused
    begin = f"BEGIN ISOLATION LEVEL {isolation(control)}"
    control.run(f"{begin}; {as_seen(control, text)}; COMMIT")
    columns = tuple(one for one in rows.table.columns if one.name in names)
    return replace(rows.table, name=copy, columns=columns)


def _packed(
    host: JobHost, control: Session, models: ModelTable, rows: RawRows, output: QualifiedName
) -> PackedTable:
    request = PackValidationRequest(
        rows.table.name.text,
        output.text,
        rows.targets_of(models),
        rows.features_of(models),
        training_table=name_of(models),
        on_error=rows.on_error,
    )
    packing.pack(host, request, models)
    return load_packed(control, output.text, "test_table")


def listed_names(names: Sequence[str]) -> str:
    """Names of columns as users write a list of them."""
    return ", ".join(map(exactly, names))


def check_raw_arguments(packed: PackedTable, **given: str | None) -> None:
    """Refuse arguments that say how raw rows are read where rows are packed already.

    Raises:
        InvalidArgument: there is one.
    """
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(
                f"{name}: got {shown(value)}; allowed: NULL, as {packed.relation.name} is packed"
            )
