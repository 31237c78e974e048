"""What is asked of a run, before any table is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from run_states import run_state

from cerebro_db.decide.strategies import STRATEGIES
from cerebro_db.errors import InvalidArgument, NotSupported
from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.strategy_checks import check_strategy


def request_of(**more: Any) -> FitRequest:
    """A request, with some arguments."""
    names = {
        "source_table": "a",
        "model_output_table": "b",
        "model_selection_table": "c",
        "num_iterations": 1,
    }
    return FitRequest(**names | more)


def test_metrics_are_due_by_frequency_and_at_the_end() -> None:
    assert run_state({1: 1.0}, epochs=5, frequency=2).spec.measured_epochs == [2, 4, 5]
    assert run_state({1: 1.0}, epochs=5, frequency=5).spec.measured_epochs == [5]


@pytest.mark.parametrize("changes", [{"num_iterations": 0}, {"seed": None}, {"num_workers": 257}])
def test_numbers_out_of_range_are_refused(changes: dict[str, int | None]) -> None:
    with pytest.raises(InvalidArgument, match=r"got .*; allowed: \d+ to \d+"):
        request_of(**changes)


def test_strategies_that_a_server_has_not_are_refused() -> None:
    refused: dict[str, set[str]] = {"greenplum6": set(), "postgresql": {"rotation"}}
    for dialect_name, names in refused.items():
        dialect = dialect_of(150000, dialect_name)
        for name in STRATEGIES:
            chosen = request_of(strategy=name).chosen
            if name not in names:
                check_strategy(dialect, chosen, "strategy", "hopper")
                continue
            with pytest.raises(NotSupported, match=f"strategy: got '{name}'; allowed") as caught:
                check_strategy(dialect, chosen, "strategy", "hopper")
            assert "leave it out" in (caught.value.hint or "")
