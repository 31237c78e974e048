"""The report: one file, complete, safe, and small enough."""

from __future__ import annotations

import html as entities
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cerebro_db.postgres.sessions.connections import Connections, connections_of
from cerebro_db.watching import reading, report
from cerebro_db.watching.reading import Hopped, Standing
from cerebro_db.watching.report import read, rendered, work
from cerebro_db.watching.statements import statement_of
from tests.fitting.sizes import PARTITIONS
from tests.watching.browser import loaded, needs_browser
from tests.watching.conftest import EPOCHS, HOSTILE, Watched

pytest.importorskip("plotly", reason="reports need plotly: pip install 'cerebro-db[report]'")
MOST_BYTES = 6_000_000
SCREENSHOTS = os.environ.get("CEREBRO_SCREENSHOTS")


@pytest.fixture(scope="module")
def connections(watched: Watched) -> Connections:
    return connections_of(watched.dsn)


@pytest.fixture(scope="module")
def small(watched: Watched, connections: Connections) -> str:
    """The report of the trained run, with what its winner says."""
    return report.html(connections, [watched.run_id])


@pytest.fixture(scope="module")
def large(watched: Watched, connections: Connections) -> str:
    """The report of the large run beside the small one."""
    return report.html(connections, [watched.large, watched.run_id], with_curves=False)


