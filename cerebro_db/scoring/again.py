"""Work that trainers did not finish, done again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cerebro_db.errors import TrainerLost
from cerebro_db.postgres.control import Notify
from cerebro_db.postgres.sessions import StatementFailed

R = TypeVar("R")


def done_again(work: Callable[[], R], notify: Notify) -> R:
    """Do what leaves nothing behind where it fails; where a trainer ends in the middle of it, once more.

    Args:
        work: done at most twice.
        notify: is told of a trainer that has ended.

    Raises:
        StatementFailed: of the second time; of the first one, if no trainer has ended.
    """
    try:
        return work()
    except StatementFailed as error:
        if error.sqlstate != TrainerLost.sqlstate:
            raise
        notify(f"{error.message}; its work is done again")
    return work()
