"""Lists of columns in one text."""

from __future__ import annotations

import pytest

from cerebro_db.columns.values import Column
from cerebro_db.errors import InvalidArgument, UndefinedColumn
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.relations import Relation, listed_columns, split_names

NAMES = ("age", "Zip code", 'a,"b', " x ", "50% of {}", "id")
RELATION = Relation(
    QualifiedName("public", "t"),
    1,
    "r",
    tuple(Column(name, "integer", 23, "integer", "N", None, None) for name in NAMES),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("age", ["age"]),
        (" age ,id", ["age", "id"]),
        ('"Zip code", "a,""b"," x "', ["Zip code", 'a,"b', " x "]),
        ("Zip code , 50% of {}", ["Zip code", "50% of {}"]),
        ("AGE", ["age"]),
        (" * ", list(NAMES)),
    ],
)
def test_lists(text, names):
    assert [column.name for column in listed_columns(RELATION, text, "cols")] == names


@pytest.mark.parametrize(
    "text", [None, "", "  ", ",", "age,", "age,,id", ",age", '"age', 'a"b"', '""']
)
def test_bad_lists(text):
    with pytest.raises(InvalidArgument, match="cols: got"):
        split_names(text, "cols")


def test_unknown_columns_and_the_nearest_one():
    with pytest.raises(UndefinedColumn, match=r'cols: got .zip_code..*age, "Zip code"') as caught:
        listed_columns(RELATION, "age, zip_code", "cols")
    assert caught.value.hint == """Did you mean '"Zip code"'?"""
    with pytest.raises(UndefinedColumn) as caught:
        listed_columns(RELATION, "nothing_like_it", "cols")
    assert caught.value.hint == "name one of its columns, or a view that has such a column"


def test_a_column_twice():
    with pytest.raises(InvalidArgument, match="'age' twice"):
        listed_columns(RELATION, 'age, id, "age"', "cols")
