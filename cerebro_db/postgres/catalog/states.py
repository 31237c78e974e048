"""Storage of the states of a run in tables, each dropped when nothing in it is needed."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.statements.orders import StateTables
from cerebro_db.postgres.dialects.statements.training import TrainingStatements
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import LOCK_TIMEOUT, StatementFailed
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.protocol import StateReport, report_of

# A table is worth its making from so many bytes on; below that, states are few or small.
_TABLE_BYTES = 16 * 2**20
# A server that sorts states has them in temporary files meanwhile.
_BATCH_BYTES = 256 * 2**20
# Together the tables have room for three states of each configuration.
_MOST_STATES = 3
_NUMBER_BITS = 48
# Someone reads a table, or has made something that depends on it.
IN_USE, _LOCKED_SECONDS = (LOCK_TIMEOUT, "2BP01"), 30.0

Key = tuple[int, int]  # mst_key, version


@dataclass(eq=False)
class StateTable:
    """Table of states, and what is in it.

    Attributes:
        needed: bytes of the states in it that something needs, by key.
        written: how many states were written into it, or are being written.
        size: bytes of those that are there.
        users: statements under way that read or write it.
        locked_until: someone else reads it, so that it is not tried to be dropped before then.
        has_reports: whether its states have reports, as those of version 0.1.0 have not.
    """

    name: QualifiedName
    lasting: bool
    needed: dict[Key, int] = field(default_factory=dict)
    written: int = 0
    size: int = 0
    users: int = 0
    locked_until: float = 0.0
    has_reports: bool = True

    @property
    def useless_bytes(self) -> int:
        """Bytes of its states that nothing needs."""
        return self.size - sum(self.needed.values())


class StateStore:
    """The tables of states of one run, changed by its driver only.

    Args:
        tables: their names.
        configurations: how many the run has.
        catalog: of the driver.
        sql: statements of the server.

    Attributes:
        before_drop: called before a table is dropped.
    """

    def __init__(
        self, tables: StateTables, configurations: int, catalog: Catalog, sql: TrainingStatements
    ) -> None:
        self._names, self._catalog, self._sql = tables, catalog, sql
        self.expect(configurations)
        self._tables: list[StateTable] = []
        self._open: dict[bool, StateTable] = {}
        self.before_drop: Callable[[], None] = lambda: None

    def expect(self, configurations: int) -> None:
        """The run has so many configurations by now."""
        self._capacity = math.ceil(configurations / 2)
        self._most = _MOST_STATES * configurations

    @property
    def catalog(self) -> Catalog:
        """Catalog of the driver."""
        return self._catalog

    def load(self) -> None:
        """Find out what is there."""
        for name, has_reports in self._catalog.execute(*self._sql.tables(self._names.name)):
            number, lasting = self._names.read(name)
            table = StateTable(self._names.table(number, lasting), lasting, has_reports=has_reports)
            for mst_key, version, size in self._catalog.execute(self._sql.contents(table.name)):
                self._wrote(table, (mst_key, version), int(size))
            self._tables.append(table)

    def create(self, lasting: bool) -> StateTable:
        """A new table, into which states of its kind go from now on."""
        # Nobody can make a table of a name that cannot be guessed before this one is there.
        name = self._names.table(secrets.randbits(_NUMBER_BITS), lasting)
        for statement in self._sql.create_states(name, lasting):
            self._catalog.execute(statement)
        table = self._open[lasting] = StateTable(name, lasting)
        self._tables.append(table)
        return table

    # -- what is where -----------------------------------------------------------
    def kept(self) -> set[Key]:
        """All states that are kept."""
        return {key for table in self._tables for key in table.needed}

    def of(self, key: Key) -> StateTable | None:
        """The table of a state, None where there is no such state."""
        return next((table for table in self._tables if key in table.needed), None)

    def names(self, keys: Iterable[Key]) -> list[QualifiedName]:
        """The tables of some states."""
        return [table.name for table in self._of_all(keys)]

    def batches(self, keys: Iterable[Key]) -> Iterator[tuple[StateTable, list[Key]]]:
        """Batches of states, of one table each, small enough to be sorted by a statement."""
        wanted = set(keys)
        for table in self._tables:
            batch: list[Key] = []
            size = 0
            for key in sorted(wanted.intersection(table.needed)):
                if batch and size + table.needed[key] > _BATCH_BYTES:
                    yield table, batch
                    batch, size = [], 0
                batch.append(key)
                size += table.needed[key]
            if batch:
                yield table, batch

    def target(self, *versions: int) -> StateTable:
        """The table that takes the next states of these versions; counts them as written."""
        lasting = any(map(self._names.lasts, versions))
        table = self._open.get(lasting)
        if table is None or (table.written >= self._capacity and table.size >= _TABLE_BYTES):
            table = self.create(lasting)
        table.written += len(versions)
        return table

    # -- statements under way ----------------------------------------------------
    def use(self, tables: Iterable[StateTable | None]) -> list[StateTable]:
        """Keep states until they are given back."""
        used = [table for table in tables if table is not None]
        for table in used:
            table.users += 1
        return used

    def use_of(self, keys: Iterable[Key]) -> list[StateTable]:
        """The tables of some states must stay until they are given back."""
        return self.use(self._of_all(keys))

    def give_back(self, tables: Iterable[StateTable]) -> None:
        """A statement is over."""
        for table in tables:
            table.users -= 1

    # -- changes -----------------------------------------------------------------
    def wrote(self, table: StateTable, key: Key, size: int) -> None:
        """A hop has left a state."""
        table.written -= 1  # counted when its table was chosen
        self._wrote(table, key, size)

    def failed(self, table: StateTable) -> None:
        """A hop has left nothing."""
        table.written -= 1

    def forget(self, keys: Iterable[Key]) -> None:
        """Mark states as needed no more."""
        for key in keys:
            table = self.of(key)
            if table is not None:
                del table.needed[key]

    def clone(self, source: Key, mst_key: int, packed: PackedTable, partition_key: int) -> None:
        """Copy a state, which becomes version 0 of another configuration.

        Args:
            source: mst_key and version.
            mst_key: of the copy.
            packed: what is trained on.
            partition_key: where the copy is trained first.
        """
        table = self.of(source)
        assert table is not None
        target = self._open.get(True) or self.create(lasting=True)
        self._catalog.execute(
            *self._sql.clone_state(table.name, target.name, source, mst_key, packed, partition_key)
        )
        self._wrote(target, (mst_key, 0), table.needed[source])

    def delete_from(self, mst_key: int, version: int) -> None:
        """Delete the states of a configuration from a version on, which will be made anew."""
        for table in self._tables:
            gone = [key for key in table.needed if key[0] == mst_key and key[1] >= version]
            if gone:
                self._catalog.execute(*self._sql.delete_from(table.name, mst_key, version))
                self.forget(gone)

    def forget_all(self, mst_key: int, but: Collection[int] = ()) -> None:
        """Mark the states of a configuration as needed no more, but for some versions."""
        self.forget([key for key in self.kept() if key[0] == mst_key and key[1] not in but])

    def sweep(self) -> None:
        """Drop the tables that nothing needs; make room where there are too many states."""
        for table in [table for table in self._tables if self._is_useless(table)]:
            self._drop(table)
        if sum(table.written for table in self._tables) > self._most:
            self._compact()

    def unrecorded(self, run_id: int) -> Iterator[tuple[int, int, StateReport]]:
        """Reports of the states whose last hop has no row in the catalog: mst_key, version, report."""
        for table in self._tables:
            if not table.has_reports:
                continue
            sql = self._sql.unrecorded(run_id, table.name, self._names.hops_an_epoch)
            for mst_key, version, text in self._catalog.execute(*sql):
                report = report_of(text)
                if isinstance(report, StateReport):
                    yield mst_key, version, report

    # -- inside ------------------------------------------------------------------
    def _wrote(self, table: StateTable, key: Key, size: int) -> None:
        table.needed[key] = size
        table.written += 1
        table.size += size

    def _of_all(self, keys: Iterable[Key]) -> list[StateTable]:
        wanted = set(keys)
        return [table for table in self._tables if not wanted.isdisjoint(table.needed)]

    def _is_useless(self, table: StateTable) -> bool:
        is_open = self._open.get(table.lasting) is table
        in_use = table.needed or table.users or is_open
        return not in_use and table.locked_until <= time.monotonic()

    def _compact(self) -> None:
        """Move what is needed out of the table with the most that is not."""
        free = [
            table
            for table in self._tables
            if not table.users
            and table is not self._open.get(table.lasting)
            and table.useless_bytes >= _TABLE_BYTES / 2
            and table.locked_until <= time.monotonic()
        ]
        if not free:
            return
        table = max(free, key=lambda table: table.useless_bytes)
        target = self._open.get(table.lasting) or self.create(table.lasting)
        moved = sorted(table.needed)
        if not self._dropped([self._sql.move(table.name, target.name, moved)], table):
            return
        for key in moved:
            self._wrote(target, key, table.needed[key])
        self._tables.remove(table)

    def _drop(self, table: StateTable) -> None:
        if self._dropped([], table):
            self._tables.remove(table)

    def _dropped(self, before: Sequence[tuple[str, list[object]]], table: StateTable) -> bool:
        """Drop a table now, or never mind: someone, such as pg_dump, may read it for hours."""
        self.before_drop()
        self._catalog.execute("BEGIN")
        try:
            self._catalog.execute("SET LOCAL lock_timeout = '100ms'")
            for statement in before:
                self._catalog.execute(*statement)
            self._catalog.execute(f"DROP TABLE {table.name.sql}")
        except StatementFailed as error:
            self._catalog.execute("ROLLBACK")
            if error.sqlstate not in IN_USE:
                raise
            table.locked_until = time.monotonic() + _LOCKED_SECONDS
            return False
        except BaseException:
            self._catalog.execute_quietly("ROLLBACK")
            raise
        self._catalog.commit()
        return True
