"""The schedule of Hyperband as rows, and as a table as MADlib makes it."""

from __future__ import annotations

from cerebro_db.configs.grids.brackets import Bracket, schedule_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import SCHEDULES
from cerebro_db.postgres.tables.outputs import new_outputs, replaced
from cerebro_db.requests.searching import BracketsTableRequest

COLUMNS = ("s", "i", "n_i", "r_i")


def schedule_rows(brackets: list[Bracket]) -> list[tuple[int, int, int, int]]:
    """Bracket, rung, configurations and epochs of each rung."""
    return [
        (bracket.s, i, rung.configurations, rung.epochs)
        for bracket in brackets
        for i, rung in enumerate(bracket.rungs)
    ]


def write_schedule(session: Session, request: BracketsTableRequest) -> None:
    """Make a table with a row for each rung.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        request: what is asked for.

    Raises:
        InvalidArgument: a number is out of its range.
        DuplicateTable: there is a table of that name.
    """
    rows = schedule_rows(schedule_of(request.r, request.eta, request.skip_last))
    outputs = new_outputs(
        session, request.schedule_table, "schedule_table", SCHEDULES,
        replace=request.replace,
    )  # fmt: skip
    output = outputs.name
    with replaced(session, outputs):
        columns = ", ".join(f"{name} integer NOT NULL" for name in COLUMNS)
        session.run(
            f"CREATE TABLE {output.sql} ({columns}, UNIQUE (s, i)); {SCHEDULES.comment(output)}",
            (),
        )
        values = ", ".join(["(%s, %s, %s, %s)"] * len(rows))
        session.run(
            f"INSERT INTO {output.sql} VALUES {values}", [one for row in rows for one in row]
        )
