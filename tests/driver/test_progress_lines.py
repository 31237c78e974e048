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
    report.scored(
        [
            MetricRow(
                key, 1, "training", loss, [name] if name else [], [value] if name else [], 1.0
            )
            for key, (_, name, value, loss) in configurations.items()
        ]
    )
    report.epoch(1, len(configurations), 1.0)
    return lines[0]


@pytest.mark.parametrize(
    ("configurations", "best"),
    [
        ({1: ("max", "accuracy", 0.5, 1.0), 2: ("max", "accuracy", 0.7, 2.0)}, "accuracy 0.7000"),
        ({1: ("min", "mae", 0.5, 1.0), 2: ("min", "mae", 0.7, 0.5)}, "mae 0.5000"),
        ({1: ("loss", None, 0.0, 1.0), 2: ("loss", None, 0.0, 0.5)}, "loss 0.5000"),
        ({1: ("max", "accuracy", 0.9, 1.0), 2: ("loss", None, 0.0, 0.5)}, "loss 0.5000"),
        ({1: ("loss", None, 0.0, 0.5), 2: ("max", "accuracy", 0.9, 1.0)}, "loss 0.5000"),
        ({1: ("max", "accuracy", 0.9, 1.0), 2: ("max", "AUC", 0.95, 0.5)}, "loss 0.5000"),
    ],
)
def test_only_what_all_configurations_have_is_compared(configurations: Any, best: str) -> None:
    assert f"best training {best} " in told(configurations)
