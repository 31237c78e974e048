"""How rows are named, and how messages of other processes are told on."""

from __future__ import annotations

import pytest

from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import as_raised

TABLE = QualifiedName("public", "digits")
PLAIN, SEGMENTS = dialect_of(150000, "postgresql").packing, dialect_of(90426, "greenplum6").packing


def test_a_row_has_a_number_where_there_is_an_order() -> None:
    assert PLAIN.named_row(5, TABLE, "(0,5)") == "row 5 of the scan of public.digits, ctid (0,5)"
    assert PLAIN.named_row(5, TABLE, None) == "row 5 of the scan of public.digits"


def test_a_row_has_the_address_that_it_has_on_its_segment() -> None:
    place = (2).to_bytes(4, "big") + (70000).to_bytes(4, "big") + (300).to_bytes(2, "big")
    named = SEGMENTS.named_row(5, TABLE, place.hex())
    assert named == "a row of public.digits, gp_segment_id 2, ctid (70000,300)"


@pytest.mark.parametrize("address", [None, "ab" * 26])
def test_the_address_of_a_copy_is_not_reported(address: str | None) -> None:
    assert SEGMENTS.named_row(5, TABLE, address) == "a row of public.digits"


PYTHON = 'PL/Python function "_train_step"'


@pytest.mark.parametrize(
    ("message", "context", "told"),
    [
        ("a row has no id  (seg3 slice1 127.0.0.1:18003 pid=7)", PYTHON, "a row has no id"),
        ("cerebro: no worker", PYTHON, "no worker"),
        ("x: got shape (2, 3)", PYTHON, "x: got shape (2, 3)"),
        ("permission denied  (seg0 pid=7)", None, "permission denied  (seg0 pid=7)"),
        ("spiexceptions.DiskFull: no  (seg0 pid=7)", PYTHON, None),
    ],
)
def test_our_own_messages_are_reported_as_they_were_raised(
    message: str, context: str | None, told: str | None
) -> None:
    assert as_raised(message, context) == (told or message)
