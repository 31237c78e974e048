"""The second night of mixed columns: rows with other categories, an encoding of their own or an earlier one, and
models of both nights compared on the same raw rows."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from psycopg2 import errors

from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.connections import connections_of
from cerebro_db.postgres.sessions.locks import lock_key
from cerebro_db.watching import reading
from cerebro_db.watching.report import read, rendered
from tests.conftest import Sql
from tests.fitting.conftest import layer, model

MODEL = "model:shop@champion"
SCORES = "SELECT loss, metric FROM {}"
# The categories of each night: one less, and one more.
NIGHTS = {"monday": "Oslo,Bern,Rome,Riga", "tuesday": "Oslo,Bern,Bonn"}


def make_rows(sql: Sql, night: str, cities: str) -> None:
    """160 rows to train with and 60 to validate with; who is old, or in Oslo, takes the bus."""
    sql.run(
        f"CREATE TABLE {night} AS SELECT i AS id, 18 + (i * 37) % 60 AS age, "
        "CASE WHEN i % 7 > 0 THEN (i * 13) % 50 / 10.0 END AS spent, i % 3 = 0 AS member, "
        f"(string_to_array('{cities}', ','))[1 + (i * 7) % {len(cities.split(','))}] AS city "
        "FROM generate_series(1, 220) i; "
        f"ALTER TABLE {night} ADD choice text; "
        f"UPDATE {night} SET choice = CASE WHEN age > 50 OR city = 'Oslo' THEN 'bus' ELSE 'train' END; "
        f"CREATE VIEW {night}_train AS SELECT * FROM {night} WHERE id <= 160; "
        f"CREATE VIEW {night}_test AS SELECT * FROM {night} WHERE id > 160"
    )


def packed(sql: Sql, night: str, output: str, more: str = "") -> None:
    """A training table and its validation table."""
    sql.run(
        f"SELECT cerebro_pack_columns('{night}_train', '{output}', 'choice', '*', excluded := 'id', "
        f"num_partitions := 2, replace := true{more})"
    )
    sql.run(
        f"SELECT cerebro_pack_validation('{night}_test', '{output}_val', 'choice', NULL, '{output}', replace := true)"
    )


def fitted(sql: Sql, output: str, epochs: int) -> int:
    """A run of one configuration of a net that fits the packed table."""
    sql.run(f"DROP TABLE IF EXISTS {output}_models, {output}_configs, {output}_configs_summary")
    sql.run(
        f"SELECT cerebro_load_model('{output}_models', cerebro_mlp(NULL, ARRAY[8], NULL), packed_table := '{output}')"
    )
    sql.run(
        f"SELECT cerebro_load_configs('{output}_models', '{output}_configs', ARRAY[1], ARRAY[$$"
        "loss='categorical_crossentropy',optimizer='Adam(lr=0.02)',metrics=['accuracy']$$], ARRAY['batch_size=16'])"
    )
    return int(
        sql.value(
            f"SELECT cerebro_fit_multiple('{output}', '{output}_out', '{output}_configs', {epochs}, "
            f"validation_table := '{output}_val', replace := true)"
        )
    )


@pytest.fixture(scope="module")
def shop(bench: Any) -> Sql:
    """Rows of two nights; a champion of the first one."""
    for night, cities in NIGHTS.items():
        make_rows(bench, night, cities)
    packed(bench, "monday", "monday_p")
    run_id = fitted(bench, "monday_p", 2)
    assert bench.value("SELECT cerebro_promote_if_better(%s, %s)", (run_id, MODEL)) == 1
    sql: Sql = bench
    return sql


@pytest.fixture(autouse=True)
def champion_of_monday(shop: Sql) -> None:
    """Each test begins with the champion of the first night."""
    shop.run("SELECT cerebro_set_alias('shop', 'champion', 1)")


def scores(sql: Sql, model: str, test: str, more: str = "") -> tuple[float, float]:
    sql.run(f"SELECT cerebro_evaluate('{model}', '{test}', 'night_found', replace := true{more})")
    loss, metric = sql.row(SCORES.format("night_found"))
    return loss, metric


def promotion(sql: Sql, version: int) -> dict[str, Any]:
    found: dict[str, Any] = sql.value(
        "SELECT lineage -> 'promotion' FROM cerebro.registered_versions WHERE name = 'shop' AND version = %s",
        (version,),
    )
    return found


def test_raw_rows_have_the_scores_of_packed_ones(shop: Sql) -> None:
    raw = scores(shop, MODEL, "monday_test")
    assert raw == pytest.approx(scores(shop, MODEL, "monday_p_val"), rel=1e-6)
    assert raw == pytest.approx(scores(shop, "monday_p_out", "monday_test"), rel=1e-6)
    # Rows of another night are seen by the encoding of the model.
    shop.run(
        "SELECT cerebro_pack_validation('tuesday_test', 'seen', 'choice', NULL, 'monday_p', replace := true)"
    )
    other = scores(shop, MODEL, "tuesday_test")
    assert other == pytest.approx(scores(shop, MODEL, "seen"), rel=1e-6)
    assert other != pytest.approx(raw)
    # The target may have another name there.
    shop.run(
        "CREATE VIEW renamed AS SELECT age, spent, member, city, choice AS taken FROM tuesday_test"
    )
    assert scores(shop, MODEL, "renamed", ", dependent_varname := 'taken'") == other
    shop.run(
        f"SELECT cerebro_confusion_matrix('{MODEL}', 'tuesday_test', 'pairs', replace := true)"
    )
    assert shop.value("SELECT sum(num_rows) FROM pairs") == 60
    right = "SELECT sum(num_rows) FROM pairs WHERE actual = predicted"
    assert float(shop.value(right)) / 60 == pytest.approx(other[1])


def test_a_challenger_of_another_encoding_is_compared_on_raw_rows(shop: Sql) -> None:
    packed(shop, "tuesday", "tuesday_p")
    width = "SELECT input_shapes -> 0 ->> 0 FROM {}_summary"
    assert shop.value(width.format("tuesday_p")) != shop.value(width.format("monday_p"))
    champion = scores(shop, MODEL, "tuesday_test")
    run_id = fitted(shop, "tuesday_p", 12)
    with pytest.raises(errors.InvalidParameterValue, match="another encoding") as refused:
        scores(shop, MODEL, "tuesday_p_val")
    assert "give the raw rows" in str(refused.value.diag.message_hint)
    shop.notices.clear()
    version = shop.value("SELECT cerebro_promote_if_better(%s, %s)", (run_id, MODEL))
    assert "scored on the raw rows of public.tuesday_test" in "".join(shop.notices)
    told = promotion(shop, version)
    assert told["validation"] == {
        "table": "public.tuesday_test", "fingerprint": None, "rows": 60, "packed_table": "public.tuesday_p_val",
    }  # fmt: skip
    assert told["champion"]["version"] == 1
    assert list(told["champion"]["scores"].values()) == pytest.approx(champion, rel=1e-6)
    winner = scores(shop, "tuesday_p_out", "tuesday_p_val")
    assert list(told["scores"].values()) == pytest.approx(winner, rel=1e-6)
    assert winner[1] > champion[1]
    # The same again is no better.
    assert shop.value("SELECT cerebro_promote_if_better(%s, %s)", (run_id, MODEL)) is None
    shop.run(
        f"SELECT cerebro_predict('{MODEL}', 'tuesday_test', 'id', NULL, 'answers', 'response', replace := true)"
    )
    assert shop.value("SELECT count(*) FROM answers") == 60
    right = (
        "SELECT count(*) FROM answers a JOIN tuesday t USING (id) WHERE a.class_value = t.choice"
    )
    assert shop.value(right) / 60 == pytest.approx(winner[1])


def test_a_challenger_of_the_champions_encoding_is_compared_on_packed_rows(shop: Sql) -> None:
    shop.notices.clear()
    packed(shop, "tuesday", "follows", f", encoding_of := '{MODEL}'")
    assert "column 'city': " in "".join(shop.notices)
    named = shop.value("SELECT encoding_of FROM follows_summary")
    assert named.endswith("shop:1")
    width = "SELECT input_shapes::text, choice_class_values::text, num_classes FROM {}_summary"
    assert shop.fetch(width.format("follows")) == shop.fetch(width.format("monday_p"))
    run_id = fitted(shop, "follows", 12)
    version = shop.value("SELECT cerebro_promote_if_better(%s, %s)", (run_id, MODEL))
    told = promotion(shop, version)["validation"]
    assert told["table"] == "public.follows_val"
    assert told["fingerprint"] is not None


def test_a_warm_start_with_features_of_another_meaning_is_refused(shop: Sql) -> None:
    """As many features as before, one of which is another city."""
    make_rows(shop, "wednesday", "Oslo,Bern,Bonn,Riga")
    packed(shop, "monday", "warm")
    fitted(shop, "warm", 1)
    again = "SELECT cerebro_fit_multiple('{}', 'warm_out', 'warm_configs', 1, warm_start := true)"
    packed(shop, "wednesday", "other_cities")
    width = "SELECT input_shapes::text FROM {}_summary"
    assert shop.value(width.format("other_cities")) == shop.value(width.format("warm"))
    with pytest.raises(
        errors.InvalidParameterValue, match="other features than the models"
    ) as refused:
        shop.run(again.format("other_cities"))
    assert "encoding_of := 'public.warm_out'" in str(refused.value.diag.message_hint)
    packed(shop, "wednesday", "same_cities", ", encoding_of := 'warm_out'")
    shop.run(again.format("same_cities"))


def test_rows_to_compare_by_may_be_named(shop: Sql) -> None:
    packed(shop, "tuesday", "named")
    run_id = fitted(shop, "named", 12)
    call = "SELECT cerebro_promote_if_better(%s, 'model:of_raw@champion', validation_table := %s)"
    assert shop.value(call, (run_id, "tuesday_test")) == 1
    assert shop.value(call, (run_id, "tuesday_test")) is None
    assert shop.value(call, (run_id, "named_val")) is None
    with pytest.raises(errors.UndefinedTable, match="validation_table: got 'nowhere'"):
        shop.run(call, (run_id, "nowhere"))


def test_where_raw_rows_are_gone_the_champion_stays(shop: Sql) -> None:
    shop.run("CREATE TABLE lost AS SELECT * FROM tuesday_test")
    packed(shop, "tuesday", "late")
    shop.run(
        "SELECT cerebro_pack_validation('lost', 'late_val', 'choice', NULL, 'late', replace := true)"
    )
    run_id = fitted(shop, "late", 12)
    call = "SELECT cerebro_promote_if_better(%s, %s)"
    champion = "SELECT version FROM cerebro.registered_versions WHERE name = 'shop' AND 'champion' = ANY (aliases)"
    before = shop.value(champion)
    shop.run("ALTER TABLE lost RENAME city TO town")
    with pytest.raises(errors.UndefinedColumn, match=r"columns of public\.lost"):
        shop.run(call, (run_id, MODEL))
    shop.run("ALTER TABLE lost RENAME town TO city; UPDATE lost SET choice = 'tram' WHERE id = 161")
    with pytest.raises(
        errors.DataException, match=r"shop:1 cannot see the rows|late_out cannot see the rows"
    ) as unknown:
        shop.run(call, (run_id, MODEL))
    assert "holds the class 'tram'; allowed: {bus,train}" in str(unknown.value)
    assert "row 60 of the scan of public.lost:" in str(unknown.value)
    shop.run("DROP TABLE lost")
    with pytest.raises(
        errors.UndefinedTable, match="the raw rows are needed that it was packed from"
    ) as refused:
        shop.run(call, (run_id, MODEL))
    assert "validation_table := " in str(refused.value.diag.message_hint)
    assert shop.value(champion) == before


def test_a_prediction_of_a_job_has_drift(shop: Sql) -> None:
    call = "SELECT cerebro_predict('{}', '{}', 'id', NULL, 'by_job', 'response', replace := true, wait := {})"
    count = "SELECT count(*) FROM cerebro.drift WHERE kind = 'prediction'"
    before = shop.value(count)
    shop.run(call.format(MODEL, "tuesday_test", "true"))
    assert shop.value(count) == before
    for source in ("tuesday_test", "tuesday"):
        job_id = shop.value(call.format(MODEL, source, "false"))
        assert shop.value("SELECT cerebro_wait_job(%s)", (job_id,)) == "finished"
        rows = shop.value(f"SELECT count(*) FROM {source}")
        facts = "SELECT DISTINCT encoding_of, source_table, output_table, num_rows FROM cerebro.drift WHERE job_id = %s"
        ((name, *others),) = shop.fetch(facts, (job_id,))
        assert name.endswith(".shop:1")
        assert others == [f"public.{source}", "public.by_job", rows]
        drift = "SELECT unseen_rows, missing_rows, psi FROM cerebro.drift WHERE job_id = %s AND column_name = %s"
        unknown = f"SELECT count(*) FROM {source} WHERE city = 'Bonn'"
        assert shop.row(drift, (job_id, "city")) == (shop.value(unknown), 0, None)
        missing = f"SELECT count(*) FROM {source} WHERE spent IS NULL"
        assert shop.row(drift, (job_id, "spent"))[1] == shop.value(missing)
        assert 0 <= shop.row(drift, (job_id, "age"))[2] < 0.25
        log = shop.column("SELECT message FROM cerebro.job_log WHERE job_id = %s", (job_id,))
        assert any(line and "column 'city': " in line for line in log)


def test_a_job_tells_why_nothing_was_promoted(shop: Sql) -> None:
    """on_success with another encoding, on raw rows that are there, and then are not."""
    shop.run("CREATE TABLE tonight_rows AS SELECT * FROM tuesday_test")
    packed(shop, "tuesday", "tonight")
    shop.run(
        "SELECT cerebro_pack_validation('tonight_rows', 'tonight_val', 'choice', NULL, 'tonight', replace := true)"
    )
    fitted(shop, "tonight", 1)  # makes the configurations
    fit = {
        "source_table": "tonight", "model_output_table": "by_schedule", "num_iterations": 12,
        "model_selection_table": "tonight_configs", "validation_table": "tonight_val", "replace": True,
    }  # fmt: skip
    calls = json.dumps({"cerebro_fit_multiple": fit})
    shop.run(
        "SELECT cerebro_schedule('tonight', '0 3 * * *', %s, %s, timer := 'crontab')",
        (calls, MODEL),
    )
    found = []
    for _ in range(2):
        job_id = shop.value("SELECT cerebro_start_schedule('tonight')")
        shop.run("SELECT cerebro_wait_job(%s, '300 s')", (job_id,))
        log = shop.column("SELECT message FROM cerebro.job_log WHERE job_id = %s", (job_id,))
        status = shop.value("SELECT status FROM cerebro.jobs WHERE job_id = %s", (job_id,))
        found.append((status, "; ".join(line for line in log if line)))
        champion = "SELECT version FROM cerebro.registered_versions WHERE name = 'shop' AND 'champion' = ANY (aliases)"
        if len(found) == 1:
            assert shop.value(champion) > 1
            shop.run("SELECT cerebro_set_alias('shop', 'champion', 1); DROP TABLE tonight_rows")
    assert found[0][0] == "finished"
    assert "scored on the raw rows of public.tonight_rows" in found[0][1]
    assert found[1][0] == "failed"
    assert "the raw rows are needed that it was packed from" in found[1][1]
    assert shop.value(champion) == 1
    shop.run("SELECT cerebro_unschedule('tonight')")


def test_a_schedule_packs_each_night_with_the_encoding_of_the_champion(shop: Sql) -> None:
    """The net of the first night fits the rows of each night, whatever categories these have."""
    columns = {
        "source_table": "tuesday_train", "output_table": "nightly", "dependent_varname": "choice", "excluded": "id",
        "independent_varname": "*", "num_partitions": 2, "encoding_of": MODEL, "replace": True,
    }  # fmt: skip
    validation = {
        "source_table": "tuesday_test", "output_table": "nightly_val", "dependent_varname": "choice",
        "independent_varname": None, "training_table": "nightly", "replace": True,
    }  # fmt: skip
    fit = {
        "source_table": "nightly", "model_output_table": "nightly_out", "num_iterations": 12,
        "model_selection_table": "monday_p_configs", "validation_table": "nightly_val", "replace": True,
    }  # fmt: skip
    predict = {
        "model_table": MODEL, "test_table": "tuesday_test", "id_col": "id", "independent_varname": None,
        "output_table": "nightly_answers", "pred_type": "response", "replace": True,
    }  # fmt: skip
    calls = {
        "cerebro_pack_columns": columns, "cerebro_pack_validation": validation, "cerebro_fit_multiple": fit,
        "cerebro_predict": predict,
    }  # fmt: skip
    shop.run(
        "SELECT cerebro_schedule('each night', '0 3 * * *', %s, %s, timer := 'crontab')",
        (json.dumps(calls), MODEL),
    )
    job_id = shop.value("SELECT cerebro_start_schedule('each night')")
    assert shop.value("SELECT cerebro_wait_job(%s, '300 s')", (job_id,)) == "finished"
    champion = "SELECT max(version) FROM cerebro.registered_versions WHERE name = 'shop' AND 'champion' = ANY (aliases)"
    version = shop.value(champion)
    assert version > 1
    told = promotion(shop, version)
    assert told["validation"]["table"] == "public.nightly_val"
    kinds = "SELECT DISTINCT kind FROM cerebro.drift WHERE job_id = %s ORDER BY 1"
    assert shop.column(kinds, (job_id,)) == ["packing", "prediction", "validation"]
    assert shop.value("SELECT count(*) FROM nightly_answers") == 60
    shop.run("SELECT cerebro_unschedule('each night')")


def test_a_cancelled_evaluation_of_raw_rows_leaves_nothing(shop: Sql) -> None:
    shop.run(
        "CREATE VIEW slow AS SELECT t.*, pg_sleep(0.1) IS NULL AS waited FROM tuesday_test t; "
        "CREATE VIEW slow_rows AS SELECT age, spent, member, city, CASE WHEN waited THEN 'x' ELSE choice END AS choice "
        "FROM slow"
    )
    shop.run("SET statement_timeout = '1500ms'")
    try:
        with pytest.raises(errors.QueryCanceled):
            scores(shop, MODEL, "slow_rows")
    finally:
        shop.run("RESET statement_timeout")
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'rows!_%' ESCAPE '!' AND relkind = 'r'"
    assert shop.value(left) == 0


def test_the_encoding_of_a_model_is_for_those_who_may_use_it(shop: Sql, connect: Any) -> None:
    role = f"second_night_{os.getpid()}"
    shop.run(
        f"CREATE ROLE {role} LOGIN IN ROLE cerebro_user; CREATE SCHEMA night AUTHORIZATION {role}"
    )
    shop.run(f"GRANT SELECT ON tuesday_train, tuesday_test TO {role}")
    other = connect(f"{shop.dsn} user={role}")
    owner = shop.value("SELECT current_user")
    name = f"model:{owner}.shop:1"
    pack = (
        "SELECT cerebro.cerebro_pack_columns('public.tuesday_train', 'night.p', 'choice', '*', excluded := 'id', "
        f"encoding_of := '{name}')"
    )
    score = f"SELECT cerebro.cerebro_evaluate('{name}', 'public.tuesday_test', 'night.s')"
    try:
        for call in (pack, score):
            with pytest.raises(errors.UndefinedObject):
                other.run(call)
        shop.run(f"SELECT cerebro_grant_model('shop', '{role}')")
        other.run(pack)
        other.run(score)
        assert other.value("SELECT encoding_of FROM night.p_summary") == name
        assert other.row("SELECT loss, metric FROM night.s") == scores(shop, MODEL, "tuesday_test")
        assert other.column("SELECT DISTINCT owner::text FROM cerebro.drift") == [role]
    finally:
        other.connection.close()
        shop.run(f"SELECT cerebro_revoke_model('shop', '{role}')")
        shop.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_a_report_has_the_drift_of_its_tables(shop: Sql) -> None:
    packed(shop, "tuesday", "night_told", f", encoding_of := '{MODEL}'")
    run_id = fitted(shop, "night_told", 1)
    database = connections_of(shop.dsn)
    facts = reading.run_facts(database, run_id)
    found = reading.drift(database, facts)
    assert {(one.kind, one.output_table) for one in found} == {
        ("packing", "public.night_told"), ("validation", "public.night_told_val"),
    }  # fmt: skip
    (city,) = [one for one in found if one.kind == "packing" and one.column == "city"]
    assert city.unseen == pytest.approx(53 / 160, abs=0.01)
    text = rendered([read(database, run_id, with_curves=False)], None, b"")
    assert "<h2>Drift</h2>" in text
    assert "of public.tuesday_train, packing public.night_told" in text
    database.close()


BAD = {
    "'nowhere', 'x'": (errors.UndefinedTable, "test_table: got 'nowhere'"),
    "'tuesday_test', 'x', dependent_varname := 'nope'": (
        errors.UndefinedColumn,
        "dependent_varname: got 'nope'",
    ),
    "'tuesday_test', 'x', dependent_varname := 'age'": (
        errors.DataException,
        "'age' of type integer",
    ),
    "'tuesday_test', 'x', on_error := 'ignore'": (
        errors.InvalidParameterValue,
        "on_error: got 'ignore'",
    ),
    "'monday_p_val', 'x', dependent_varname := 'choice'": (
        errors.InvalidParameterValue,
        "dependent_varname: got 'choice'; allowed: NULL, as public.monday_p_val is packed",
    ),
    "'tuesday_test', 'tuesday', replace := true": (errors.DuplicateTable, "tuesday"),
}


@pytest.mark.parametrize("arguments", BAD)
def test_raw_rows_that_cannot_be_scored(shop: Sql, arguments: str) -> None:
    kind, message = BAD[arguments]
    with pytest.raises(kind, match=message):
        shop.run(f"SELECT cerebro_evaluate('{MODEL}', {arguments})")
    assert shop.value("SELECT to_regclass('x')") is None


def test_arrays_as_raw_rows(bench: Any) -> None:
    """A table without an encoding: the columns are those that the models were trained on."""
    bench.run("SELECT cerebro_load_model('raw_nets', cerebro_mlp(), packed_table := 'packed')")
    bench.run(
        "SELECT cerebro_load_configs('raw_nets', 'raw_configs', ARRAY[1], ARRAY[$$"
        "loss='categorical_crossentropy',optimizer='SGD()',metrics=['accuracy']$$], ARRAY['batch_size=8'])"
    )
    bench.run("SELECT cerebro_fit_multiple('packed', 'raw_out', 'raw_configs', 1)")
    bench.run("SELECT cerebro_pack_validation('blobs_test', 'raw_val', 'label', 'x', 'packed')")
    wanted = scores(bench, "raw_out", "raw_val")
    assert scores(bench, "raw_out", "blobs_test") == pytest.approx(wanted, rel=1e-6)
    bench.run(
        "CREATE VIEW odd AS SELECT x, CASE id WHEN 149 THEN 'z' ELSE label END AS label FROM blobs_test"
    )
    with pytest.raises(errors.DataException, match=r"holds the class 'z'; allowed: \{a,b,c\}"):
        scores(bench, "raw_out", "odd")


def test_images_as_raw_rows(bench: Any) -> None:
    bench.run(
        "CREATE TABLE dots AS SELECT id, id % 2 AS side, CASE WHEN id % 20 > 0 THEN decode(CASE id % 2 WHEN 0 "
        "THEN 'ff100000' ELSE '00c0ff00' END, 'hex') END AS picture FROM generate_series(1, 60) id"
    )
    bench.run(
        "SELECT cerebro_pack_images('dots', 'dots_p', 'side', 'picture', ARRAY[2, 2, 1], 'raw', on_error := 'ignore')"
    )
    net = model(layer("Flatten"), layer("Dense", units=2, activation="softmax"), shape=(2, 2, 1))
    bench.run("SELECT cerebro_load_model('dots_nets', %s)", (net,))
    bench.run(
        "SELECT cerebro_fit('dots_p', 'dots_out', 'dots_nets', 1, $$loss='categorical_crossentropy',"
        "optimizer='SGD()',metrics=['accuracy']$$, 'batch_size=8', 1)"
    )
    with pytest.raises(errors.DataException, match=r"row 20 of the scan of public\.dots.* is NULL"):
        scores(bench, "dots_out", "dots")
    raw = scores(bench, "dots_out", "dots", ", on_error := 'ignore'")
    assert raw == pytest.approx(scores(bench, "dots_out", "dots_p"), rel=1e-6)
    like = "SELECT cerebro_pack_images('dots', 'dots_q', 'side', 'picture', {}, on_error := 'ignore', encoding_of := 'dots_out', replace := true)"
    bench.run(like.format("NULL"))
    shape = "SELECT input_shapes::text, normalizing_const, encoding::text FROM {}_summary"
    assert bench.row(shape.format("dots_q")) == bench.row(shape.format("dots_p"))
    with pytest.raises(
        errors.InvalidParameterValue, match=r"got \[1, 4, 1\], 'raw'; allowed with encoding_of"
    ):
        bench.run(like.format("ARRAY[1, 4, 1], 'raw'"))


def test_a_vacuum_leaves_the_rows_of_a_call_that_goes_on(shop: Sql, connect: Any) -> None:
    name = "cerebro_states.rows_0123456789abcdef"
    shop.run(f"CREATE TABLE {name} (x int)")
    other = connect(shop.dsn)
    key = lock_key(QualifiedName(*name.split(".")).text)
    other.run("SELECT pg_advisory_lock(%s)", (key,))
    shop.run("SELECT cerebro_vacuum('0')")
    assert shop.value("SELECT to_regclass(%s) IS NOT NULL", (name,))
    # Those of a call that was killed go with the next one.
    other.connection.close()
    scores(shop, MODEL, "monday_test")
    assert shop.value("SELECT to_regclass(%s) IS NULL", (name,))
