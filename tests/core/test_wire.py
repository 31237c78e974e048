"""JSON that is read back: what is wrong is told with its path, what was got and what is allowed."""

from __future__ import annotations

from typing import Annotated

import pytest
from msgspec import Meta, field

from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.wire import Wire, as_json, convert, decode, decode_stored, encode, plain


class Part(Wire, frozen=True):
    """A part of a message."""

    count: Annotated[int, Meta(ge=1)]
    name: str | None = None


class Whole(Wire, frozen=True):
    """A message."""

    parts: tuple[Part, ...]
    rates: dict[str, float] = field(default_factory=dict)
    is_last: bool = False


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        ("", "", "got \"\"; allowed: JSON"),
        ("{x", "", "got \"{x\"; allowed: JSON"),
        ("[1]", "", "got [1]; allowed: an object"),
        ("[" * 90_000, "", "allowed: an object"),
        ("9" * 5000, "", "allowed: a number that is not too large"),
        ("{}", ".parts", "got nothing; allowed: a value, which must be given"),
        ('{"parts": 7}', ".parts", "got 7; allowed: a list"),
        ('{"parts": [{"count": 1}, {"count": "1"}]}', ".parts[1].count",
         'got "1"; allowed: a whole number'),
        ('{"parts": [{"count": 0}]}', ".parts[0].count", "got 0; allowed: a whole number >= 1"),
        ('{"parts": [{"count": 1, "name": 3}]}', ".parts[0].name", "got 3; allowed: a text, or null"),
        ('{"parts": [], "rates": {"a": 1e999}}', ".rates[...]", "a number that is not too large"),
        ('{"parts": [], "is_last": 1}', ".is_last", "got 1; allowed: true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_path(text: str, path: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode(Whole, text, "task")
    assert caught.value.message.startswith(f"task{path}: got ")
    assert told in caught.value.message
    assert len(caught.value.message) < 200
    with pytest.raises(
        InvalidData, match=r"the catalog has .*; allowed: what Cerebro-DB"
    ) as stored:
        decode_stored(Whole, text, "task", "begin a new one")
    assert (stored.value.message.startswith(f"task{path}: "), stored.value.hint) == (
        True,
        "begin a new one",
    )


def test_a_message_is_read_as_it_was_written() -> None:
    whole = Whole((Part(1), Part(2, "b")), {"a": 0.1})
    assert encode(whole) == '{"parts":[{"count":1},{"count":2,"name":"b"}],"rates":{"a":0.1}}'
    assert decode(Whole, encode(whole), "task") == whole
    assert convert(Whole, plain(whole), "task") == whole
    assert decode(Whole, '{"parts": [], "of_a_later_version": 3}', "task") == Whole(())


def test_a_value_of_python_is_what_json_gives_back() -> None:
    assert as_json({"a": (1, None), "b": {1: 2}, "c": frozenset()}) == {
        "a": [1, None],
        "b": {"1": 2},
        "c": "frozenset()",
    }
