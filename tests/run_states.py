"""States of runs, made from costs and hops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.core import events
from cerebro_db.core.decisions import Change, add
from cerebro_db.core.run_spec import RunSpec, Workers
from cerebro_db.core.spec import TRAINING, Architecture, Configuration, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import Strategy
from cerebro_db.core.tasks import Step, Train, WorkerView
from cerebro_db.decide.strategies import parse_strategy

LOSS = "loss='sparse_categorical_crossentropy',optimizer='Adam',metrics=['accuracy']"
_facts: Any = None
_MODEL = '{"class_name": "Sequential", "config": {"name": "net", "layers": []}}'


def joined(configurations: Sequence[Configuration]) -> events.Decided:
    """Configurations join a run."""
    changes = [Change(one.mst_key, one.budget, one.row) for one in configurations]
    return events.Decided(add(changes), tuple(configurations))


def configuration(
    mst_key: int,
    cost: float = 1.0,
    budget: int = 5,
    fit: str = "batch_size=8",
    compile_text: str = LOSS,
    **more: Any,
) -> Configuration:
    """A configuration of which only the plan matters."""
    return Configuration(
        mst_key=mst_key,
        architecture=Architecture(1, "net", _MODEL, _facts, has_weights=False),
        compile_text=compile_text,
        fit_text=fit,
        compile_params=parse_compile_params(compile_text),
        fit_params=parse_fit_params(fit),
        hop_seconds=cost,
        initial_seed=mst_key,
        jit=False,
        steps_per_call=1,
        goal="max",
        budget=budget,
        **more,
    )


def run_state(
    costs: Mapping[int, float],
    partitions: Sequence[int] = (0, 1),
    *,
    workers: Workers | int = 1,
    epochs: int = 5,
    frequency: int = 100,
    fit: str = "batch_size=8",
    validation: Sequence[int] = (),
    strategy: Strategy | str = "hopper",
    **more: Any,
) -> RunState:
    """A run at its beginning."""
    tables = {TRAINING: tuple(partitions)}
    if validation:
        tables["validation"] = tuple(validation)
    spec = RunSpec(
        epochs=epochs,
        seed=7,
        frequency=frequency,
        partitions=tables,
        strategy=parse_strategy(strategy, None) if isinstance(strategy, str) else strategy,
        workers=Workers(workers) if isinstance(workers, int) else workers,
        **more,
    )
    return RunState(spec, [configuration(key, cost, epochs, fit) for key, cost in costs.items()])


def planned(state: RunState, hops: Iterable[Hop]) -> RunState:
    """The same with a plan."""
    state.apply(events.Planned(tuple(hops)))
    return state


def view(number: int = 0, *kept: int) -> WorkerView:
    """A worker that has partitions of the training table in memory."""
    return WorkerView(number, {(TRAINING, key) for key in kept})


def begin(state: RunState, *hops: Hop, worker: int = 0, step: bool = False) -> None:
    """A worker begins hops."""
    state.apply(events.Submitted(worker, Step(hops) if step else Train(hops)))


def finish(
    state: RunState, *hops: Hop, worker: int = 0, seconds: float = 1.0, at: float = 0.0
) -> None:
    """The same hops are done."""
    state.apply(events.Returned(worker))
    for hop in hops:
        state.apply(events.HopDone(hop, seconds, at))


def do(state: RunState, *hops: Hop, seconds: float = 1.0, at: float = 0.0) -> None:
    """Hops are made."""
    begin(state, *hops)
    finish(state, *hops, seconds=seconds, at=at)
