"""All SQL that the documentation shows is executed, and the examples give what they say."""

from __future__ import annotations

import re

from tests.docs.conftest import NOT_RUN, Documented
from tests.docs.pages import PAGES, fenced, in_order, prose, statements

VERBS = "SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|GRANT|REVOKE|SET|COPY|DO|WITH|TRUNCATE|CALL"
# A line of an indented block, or of a fenced one of another language, that is SQL.
HIDDEN = re.compile(rf"^(?:    \s*|)((?:{VERBS})\s[^;|]*;)", re.MULTILINE)


def test_every_block_is_executed_or_says_why_not() -> None:
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
    assert "cerebro_pack" in {name for _, name in told}


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


def test_the_rings_are_distinguished(documented: Documented) -> None:
    page = "tutorial-search.md"
    trials = documented.shown(page, "SELECT rank, mst_key, bracket")[0]
    assert [row["epoch"] for row in trials].count(9) == 5
    assert {row["epoch"] for row in trials} == {1, 3, 9}
    assert len(trials) == 17
    decided = documented.shown(page, "SELECT number, mst_key, action")[0]
    assert {row["action"] for row in decided} == {"promote", "stop"}
    assert all(row["reason"] for row in decided)
    important = documented.shown(page, "SELECT parameter")[0]
    assert {"batch_size", "model_id", "optimizer", "Adam.lr"} <= {
        row["parameter"] for row in important
    }
    best = documented.shown(page, "SELECT * FROM rings_best")[0]
    board = documented.shown(page, "SELECT rank, mst_key, round(validation")[0]
    assert {row["mst_key"] for row in best} == {row["mst_key"] for row in board}
    assert len(best) == 3
    found = documented.shown(page, "SELECT count(*) AS points")[0][0]
    assert found["points"] == 180
    assert found["are_right"] >= 145
