"""Tables of states: what is written where, what is dropped when, on a catalog that only listens."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cerebro_db.postgres.catalog import states
from cerebro_db.postgres.catalog.states import StateStore
from cerebro_db.postgres.dialects.statements.orders import StateTables
from cerebro_db.postgres.dialects.statements.training import TrainingStatements
from cerebro_db.postgres.sessions.errors import StatementFailed

MB = 2**20
NAMES = StateTables("run_x", hops_an_epoch=2, every_hop=False)


class Listener:
    """Remembers tables that are made and dropped; refuses to drop some."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.moved: list[tuple[str, ...]] = []
        self.locked: set[str] = set()

    def execute(self, sql: str, parameters: Any = ()) -> list[Any]:
        words = sql.replace('"', "").replace("cerebro_states.", "").split()
        if words[0] == "CREATE":
            self.tables.append(words[words.index("TABLE") + 1])
        elif words[0] == "DROP":
            if words[2] in self.locked:
                raise StatementFailed(
                    "canceling statement due to lock timeout", "55P03", None, None
                )
            self.tables.remove(words[2])
        elif words[0] == "INSERT":
            self.moved.append((words[2], words[words.index("FROM") + 1]))
        return []

    def execute_quietly(self, sql: str) -> None:
        pass

    def commit(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are numbered one after another, where a run's cannot be guessed."""
    numbers = itertools.count()
    monkeypatch.setattr(states.secrets, "randbits", lambda bits: next(numbers))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def store(listener: Listener) -> StateStore:
    made = StateStore(NAMES, 4, listener, TrainingStatements())  # type: ignore[arg-type]
    made.load()
    return made


def write(store: StateStore, mst_key: int, version: int, size: int = 10 * MB) -> None:
    """A hop, and the state before it goes."""
    before = store.of((mst_key, version - 1))
    target = store.target(version)
    used = store.use([before, target])
    store.give_back(used)
    store.wrote(target, (mst_key, version), size)


def test_small_states_share_a_table(store: StateStore, listener: Listener) -> None:
    for version in (2, 4, 6, 8):
        for mst_key in range(1, 5):
            write(store, mst_key, version, 1000)
    assert listener.tables == ["run_x_0"]


def test_a_table_goes_when_nothing_needs_it(store: StateStore, listener: Listener) -> None:
    for version in (2, 4, 6):
        for mst_key in range(1, 5):
            write(store, mst_key, version)
            store.forget([(mst_key, version - 2)])
            store.sweep()
    assert store.kept() == {(mst_key, 6) for mst_key in range(1, 5)}
    assert len(listener.tables) <= 3
    assert listener.moved == []


def test_what_lasts_and_what_passes_are_apart(store: StateStore, listener: Listener) -> None:
    write(store, 1, 1)
    write(store, 1, 2)
    assert listener.tables == ["run_x_0_passing", "run_x_1"]
    assert [NAMES.read(name) for name in listener.tables] == [(0, False), (1, True)]


def test_states_of_one_statement_last_together(store: StateStore, listener: Listener) -> None:
    # Version 2 ends an epoch and must last, and a statement writes one table.
    target = store.target(1, 2, 3)
    assert target.lasting
    assert target.written == 3
    store.failed(target)
    store.wrote(target, (1, 2), 1000)
    assert target.written == 2
    assert not store.target(1, 3).lasting


def test_a_table_in_use_stays(store: StateStore, listener: Listener) -> None:
    write(store, 1, 2)
    write(store, 2, 2)
    used = store.use_of([(1, 2), (2, 2)])
    assert len(used) == 1
    write(store, 3, 2)  # into the next one
    store.forget([(1, 2), (2, 2)])
    store.sweep()
    assert "run_x_0" in listener.tables
    store.give_back(used)
    store.sweep()
    assert "run_x_0" not in listener.tables


def test_slow_configurations_do_not_hold_a_full_table_each(listener: Listener) -> None:
    store = StateStore(NAMES, 8, listener, TrainingStatements())  # type: ignore[arg-type]
    version = 0
    for slow in range(1, 8):
        write(store, slow, 2)  # and does not go on
        for _ in range(3):
            version += 2
            write(store, 8, version)
            store.forget([(8, version - 2)])
            store.sweep()
    assert store.kept() == {*((slow, 2) for slow in range(1, 8)), (8, version)}
    assert listener.moved
    assert len(listener.tables) <= 6


def test_a_table_that_someone_reads_is_dropped_later(
    store: StateStore, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mst_key in (1, 2, 3):
        write(store, mst_key, 2)
    listener.locked.add("run_x_0")
    store.forget([(1, 2), (2, 2)])
    store.sweep()
    assert "run_x_0" in listener.tables
    listener.locked.clear()
    store.sweep()
    assert "run_x_0" in listener.tables  # not tried again at once: it would wait every time
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    store.sweep()
    assert "run_x_0" not in listener.tables


def test_a_configuration_that_ended_needs_nothing(store: StateStore) -> None:
    for mst_key in (1, 2):
        write(store, mst_key, 2)
    store.forget_all(1)
    assert store.kept() == {(2, 2)}
