"""The server's interface, lent to processes beside it."""

from __future__ import annotations

from typing import Any

from cerebro_db.relay.services import Services


class Plpy:
    """What the server hands to bodies of functions; it knows what was prepared, and executes nothing."""

    class Error(Exception):
        """An error of the server."""

    SPIError = Error

    def __init__(self) -> None:
        self.prepared: list[str] = []

    def prepare(self, query: str, types: list[str]) -> str:
        """A plan: the query itself."""
        self.prepared.append(query)
        return query

    def execute(self, plan: str, values: list[Any]) -> list[Any]:
        """No rows."""
        return []


class Asking:
    """A process that asks for a statement."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def send(self, message: Any) -> None:
        """Take an answer."""
        self.answers.append(message)


def ask(plpy: Plpy, plans: dict[Any, Any], query: str, kind: str = "int4") -> Any:
    process = Asking()
    Services(plpy, plans).serve({"execute": [query, [kind], [1]]}, process)  # type: ignore[arg-type]
    return process.answers


def test_a_statement_is_prepared_once_for_all_calls() -> None:
    plpy, plans = Plpy(), dict[Any, Any]()
    for _ in range(3):
        assert ask(plpy, plans, "SELECT $1") == [{"names": [], "rows": []}]
    assert plpy.prepared == ["SELECT $1"]
    ask(plpy, plans, "SELECT $1", "text")
    assert plpy.prepared == ["SELECT $1"] * 2


def test_no_more_than_so_many_are_kept() -> None:
    plpy, plans = Plpy(), dict[Any, Any]()
    for number in range(200):
        ask(plpy, plans, f"SELECT $1 + {number}")
        assert len(plans) <= 64
    assert len(plpy.prepared) == 200
