"""Groups that a run may have: by its hosts, workers and processors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerebro_db.configs.architectures.memory import ArchitectureFacts, MemoryEstimate
from cerebro_db.core.spec import ALLREDUCE, AUTO, SERVED, RunSpec, Speeds
from cerebro_db.core.strategies import parse_strategy
from cerebro_db.errors import InvalidArgument, NotSupported
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs import memory, strategy_checks
from cerebro_db.runs.setup import RunSetup, with_groups, written
from cerebro_db.runs.speeds import speeds_of
from cerebro_db.runs.strategy_checks import check_way
from tests.decide.test_grouping import costly


def table(partitions: int, *, is_spread: bool = False) -> Any:
    """As much of a packed table as counts here."""
    return SimpleNamespace(
        partitions=range(partitions), is_spread=is_spread, relation=SimpleNamespace(name="packed")
    )


def test_trainers_of_several_hosts_have_no_way_to_each_other_unless_it_is_allowed() -> None:
    check_way("allreduce", table(4, is_spread=True), 4, "")
    check_way("hopper", table(4, is_spread=True), 2, "")
    check_way("pipe", table(4, is_spread=True), 3, "10.1.0.0/16")
    with pytest.raises(NotSupported) as caught:
        check_way("pipe", table(4, is_spread=True), 3, "")
    assert "'pipe' for packed, whose 4 partitions are on" in caught.value.message
    assert "at most 3 of them on one" in caught.value.message
    assert "cerebro_set('peer_network'" in (caught.value.hint or "")


@pytest.mark.parametrize("strategy", SERVED)
def test_who_holds_the_weights_for_others_is_on_their_host(strategy: str) -> None:
    packed = table(4, is_spread=True)
    check_way(strategy, packed, 4, "")
    told = f"'{strategy}' for packed, .* at most 3 of them on one; .* memory that all of them share"
    for network in ("", "10.1.0.0/16"):
        with pytest.raises(NotSupported, match=told) as caught:
            check_way(strategy, packed, 3, network)
        assert "'allreduce'" in (caught.value.hint or "")


@pytest.mark.parametrize("strategy", SERVED)
def test_a_run_whose_segments_come_to_be_on_several_hosts_waits(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror may take over elsewhere while a run stands still."""
    found = {0: "a", 1: "a", 2: "b", 3: "a"}
    monkeypatch.setattr(strategy_checks, "hosts_of", lambda session, hosts, table: found)
    spec = RunSpec(10, 0, 10, {"training": tuple(range(4))}, schedule=strategy)
    anything: Any = None
    packed = table(4, is_spread=True)
    with pytest.raises(NotSupported, match="at most 3 of them on one") as caught:
        strategy_checks.hosts_of_peers(anything, anything, spec, packed, "10.1.0.0/16")
    assert "resume the run when" in (caught.value.hint or "")
    found[2] = "a"
    assert strategy_checks.hosts_of_peers(anything, anything, spec, packed, "") == {}


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


def test_what_is_known_of_hosts_is_recorded_with_the_groups() -> None:
    request = FitRequest("packed", "out", "configs", 10, strategy=AUTO, cores=2)
    spec = RunSpec(10, 0, 10, {"training": tuple(range(4))}, schedule=AUTO)
    apart = with_groups(spec, request, table(4, is_spread=True), [costly(1)], 4, 2)
    # Each of the two hosts has two processors.
    assert written(apart) == "processors=4, group=4, neighbours=2"
    assert parse_strategy(AUTO, written(apart)).neighbours == 2
    # Much is exchanged for little work.
    wide = costly(1, ArchitectureFacts(20_000_000, 20_000_000, True, False, 8, ((9,),), ((9,),)))
    for neighbours, told in ((0, "processors=2, group=2"), (2, "processors=4, group=1")):
        found = with_groups(spec, request, table(4, is_spread=True), [wide], 4, neighbours)
        assert written(found) == told


@pytest.mark.parametrize(
    ("speeds", "listed"),
    [
        (Speeds(), ""),
        (Speeds(1.0, None, 16), ", convolution_speed=1.0, measured_hops=16"),
        (Speeds(3.36, 0.5, 99), ", speed=0.5, convolution_speed=3.36, measured_hops=99"),
        (Speeds(None, 0.1), ", speed=0.1"),
    ],
)
def test_speeds_of_the_machine_are_recorded_with_the_groups(speeds: Speeds, listed: str) -> None:
    request = FitRequest("packed", "out", "configs", 10, strategy=AUTO, cores=2)
    spec = RunSpec(10, 0, 10, {"training": tuple(range(4))}, schedule=AUTO, speeds=speeds)
    found = with_groups(spec, request, table(4), [costly(1)], 4)
    assert written(found) == f"processors=2, group=2{listed}"
    assert parse_strategy(AUTO, written(found)).speeds == speeds


