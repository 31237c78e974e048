"""Class values as the caller's session shows them, so that they can be joined with labels."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.postgres.control import transaction
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.times import Styles, as_shown

ClassValues = tuple[tuple[str | None, ...], ...]


def shown_classes(
    session: Session, values: ClassValues, kinds: Sequence[str | None], styles: Styles | None
) -> ClassValues:
    """The class values of each target, those of dates and times as the caller knows them.

    Args:
        session: in no transaction.
        values: as they are kept.
        kinds: SQL names of the types of dates and times among them.
        styles: of the caller's session; None for what is kept.
    """
    if styles is None or not any(kinds):
        return values
    with transaction(session):
        return tuple(
            one if kind is None else as_shown(session, one, kind, styles)
            for one, kind in zip(values, kinds, strict=True)
        )
