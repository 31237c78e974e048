"""Before any hop trainers of several hosts look whether they reach each other: sessions that tell what they saw."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerebro_db.core.tasks import Outcome
from cerebro_db.errors import PeersApart
from cerebro_db.executors import sessions as executor
from cerebro_db.executors.process_groups import ProcessGroup
from cerebro_db.executors.sessions import WorkerSessions
from cerebro_db.executors.workers import RunResources
from cerebro_db.postgres.sessions.errors import StatementFailed

HOSTS = {0: "a", 1: "a", 2: "b"}
Answer = Callable[[int, dict[str, Any]], Any]


class FakeSession:
    """A session whose trainer answers at once.

    Attributes:
        number: of it, in the order in which sessions were taken.
        calls: of all sessions: the function, and what it was told.
    """

    def __init__(self, number: int, calls: list[tuple[int, str, Any]], answer: Answer) -> None:
        self.number, self.pid, self.is_closed = number, number, False
        self._calls, self._answer, self._rows = calls, answer, []

    def send(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        told = json.loads(parameters[-1])
        if "_try_peers" in sql:
            self._calls.append((self.number, "look", told))
            self._rows = [self._answer(self.number, told)]
        else:
            self._calls.append((self.number, "prepare", told))
            address = {"host": "h", "ip": "10.0.0.1", "port": self.number + 1}
            self._rows = [{"address": address}]

    def advance(self) -> bool:
        if isinstance(self._rows[0], Exception):
            raise self._rows[0]
        return True

    def rows(self) -> list[tuple[str]]:
        return [(json.dumps(one),) for one in self._rows]

    def close(self) -> None:
        self.is_closed = True


class Given:
    """Workers of a run, and what was asked of their sessions."""

    def __init__(self, answer: Answer, hosts: dict[int, str]) -> None:
        self.calls: list[tuple[int, str, Any]] = []
        self.sessions: list[FakeSession] = []

        def take(count: int) -> list[FakeSession]:
            first = len(self.sessions)
            new = [FakeSession(first + one, self.calls, answer) for one in range(count)]
            self.sessions += new
            return new

        training = SimpleNamespace(
            binds_workers=True,
            worker_settings=lambda states: "",
            call=lambda packed, keys, function, parameters: (function, parameters),
        )
        partitions = [SimpleNamespace(partition_key=key) for key in HOSTS]
        rank = SimpleNamespace(
            dialect=SimpleNamespace(training=training),
            tables={"training": SimpleNamespace(partitions=partitions)},
            pool=SimpleNamespace(take=take, tick=lambda: None),
            store=SimpleNamespace(give_back=lambda tables: None),
            states=None,
            guard_key=0,
            preparation=json.dumps({"run_id": 1}),
            hosts=hosts,
            moves_rows=False,
        )
        self.workers = WorkerSessions(cast(RunResources, rank), len(HOSTS))

    def kinds(self) -> list[str]:
        """What was asked since."""
        return [kind for _, kind, _ in self.calls]

    def turn(self) -> list[Outcome]:
        """A turn of the loop."""
        self.workers.free()
        return list(self.workers.poll())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for sessions that are no connections."""
    monkeypatch.setattr(executor, "wait_any", lambda busy, seconds: None)


def given(answer: Answer, hosts: dict[int, str] = HOSTS) -> Given:
    """Workers that have begun."""
    found = Given(answer, hosts)
    found.workers.start()
    return found


def lost() -> StatementFailed:
    """A trainer that has ended."""
    return StatementFailed("a trainer has ended", "YC001", None, None)


def test_nobody_gets_a_hop_before_all_have_looked() -> None:
    one = given(lambda number, told: [])
    assert one.workers.free() == []  # they get ready
    assert len(list(one.workers.poll())) == 3
    assert one.kinds() == ["prepare"] * 3
    assert one.workers.free() == []  # they look
    assert list(one.workers.poll()) == []
    looks = [told for _, kind, told in one.calls if kind == "look"]
    assert [told["rank"] for told in looks] == [0, 1, 2]
    assert {told["secret"] for told in looks} == {looks[0]["secret"]}
    assert [told["port"] for told in looks[0]["addresses"]] == [1, 2, 3]
    assert [view.number for view in one.workers.free()] == [0, 1, 2]
    assert one.kinds() == ["prepare"] * 3 + ["look"] * 3


def test_nobody_gets_a_hop_while_one_gets_ready_again() -> None:
    one = given(lambda number, told: [])
    one.turn(), one.turn()
    one.workers._workers[1].unprepared = True
    assert one.workers.free() == []
    assert one.sessions[1].is_closed
    list(one.workers.poll())
    assert len(one.workers.free()) == 3
    assert one.kinds().count("look") == 3  # whoever comes later is told of with each round


def test_trainers_of_one_host_get_no_addresses() -> None:
    one = given(lambda number, told: [], {})
    one.turn()
    assert len(one.workers.free()) == 3
    assert one.kinds() == ["prepare"] * 3
    process_group = ProcessGroup()
    assert "addresses" not in one.workers._groups._address_of(process_group, [0, 1, 2])
    apart = given(lambda number, told: [])
    apart.turn()
    assert "addresses" not in apart.workers._groups._address_of(process_group, [0, 1])
    assert len(apart.workers._groups._address_of(process_group, [1, 2])["addresses"]) == 2


@pytest.mark.parametrize("first", [lost(), [[0, "host b cannot reach a: it let nobody in"]]])
def test_one_that_is_lost_or_late_has_all_look_again_in_other_sessions(first: Any) -> None:
    one = given(lambda number, told: first if number == 2 else [])
    outcomes = [outcome for _ in range(5) for outcome in one.turn()]
    assert len(one.workers.free()) == 3
    assert all(not hasattr(outcome.result, "sqlstate") for outcome in outcomes)
    assert one.kinds().count("look") == 6
    assert all(session.is_closed for session in one.sessions[:3])
    ports = [told["addresses"][0]["port"] for _, kind, told in one.calls if kind == "look"]
    assert len(set(ports)) == 2


def test_ways_that_there_are_not_are_one_error_by_whom_most_complain_of() -> None:
    def answer(number: int, told: dict[str, Any]) -> Any:
        rank = told["rank"]
        return (
            [[0, f"{rank} to 0"]]
            if rank == 1
            else [[1, f"{rank} to 1"]]
            if rank
            else [[1, "0 to 1"]]
        )

    one = given(answer)
    for _ in range(3):
        one.turn()
    with pytest.raises(PeersApart) as caught:
        one.turn()
    assert caught.value.message == "trainers of several hosts: 0 to 1; 2 to 1; 1 to 0"
    assert one.kinds().count("look") == 6


def test_another_error_of_a_look_is_reported_as_it_is() -> None:
    error = StatementFailed("cancelled", "57014", None, None)
    one = given(lambda number, told: error if number == 2 else [])
    outcomes = [outcome for _ in range(2) for outcome in one.turn()]
    assert [getattr(one.result, "sqlstate", None) for one in outcomes] == [None] * 3 + ["57014"]
