"""Declaration of each SQL function: whether jobs and schedules may call it, and what they have to know of it.

It stands beside the Python of the function, in the decorator ``entry_of``; there is no other list.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unscheduled:
    """A function that no job calls.

    Attributes:
        why: the rest of a sentence about it.
    """

    why: str


READS = Unscheduled("changes nothing")
ATTENDED = Unscheduled("is for a session that waits for it")


@dataclass(frozen=True)
class Scheduled:
    """A function that changes data: jobs and schedules may call it.

    Attributes:
        makes: the argument that names the table that it makes.
        suffixes: of the tables that it may make, which later calls may read.
        reads: arguments that name tables that it reads.
        steps: name of the ``Steps`` of ``job_calls`` that check it, or register its run; None where its tables are looked
            up, and the function is called in a session.
    """

    makes: str | None = None
    suffixes: tuple[str, ...] = ("",)
    reads: tuple[str, ...] = ()
    steps: str | None = None


CHANGES = Scheduled()
Declaration = Scheduled | Unscheduled
