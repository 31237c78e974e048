"""The report of a registered model: what was kept with it is shown as text, and drawn."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from cerebro_db.core.model_reports import Bin, Importance, ModelReport, Step, Threshold
from cerebro_db.errors import UndefinedModel
from cerebro_db.postgres.sessions.connections import connections_of
from cerebro_db.watching.models import ModelFacts, ModelSection, model_section
from cerebro_db.watching.report import rendered
from tests.watching.browser import loaded, needs_browser
from tests.watching.conftest import HOSTILE, Watched

pytest.importorskip("plotly", reason="reports need plotly: pip install 'cerebro-db[report]'")


def section(contents: ModelReport) -> ModelSection:
    lineage = {"ensemble": {"members": [{"mst_key": 1}, {"mst_key": 4}]}}
    facts = ModelFacts(
        "ada", "visits", 3, ["champion"], HOSTILE, {}, lineage, datetime(2026, 11, 1, tzinfo=UTC), 7, 4, None
    )  # fmt: skip
    return ModelSection(facts, contents)


CONTENTS = ModelReport(
    call={"source_table": HOSTILE, "max_seconds": 60.0},
    decisions=["task: outcome is one of 2 classes", f"columns: {HOSTILE} is left out: it is excluded"],
    steps=[Step(f"SELECT '{HOSTILE}'")],
    log=[(1.5, f"a first model: {HOSTILE}")],
    runs=[6, 7],
    rows={"training": 280, "validation": 80, "holdout": 40},
    scores={"validation": {"auc": 0.9625, "loss": None}, "holdout": {"auc": 0.9375, "loss": 0.25}},
    importances=[Importance(HOSTILE, 0.3125, 0.0125), Importance("km", None)],
    measure="auc",
    reliability=[Bin(30, 0.75, 0.7), Bin(50, 0.95, 0.96)],
    calibration_error=0.0325,
    threshold=Threshold(HOSTILE, 0.4375, "f1", 0.875, {"true_positives": 35}),
    curves=[{"target": "outcome", "classes": ["a", HOSTILE], "pairs": [[0, 0, 40], [1, 1, 40]],
             "curves": [{"class": 1, "auc": 0.9625, "points": [[0, 0, 1], [1, 1, 0]]}]}],
)  # fmt: skip


def drawn(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def test_what_was_kept_is_shown() -> None:
    text = rendered([], None, b"", section(CONTENTS))
    for wanted in (
        "model visits, version 3", "(champion)", "a mean of<b>2 models</b>", "rows for holdout<b>40</b>", "0.9625", "0.9375",
        "rows that nothing has seen before", "from a probability of 0.4375 on, by f1, which is 0.875", "35 true positives",
        "differ from the share of rows that are right by 0.0325", "How much worse auc becomes", "0.3125", "a first model: ",
        "max_seconds=60.0", "outcome is one of 2 classes",
    ):  # fmt: skip
        assert wanted in text
    (found,) = drawn(text)
    assert found["columns"] == {
        "names": [HOSTILE, "km"], "values": [0.3125, None], "deviations": [0.0125, None], "measure": "auc",
    }  # fmt: skip
    assert found["reliability"] == [[0.75, 0.7, 30], [0.95, 0.96, 50]]
    assert len(re.findall(r"<script\b", text)) == 3  # nothing of what users wrote is one


def test_a_model_of_which_nothing_was_kept_has_its_description() -> None:
    text = rendered([], None, b"", section(ModelReport()))
    assert f'<p class="faint">{escape(HOSTILE)}</p>' in text
    assert "Importance of the columns" not in text
    assert "How good it is" not in text
    assert "model visits, version 3" in text


def test_the_runs_of_a_model_are_those_that_made_it() -> None:
    assert section(CONTENTS).run_ids == [7, 6]


def test_a_model_that_is_not_there(watched: Watched) -> None:
    with pytest.raises(UndefinedModel, match="model: got model:nothing@champion; you have no such"):
        model_section(connections_of(watched.dsn), "nothing@champion")


@needs_browser
def test_a_browser_draws_it(tmp_path: Path) -> None:
    from cerebro_db.watching.report import _library

    page = tmp_path / "model.html"
    page.write_text(rendered([], None, _library(), section(CONTENTS)))
    shown = loaded(page, tmp_path / "model.png", tmp_path, (1200, 2000))
    assert 'data-state="drawn"' in shown
