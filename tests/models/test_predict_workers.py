"""cerebro_predict with several workers, on packed tables, and with the best models together."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from psycopg2 import errors
from reasons import NO_ADDRESSES
from servers import connected

from cerebro_db.postgres.sessions.locks import lock_key

FLOWERS = ["iris", "ro'se", None]
ROWS = 9000


def probabilities(features, flat):
    a, b = flat[:20].reshape(4, 5), flat[20:25]
    c, d = flat[25:40].reshape(5, 3), flat[40:43]
    values = np.exp(np.maximum(features @ a + b, 0) @ c + d)
    return values / values.sum(axis=1, keepdims=True)


def weights(trained):
    rows = trained.fetch("SELECT mst_key, model_weights FROM flowers")
    return {key: np.frombuffer(bytes(data), np.float32) for key, data in rows}


@pytest.fixture(scope="module")
def sparse(trained):
    """A table of several pieces: few rows in a page."""
    trained.fetch(
        "CREATE TABLE sparse (id int, x real[]) WITH (fillfactor = 10); "
        f"INSERT INTO sparse SELECT i, ARRAY[sin(i), cos(i), sin(3 * i), cos(7 * i)]::real[] "
        f"FROM generate_series(1, {ROWS}) i; ANALYZE sparse"
    )
    assert trained.value("SELECT pg_relation_size('sparse')") > 600 * 8192
    return trained


def answers(trained, test_table, more):
    trained.fetch("DROP TABLE IF EXISTS answers")
    trained.fetch(f"SELECT cerebro_predict('flowers', '{test_table}', {more}")
    return trained.fetch("SELECT * FROM answers ORDER BY 1, 2, 3, 4, 5")


def test_any_number_of_workers_gives_the_same_bits(sparse):
    found = [
        answers(sparse, "sparse", f"'id', 'x', 'answers', mst_key := 1, num_workers := {workers})")
        for workers in (1, 2)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 3 * ROWS
    assert not [name for name in sparse.tables() if "cerebro_draft" in name]
    assert sparse.value("SELECT obj_description('answers'::regclass)") == "Cerebro-DB: predictions"


def test_several_workers_see_one_snapshot_and_all_of_it(sparse):
    """Each piece is read by one of them, and none twice."""
    rows = answers(sparse, "sparse", "'id', 'x', 'answers', 'response', false, 1, 2)")
    assert [row[0] for row in rows] == list(range(1, ROWS + 1))


def test_several_workers_leave_nothing_of_a_failure(sparse):
    sparse.fetch("CREATE TABLE broken (LIKE sparse) WITH (fillfactor = 10)")
    sparse.fetch(
        f"INSERT INTO broken SELECT id, CASE id WHEN {ROWS} THEN x[1:3] ELSE x END FROM sparse"
    )
    before = sparse.tables()
    with pytest.raises(errors.DataException, match=rf"id = {ROWS}: .*shape \(3,\)"):
        answers(sparse, "broken", "'id', 'x', 'answers', mst_key := 1, num_workers := 2)")
    assert sparse.tables() == [name for name in before if name != "public.answers"]


@pytest.mark.not_on_segments(NO_ADDRESSES)
def test_predictions_take_workers_of_the_role(sparse):
    sparse.fetch("SELECT cerebro_set('max_workers', '1')")
    call = "'id', 'x', 'answers', mst_key := 1, num_workers := 2)"
    key = lock_key(f"worker 0 of role {sparse.value('SELECT cerebro._role()')}")
    other = connected(sparse.dsn)
    try:
        sparse.notices()
        assert len(answers(sparse, "sparse", call)) == 3 * ROWS
        told = sparse.notices()
        assert "1 workers instead of 2: all calls of a role may use 1 together" in told
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", (key,))  # as another call does
        with pytest.raises(errors.ObjectInUse, match="max_workers") as refused:
            answers(sparse, "sparse", call)
        assert refused.value.diag.message_hint
    finally:
        other.close()
        sparse.fetch("SELECT cerebro_set('max_workers', NULL)")
    assert len(answers(sparse, "sparse", call)) == 3 * ROWS


@pytest.mark.not_on_segments(NO_ADDRESSES)
def test_what_a_killed_call_left_is_cleared_and_what_is_foreign_is_kept(sparse):
    answers(sparse, "sparse", "'id', 'x', 'answers', mst_key := 1, num_workers := 2)")
    digest = hashlib.sha256(b"public.answers").hexdigest()[:24]
    build = f"cerebro_draft_{digest}"
    call = "'id', 'x', 'answers', mst_key := 1, num_workers := 2)"
    sparse.fetch(f"CREATE TABLE {build} ()")
    with pytest.raises(errors.DuplicateTable, match=build):
        answers(sparse, "sparse", call)
    for again in (call, call.replace("2)", "1, replace := true)")):
        sparse.fetch(f"CREATE TABLE IF NOT EXISTS {build} ()")
        sparse.fetch(f"COMMENT ON TABLE {build} IS 'Cerebro-DB: predictions that are not finished'")
        assert len(answers(sparse, "sparse", again)) == 3 * ROWS
        assert sparse.value("SELECT to_regclass(%s)", (build,)) is None


def test_packed_rows(trained):
    trained.fetch(
        "SELECT cerebro_pack('rows', 'small_packed', 'flower', 'x', buffer_size := 7, "
        "num_partitions := 3, normalizing_const := 2.0)"
    )
    rows = answers(trained, "small_packed", "NULL, NULL, 'answers', mst_key := 2)")
    buffers = trained.fetch("SELECT partition_key, buffer_id, num_rows, x FROM small_packed")
    features = {
        (key, buffer_id, number): row
        for key, buffer_id, count, data in buffers
        for number, row in enumerate(np.frombuffer(bytes(data), np.float32).reshape(count, 4), 1)
    }
    assert len(rows) == 3 * len(features) == 360
    wanted = probabilities(np.array(list(features.values())), weights(trained)[2])
    wanted = dict(zip(features, wanted, strict=True))
    for *place, _, value, prob, _ in rows:
        assert prob == pytest.approx(wanted[tuple(place)][FLOWERS.index(value)], abs=1e-6)
    best = answers(trained, "small_packed", "NULL, 'x', 'answers', 'response', mst_key := 2)")
    assert [row[:3] for row in best] == sorted(features)
    firsts = {tuple(row[:3]): row[4] for row in rows if row[6] == 1}
    assert {tuple(row[:3]): row[4] for row in best} == firsts


def test_packed_values_by_several_workers(trained):
    def sums(workers):
        trained.fetch("DROP TABLE IF EXISTS answers")
        trained.fetch(
            "SELECT cerebro_predict('sums', 'sums_packed', NULL, NULL, 'answers', 'response', "
            f"num_workers := {workers})"
        )
        return trained.fetch("SELECT * FROM answers ORDER BY 1, 2, 3")

    assert len(sums(1)) == 120
    assert sums(1) == sums(2)


def test_the_mean_of_the_best(trained):
    features = np.array(
        [row[0] for row in trained.fetch("SELECT x FROM rows ORDER BY id")], np.float32
    )
    both = [probabilities(features / 2, flat) for flat in weights(trained).values()]
    rows = answers(trained, "rows", "'id', 'x', 'answers', ensemble := 2)")
    mean = (both[0] + both[1]) / 2
    assert len(rows) == 360
    for row in rows:
        assert row[3] == pytest.approx(mean[row[0] - 1][FLOWERS.index(row[2])], abs=1e-6)


def test_an_ensemble_of_one_is_the_best(trained):
    best = trained.value(
        "SELECT mst_key FROM cerebro.leaderboard l JOIN flowers_summary USING (run_id) "
        "WHERE rank = 1 LIMIT 1"
    )
    one = answers(trained, "rows", "'id', 'x', 'answers', 'response', ensemble := 1)")
    assert one == answers(trained, "rows", f"'id', 'x', 'answers', 'response', mst_key := {best})")
