"""Classes that are dates and times: told as the caller's session shows them, kept in one form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.conftest import Database, Network

TYPES = ("timestamptz(3)", "timestamp", "date", "interval", "moment")
SETTINGS = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "America/St_Johns",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
}


@pytest.fixture(scope="module")
def db(trained: Database, network: Network) -> Iterator[Database]:
    """A model of several outputs, one of each type."""
    for statement in (
        "SET TimeZone = 'Asia/Kolkata'",
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE TABLE dated AS SELECT id, x, t.at::timestamptz(3) AS at0, t.at::timestamp AS at1, "
        "t.at::date AS at2, (CASE id %% 3 WHEN 0 THEN '-1 day 2:03' WHEN 1 THEN '1 mon -1 day' "
        "ELSE NULL END)::interval AS at3, t.at::moment AS at4 FROM rows, LATERAL (SELECT "
        "(ARRAY['1850-01-31 23:30:00.5+00', '2024-07-01 00:10:00+00', NULL])[1 + id %% 3]"
        "::timestamptz AS at) t",
        "SELECT cerebro_load_model('library', %(json)s)",
    ):
        trained.fetch(statement, {"json": network((4,), (3, "softmax"))})
    (model,) = trained.fetch("SELECT max(model_id) FROM library")[0]
    for place in range(len(TYPES)):
        for statement in (
            f"SELECT cerebro_pack('dated', 'dated_{place}', 'at{place}', 'x', num_partitions := 2)",
            f"SELECT cerebro_fit('dated_{place}', 'dates_{place}', 'library', {model}, "
            "$$loss='categorical_crossentropy',optimizer='SGD()'$$, 'batch_size=60', 1)",
        ):
            trained.fetch(statement)
    yield trained
    for setting in SETTINGS:
        trained.fetch(f"RESET {setting}")
    for place in range(len(TYPES)):
        for name in ("dated", "dates"):
            trained.fetch(f"SELECT cerebro_drop_outputs('{name}_{place}')")
    trained.fetch("DROP TABLE dated")
    trained.fetch("DROP DOMAIN moment")


@pytest.mark.parametrize("place", range(len(TYPES)), ids=TYPES)
def test_labels_join_in_any_session(db: Database, place: int) -> None:
    label = f"at{place}::text"
    for settings in (dict.fromkeys(SETTINGS, "DEFAULT"), SETTINGS):
        for name, value in settings.items():
            db.fetch(f"SET {name} = {value if value == 'DEFAULT' else repr(value)}")
        db.fetch(
            f"SELECT cerebro_predict('dates_{place}', 'dated', 'id', 'x', 'told', replace := true)"
        )
        labels = db.fetch(f"SELECT DISTINCT {label} FROM dated ORDER BY 1")
        assert db.fetch("SELECT DISTINCT class_value FROM told ORDER BY 1") == labels
        # A validation table is packed, and compared, in whatever session.
        db.fetch(
            f"SELECT cerebro_pack_validation('dated', 'checked', 'at{place}', 'x', 'dated_{place}', "
            "replace := true)"
        )
        db.fetch(
            f"SELECT cerebro_confusion_matrix('dates_{place}', 'checked', 'taken', replace := true)"
        )
        assert db.fetch("SELECT DISTINCT actual FROM taken ORDER BY 1") == labels
        rows = db.fetch(
            f"SELECT p.class_value, q.class_value, o.class_value FROM dated d, "
            f"cerebro_predict_row('dates_{place}', d.x) p, "
            f"cerebro_predict_outputs('dates_{place}', json_build_array(d.x)) q, "
            f"LATERAL (SELECT t.class_value FROM told t WHERE t.id = d.id AND t.rank = 1) o"
        )
        assert len(rows) == 120
        assert all(len(set(row)) == 1 for row in rows)
    for name in ("told", "checked", "taken"):
        db.fetch("SELECT cerebro_drop_outputs(%s)", (name,))


def test_a_registered_model_tells_the_same(db: Database) -> None:
    (run,) = db.fetch("SELECT run_id FROM dates_0_summary")[0]
    db.fetch("SELECT cerebro_register_model(%s, 1, 'dates')", (run,))
    db.fetch("SET TimeZone = 'America/St_Johns'")
    db.fetch("SELECT cerebro_predict('model:dates', 'dated', 'id', 'x', 'told')")
    labels = db.fetch("SELECT DISTINCT at0::text FROM dated ORDER BY 1")
    assert db.fetch("SELECT DISTINCT class_value FROM told ORDER BY 1") == labels
    ((row,),) = db.fetch(
        "SELECT class_value FROM cerebro_predict_row("
        "'model:dates', (SELECT x FROM dated WHERE id = 1))"
    )
    assert (row,) in labels
    db.fetch("SELECT cerebro_drop_outputs('told')")
    db.fetch("SELECT cerebro_drop_model('dates')")


def test_what_is_kept_does_not_depend_on_the_session(db: Database) -> None:
    db.fetch("SET TimeZone = 'UTC'")
    db.fetch("SET DateStyle = 'ISO'")
    packed = db.fetch(
        "SELECT DISTINCT v::text FROM dated_0_summary, unnest(at0_class_values) v ORDER BY 1"
    )
    kept = "SELECT DISTINCT v FROM dates_0_summary, unnest(at0_class_values) v ORDER BY 1"
    assert db.fetch(kept) == packed
    db.fetch("SET TimeZone = 'Asia/Kolkata'")
    assert db.fetch(kept) == packed
