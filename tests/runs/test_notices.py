"""What a run tells after an epoch, whatever its configurations measure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_states import begin, configuration, do, planned, run_state

from cerebro_db.core import events
from cerebro_db.core.ports import Outlook
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.search import Objective, SearchSpec
from cerebro_db.core.spec import Hop, Space
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Measures
from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.runs.notices import RunNotices
from cerebro_db.runs.searches.notices import SearchNotices


def report_of(state: RunState) -> tuple[RunNotices, list[str]]:
    """A report, and the lines that it tells."""
    lines: list[str] = []
    return RunNotices(state, lines.append, lambda: 1.0), lines


def epochs(lines: list[str]) -> list[str]:
    return [line.partition(",")[0] for line in lines]


@pytest.mark.parametrize(
    ("configurations", "best"),
    [
        ({1: ("max", "accuracy", 0.5, 1.0), 2: ("max", "accuracy", 0.7, 2.0)}, "accuracy 0.7000"),
        ({1: ("min", "mae", 0.5, 1.0), 2: ("min", "mae", 0.7, 0.5)}, "mae 0.5000"),
        ({1: ("loss", None, 0.0, 1.0), 2: ("loss", None, 0.0, 0.5)}, "loss 0.5000"),
        ({1: ("loss", "accuracy", 0.9, 1.0), 2: ("loss", "AUC", 0.95, 0.5)}, "loss 0.5000"),
    ],
)
def test_the_best_is_reported_by_the_goal_of_the_run(
    configurations: dict[int, tuple[str, str | None, float, float]], best: str
) -> None:
    spec = RunSpec(epochs=1, seed=0, frequency=1, partitions={"training": (0,)}, strategy=Hopper())
    made = [replace(configuration(k, budget=1), goal=v[0]) for k, v in configurations.items()]
    state = RunState(spec, made)
    report, lines = report_of(state)
    report.epochs()  # nobody has trained in any
    planned(state, [Hop(key, 1, 0, 0) for key in configurations])
    for key in configurations:
        do(state, Hop(key, 1, 0, 0))
    report.scored(
        [
            Measures(key, 1, "training", loss, [name] if name else [], [value] if name else [], 1.0)
            for key, (_, name, value, loss) in configurations.items()
        ]
    )
    state.apply(events.Scored(1, tuple(configurations)))
    report.epochs()
    (line,) = lines
    assert line.startswith(f"epoch 1 of 1: {len(configurations)} configurations, 0.0 s, ")
    assert f"best training {best} " in line


def two() -> RunState:
    """Two configurations before their first hops."""
    state = run_state({1: 1.0, 2: 1.0}, [0], epochs=300)
    return planned(state, [Hop(key, epoch, 0, 0) for key in (1, 2) for epoch in range(1, 5)])


def get_ahead(state: RunState) -> None:
    """One is four epochs ahead of the other."""
    for epoch in (1, 2, 3, 4):
        do(state, Hop(1, epoch, 0, 0))
    do(state, Hop(2, 1, 0, 0))


def test_epochs_are_reported_to_the_last_one_that_somebody_trained_in() -> None:
    state = two()
    report, lines = report_of(state)
    get_ahead(state)
    report.epochs()
    assert epochs(lines) == ["epoch 1 of 300: 2 configurations"]
    do(state, Hop(2, 2, 0, 0))
    state.apply(events.Failed(2, "failed", "x"))
    report.epochs()
    assert epochs(lines[1:]) == [
        "epoch 2 of 300: 2 configurations",
        "epoch 3 of 300: 1 configurations",
        "epoch 4 of 300: 1 configurations",
    ]


def test_others_of_a_search_may_come_to_an_epoch_later() -> None:
    state = run_state({1: 1.0}, [0], epochs=1, is_open=True)
    planned(state, [Hop(1, 1, 0, 0)])
    report, lines = report_of(state)
    do(state, Hop(1, 1, 0, 0))
    state.apply(events.Scored(1, (1,)))
    report.epochs()
    assert epochs(lines) == ["epoch 1 of 1: 1 configurations so far"]


def test_what_an_earlier_driver_reported_is_not_repeated() -> None:
    state = two()
    get_ahead(state)
    report, lines = report_of(state)
    do(state, Hop(2, 2, 0, 0))
    report.epochs()
    assert epochs(lines) == ["epoch 2 of 300: 2 configurations"]


def test_an_epoch_is_reported_when_the_last_hop_of_a_cancelled_configuration_has_ended() -> None:
    """The other one has finished both epochs; while it was under way nobody could tell."""
    state = run_state({1: 1.0, 2: 1.0}, [0], epochs=2)
    report, lines = report_of(state)
    planned(state, [Hop(key, epoch, 0, 0) for key in (1, 2) for epoch in (1, 2)])
    for hop in (Hop(1, 1, 0, 0), Hop(2, 1, 0, 0), Hop(1, 2, 0, 0)):
        do(state, hop)
    state.apply(events.Scored(2, (1,)))
    begin(state, Hop(2, 2, 0, 0))
    state.apply(events.Failed(2, "cancelled", "x"))
    report.epochs()
    assert epochs(lines) == ["epoch 1 of 2: 2 configurations"]
    state.apply(events.HopDropped(Hop(2, 2, 0, 0)))
    report.epochs()
    assert epochs(lines[1:]) == ["epoch 2 of 2: 1 configurations"]


def looking_at(
    state: RunState, clock: list[float], trials: int, epochs: float
) -> tuple[SearchNotices, list[str]]:
    """The report of a search for the loss on the training table."""
    lines: list[str] = []
    space = Space((1,), "{}", "{}")
    search = SearchSpec("asha", {}, space, (Objective("loss", "training", False),))
    report = SearchNotices(
        state, lines.append, lambda: clock[0], 0.0, search, lambda: Outlook(trials, epochs)
    )
    return report, lines


def measured(state: RunState, key: int, epoch: int, loss: float) -> None:
    """A trial has an epoch done, and is measured."""
    do(state, Hop(key, epoch, 0, 0))
    state.apply(Measures(key, epoch, "training", loss))
    state.apply(events.Scored(epoch, (key,)))


def test_a_search_tells_of_its_trials() -> None:
    """Done of how many, the best so far by the last value of each, and the rest by the epochs that are left."""
    state = run_state({1: 1.0, 2: 1.0, 3: 1.0}, [0], epochs=2, is_open=True)
    planned(state, [Hop(key, epoch, 0, 0) for key in (1, 2, 3) for epoch in (1, 2)])
    clock = [0.0]
    report, lines = looking_at(state, clock, 20, 40)
    measured(state, 1, 1, 0.1)
    report.epochs()
    assert not lines  # none has come to its budget
    clock[0] = 10.0
    measured(state, 1, 2, 0.5)
    measured(state, 2, 1, 0.3)
    report.epochs()
    assert lines == [
        "1 of 20 trials done, 10.0 s, best so far loss 0.3 (trial 2, epoch 1), about 2 min 03 s left"
    ]
    state.apply(events.Failed(2, "failed", "x"))
    report.epochs()
    assert len(lines) == 1  # a second has not passed
    clock[0] = 12.0
    report.epochs()
    assert lines[1].startswith(
        "2 of 20 trials done, 12.0 s, best so far loss 0.5 (trial 1, epoch 2)"
    )


def test_a_large_search_tells_of_each_twentieth_or_minute() -> None:
    state = run_state(dict.fromkeys(range(1, 11), 1.0), [0], epochs=1, is_open=True)
    planned(state, [Hop(key, 1, 0, 0) for key in range(1, 11)])
    clock = [0.0]
    report, lines = looking_at(state, clock, 100, 100)
    for key in range(1, 11):
        clock[0] += 2
        measured(state, key, 1, 1.0)
        report.epochs()
    assert [line.partition(",")[0] for line in lines] == [
        "5 of 100 trials done",
        "10 of 100 trials done",
    ]
    clock[0] += 61
    state.apply(events.Failed(3, "failed", "x"))
    report.epochs()
    assert len(lines) == 2  # it was done already
