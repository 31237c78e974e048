"""What a run tells after an epoch, whatever its configurations measure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_db.database.catalog import MetricRow
from cerebro_db.driver.progress import EpochReport


def told(configurations: dict[int, tuple[str, str | None, float, float]]) -> str:
    """The line of an epoch; by mst_key: goal, name of the metric, its value, loss."""
    setup: Any = SimpleNamespace(
        configurations=[SimpleNamespace(mst_key=k, goal=v[0]) for k, v in configurations.items()],
        validation=None,
        request=SimpleNamespace(num_iterations=1),
    )
    lines: list[str] = []
    report = EpochReport(setup, lines.append)
    report.epochs(lambda epoch: True, 1.0)  # nobody has trained in any
    report.scored(
        [
            MetricRow(
                key, 1, "training", loss, [name] if name else [], [value] if name else [], 1.0
            )
            for key, (_, name, value, loss) in configurations.items()
        ]
    )
    for _ in configurations:
        report.finished(1)
    report.epochs(lambda epoch: True, 1.0)
    (line,) = lines
    assert line.startswith(f"epoch 1 of 1: {len(configurations)} configurations, 1.0 s, ")
    return line


@pytest.mark.parametrize(
    ("configurations", "best"),
    [
        ({1: ("max", "accuracy", 0.5, 1.0), 2: ("max", "accuracy", 0.7, 2.0)}, "accuracy 0.7000"),
        ({1: ("min", "mae", 0.5, 1.0), 2: ("min", "mae", 0.7, 0.5)}, "mae 0.5000"),
        ({1: ("loss", None, 0.0, 1.0), 2: ("loss", None, 0.0, 0.5)}, "loss 0.5000"),
        ({1: ("loss", "accuracy", 0.9, 1.0), 2: ("loss", "AUC", 0.95, 0.5)}, "loss 0.5000"),
    ],
)
def test_the_best_is_told_by_the_goal_of_the_run(configurations: Any, best: str) -> None:
    assert f"best training {best} " in told(configurations)


def test_epochs_are_told_to_the_last_one_that_somebody_trained_in() -> None:
    setup: Any = SimpleNamespace(
        configurations=[], validation=None, request=SimpleNamespace(num_iterations=300)
    )
    lines: list[str] = []
    report = EpochReport(setup, lines.append)
    # One is ahead and has been stopped after epoch 4; the other one is still in epoch 2.
    for epoch in (1, 2, 3, 4, 1):
        report.finished(epoch)
    report.epochs(lambda epoch: epoch == 1, 0.0)
    assert [line.partition(",")[0] for line in lines] == ["epoch 1 of 300: 2 configurations"]
    report.finished(2)
    report.epochs(lambda epoch: True, 0.0)  # stopped there
    assert [line.partition(",")[0] for line in lines[1:]] == [
        "epoch 2 of 300: 2 configurations",
        "epoch 3 of 300: 1 configurations",
        "epoch 4 of 300: 1 configurations",
    ]


def test_what_an_earlier_driver_told_is_not_told_again() -> None:
    setup: Any = SimpleNamespace(
        configurations=[], validation=None, request=SimpleNamespace(num_iterations=3)
    )
    lines: list[str] = []
    report = EpochReport(setup, lines.append)
    for epoch in (1, 2):
        report.finished(epoch)
    report.known(lambda epoch: epoch == 1)
    report.epochs(lambda epoch: True, 0.0)
    assert [line.partition(":")[0] for line in lines] == ["epoch 2 of 3"]
