"""What is in which rung, as a terminal shows it."""

from __future__ import annotations

import io

from rich.console import Console

from cerebro_db.cli.watching import drawn
from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.postgres.catalog.trials import Progress, TrialRow

SPEC = SearchSpec(
    "hyperband", {}, Space((1,), "", ""), (Objective("accuracy", "validation", True),)
)
DECISIONS = (("12:00:01", "promote", 7, "1 of 3"), ("12:00:00", "finish", 0, "max_epochs"))
PROGRESS = Progress("iris", "running", "hyperband", (7, 0.95), DECISIONS)


def text(*trials: TrialRow, progress: Progress = PROGRESS) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(drawn(3, progress, SPEC, trials))
    return console.file.getvalue()  # type: ignore[attr-defined]


def trial(
    key: int, bracket: int | None, rung: int | None, status: str, budget: int, *values: float
) -> TrialRow:
    return TrialRow(key, 1, 1, "", "", {}, status, bracket, rung, budget, budget, values, "")


def test_brackets_and_rungs() -> None:
    shown = text(
        trial(1, 2, 0, "stopped", 1, 0.2), trial(2, 2, 0, "training", 1),
        trial(7, 2, 1, "training", 3, 0.95), trial(8, 1, 0, "waiting", 3, 0.5),
    )  # fmt: skip
    lines = shown.splitlines()
    assert lines[0] == (
        "run 3 iris · hyperband · running · 4 trials: 2 training, 1 waiting, 1 stopped"
        " · best 0.95, trial 7  (val_accuracy)"
    )
    assert "bracket" in shown
    heads = next(line for line in lines if "rung 0" in line)
    assert "rung 1" in heads
    first = next(place for place, line in enumerate(lines) if line.startswith("│ 2 "))
    assert "1 training" in lines[first]
    assert "best 0.2, trial 1" in shown
    assert "best 0.95, trial 7" in shown
    assert lines[-2:] == ["12:00:01 promote 7: 1 of 3", "12:00:00 finish: max_epochs"]


def test_a_method_without_rungs() -> None:
    shown = text(trial(1, None, None, "finished", 5, 0.5), trial(2, None, None, "training", 5))
    assert "trials" in shown
    assert "1 finished" in shown
    assert "5 epochs" in shown
    assert "rung" not in shown


def test_before_the_first_trial() -> None:
    progress = Progress(None, "starting", "tpe", None, ())
    assert "run 3 · tpe · starting · 0 trials: none  (val_accuracy)" in text(progress=progress)
