"""Groups that a run may have: by its hosts, workers and processors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerebro_db.configs.architectures.memory import ArchitectureFacts, MemoryEstimate
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import Configuration
from cerebro_db.core.strategies import Resources, Speeds, Strategy
from cerebro_db.decide.strategies import STRATEGIES, parse_strategy
from cerebro_db.decide.strategies.auto import Auto
from cerebro_db.errors import InvalidArgument, NotSupported
from cerebro_db.runs import memory, strategy_checks
from cerebro_db.runs.setup import RunSetup
from cerebro_db.runs.speeds import speeds_of
from cerebro_db.runs.strategy_checks import check_way
from tests.decide.test_grouping import costly

WEIGHT_SERVERS = [name for name, one in STRATEGIES.items() if one.has_weight_server]


def table(partitions: int, *, is_spread: bool = False) -> Any:
    """As much of a packed table as counts here."""
    return SimpleNamespace(
        partitions=range(partitions), is_spread=is_spread, relation=SimpleNamespace(name="packed")
    )


def test_trainers_of_several_hosts_have_no_way_to_each_other_unless_it_is_allowed() -> None:
    check_way(parse_strategy("allreduce", None), table(4, is_spread=True), 4, "")
    check_way(parse_strategy("hopper", None), table(4, is_spread=True), 2, "")
    check_way(parse_strategy("pipe", None), table(4, is_spread=True), 3, "10.1.0.0/16")
    with pytest.raises(NotSupported) as caught:
        check_way(parse_strategy("pipe", None), table(4, is_spread=True), 3, "")
    assert "'pipe' for packed, whose 4 partitions are on" in caught.value.message
    assert "at most 3 of them on one" in caught.value.message
    assert "cerebro_set('peer_network'" in (caught.value.hint or "")


@pytest.mark.parametrize("strategy", WEIGHT_SERVERS)
def test_who_holds_the_weights_for_others_is_on_their_host(strategy: str) -> None:
    packed = table(4, is_spread=True)
    check_way(parse_strategy(strategy, None), packed, 4, "")
    told = f"'{strategy}' for packed, .* at most 3 of them on one; .* memory that all of them share"
    for network in ("", "10.1.0.0/16"):
        with pytest.raises(NotSupported, match=told) as caught:
            check_way(parse_strategy(strategy, None), packed, 3, network)
        assert "'allreduce'" in (caught.value.hint or "")


@pytest.mark.parametrize("strategy", WEIGHT_SERVERS)
def test_a_run_whose_segments_come_to_be_on_several_hosts_waits(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror may take over elsewhere while a run stands still."""
    found = {0: "a", 1: "a", 2: "b", 3: "a"}
    monkeypatch.setattr(strategy_checks, "hosts_of", lambda session, hosts, table: found)
    spec = run_of(parse_strategy(strategy, None))
    anything: Any = None
    packed = table(4, is_spread=True)
    with pytest.raises(NotSupported, match="at most 3 of them on one") as caught:
        strategy_checks.hosts_of_peers(anything, anything, spec, packed, "10.1.0.0/16")
    assert "resume the run when" in (caught.value.hint or "")
    found[2] = "a"
    assert strategy_checks.hosts_of_peers(anything, anything, spec, packed, "") == {}


def run_of(strategy: Strategy, partitions: int = 4, **more: Any) -> RunSpec:
    """A run of ten epochs."""
    return RunSpec(10, 0, 10, {"training": tuple(range(partitions))}, strategy, **more)


def settled(
    params: str = "",
    models: int = 1,
    partitions: int = 4,
    *,
    one: Configuration | None = None,
    use_gpus: bool = False,
    **resources: Any,
) -> tuple[str, int]:
    """Parameters with which a run of large models begins, and its workers."""
    spec = run_of(parse_strategy("auto", params), partitions, use_gpus=use_gpus)
    configurations = [one or costly(key) for key in range(1, models + 1)]
    given = Resources(**{"cores": 2, "neighbours": partitions} | resources)
    found = spec.strategy.settled(spec, configurations, given)
    return found.strategy.text, found.workers.count


