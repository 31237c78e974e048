"""All SQL that the documentation shows is executed, and the examples give what they say."""

from __future__ import annotations

import re

from tests.docs.conftest import NOT_RUN, Documented
from tests.docs.pages import PAGES, fenced, in_order, prose, statements

VERBS = "SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|GRANT|REVOKE|SET|COPY|DO|WITH|TRUNCATE|CALL"
# A line of an indented block, or of a fenced one of another language, that is SQL.
HIDDEN = re.compile(rf"^(?:    \s*|)((?:{VERBS})\s[^;|]*;)", re.MULTILINE)


def test_every_block_is_executed_or_told_why_not() -> None:
    executed = [block for block in in_order() if block.language == "sql"]
    assert {block.place for page in PAGES for block in fenced(page) if block.language == "sql"} == {
        block.place for block in executed
    }
    texts = [statement for block in executed for statement in statements(block.text)]
    assert len(texts) > 150
    for beginning, reason in NOT_RUN.items():
        assert reason
        assert any(text.startswith(beginning) for text in texts), beginning


def test_sql_is_in_blocks_of_sql() -> None:
    hidden = [
        f"{page.name}: {line}"
        for page in PAGES
        for text in [
            *(block.text for block in fenced(page) if block.language not in ("sql", "python")),
            "\n".join(line for line in prose(page).splitlines() if line.startswith("    ")),
        ]
        for line in HIDDEN.findall(text)
    ]
    assert hidden == []
    assert {block.language for page in PAGES for block in fenced(page)} <= {"sql", "text", "python"}


def test_functions_that_are_named_exist(documented: Documented) -> None:
    known = set(
        documented.sql.column(
            "SELECT proname::text FROM pg_proc "
            "WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')"
        )
    )
    told = {
        (page.name, name)
        for page in PAGES
        if page.name != "CHANGELOG.md"  # which tells of what was, too
        for name in re.findall(r"\b(cerebro_\w+)(?=\()", page.read_text())
    }
    assert [pair for pair in sorted(told) if pair[1] not in known] == []
    assert ("sql.md", "cerebro_pack") in told


def test_the_images_are_read(documented: Documented) -> None:
    page = "tutorial-images.md"
    board = documented.shown(page, "SELECT l.rank")[0]
    assert [row["rank"] for row in board] == [1, 2, 3, 4]
    scores = documented.shown(page, "SELECT mst_key, loss")[0]
    assert scores[0]["metric"] == board[0]["validation_metrics"][0]
    count = documented.shown(page, "SELECT count(*) AS images")[0][0]
    assert count["images"] == 120
    assert count["are_right"] == round(120 * scores[0]["metric"]) >= 100
    taken = documented.shown(page, "SELECT actual")[0]
    assert sum(row["num_rows"] for row in taken) == 120 - count["are_right"]
    assert documented.shown(page, "SELECT octet_length")[0][0]["bytes"] > 1000
