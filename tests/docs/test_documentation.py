"""The documentation tells of what is there, and of nothing else."""

from __future__ import annotations

import ast
import itertools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cerebro_db.configs.architectures.names import LAYERS
from cerebro_db.configs.functions.losses import LOSSES
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.configs.functions.optimizers import OPTIMIZERS
from cerebro_db.configs.grids.parameters import COMPILE_KEYS, FIT_KEYS
from cerebro_db.configs.settings import DESCRIPTIONS, Settings, parse_setting
from cerebro_db.errors import CerebroError, InvalidArgument
from tests.docs.conftest import Documented
from tests.docs.pages import (
    PAGES,
    REFERENCE,
    ROOT,
    blocks,
    columns,
    prose,
    rows,
    sections,
)

# What the placeholders of output tables are in the examples of the reference.
EXAMPLES = {
    "`<output_table>` of cerebro_pack": "plants_packed",
    "`<output_table>_summary` of cerebro_pack": "plants_packed_summary",
    "`<output_table>_encoding` of cerebro_pack_columns": "trips_packed_encoding",
    "`<output_table>` of cerebro_encode": "trips_encoded",
    "`<output_table>` of cerebro_train_test_split": "plants_marked",
    "`<model_arch_table>` of cerebro_load_model": "plants_models",
    "`<model_selection_table>` of cerebro_generate_configs": "plants_configs",
    "`<model_selection_table>_summary` of cerebro_generate_configs": "plants_configs_summary",
    "`<model_output_table>` of cerebro_fit_multiple": "plants_out",
    "`<model_output_table>_states` of cerebro_fit_multiple": "plants_out_states",
    "`<model_output_table>_history` of cerebro_fit_multiple": "plants_out_history",
    "`<model_output_table>_info` of cerebro_fit_multiple": "plants_out_info",
    "`<model_output_table>_summary` of cerebro_fit_multiple": "plants_out_summary",
    "`<output_table>` of cerebro_evaluate": "plants_scores",
    "`<output_table>` of cerebro_confusion_matrix": "plants_taken_for",
    "`<output_table>` of cerebro_explain": "plants_important",
    "`<output_table>` of cerebro_contributions": "plants_contributions",
    "`<output_table>` of cerebro_dependence": "plants_depends",
    "`<output_table>` of cerebro_reliability": "plants_reliability",
    "`<output_table>` of cerebro_threshold": "ferns_threshold",
    "`<output_table>` of cerebro_predict": "plants_predicted",
    "`<output_table>` of cerebro_gpu_configuration": "host_gpus",
    "`<schedule_table>` of cerebro_hyperband_schedule": "plants_schedule",
}
PLACEHOLDERS = {
    "<dependent_varname>": "kind",
    "<independent_varname>": "leaf",
    "<id_col>": "id",
    "<target_cols>": "id",
}
# Aggregates that nobody calls.
INTERNAL = ("cerebro_train", "cerebro_measure", "cerebro_joined_state", "cerebro_average")


def one_line(signature: str) -> str:
    """A signature without line breaks and casts, as the catalog's and the page's can be compared."""
    text = " ".join(re.sub(r"::[a-z ]+(\[\])?", "", signature).split())
    return text.replace("( ", "(").replace(" )", ")")


def test_every_public_function_is_in_the_reference_with_its_signature(sql: Any) -> None:
    catalog = sql.column(
        "SELECT format('%s(%s) RETURNS %s', proname, pg_get_function_arguments(oid),"
        " pg_get_function_result(oid)) FROM pg_proc"
        " WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND proname !~ '^_'"
    )
    told = [
        (heading, one_line(block))
        for heading, text in sections(REFERENCE).items()
        for block in blocks(text, "text")
        if heading.startswith("cerebro_")
    ]
    assert sorted(signature for _, signature in told) == sorted(map(one_line, catalog))
    assert all(signature.startswith(f"{heading}(") for heading, signature in told)


def test_signatures_and_tables_of_arguments_are_those_of_the_declarations() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
    stale = [
        page.name
        for page in REFERENCE.pages
        if script["rewritten"](page.read_text()) != page.read_text()
    ]
    assert stale == [], "run scripts/reference.py"