def data_of(text: str) -> Any:
    """What is drawn."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def test_everything_is_reported(small: str, watched: Watched) -> None:
    for wanted in (
        "Leaderboard", "Learning curves", "Hyperparameters", "Hops by worker", "Versions",
        "public.packed", "public.val", "public.watched_out", "cerebro.cerebro_fit_multiple(",
        "tensorflow", "Data and lineage",
    ):  # fmt: skip
        assert wanted in small
    (run,) = data_of(small)
    assert sorted(run["keys"]) == [1, 2, 3, 4]
    assert run["first"] == "val_accuracy"
    assert set(run["series"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    measured = watched.sql.column(
        "SELECT loss FROM cerebro.metrics WHERE run_id = %s AND mst_key = %s AND dataset = 'validation' "
        "ORDER BY epoch",
        (watched.run_id, run["keys"][0]),
    )
    assert run["series"]["val_loss"]["values"][0] == pytest.approx(measured, rel=1e-4)
    assert [axis["name"] for axis in run["axes"]] == ["model_id", "learning_rate"]
    assert len(run["work"]["bars"]) == 4 * EPOCHS * PARTITIONS
    assert set(run["importance"]["names"]) == {"model_id", "learning_rate"}


def test_the_same_run_can_be_requested_again(small: str, watched: Watched) -> None:
    statement = entities.unescape(re.search(r"<pre>(.*?)</pre>", small, re.S)[1])  # type: ignore[index]
    again = watched.sql.value(statement)
    compared = "SELECT mst_key, model_weights FROM {} ORDER BY 1"
    ours, theirs = (
        watched.sql.fetch(compared.format(name)) for name in ("watched_out", "watched_out_again")
    )
    assert [bytes(row[1]) for row in ours] == [bytes(row[1]) for row in theirs]
    assert watched.sql.value("SELECT name FROM cerebro.runs WHERE run_id = %s", (again,)) == HOSTILE
    watched.sql.run("SELECT cerebro_drop_run(%s)", (again,))
    watched.sql.run("SELECT cerebro_drop_outputs('watched_out_again')")


def test_a_strategy_is_requested_again(watched: Watched, connections: Connections) -> None:
    facts = reading.run_facts(connections, watched.run_id)
    assert "strategy := 'hopper'" in statement_of(connections, facts)
    averaged = facts._replace(schedule="averaging", strategy_params="rounds=2")
    for wanted in ("strategy := 'averaging'", "strategy_params := 'rounds=2'"):
        assert wanted in statement_of(connections, averaged)
        assert wanted in statement_of(connections, averaged._replace(model_selection_table=None))


def test_what_users_wrote_is_text(small: str) -> None:
    assert "<script>alert" not in small
    assert "</script><script>" not in small.replace("</script>\n<script>", "")
    assert (
        entities.escape(HOSTILE, quote=False).replace('"', "&#34;").replace("'", "&#39;") in small
    )
    # Three scripts and no more: data, library, ours.
    assert len(re.findall(r"<script\b", small)) == 3


def test_nothing_is_fetched(small: str) -> None:
    assert "default-src 'none'" in small
    outside = small[: small.index('<script type="application/octet-stream"')]
    assert not re.search(r"(src|href)\s*=", outside)
    assert not re.search(r"""url\(|@import|fetch\(|XMLHttpRequest""", outside)


def test_the_winner_predicts(small: str, watched: Watched) -> None:
    (run,) = data_of(small)
    (target,) = run["curves"]
    assert target["classes"] == ["a", "b", "c"]
    watched.sql.run("DROP TABLE IF EXISTS winners_answers")
    watched.sql.run(
        "SELECT cerebro_predict('watched_out', 'val', NULL, NULL, 'winners_answers', mst_key := %s)",
        (run["keys"][0],),
    )
    rows = watched.sql.fetch(
        "SELECT partition_key, buffer_id, row_number, class_value, prob FROM winners_answers ORDER BY 1, 2, 3"
    )
    labels = watched.sql.fetch("SELECT label FROM val ORDER BY partition_key, buffer_id")
    actual = np.concatenate([np.frombuffer(bytes(row[0]), np.int32) for row in labels])
    probabilities = np.zeros((len(actual), 3))
    for place, row in enumerate(rows):
        probabilities[place // 3, "abc".index(row[3])] = row[4]
    pairs = {(a, p): n for a, p, n in target["pairs"]}
    wanted: dict[tuple[int, int], int] = {}
    for pair in zip(actual.tolist(), probabilities.argmax(axis=1).tolist(), strict=True):
        wanted[pair] = wanted.get(pair, 0) + 1
    assert pairs == wanted
    for place, curve in enumerate(target["curves"]):
        exact = roc_auc_score(actual == place, probabilities[:, place])
        assert curve["auc"] == pytest.approx(exact, abs=0.01)
        assert curve["points"][0][:2] == [0, 0]
        assert curve["points"][-1][:2] == [1, 1]


def test_a_large_run_is_small_enough(large: str, watched: Watched) -> None:
    assert len(large.encode()) < MOST_BYTES
    run, other = data_of(large)
    assert (run["id"], other["id"]) == (watched.large, watched.run_id)
    assert len(run["keys"]) == 1000
    assert {len(line) for line in run["series"]["val_loss"]["values"]} == {20}
    assert "bars" not in run["work"]
    assert np.shape(run["work"]["busy"]) == (8, report.BINS)
    assert run["importance"]["method"] == "one-way ANOVA"
    assert "What differs" in large


def test_time_of_workers_is_added_up() -> None:
    def hop(worker: int, began: float, ended: float) -> Hopped:
        return Hopped(1, 1, 0, worker, began, ended, 0.0, 1, 1)

    generator = np.random.default_rng(1)
    edges = np.sort(generator.uniform(0, 100, 12001)).reshape(-1)
    hops = [hop(0, *edges[at : at + 2]) for at in range(0, 12000, 2)]
    hops += [hop(3, 0.0, 25.0), hop(3, 75.0, 100.0)]
    seconds = max(one.finished for one in hops) - min(one.started for one in hops)
    taken = sum(one.finished - one.started for one in hops[:6000])
    # A quarter of the run, worker 3 scores, and for as long it has nothing to do.
    found = work(hops, {0: (1 - taken / seconds, 0.0), 3: (0.25, 0.25)})
    busy = np.asarray(found["busy"])
    assert found["workers"] == [0, 3]
    assert busy[0].mean() * seconds == pytest.approx(taken, rel=0.01)
    assert found["idle"] == pytest.approx([1 - taken / seconds, 0.25], rel=0.01)
    assert found["scoring"] == pytest.approx([0, 0.25], abs=0.01)
    middle = busy[1][int(0.3 * report.BINS) : int(0.7 * report.BINS)]
    assert middle.max() == 0
    assert busy[1][: int(0.2 * report.BINS)].min() == 1


def test_whatever_there_is_can_be_reported(connections: Connections, watched: Watched) -> None:
    run = read(connections, watched.run_id, with_curves=False)
    none = replace(run, board=[], measured=[], hops=[], parameters=[])
    assert "No configuration yet" in rendered([none], None, b"")
    odd = Standing(1, 1, 1, "((", "", "failed", None, (), (), None, (), float("nan"), HOSTILE)
    text = rendered([replace(run, board=[odd], parameters=[{"model_id": 1}])], None, b"")
    assert "<script>alert" not in text
    assert data_of(text)[0]["results"] == {"loss": [None]}


@needs_browser
@pytest.mark.parametrize(("which", "height"), [("small", 3900), ("large", 2700)])
def test_it_is_drawn(
    which: str, height: int, request: pytest.FixtureRequest, own_folder: Path
) -> None:
    page, picture = own_folder / "report.html", own_folder / "report.png"
    page.write_text(request.getfixturevalue(which), "utf-8")
    text = loaded(page, picture, own_folder, (1240, height))
    assert 'data-state="drawn"' in text
    for chart in ("curves-0", "parallel-0", "importance-0", "work-0"):
        assert re.search(rf'id="{chart}"[^>]*class="[^"]*js-plotly-plot|class="[^"]*js-plotly-plot[^"]*"[^>]*id="{chart}"', text), chart  # fmt: skip
    assert "<script>alert" not in text
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 50_000


@needs_browser
@pytest.mark.skipif(SCREENSHOTS is None, reason="CEREBRO_SCREENSHOTS=docs/images makes them")
def test_screenshots(watched: Watched, connections: Connections, own_folder: Path) -> None:
    """Those of the documentation, of runs with names that people give."""
    page = own_folder / "report.html"
    watched.sql.run("UPDATE cerebro.catalog_runs SET name = 'blobs', description = 'four nets' WHERE run_id = %s", (watched.run_id,))  # fmt: skip
    try:
        for run_id, name, height in (
            (watched.run_id, "report", 3900),
            (watched.large, "report-large", 2700),
        ):
            page.write_text(report.html(connections, [run_id]), "utf-8")
            picture = Path(str(SCREENSHOTS)).absolute() / f"{name}.png"
            loaded(page, picture, own_folder, (1240, height))
    finally:
        watched.sql.run("UPDATE cerebro.catalog_runs SET name = %s, description = %s WHERE run_id = %s", (HOSTILE, HOSTILE, watched.run_id))  # fmt: skip