def test_speeds_decide_which_groups_a_run_may_have() -> None:
    request = FitRequest("packed", "out", "configs", 10, strategy=AUTO, cores=4)
    for speed, group in ((1.0, 4), (10.0, 1)):
        spec = RunSpec(
            10, 0, 10, {"training": tuple(range(4))}, schedule=AUTO, speeds=Speeds(speed)
        )
        found = with_groups(spec, request, table(4), [costly(1, batch=64)], 4)
        assert found.largest_group == group


def test_a_speed_is_the_median_of_enough_hops() -> None:
    assert speeds_of([], []) == Speeds()
    assert speeds_of([4.0] * 15, [4.0] * 15) == Speeds()
    assert speeds_of([4.0] * 16, [1.0] * 15) == Speeds(4.0, None, 16)
    assert speeds_of([4.0] * 11 + [0.001] * 5, [0.5] * 20) == Speeds(4.0, 0.5, 36)
    # Rounded to a quarter of a doubling: what differs by less changes no choice.
    assert {speeds_of([ratio] * 16, []).convolution for ratio in (3.1, 3.3, 3.6)} == {3.36}
    assert speeds_of([1e9] * 16, [1e-9] * 16) == Speeds(100.0, 0.01, 32)


@pytest.mark.parametrize(
    ("partitions", "neighbours", "cores", "processors"),
    [(16, 0, 8, 8), (16, 8, 8, 16), (16, 8, 2, 4), (16, 4, 3, 12), (6, 4, 2, 3), (4, 0, 64, 4)],
)
def test_processors_are_those_of_all_hosts(
    partitions: int, neighbours: int, cores: int, processors: int
) -> None:
    request = FitRequest("packed", "out", "configs", 10, strategy=AUTO, cores=cores)
    spec = RunSpec(10, 0, 10, {"training": tuple(range(partitions))}, schedule=AUTO)
    packed = table(partitions, is_spread=True)
    found = with_groups(spec, request, packed, [costly(1)], partitions, neighbours)
    assert found.processors == processors


def test_groups_and_neighbours_are_of_the_partitions() -> None:
    def found(params: str) -> RunSpec:
        request = FitRequest(
            "packed", "out", "configs", 10, strategy=AUTO, cores=2, strategy_params=params
        )
        spec = RunSpec(10, 0, 10, {"training": tuple(range(4))}, schedule=AUTO)
        return with_groups(spec, request, table(4, is_spread=True), [costly(1)], 4, 0)

    for params in ("neighbours=64", "group=64"):
        with pytest.raises(InvalidArgument, match=f"got {params}; allowed: 1 to 4"):
            found(params)
    assert found("neighbours=4").neighbours == 0  # all on one host
    assert found("neighbours=3").processors == 2
    assert found("group=4").processors == 2


def large(
    strategy: str, monkeypatch: pytest.MonkeyPatch, worker_mb: int, limit_mb: int
) -> RunSetup:
    """A run of one large model, whose workers take so much of the 10 GB of a machine."""
    estimate = MemoryEstimate(worker_mb * 2**20, 0, 0, 0, 0)
    monkeypatch.setattr(memory, "_memory", lambda session, setup: (estimate, limit_mb, 10_000))
    request = FitRequest("packed", "out", "configs", 10, strategy=strategy, cores=4)
    spec = RunSpec(10, 0, 10, {"training": tuple(range(4))}, schedule=strategy)
    packed, anything = table(4), cast(Any, None)
    if strategy == AUTO:
        spec = with_groups(spec, request, packed, [costly(1)], 4)
    return RunSetup(
        spec=spec,
        packed=packed,
        validation=None,
        output=anything,
        output_text="out",
        selection="configs",
        architectures="models",
        configurations=(costly(1),),
        targets=anything,
        threads=1,
        strategy_params=written(spec),
    )


def test_replicas_that_train_together_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = None
    fits = large(ALLREDUCE, monkeypatch, 1_900, 2_000)
    assert memory.memory_workers(session, fits) == 4
    with pytest.raises(InvalidArgument) as caught:
        memory.memory_workers(session, large(ALLREDUCE, monkeypatch, 2_100, 3_000))
    assert "got 'allreduce', for which 4 workers may need 8400 MB" in caught.value.message
    assert "allowed: 8000 MB" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("worker_mb", "limit_mb", "told", "workers"),
    [
        (1_900, 2_000, "processors=4, group=4", 4),
        (2_100, 3_000, "processors=4, group=2", 4),
        (4_100, 5_000, "processors=4, group=1", 1),
        (2_100, 2_000, "processors=4, group=1", 1),
    ],
)
def test_auto_has_groups_that_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch, worker_mb: int, limit_mb: int, told: str, workers: int
) -> None:
    session: Any = None
    found = memory.within_memory(session, large(AUTO, monkeypatch, worker_mb, limit_mb))
    assert (found.strategy_params, found.num_workers) == (told, workers)