def functions() -> dict[str, str]:
    """The section of each function that users call."""
    return {
        heading: text
        for heading, text in sections(REFERENCE).items()
        if heading.startswith("cerebro_") and heading not in INTERNAL
    }


def test_every_argument_is_explained_once() -> None:
    for heading, text in functions().items():
        cells = "".join(name for name, _ in rows(text, "| argument | meaning |"))
        names = re.findall(r"^    (?!OUT )(\w+) ", blocks(text, "text")[0], re.MULTILINE)
        assert sorted(re.findall(r"`(\w+)`", cells)) == sorted(names), heading


def test_every_function_has_an_example() -> None:
    for heading in functions():
        examples = "".join(blocks(REFERENCE.read_text(), "sql"))
        assert re.search(rf"\b{heading}\(", examples), heading


# What administrators call, or who has more rights than others: see docs/security.md.
OF_ADMINISTRATORS = "set|vacuum|register_function|register_expression|unregister_function|cancel|pause|resume|drop_run|drop_model|version|work"


def test_administrators_are_reported_to_name_the_schema() -> None:
    unqualified = [
        f"{page.name}: {call}"
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for call in re.findall(
            rf"(?:SELECT|FROM|,|JOIN) ?cerebro_(?:{OF_ADMINISTRATORS})\(", page.read_text()
        )
    ]
    assert unqualified == []


def test_every_function_has_a_comment(sql: Any) -> None:
    silent = sql.column(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')"
        " AND coalesce(obj_description(oid, 'pg_proc'), '') = ''"
    )
    assert silent == []


def test_every_view_is_in_the_reference_with_all_columns(sql: Any) -> None:
    catalog: dict[str, list[tuple[str, str]]] = {}
    for view, name, kind in sql.fetch(
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND c.relkind = 'v'"
        " AND c.relname !~ '^_' ORDER BY a.attnum"
    ):
        catalog.setdefault(view, []).append((name, kind))
    told = {
        heading.removeprefix("View cerebro."): columns(text)
        for heading, text in sections(REFERENCE).items()
        if heading.startswith("View ")
    }
    assert told == catalog


def test_every_setting_is_in_the_reference_with_its_default_and_what_is_allowed() -> None:
    told = rows(sections(REFERENCE)["Settings"], "| name | default | allowed | meaning |")
    assert [name.strip("`") for name, *_ in told] == sorted(DESCRIPTIONS)
    for name, default, allowed, _ in told:
        setting = name.strip("`")
        assert default.strip("`").replace("empty", "") == str(getattr(Settings(), setting))
        for example in re.findall(r"`(.+?)`", allowed):
            assert parse_setting(setting, example) == example
        if isinstance(getattr(Settings(), setting), int):
            low, high = (int(number) for number in allowed.split(" to "))
            assert [parse_setting(setting, str(number)) for number in (low, high)] == [low, high]
            for number in (low - 1, high + 1):
                with pytest.raises(InvalidArgument):
                    parse_setting(setting, str(number))


def test_every_sqlstate_of_an_error_is_in_the_reference() -> None:
    told = {
        code.strip("`") for code, _ in rows(sections(REFERENCE)["Errors"], "| SQLSTATE | what |")
    }
    # What an installation and the embedded server tell never leaves a function, nor what a trainer
    # tells the relay, which takes another one, nor what a direct worker tells the loop.
    elsewhere = {
        "MissingPrerequisite", "InstallationFailed", "ClusterFailed", "TrainerBound", "HandedBack",
    }  # fmt: skip
    raised = {
        kind.sqlstate
        for kind in below(CerebroError)
        if "sqlstate" in vars(kind) and kind.__name__ not in elsewhere
    }
    assert {"22023", "55000"} <= raised <= told


def below(kind: type[CerebroError]) -> Iterator[type[CerebroError]]:
    """All errors that are of a kind."""
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