@pytest.mark.parametrize(
    ("models", "given", "text", "workers"),
    [
        (1, {}, "processors=2, group=2", 2),
        (3, {}, "processors=2, group=2", 2),
        (3, {"num_workers": 8}, "processors=2, group=2", 3),
        (1, {"num_workers": 1}, "processors=2, group=1", 1),
        (1, {"params": "processors=4"}, "processors=4, group=4", 4),
        (1, {"params": "group=1"}, "processors=2, group=1", 1),
        (1, {"use_gpus": True}, "processors=2, group=1", 1),
        (1, {"is_spread": True}, "processors=2, group=2", 4),
        (1, {"is_spread": True, "neighbours": 2}, "processors=4, group=1", 1),
        (1, {"is_spread": True, "num_workers": 2}, "processors=2, group=1", 1),
    ],
)
def test_what_a_run_begins_with(
    models: int, given: dict[str, Any], text: str, workers: int
) -> None:
    assert settled(models=models, **given) == (text, workers)


def test_what_is_known_of_hosts_is_recorded_with_the_groups() -> None:
    # Each of the two hosts has two processors.
    apart, _ = settled(is_spread=True, neighbours=2, has_network=True)
    assert apart == "processors=4, group=4, neighbours=2"
    assert parse_strategy("auto", apart).text == apart
    # Much is exchanged for little work.
    wide = costly(1, ArchitectureFacts(20_000_000, 20_000_000, True, False, 8, ((9,),), ((9,),)))
    for neighbours, text in ((4, "processors=2, group=2"), (2, "processors=4, group=1")):
        found, _ = settled(one=wide, is_spread=True, neighbours=neighbours, has_network=True)
        assert found == text


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
    text, _ = settled(speeds=lambda: speeds)
    assert text == f"processors=2, group=2{listed}"
    recorded = parse_strategy("auto", text)
    assert isinstance(recorded, Auto)
    assert recorded.speeds == speeds


@pytest.mark.parametrize(
    "given",
    [
        {"params": "speed=2"},  # nothing is measured where the caller knows
        {"neighbours": 2},  # nor where there is nothing to choose
        {"use_gpus": True},
    ],
)
def test_speeds_are_measured_only_for_a_choice(given: dict[str, Any]) -> None:
    def never() -> Speeds:
        raise AssertionError

    settled(speeds=never, **given)


def test_speeds_decide_which_groups_a_run_may_have() -> None:
    one = costly(1, batch=64)
    for speed, group in ((1.0, 4), (10.0, 1)):
        text, _ = settled(f"convolution_speed={speed}", one=one, cores=4)
        assert f"group={group}," in text


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
    [(16, 16, 8, 8), (16, 8, 8, 16), (16, 8, 2, 4), (16, 4, 3, 12), (6, 4, 2, 3), (4, 4, 64, 4)],
)
def test_processors_are_those_of_all_hosts(
    partitions: int, neighbours: int, cores: int, processors: int
) -> None:
    text, _ = settled(
        partitions=partitions, neighbours=neighbours, cores=cores, is_spread=True, has_network=True
    )
    assert text.startswith(f"processors={processors},")


def test_groups_and_neighbours_are_of_the_partitions() -> None:
    for params in ("neighbours=64", "group=64"):
        with pytest.raises(InvalidArgument, match=f"got {params}; allowed: 1 to 4"):
            settled(params)
    assert "neighbours" not in settled("neighbours=4", is_spread=True)[0]  # all on one host
    assert "processors=2" in settled("neighbours=3", is_spread=True)[0]
    assert "processors=2" in settled("group=4", is_spread=True)[0]


def large(
    strategy: str, monkeypatch: pytest.MonkeyPatch, worker_mb: int, limit_mb: int
) -> RunSetup:
    """A run of one large model, whose workers take so much of the 10 GB of a machine."""
    estimate = MemoryEstimate(worker_mb * 2**20, 0, 0, 0, 0)
    monkeypatch.setattr(memory, "_memory", lambda session, setup: (estimate, limit_mb, 10_000))
    packed, anything = table(4), cast(Any, None)
    spec = run_of(parse_strategy(strategy, None))
    spec = spec.strategy.settled(spec, [costly(1)], Resources(cores=4, neighbours=4))
    return RunSetup(
        spec=spec,
        packed=packed,
        validation=None,
        output=anything,
        output_text="out",
        configurations=(costly(1),),
        targets=anything,
    )


def test_replicas_that_train_together_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = None
    fits = large("allreduce", monkeypatch, 1_900, 2_000)
    assert memory.memory_workers(session, fits) == 4
    with pytest.raises(InvalidArgument) as caught:
        memory.memory_workers(session, large("allreduce", monkeypatch, 2_100, 3_000))
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
    found = memory.within_memory(session, large("auto", monkeypatch, worker_mb, limit_mb))
    assert (found.spec.strategy.text, found.num_workers) == (told, workers)
