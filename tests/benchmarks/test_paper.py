"""The comparison of strategies: what is reckoned, what is claimed, and that a run gives its figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg2.extensions
import pytest
from reasons import EMBEDDED_ONLY
from servers import drop_database, make_database

from benchmarks.meter import Meter
from benchmarks.paper import page
from benchmarks.paper.cases import ROWS, STRATEGIES, Strategy, cases
from benchmarks.paper.claims import looked_at
from benchmarks.paper.measure import best, first_at, load, moved, train
from benchmarks.server import Server

BY_NAME = {one.name: one for one in STRATEGIES}


def sent(name: str) -> float:
    """Of a model with a state of 3 MB and weights of 1 MB, 6,400 rows of 1 kB, two models."""
    return moved(BY_NAME[name], 3e6, 1e6, 6400, 6.4e6, 2)


def test_bytes_that_move() -> None:
    # Two models hop four times an epoch, and each hop has a sender and a receiver among four.
    assert sent("hopper") == 2 * 4 * 2 * 3e6 / 4 == sent("auto")
    assert sent("task") == 2 * 2 * 0.75 * 6.4e6 / 4
    # Three of four replicas come to where they are averaged, and go back.
    assert sent("averaging") == 2 * 3 * 2 * 2 * 3e6 / 4
    assert sent("averaging, 4 rounds") == 4 * sent("averaging")
    # 100 updates of 64 rows; in a ring each sends and receives three quarters twice.
    assert sent("allreduce") == 2 * 100 * 2 * 2 * 0.75 * 1e6
    assert sent("pipe, 8 bits") == sent("pipe") / 4
    # Of asynchronous workers each makes a quarter of the updates.
    assert sent("parameter server, asynchronous") == sent("parameter server") / 4


def test_an_update_has_as_many_rows_with_every_strategy() -> None:
    for one in STRATEGIES:
        assert one.batch * one.sharers == ROWS


def test_the_first_model_at_the_target() -> None:
    curves = [[(1, 2.0, 0.5), (2, 4.0, 0.9)], [(1, 3.0, 0.6), (2, 6.0, 0.7), (3, 9.0, 0.95)]]
    assert first_at(curves, 0.65) == (2, 4.0)
    assert first_at(curves, 0.92) == (3, 9.0)
    assert first_at(curves, 0.96) is None
    assert best(curves) == 0.95


FIGURES: dict[str, Any] = {
    "exchanges": "gradient", "moved": 2e9, "rows_per_second": 100.0, "best": 0.9, "mean_best": 0.8,
    "reached": (3, 4.5), "idle": 0.01, "cpu": 7.0, "stored_bytes": 1e6, "memory_mb": 800,
}  # fmt: skip


def found(**others: float) -> dict[str, Any]:
    """Figures of two strategies; those of hopping may be others."""
    hopper = FIGURES | {"exchanges": "state", "moved": 1e6, "rows_per_second": 300.0} | others
    return {"hopper": hopper, "allreduce": FIGURES}


@pytest.mark.parametrize(
    ("claim", "others", "figure", "agrees"),
    [
        ("hopping moves least", {}, "2,000.0 times as much by allreduce, the next", "yes"),
        ("hopping moves least", {"moved": 4e9}, "0.5 times as much by allreduce, the next", "no"),
        ("hopping trains more", {}, "3.00 times", "yes"),
        ("hopping trains more", {"rows_per_second": 50.0}, "0.50 times", "no"),
        ("hopping converges", {"best": 0.88}, "-2.00 points at the end", "no"),
        ("averaging converges", {}, "not measured", ""),
    ],
)
def test_claims(claim: str, others: dict[str, float], figure: str, agrees: str) -> None:
    (row,) = [one for one in looked_at(found(**others)) if one[0].startswith(claim)]
    assert row[2:] == (figure, agrees)


def test_the_page(tmp_path: Any) -> None:
    case = {
        "title": "images", "name": "images", "data": "pictures", "rows": 4000, "held_out": 1000, "models": 4,
        "rates": (0.01, 0.1), "epochs": 3, "state_bytes": 2e6, "weight_bytes": 1e6, "target": 0.85,
        "strategies": found(reached=None),  # type: ignore[arg-type]
    }  # fmt: skip
    machine = {
        "measured": "2026-01-01", "processor": "one", "cores_used": 2, "memory_gb": 8.0, "system": "Debian", "versions": {},
    }  # fmt: skip
    results = {"machine": machine, "scale": 1.0, "cases": [case], "same_bits": {"hopper": True}, "network": {"why_not": "no tc"}}  # fmt: skip
    document = tmp_path / "page.md"
    document.write_text(f"before\n{page.BEGIN}\nearlier results\n{page.END}\nafter\n")
    page.write(results, document)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "earlier results" not in text
    assert "| hopper | 90.00 % | not reached |  | 300 | 1.0 % | 7 | 1.0 | 1.0 | 800 |" in text
    assert "| allreduce | 90.00 % | 3 | 4.5 | 100 |" in text
    assert "| hopper | yes | its hop |" in text
    assert text.rstrip().endswith("No tc.\n<!-- end of results -->\nafter")


@pytest.fixture
def copying() -> Iterator[None]:
    """COPY cannot wait as the tests do."""
    waits = psycopg2.extensions.get_wait_callback()
    psycopg2.extensions.set_wait_callback(None)
    yield
    psycopg2.extensions.set_wait_callback(waits)


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
@pytest.mark.usefixtures("copying")
def test_a_run_gives_its_figures(cluster: Any, administrator: Any, template: str) -> None:
    name = f"paper_{os.getpid()}"
    make_database(administrator, name, template)
    try:
        administrator.run(f'ALTER DATABASE {name} SET search_path = "$user", public, cerebro')
        server = Server(cluster.dsn(name), Meter())
        (case,) = [one for one in cases(0.03) if one.workload.name == "tabular"]
        case = replace(case, workload=replace(case.workload, learning_rates=(0.01, 0.1), epochs=2))
        tables = load(server, case)
        with server.session() as cursor:
            figures = train(cursor, server, tables, Strategy("hopper", "hopper", None, "state", ""), 2, 2)  # fmt: skip
            cursor.execute("SELECT count(*) FROM cerebro.runs")
            assert cursor.fetchone() == (0,)
        assert [[point[0] for point in curve] for curve in figures.curves.values()] == [[1, 2]] * 2
        assert 0 < best(list(figures.curves.values())) <= 1
        # Weights of 64-128-128-10; momentum beside them.
        assert figures.weight_bytes == 4 * (64 * 128 + 128 + 128 * 128 + 128 + 1280 + 10)
        assert figures.state_bytes > 2 * figures.weight_bytes
        assert figures.stored_bytes > 0
        assert figures.rows_per_second > 0
        assert figures.memory_mb > 0
    finally:
        drop_database(administrator, name)