@pytest.mark.parametrize("names", [LAYERS, OPTIMIZERS, LOSSES, METRICS, COMPILE_KEYS, FIT_KEYS])
def test_what_configurations_may_hold_is_in_the_reference(names: Any) -> None:
    told = set(re.findall(r"`(\w+)`", REFERENCE.read_text()))
    assert set(names) <= told


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    told = set(re.findall(r"`make ([a-z]+)", "".join(page.read_text() for page in PAGES)))
    assert "test" in told
    assert told <= targets


def test_tests_that_are_named_exist() -> None:
    told = set(re.findall(r"`(tests/[\w/.]+)`", "".join(page.read_text() for page in PAGES)))
    assert "tests/fitting/test_resume.py" in told
    assert [path for path in told if not (ROOT / path).exists()] == []


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    figures = set(re.findall(r"\b\d+\.\d+\b", sections(ROOT / "README.md")["Measured"]))
    results = sections(ROOT / "docs" / "benchmarks.md")["Results"]
    assert figures
    assert figures <= set(re.findall(r"\b\d+\.\d+\b", results))


def anchors(page: Path) -> set[str]:
    """What links into a page may name: its headings, as renderers of Markdown spell them."""
    headings = [heading.lower() for heading in sections(page) if heading]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{page.name}: {target}")
    assert broken == []


def test_tables_stand_apart_from_the_text_before_them() -> None:
    """The site makes a table only of lines behind an empty one."""
    joined = [
        f"{page.name}: {line}"
        for page in PAGES
        for before, line in itertools.pairwise(page.read_text().splitlines())
        if line.startswith("|") and before.strip() and not before.startswith("|")
    ]
    assert joined == []


def test_no_page_waits_for_a_figure() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"@@\w+@@|\bTODO\b|\bTBD\b", page.read_text()), page


def test_pages_that_hints_name_are_there_with_their_headings() -> None:
    texts = [
        node.value
        for path in (ROOT / "cerebro_db").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    found = {
        (match[1], match[2])
        for text in texts
        for match in re.finditer(
            r"(docs/[\w/-]+\.md)(?:[\w ]*? under ([A-Z]\w*(?: [a-z]+)*))?", text
        )
    }
    assert ("docs/sql/configurations.md", "Compile parameters") in found
    assert [name for name, _ in found if not (ROOT / name).exists()] == []
    named = [(name, heading) for name, heading in found if heading]
    assert [one for one in named if one[1] not in sections(ROOT / one[0])] == []


def test_a_site_with_a_broken_link_is_not_built() -> None:
    """mkdocs counts the warnings that it shows: a quiet one is never strict."""
    makefile = (ROOT / "Makefile").read_text()
    (command,) = re.findall(r"/mkdocs\" build(.*)$", makefile, re.MULTILINE)
    assert command.split() == ["--strict"]


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = set(re.findall(r"\(([\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert index == {page.name for page in folder.glob("*.md")} - {"README.md"}


def columns_of(sql: Any, table: str) -> list[tuple[str, str]]:
    return sql.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )


def test_the_examples_make_the_tables_that_are_named(
    documented: Documented, has_segments: bool
) -> None:
    # Trials of the searches that were trained no further are stopped.
    statuses = "SELECT l.status FROM cerebro.leaderboard l LEFT JOIN cerebro.searches s USING (run_id) WHERE {}"
    assert set(documented.sql.column(statuses.format("s.run_id IS NULL"))) == {"finished"}
    assert set(documented.sql.column(statuses.format("s.run_id IS NOT NULL"))) == {
        "finished",
        "stopped",
    }
    tables = {
        heading.removeprefix("Table "): text
        for heading, text in sections(REFERENCE).items()
        if heading.startswith("Table ")
    }
    assert tables.keys() == EXAMPLES.keys()
    for heading, table in EXAMPLES.items():
        told = tables[heading]
        for placeholder, name in PLACEHOLDERS.items():
            told = told.replace(placeholder, name)
        found = columns_of(documented.sql, table)
        if has_segments:  # the page tells of this column in words
            found = [column for column in found if column[0] != "segment_key"]
        assert columns(told) == found, heading


def test_every_page_is_in_the_site() -> None:
    """mkdocs tells of links that lead nowhere: make docs."""
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"(?:- |: )([\w/-]+\.md)$", text, re.MULTILINE))
    docs = ROOT / "docs"
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
