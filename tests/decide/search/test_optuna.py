"""Rules of early stopping and promotions, beside those of Optuna's pruners on the same curves."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import optuna
import pytest
from decide.search.courses import Course, EarlyStopping, scripted, spec

optuna.logging.set_verbosity(optuna.logging.WARNING)


def curves(count: int, epochs: int, seed: int) -> dict[int, list[float]]:
    """Losses that fall, each in its way."""
    draw = random.Random(seed)
    found = {}
    for key in range(1, count + 1):
        last, speed = draw.random(), 0.2 + draw.random()
        found[key] = [
            last + math.exp(-speed * epoch) + draw.random() / 10 for epoch in range(1, epochs + 1)
        ]
    return found


def pruned_at(pruner: optuna.pruners.BasePruner, found: dict[int, list[float]]) -> dict[int, int]:
    """Epochs after which trials end that Optuna runs one after another."""
    study = optuna.create_study(pruner=pruner)
    ends = {}
    for key, values in found.items():
        trial = study.ask()
        for epoch, value in enumerate(values, 1):
            trial.report(value, epoch)
            if epoch < len(values) and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, values[-1])
        ends[key] = epoch
    return ends


def ours(found: dict[int, list[float]], rule: EarlyStopping) -> dict[int, int]:
    """The same of a search with one place."""
    epochs = len(found[1])
    search = spec(
        "random", num_configs=len(found), num_iterations=epochs, early_stopping=rule, concurrency=1
    )
    course = Course(search, scripted(found)).run()
    return {key: track.done // 2 for key, track in course.state.tracks.items()}


@pytest.mark.parametrize("seed", range(5))
def test_the_median_rule_is_that_of_optuna(seed: int) -> None:
    found = curves(20, 8, seed)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2, n_min_trials=4)
    ended = ours(found, EarlyStopping(median_after=4, first_epoch=2))
    assert ended == pruned_at(pruner, found)
    assert len(set(ended.values())) > 1


@pytest.mark.parametrize("seed", range(5))
def test_trials_that_still_run_are_no_others_of_the_median(seed: int) -> None:
    """As Optuna's pruner says of the same curves, told in the order in which a search took note of them."""
    found, full = curves(24, 8, seed), 8
    rule = EarlyStopping(median_after=3, first_epoch=2)
    search = spec("random", num_configs=24, num_iterations=full, early_stopping=rule, concurrency=5)
    course = Course(search, scripted(found), cost=lambda one: 1.0 + one.mst_key % 4).run()
    study = optuna.create_study(
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2, n_min_trials=3)
    )
    trials = {key: study.ask() for key in found}
    stopped = {
        one.changes[0].mst_key: one.changes[0].epochs
        for one in course.recorded
        if one.action == "stop"
    }
    assert stopped
    for key, epoch in [*(pair for one in course.recorded for pair in one.results), *course.unheard]:
        trials[key].report(found[key][epoch - 1], epoch)
        if epoch == full:
            study.tell(trials[key], found[key][-1])
        else:
            assert trials[key].should_prune() == (stopped.get(key) == epoch), (key, epoch)
            if stopped.get(key) == epoch:
                study.tell(trials[key], state=optuna.trial.TrialState.PRUNED)


def last_of_all(found: dict[int, list[float]], key: int, rung: int, least: int, eta: int) -> bool:
    """Whether Optuna promotes a trial from a rung that all others of it have come to before."""
    pruner = optuna.pruners.SuccessiveHalvingPruner(
        min_resource=least, reduction_factor=eta, bootstrap_count=0
    )
    study = optuna.create_study(pruner=pruner)
    trials = {one: study.ask() for one in found}
    for one in sorted(found, key=lambda other: (other == key, other)):
        trials[one].storage.set_trial_system_attr(
            trials[one]._trial_id, f"completed_rung_{rung}", found[one][-1]
        ) if one != key else None
    for before in range(rung):
        study._storage.set_trial_system_attr(
            trials[key]._trial_id, f"completed_rung_{before}", -math.inf
        )
    trials[key].report(found[key][-1], least * eta**rung)
    return not trials[key].should_prune()


@pytest.mark.parametrize("seed", range(3))
def test_a_rung_promotes_whom_optuna_would(seed: int) -> None:
    found = curves(27, 9, seed)
    course = Course(spec("successive_halving", num_configs=27, R=9), scripted(found)).run()
    for rung, epochs in enumerate((1, 3)):
        there = course.reached(epochs)
        values = {key: found[key][:epochs] for key in there}
        promoted = [key for key in there if last_of_all(values, key, rung, 1, 3)]
        assert sorted(course.reached(epochs * 3)) == sorted(promoted)


@pytest.mark.parametrize("seed", range(3))
def test_asha_promotes_on_arrival_whom_optuna_would(seed: int) -> None:
    found = curves(30, 9, seed)
    course = Course(spec("asha", num_configs=30, R=9, concurrency=1), scripted(found)).run()
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    study = optuna.create_study(pruner=pruner)
    wanted = []
    for key in found:  # with one place, trials come to the first rung in the order of their keys
        trial = study.ask()
        trial.report(found[key][0], 1)
        if (
            not trial.should_prune() and key >= 3
        ):  # before the third, Optuna promotes the best so far
            wanted.append(key)
    decided = [(one.action, one.changes[0].mst_key, one.results) for one in course.recorded]
    arrived = [
        key
        for action, key, heard in decided
        if action == "promote" and (key, 1) in heard and heard[-1] == (key, 1)
    ]
    assert arrived == wanted
    # Others that have waited are promoted later, which Optuna cannot do.
    assert set(arrived) < set(course.reached(3))


def by_keras(values: Sequence[float], patience: int, delta: float) -> int:
    """The epoch after which EarlyStopping of Keras ends."""
    best, wait = math.inf, 0
    for epoch, value in enumerate(values, 1):
        if value < best - delta:
            best, wait = value, 0
        else:
            wait += 1
        if wait >= patience:
            return epoch
    return len(values)


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_patience_is_that_of_keras(delta: float) -> None:
    found = curves(12, 12, 1)
    rule = EarlyStopping(patience=2, least_improvement=delta)
    assert ours(found, rule) == {key: by_keras(one, 2, delta) for key, one in found.items()}


def test_brackets_are_those_that_optuna_counts() -> None:
    from cerebro_db.configs.grids.brackets import brackets

    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=81, reduction_factor=3)
    study = optuna.create_study(pruner=pruner)
    trial = study.ask()
    trial.report(0.0, 1)
    trial.should_prune()
    assert pruner._n_brackets == len(brackets(81, 3))
