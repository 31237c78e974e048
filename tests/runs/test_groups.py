"""Groups that a run may have: by its hosts, workers and processors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_db.core.spec import AUTO, RunSpec
from cerebro_db.errors import NotSupported
from cerebro_db.runs.request import FitRequest
from cerebro_db.runs.setup import check_one_host, with_groups, written
from tests.decide.test_grouping import costly


def table(partitions: int, *, is_spread: bool = False) -> Any:
    """As much of a packed table as counts here."""
    return SimpleNamespace(
        partitions=range(partitions), is_spread=is_spread, relation=SimpleNamespace(name="packed")
    )


def test_trainers_of_several_hosts_have_no_way_to_each_other() -> None:
    check_one_host("allreduce", table(4, is_spread=True), 4)
    check_one_host("hopper", table(4, is_spread=True), 2)
    with pytest.raises(NotSupported) as caught:
        check_one_host("pipe", table(4, is_spread=True), 3)
    assert "'pipe' for packed, whose 4 partitions are on" in caught.value.message
    assert "at most 3 of them on one" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("models", "is_spread", "most", "given", "told", "workers"),
    [
        (1, False, 4, {}, "processors=2, group=2", 2),
        (3, False, 4, {}, "processors=2, group=2", 2),
        (3, False, 4, {"num_workers": 8}, "processors=2, group=2", 3),
        (1, False, 4, {"num_workers": 1}, "processors=2, group=1", 1),
        (1, False, 4, {"strategy_params": "processors=4"}, "processors=4, group=4", 4),
        (1, False, 4, {"strategy_params": "group=1"}, "processors=2, group=1", 1),
        (1, False, 4, {"use_gpus": True}, "processors=2, group=1", 1),
        (1, True, 4, {}, "processors=2, group=2", 4),
        (1, True, 1, {}, "processors=2, group=1", 1),
        (1, True, 4, {"num_workers": 2}, "processors=2, group=1", 1),
    ],
)
def test_what_a_run_begins_with(
    models: int, is_spread: bool, most: int, given: dict[str, Any], told: str, workers: int
) -> None:
    request = FitRequest("packed", "out", "configs", 10, strategy=AUTO, cores=2, **given)
    partitions = {"training": tuple(range(4))}
    use_gpus = bool(given.get("use_gpus"))
    spec = RunSpec(10, 0, 10, partitions, schedule=AUTO, use_gpus=use_gpus)
    configurations = [costly(key) for key in range(1, models + 1)]
    found = with_groups(spec, request, table(4, is_spread=is_spread), configurations, most)
    assert (written(found), found.workers.count) == (told, workers)
