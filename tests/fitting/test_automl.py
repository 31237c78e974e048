"""cerebro_automl: from a table to a registered model, what is left when a call ends badly, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg2
import pytest

from cerebro_db.postgres.sessions.connections import connections_of
from cerebro_db.watching.models import model_section
from cerebro_db.watching.report import model_html
from tests.fitting.test_progress import Background, until

# Tables and views of calls, which end in one way or another.
LEFT = (
    "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'public' AND c.relname ~ '(_automl|^kept)' AND c.relkind IN ('r', 'v') ORDER BY 1"
)
RUNS = "SELECT count(*) FROM cerebro.runs WHERE name LIKE 'automl %%'"
CALL = "SELECT cerebro_automl('trips', '{model}', 'came', max_seconds := {seconds}{more})"


@pytest.fixture(scope="module")
def trips(bench: Any) -> Any:
    """Trips that come late where they are short; some of them nobody has seen come."""
    bench.run(
        "CREATE TABLE trips AS SELECT i AS id, (i * 7 % 11)::float8 AS km, 'way ' || i * 13 % 3 AS way, "
        "'note ' || i AS note, date '2026-01-01' + i AS day, i / 10 AS driver, (3 * (i * 7 % 11) + i * 13 % 3)::float8 AS cost, "
        "CASE WHEN i % 20 <> 0 THEN CASE WHEN i * 7 % 11 < 5 THEN 'late' ELSE 'early' END END AS came "
        "FROM generate_series(1, 400) AS i"
    )
    bench.run("CREATE VIEW trips_to_come AS SELECT * FROM trips WHERE came IS NULL")
    return bench


def call(
    bench: Any, model: str, seconds: float = 600, more: str = ", max_configs := 2, max_epochs := 9"
) -> tuple[int | None, str]:
    """The version, and the notices of a call that ends with its trials, and not by the clock."""
    bench.connection.notices.clear()
    version = bench.value(CALL.format(model=model, seconds=seconds, more=more))
    return version, "\n".join(bench.notices)


@pytest.fixture(scope="module")
def made(trips: Any) -> tuple[int | None, str]:
    """The first call, which leaves no table."""
    more = ", max_configs := 2, max_epochs := 9, holdout_share := 0.1, excluded := 'cost'"
    return call(trips, "trips", more=more)


def test_a_table_becomes_a_champion_that_predicts(trips: Any, made: Any) -> None:
    version, notices = made
    assert version in (1, 2)  # 2 is the mean of several models, where that is better
    assert "task: came is one of 2 classes" in notices
    assert "20 of 400 rows have no came, and are left out" in notices
    for name, why in (("id", "numbers the rows"), ("note", "no categories"), ("cost", "excluded")):
        assert re.search(f"columns: {name} is left out: .*{why}", notices)
    assert "a first model after" in notices
    assert trips.column(LEFT) == []
    trips.run(
        "SELECT cerebro_predict('model:trips@champion', 'trips_to_come', 'id', NULL, 'trips_predicted', 'response')"
    )
    late = "i.id * 7 % 11 < 5"
    right = trips.value(
        f"SELECT avg(((p.class_value = 'late') = ({late}))::int) FROM trips_predicted p JOIN trips_to_come i USING (id)"
    )
    assert right >= 0.85


def test_steps_are_kept_with_the_version(trips: Any, made: Any) -> None:
    text, tags = trips.row(
        f"SELECT description, tags FROM cerebro.registered_versions WHERE name = 'trips' AND version = {made[0]}"
    )
    measured = {
        f"{part}_{name}"
        for part in ("validation", "holdout")
        for name in ("auc", "accuracy", "loss")
    }
    assert set(tags) == measured
    assert f"holdout: auc {tags['holdout_auc']:.4g}, " in made[1]
    assert f"holdout auc {tags['holdout_auc']:.4g}, " in text.split("\n")[0]
    assert tags["holdout_auc"] > 0.9
    steps = re.findall(r"step \d+: (.*)", made[1])
    assert [line.rstrip(";") for line in text.split("\n")[1:]] == steps
    assert steps[0].startswith("CREATE VIEW public.trips_automl_rows")
    made_by = [re.sub(r"\(.*", "", step) for step in steps[-8:]]
    assert "SELECT cerebro.cerebro_promote_if_better" in made_by
    assert "SELECT cerebro.cerebro_ensemble" in made_by


def test_a_report_is_kept_with_the_version(trips: Any, made: Any) -> None:
    pytest.importorskip("plotly", reason="reports need plotly")
    connections = connections_of(trips.dsn)
    found = model_section(connections, "trips@champion").contents
    assert found.rows == {"training": 266, "validation": 76, "holdout": 38}
    assert set(found.scores) == {"validation", "holdout"}
    assert found.importances[0].column == "km"  # which alone decides
    assert found.importances[0].value > 0.1 > abs(found.importances[-1].value)
    assert found.measure == "auc"
    assert sum(one.rows for one in found.reliability) == found.rows["validation"]
    assert found.threshold.metric == "f1"
    assert found.threshold.reached > 0.8
    assert sum(rows for _, _, rows in found.curves[0]["pairs"]) == found.rows["validation"]
    assert any("is left out" in line for line in found.decisions)
    assert [step.text for step in found.steps] == re.findall(r"step \d+: (.*)", made[1])
    text = model_html(connections, f"trips:{made[0]}")
    for wanted in (
        "Importance of the columns",
        "Leaderboard",
        "cerebro_pack_columns",
        "a first model after",
    ):
        assert wanted in text


STATES = (
    "SELECT s.chunk, md5(s.state) FROM cerebro._usable_states s JOIN cerebro.registered_versions v ON v.version_id = s.mst_key "
    "WHERE v.name = '{}' AND v.version = {} ORDER BY 1"
)


def test_a_version_is_made_again_to_the_bit(trips: Any, made: Any) -> None:
    again = trips.value(f"SELECT cerebro_replay_automl('trips:{made[0]}', 'trips_again')")
    ours, theirs = (
        trips.fetch(STATES.format(name, version))
        for name, version in (("trips", made[0]), ("trips_again", again))
    )
    assert ours
    assert ours == theirs
    assert trips.column(LEFT) == []
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match="allowed: a version that cerebro"
    ):
        trips.value("SELECT cerebro_replay_automl('trips_again', 'trips_again')")


def drop_kept(bench: Any) -> None:
    """Drop the tables of a call that keeps them."""
    views = "SELECT viewname::text FROM pg_views WHERE viewname LIKE 'kept%%'"
    bench.run(f"DROP VIEW {', '.join(bench.column(views))}")
    for table in bench.column(LEFT):
        if not re.search("_(info|summary|states|history|encoding)$", table):
            bench.run(f"SELECT cerebro_drop_outputs('{table}')")
    assert bench.column(LEFT) == []


def test_whole_groups_are_in_one_part_and_tables_may_be_kept(trips: Any, made: Any) -> None:
    version, notices = call(
        trips,
        "trips",
        more=", max_configs := 1, max_epochs := 2, group_column := 'driver', output_table := 'kept', num_partitions := 1, holdout_share := 0.1",
    )
    assert version is None or version > made[0]  # the champion stays where none is better
    assert ("stays: no new model is better" in notices) == (version is None)
    kept = trips.column(LEFT)
    assert {"kept", "kept_packed", "kept_packed_test", "kept_test", "kept_nets"} <= set(kept)
    parts = ("train", "test", "holdout_test")
    drivers = [set(trips.column(f"SELECT driver FROM kept_{part}")) for part in parts]
    assert sum(map(len, drivers)) == len(set().union(*drivers))
    train, test, held = (trips.value(f"SELECT count(*) FROM kept_{part}") for part in parts)
    assert train + test + held == 380
    assert 30 <= test <= 95
    assert 10 <= held <= 50
    with pytest.raises(psycopg2.errors.DuplicateTable, match="output_table: got 'kept'"):
        call(trips, "trips", more=", output_table := 'kept'")
    drop_kept(trips)


def test_a_number_by_time_as_a_job(trips: Any) -> None:
    given = {
        "source_table": "trips", "model": "costs", "target": "cost", "max_seconds": 600, "max_configs": 1, "max_epochs": 9,
        "time_column": "day", "excluded": "came, note, id, driver", "holdout_share": 0.1, "output_table": "kept",
    }  # fmt: skip
    job = trips.value("SELECT cerebro_submit(%s)", (json.dumps({"cerebro_automl": given}),))
    assert trips.value("SELECT cerebro_wait_job(%s, '5 minutes')", (job,)) == "finished"
    log = "\n".join(
        trips.column(
            "SELECT message FROM cerebro.job_log WHERE job_id = %s AND message IS NOT NULL",
            (job,),
        )
    )
    assert "task: cost is a number" in log
    assert "rows from day " in log
    found, tags = trips.row(
        "SELECT lineage -> 'results' -> 'validation', tags FROM cerebro.registered_versions "
        "WHERE name = 'costs' AND 'champion' = ANY (aliases)"
    )
    assert found["metrics"]["root_mean_squared_error"] < 9.5  # the deviation of the target is 9.5
    trips.run(
        "SELECT cerebro_evaluate('model:costs@champion', 'kept_holdout_test', 'kept_own_scores')"
    )
    (own,) = trips.column("SELECT metrics FROM kept_own_scores")
    assert own == [tags["holdout_root_mean_squared_error"], tags["holdout_r2_score"]]
    days = [
        trips.row(f"SELECT min(day), max(day), count(*) FROM kept_{part}")
        for part in ("train", "test", "holdout_test")
    ]
    assert days[0][1] < days[1][0] <= days[1][1] < days[2][0]
    assert [day[2] for day in days] == [279, 80, 41]
    drop_kept(trips)


def test_a_class_that_only_later_rows_have_is_left_out_of_validation(trips: Any) -> None:
    trips.run(
        "CREATE TABLE seasons AS SELECT i AS id, i % 2 AS wet, date '2026-01-01' + i AS day, "
        "CASE WHEN i > 190 THEN 'snow' WHEN i = 5 THEN NULL WHEN i % 2 = 1 THEN 'rain' ELSE 'sun' END AS sky FROM generate_series(1, 200) AS i"
    )
    trips.connection.notices.clear()
    call = "cerebro_automl('seasons', 'seasons', 'sky', max_seconds := 600, max_configs := 1, max_epochs := 1"
    assert trips.value(f"SELECT {call}, time_column := 'day')") >= 1
    notices = "\n".join(trips.notices)
    assert (
        "split: 10 rows for validation are left out: no row for training has their class" in notices
    )
    trips.run("UPDATE seasons SET wet = 1 - wet WHERE id < 100")
    with pytest.raises(
        psycopg2.DataError, match="the weights of model:seasons:1 come out differently"
    ):
        trips.value("SELECT cerebro_replay_automl('seasons@champion', 'seasons')")
    versions = "SELECT version FROM cerebro.registered_versions WHERE name = 'seasons' ORDER BY 1"
    assert trips.column(versions)[-1] < 3
    assert trips.column(LEFT) == []


def test_columns_whose_combination_tells_more_are_crossed(trips: Any) -> None:
    """Of a target that is the exclusive or of two columns; a third one goes with the first, and tells no more."""
    trips.run(
        "CREATE TABLE crossings AS SELECT i AS id, i % 5 AS lane, i / 5 % 4 AS side, i % 5 * 2 + i / 20 % 2 AS near, "
        "(i % 5 % 2 = i / 5 % 4 % 2) = (i % 29 <> 3) AS open FROM generate_series(1, 1200) AS i"
    )
    trips.connection.notices.clear()
    version = trips.value(
        "SELECT cerebro_automl('crossings', 'crossings', 'open', max_seconds := 600, max_configs := 2, max_epochs := 18)"
    )
    notices = "\n".join(trips.notices)
    assert version >= 1
    assert re.search(
        r"lane and side are crossed: together they explain [89]\d\.\d% of open", notices
    )
    assert '"lane*side": "cross(10)"' in notices
    trips.run(
        "SELECT cerebro_predict('model:crossings@champion', 'crossings', 'id', NULL, 'crossed_p', 'response')"
    )
    right = trips.value(
        "SELECT avg((p.class_value::text = c.open::text)::int) FROM crossed_p p JOIN crossings c USING (id)"
    )
    assert right > 0.8


def test_a_cancelled_call_leaves_nothing(trips: Any) -> None:
    runs = trips.value(RUNS)
    background = Background(trips.dsn, CALL.format(model="slow", seconds=600, more=""), ())
    until(
        trips,
        "SELECT count(*) > 0 FROM cerebro.trials t JOIN cerebro.runs r USING (run_id) WHERE r.name = 'automl slow'",
    )
    trips.run("SELECT pg_cancel_backend(%s)", (background.pid,))
    background.join()
    assert background.error is not None
    assert background.error.pgcode == "57014"
    assert trips.column(LEFT) == []
    assert trips.value(RUNS) == runs
    assert trips.value("SELECT count(*) FROM cerebro.registered_models WHERE name = 'slow'") == 0


def test_a_budget_that_is_too_short_says_what_is_enough(trips: Any) -> None:
    runs = trips.value(RUNS)
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match="max_seconds: got 1, which"
    ) as refused:
        call(trips, "short", seconds=1)
    assert re.search(r"allowed: about \d+ or more", str(refused.value))
    assert trips.column(LEFT) == []
    assert trips.value(RUNS) == runs


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("'no_trips', 'm', 'came'", "42P01", "source_table: got 'no_trips'"),
        ("'trips', 'm', 'cane'", "42703", "target: got 'cane'"),
        ("'trips', 'm', NULL", "22023", "target: got NULL"),
        ("'trips', 'm', 'note'", "22000", "another value in each row"),
        ("'trips', 'm', 'day'", "42809", "of type date"),
        ("'trips', 'm:3', 'came'", "22023", "model: got 'm:3'"),
        ("'trips', 'somebody.m', 'came'", "22023", "name without owner"),
        ("'trips', 'trips', 'cost'", "22023", "whose champion tells classes of came"),
        ("'trips', 'm', 'came', max_seconds := 0", "22023", "max_seconds: got 0"),
        ("'trips', 'm', 'came', task := 'colors'", "22023", "task: got 'colors'"),
        ("'trips', 'm', 'came', time_column := 'day', group_column := 'way'", "22023", "group_column"),
        ("'trips', 'm', 'came', time_column := 'way'", "42809", "time_column: 'way'"),
        ("'trips', 'm', 'came', group_column := 'came'", "22023", "which is the target"),
        ("'trips', 'm', 'came', validation_share := 0.9", "22023", "validation_share: got 0.9"),
        ("'trips', 'm', 'came', validation_share := 0.5, holdout_share := 0.4", "22023", "holdout_share: got 0.4"),
        ("'trips', 'm', 'came', holdout_share := 0.002", "22023", "holdout_share: got 0.002; allowed: 0, or 0.003 to 0.5"),
        ("'trips', 'm', 'came', excluded := 'km, no'", "42703", "excluded: got 'no'"),
        ("'trips_to_come', 'm', 'cost', excluded := 'km, way, day, driver, id'", "22000", "no column"),
        ("'trips_to_come', 'm', 'came'", "22000", "0 rows whose 'came' is not NULL"),
    ],
)  # fmt: skip
def test_what_is_refused_before_any_work(
    trips: Any, made: Any, arguments: str, code: str, message: str
) -> None:
    with pytest.raises(psycopg2.Error, match=re.escape(message)) as refused:
        trips.value(f"SELECT cerebro_automl({arguments})")
    assert refused.value.pgcode == code
    assert refused.value.diag.message_hint
    assert trips.column(LEFT) == []
