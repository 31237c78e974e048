"""Tables of a call: their names, and how they go again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cerebro_db.errors import CerebroError, DuplicateTable
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.locks import lock_key, transaction, try_lock
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import MODELS, PACKED
from cerebro_db.postgres.tables.relations import new_name

_ROLE = "output_table"
_LONGEST = 30
_MOST_TRIES = 1000
ROWS, TRAIN, TEST, PACKED_TRAIN, PACKED_TEST, NETS, FIRST = (
    "_rows", "_train", "_test", "_packed", "_packed_test", "_nets", "_first",
)  # fmt: skip
# The holdout and all other rows, as a split makes them.
APART = "_holdout"
REST, HOLDOUT = f"{APART}_train", f"{APART}_test"
SCORES, HOLDOUT_SCORES = "_scores", f"{APART}_scores"
SAMPLE, IMPORTANCE, RELIABILITY, THRESHOLD = "_sample", "_importance", "_reliability", "_threshold"
# Parameters: schema, names.
_THERE = """
SELECT c.relname::text, c.relkind::text
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = ANY (%s::name[])
"""


class Places:
    """Names of the tables of a call, which were free when it began.

    Args:
        base: the table of models; the names of the others begin with it.
    """

    def __init__(self, base: QualifiedName) -> None:
        self.base = base

    def __getitem__(self, suffix: str) -> str:
        """The name of a table, as a user writes it."""
        return str(self.base.suffixed(suffix))

    @property
    def suffixes(self) -> list[str]:
        """Endings of the names of all tables that a call may make; views come before those that they read."""
        packed = [f"{one}{more}" for one in (PACKED_TRAIN, PACKED_TEST) for more in PACKED.suffixes]
        models = [f"{one}{more}" for one in ("", FIRST) for more in MODELS.suffixes]
        return [
            SAMPLE, HOLDOUT, TEST, TRAIN, ROWS, REST, NETS, SCORES, HOLDOUT_SCORES, IMPORTANCE, RELIABILITY, THRESHOLD,
            *packed, *models,
        ]  # fmt: skip

    def there(self, session: Session) -> list[tuple[str, str]]:
        """Names and kinds of the tables and views that are there, in an order in which they can be dropped."""
        names = [self.base.suffixed(suffix).name for suffix in self.suffixes]
        found = session.run(_THERE, (self.base.schema, names))
        return sorted(found, key=lambda row: names.index(row[0]))

    def drop(self, session: Session) -> None:
        """Drop all of them.

        Args:
            session: in no transaction.
        """
        with transaction(session):
            for name, kind in self.there(session):
                what = "VIEW" if kind == "v" else "TABLE"
                session.run(f"DROP {what} {QualifiedName(self.base.schema, name).sql}")


def places_of(session: Session, output: str | None, model: str) -> Places:
    """Names that are free, and held by the session against other calls of the kind.

    Args:
        session: knows the caller's search path; in no transaction.
        output: as the caller names it, or None.
        model: the name of the model.

    Raises:
        DuplicateTable: the caller's names are taken.
    """
    if output is not None:
        places = Places(new_name(session, output, _ROLE))
        _ = places[max(places.suffixes, key=len)]  # is short enough
        taken = places.there(session)
        if taken or not _held(session, places):
            name = taken[0][0] if taken else places.base.name
            raise DuplicateTable(
                f"{_ROLE}: got {output!r}; {QualifiedName(places.base.schema, name)} exists already, or another "
                "call makes it",
                hint="choose another name; without output_table the tables of the call go when it ends",
            )
        return places
    for number in range(1, _MOST_TRIES):
        more = f"_{number}" if number > 1 else ""
        name = f"{model[:_LONGEST].encode()[:_LONGEST].decode(errors='ignore')}_automl{more}"
        places = Places(new_name(session, f'"{name}"', _ROLE))
        if not places.there(session) and _held(session, places):
            return places
    raise DuplicateTable(
        f"{_ROLE}: got NULL; allowed: a name, as all those that could be chosen are taken",
        hint=f"drop the tables of earlier calls, such as {places.base}",
    )


def _held(session: Session, places: Places) -> bool:
    return try_lock(session, lock_key(f"automl {places.base.text}"))


def drop_quietly(session: Session, places: Places) -> Sequence[str]:
    """Drop the tables of a call; returns the names of what stays."""
    with suppress(CerebroError):
        places.drop(session)
    with suppress(CerebroError):
        return [name for name, _ in places.there(session)]
    return []
