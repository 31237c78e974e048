"""The short form of ``make chaos``: a kill of each of three kinds, and a look at what the harness sees."""

from __future__ import annotations

from typing import Any

import pytest
from gates import Gate, gate_at

from chaos import outcome, victims
from chaos.driving import Driving
from chaos.grid import Job
from chaos.moments import SETTING_UP, TRAINING, Moment
from chaos.server import Server
from chaos.suite import Reference, plans
from chaos.trial import Plan, Trial
from chaos.view import look
from tests.chaos.conftest import EPOCHS

KILLS = {
    victims.WORKER: ("epoch", 0.6),
    victims.DRIVER: ("hop", 0.2),
    victims.POSTMASTER: ("hop", 0.9),
}


class BeforeTheEnd(Trial):
    """One whose run does not end before it is killed."""

    gate: Gate

    def _kill(self, driving: Driving, moment: Moment) -> bool:
        try:
            return super()._kill(driving, moment)
        finally:
            self.gate.open()


@pytest.mark.parametrize("who", KILLS)
def test_a_run_ends_as_if_nobody_had_been_killed(
    victim: Server, reference: Reference, who: str
) -> None:
    durability, fraction = KILLS[who]
    plan = Plan(0, 0, who, durability, (Moment(TRAINING, fraction, 3.0),))
    job = Job("storm", EPOCHS, durability)
    trial = BeforeTheEnd(victim, plan, job, reference.outcome, reference.seconds)
    with gate_at(victim.dsn) as trial.gate:
        trial.gate.shut(epoch=EPOCHS, hops=job.hops - 4)
        report = trial.run()
    assert report.deviations == []
    (hit,) = report.hits
    assert hit["who"]
    assert hit["hops"] >= int(fraction * job.hops)
    assert (report.alone, report.resumed) == (0, 1)


def test_a_search_ends_as_if_nobody_had_been_killed(victim: Server) -> None:
    calm = Reference.of(victim, EPOCHS, searches=True)
    assert calm.outcome["decisions"]
    job = Job("storm_search", EPOCHS, "epoch", searches=True, predicts=False)
    kills = (Moment(TRAINING, 0.3, 3.0), Moment(TRAINING, 0.7, 3.0))
    plan = Plan(0, 0, victims.DRIVER, "epoch", kills)
    report = Trial(victim, plan, job, calm.outcome, calm.seconds).run()
    assert report.deviations == []
    assert len(report.hits) == 2


TAMPERING = {
    "UPDATE calm SET model_weights = set_byte(model_weights, 200, "
    "get_byte(model_weights, 200) # 1) WHERE mst_key = 2": "weights differ",
    "UPDATE calm_states SET state = set_byte(state, 300, get_byte(state, 300) # 1) "
    "WHERE mst_key = 3": "states differ",
    "UPDATE calm_p1 SET prob = prob + 1e-15 WHERE id = (SELECT max(id) FROM calm_p1)": (
        "predictions of 1 differ"
    ),
    "UPDATE cerebro.catalog_metrics SET loss = loss + 1e-15 WHERE epoch = 2": "metrics differ",
    "DELETE FROM cerebro.catalog_hops WHERE mst_key = 1 AND epoch = 1 AND position = 0": (
        "1 planned hops were not done"
    ),
    "CREATE TABLE cerebro_states.run_left (i int)": "the table cerebro_states.run_left",
    "CREATE TEMPORARY TABLE left_here (i int)": "the temporary relation left_here",
    "SELECT pg_advisory_xact_lock(1)": "an advisory lock",
    "UPDATE cerebro.catalog_runs SET status = 'running'": "the catalog says",
}


@pytest.mark.parametrize("statement", TAMPERING)
def test_what_is_not_as_it_should_be_is_found(
    victim: Server, reference: Reference, statement: str
) -> None:
    job = Job("calm", EPOCHS)
    run_id = look(victim, job).run_id
    assert run_id is not None
    assert _deviations(victim, job, run_id, reference) == []
    victim.fetch("BEGIN")
    victim.fetch(statement)
    found = _deviations(victim, job, run_id, reference)
    victim.fetch("ROLLBACK")
    assert any(TAMPERING[statement] in text for text in found)


def _deviations(victim: Server, job: Job, run_id: int, reference: Reference) -> list[Any]:
    return [
        *outcome.differences(outcome.outcome(victim, job, run_id), reference.outcome),
        *outcome.miscounted(victim, job, run_id),
        *outcome.leftovers(victim),
    ]


def test_the_log_is_searched_for_what_no_kill_explains() -> None:
    killed = "LOG:  server process (PID 7) was terminated by signal 9: Killed"
    crashed = "LOG:  server process (PID 7) was terminated by signal 11: Segmentation fault"
    assert outcome.alarms(f"{killed}\nLOG:  database system is ready") == []
    assert outcome.alarms(f"{killed}\n{crashed}") == [f"the log: {crashed}"]
    assert len(outcome.alarms('PANIC:  could not write\nTRAP: FailedAssertion("x")')) == 2


def test_trials_follow_from_the_seed_and_hit_every_phase() -> None:
    planned = plans(1, 100, victims.VICTIMS)
    assert planned == plans(1, 100, victims.VICTIMS)
    assert planned != plans(2, 100, victims.VICTIMS)
    assert planned[17] == Plan.of(1, 17, planned[17].victim)
    moments = [moment for plan in planned for moment in plan.kills]
    assert len(moments) > 110
    assert {moment.phase for moment in moments} >= {SETTING_UP, TRAINING, "importing", "ending"}
    assert {plan.durability for plan in planned} == {"hop", "epoch"}
    assert {plan.victim for plan in planned} == set(victims.VICTIMS)
