"""What others have named and written does nothing to a terminal: it is shown."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
from rich.live import Live
from rich.table import Table

import cerebro_db
from cerebro_db.cli import output
from cerebro_db.configs.messages import visible
from cerebro_db.watching.screen import Screen

# Clears the screen, renames the window, recolors, overwrites, turns a text around.
HOSTILE = "a\x1b[2Jb\x1b]0;owned\x07c\x9b31md\re\x08f\u202eg\x7f\ud800"
SHOWN = r"a\x1b[2Jb\x1b]0;owned\x07c\x9b31md\x0de\x08f\u202eg\x7f\ud800"


def test_controls_become_codes_and_all_else_stays() -> None:
    assert visible(HOSTILE) == SHOWN
    kept = "tab\tline\nümläut 表 👩‍🔬 עברית"
    assert visible(kept) == kept


@pytest.mark.parametrize("write", [output.show, output.to_stderr, output.show_text])
def test_lines(
    write: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    write(HOSTILE)  # type: ignore[operator]
    told = capsys.readouterr()
    assert (told.out + told.err).rstrip("\n") == SHOWN


def test_json_has_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({HOSTILE: [HOSTILE, "ü"]})
    text = capsys.readouterr().out
    assert not set(text) & set("\x1b\x07\x08\x0d\x7f\x9b\u202e")
    assert json.loads(text) == {HOSTILE: [HOSTILE, "ü"]}


@pytest.mark.parametrize("live", [False, True])
def test_tables_keep_the_colors_that_are_theirs(live: bool) -> None:
    table = Table("name", title=HOSTILE)
    table.add_row(HOSTILE, style="red")
    screen = Screen(file=io.StringIO(), force_terminal=True, width=90, color_system="standard")
    if live:
        with Live(table, console=screen, auto_refresh=False) as shown:
            shown.refresh()
    else:
        screen.print(table)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert text.count(SHOWN) >= 2
    assert "\x1b[31m" in text  # the red of the row
    assert "\x1b[2J" not in text
    assert "\x1b]0;" not in text
    assert not set(text) & set("\x07\x08\x9b\u202e\x7f")


def test_all_that_is_printed_goes_through_one_place() -> None:
    """No command writes to a terminal by itself."""
    found = []
    package = Path(cerebro_db.__file__).parent
    for file in [*(package / "cli").rglob("*.py"), *(package / "client").rglob("*.py")]:
        if file.name == "output.py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in ("print", "typer.echo", "Console") or name.endswith(
                    ("stdout.write", "stderr.write")
                ):
                    found.append(f"{file.name}:{node.lineno} {name}")
    assert found == []
