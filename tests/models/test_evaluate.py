"""cerebro_evaluate: the scores of the training again, one row a model, and bad input."""

from __future__ import annotations

import pytest
from psycopg2 import errors
from servers import Caller

from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.requests.predicting import EvaluationRequest
from cerebro_db.scoring import evaluation

FIELDS = ["loss", "metric", "metrics_type", "loss_type", "mst_key", "metrics"]


def evaluate(trained, arguments):
    trained.fetch("DROP TABLE IF EXISTS scores")
    trained.fetch(f"SELECT cerebro_evaluate({arguments})")
    rows = trained.fetch(f"SELECT {', '.join(FIELDS)} FROM scores ORDER BY mst_key")
    return [dict(zip(FIELDS, row, strict=True)) for row in rows]


def test_every_model_like_in_training(trained):
    scores = evaluate(trained, "'flowers', 'flowers_packed', 'scores'")
    known = trained.fetch(
        "SELECT mst_key, training_loss_final, training_metrics_final, metrics_type, loss_type "
        "FROM flowers_info ORDER BY 1"
    )
    assert [row["mst_key"] for row in scores] == [1, 2]
    for score, (_, loss, metric, names, loss_type) in zip(scores, known, strict=True):
        assert score["loss"] == pytest.approx(loss, rel=1e-6)
        assert score["metric"] == pytest.approx(metric, rel=1e-6)
        assert score["metrics_type"] == names
        assert len(score["metrics"]) == len(names) == 2
        assert score["metrics"][0] == score["metric"]
        assert score["loss_type"] == loss_type


def test_one_model(trained):
    both = evaluate(trained, "'flowers', 'flowers_packed', 'scores'")
    one = evaluate(
        trained,
        "model_table := 'flowers', test_table := 'flowers_packed', output_table := 'scores', "
        "use_gpus := false, mst_key := 2",
    )
    assert one == both[1:]


@pytest.mark.parametrize("name", ["halves", "logits", "sums", "pairs"])
def test_the_only_model(trained, name):
    (score,) = evaluate(trained, f"'{name}', '{name}_packed', 'scores'")
    known = trained.fetch(f"SELECT training_loss_final, metrics_type FROM {name}_info")
    assert score["loss"] == pytest.approx(known[0][0], rel=1e-6)
    assert score["metrics_type"] == known[0][1]
    assert (score["metric"] is None) == (name == "pairs")


def test_a_test_table_of_other_rows_and_partitions(trained):
    trained.fetch("CREATE VIEW few AS SELECT * FROM rows WHERE id <= 31")
    trained.fetch(
        "SELECT cerebro_pack_validation('few', 'few_packed', 'flower', 'x', 'flowers_packed', 7)"
    )
    (score,) = evaluate(trained, "'flowers', 'few_packed', 'scores', false, 1")
    trained.fetch(
        "SELECT cerebro_predict('flowers', 'few', 'id', 'x', 'few_answers', 'response', "
        "mst_key := 1)"
    )
    right = trained.value(
        "SELECT avg((a.class_value IS NOT DISTINCT FROM s.flower)::int)::float "
        "FROM few_answers a JOIN few s USING (id)"
    )
    assert score["metric"] == pytest.approx(right)


def test_hostile_names(trained):
    name = '"Odd %% \'""Table"'
    for part in ("", "_info", "_summary", "_states"):
        trained.fetch(f'CREATE TABLE {name[:-1]}{part}" AS TABLE flowers{part}', ())
    trained.fetch(
        "SELECT cerebro_evaluate(%s, 'flowers_packed', %s)",
        ('"Odd % \'""Table"', '"Scores % \'""!"'),
    )
    assert trained.value('SELECT count(*) FROM "Scores %% \'""!"', ()) == 2


BAD = {
    "NULL,'flowers_packed','o'": (errors.InvalidParameterValue, "model_table: got NULL"),
    "'nope','flowers_packed','o'": (errors.UndefinedTable, "model_table: got 'nope'"),
    "'rows','flowers_packed','o'": (errors.WrongObjectType, "no column mst_key"),
    "'flowers','rows','o',dependent_varname:='nope'": (
        errors.UndefinedColumn,
        "dependent_varname: got 'nope'",
    ),
    "'flowers','rows','o',independent_varname:='id'": (
        errors.WrongObjectType,
        "column 'id' is of type integer; allowed: arrays",
    ),
    "'flowers','nope','o'": (errors.UndefinedTable, "test_table: got 'nope'"),
    "'flowers','flowers_packed','rows'": (errors.DuplicateTable, "public.rows exists"),
    "'flowers','flowers_packed',NULL": (errors.InvalidParameterValue, "output_table: got NULL"),
    "'flowers','flowers_packed','o',false,3": (errors.InvalidParameterValue, "got 3.*1, 2"),
    "'flowers','halves_packed','o'": (errors.InvalidParameterValue, "class values"),
    "'flowers','sums_packed','o'": (errors.InvalidParameterValue, "targets of the kind float"),
    "'flowers','wide_packed','o'": (
        errors.InvalidParameterValue,
        r"rows of shape \[5\].*trained with \[4\]",
    ),
    "'flowers','plain_packed','o'": (errors.InvalidParameterValue, "constant 1.0.*with 2.0"),
}


@pytest.fixture(scope="module")
def strange(trained):
    trained.fetch("CREATE VIEW wide AS SELECT x || 1::real AS x, flower FROM rows")
    trained.fetch(
        "SELECT cerebro_pack('wide', 'wide_packed', 'flower', 'x', normalizing_const := 2.0); "
        "SELECT cerebro_pack('rows', 'plain_packed', 'flower', 'x')"
    )
    return trained


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls(strange, arguments):
    kind, message = BAD[arguments]
    before = strange.tables()
    with pytest.raises(kind) as caught:
        strange.fetch(f"SELECT cerebro_evaluate({arguments})")
    assert caught.match(f"(?s){message}")
    assert strange.tables() == before


def test_several_workers_from_a_client(trained, monkeypatch, has_segments):
    one = evaluate(trained, "'flowers', 'flowers_packed', 'scores'")
    monkeypatch.setattr(evaluation, "MANY_ROWS", 1)
    monkeypatch.setattr(evaluation, "cores", lambda: 2)
    dialect = dialect_of(
        trained.connection.server_version, "greenplum6" if has_segments else "postgresql"
    )
    pool, counts = SessionPool(trained.dsn, dialect.session_settings()), []
    take = pool.take
    monkeypatch.setattr(pool, "take", lambda count: [counts.append(count), take(count)][1])
    try:
        request = EvaluationRequest("flowers", "flowers_packed", "client_scores")
        scores = evaluation.evaluate(Caller(pool, dialect, search_path="public"), request)
        assert counts == [1, 2]  # one that leads, and the workers
    finally:
        pool.close()
    assert [score.row() for score in scores] == [list(row.values()) for row in one]
    assert trained.value("SELECT count(*) FROM client_scores") == 2
