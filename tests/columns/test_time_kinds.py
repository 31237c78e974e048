"""Dates and times as cycles: sine and cosine of parts that NumPy finds, in the time zone that is recorded."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from psycopg2 import errors

ROWS = 60


@pytest.fixture(scope="module")
def times(db: Any) -> Any:
    """Moments five hours and some apart, around a change to summer time in Berlin; some are missing."""
    db.fetch(
        "CREATE TABLE times AS SELECT id, id * 0.5::float8 AS y, CASE WHEN id % 9 > 0 THEN "
        "timestamptz '2024-03-28 01:02:03+00' + id * interval '307 minutes' END AS met, "
        "timestamp '2023-12-31 23:30:00' + id * interval '29 hours' AS seen, date '2024-02-28' + id AS born, "
        "time '00:10' + id * interval '23 minutes' AS opens, id * interval '1 hour' AS lasts "
        f"FROM generate_series(1, {ROWS}) id"
    )
    return db


def packed(db: Any, name: str, method: str) -> np.ndarray:
    methods = json.dumps({"id": "none", name: method})
    db.fetch(
        f"SELECT cerebro_pack_columns('times', 't', 'y', 'id, {name}', encodings := %s, replace := true, "
        "num_partitions := 1)",
        (methods,),
    )
    features = db.unpack("t", "features", "y").features
    found: np.ndarray = features[np.argsort(features[:, 0])][:, 1:]
    return found


def moments(db: Any, name: str) -> list[Any]:
    return [row[0] for row in db.fetch(f"SELECT {name} FROM times ORDER BY id")]


def waves(turns: list[float | None]) -> np.ndarray:
    """Sine and cosine of parts of a turn; 0 where there is none."""
    angles = 2 * np.pi * np.array([np.nan if one is None else one for one in turns])
    return np.nan_to_num(np.stack([np.sin(angles), np.cos(angles)], axis=1))


def hour(moment: Any) -> float:
    return (moment.hour + moment.minute / 60 + moment.second / 3600) / 24


def weekday(moment: Any) -> float:
    return (moment.weekday() + 1) % 7 / 7


def month(moment: Any) -> float:
    return (moment.month - 1) / 12


def test_a_timestamp_has_hour_weekday_month_and_days(times: Any) -> None:
    found, seen = packed(times, "seen", "cyclic"), moments(times, "seen")
    for place, part in enumerate((hour, weekday, month)):
        wanted = waves([part(one) for one in seen])
        np.testing.assert_allclose(found[:, 2 * place : 2 * place + 2], wanted, atol=1e-6)
    days = np.arange(ROWS)
    np.testing.assert_allclose(found[:, 6], (days - days.mean()) / days.std(), atol=1e-5)
    assert found.shape[1] == 7


def test_a_date_has_no_hour_and_a_time_only_that(times: Any) -> None:
    found, born = packed(times, "born", "cyclic(month, weekday)"), moments(times, "born")
    np.testing.assert_allclose(found[:, :2], waves([weekday(one) for one in born]), atol=1e-6)
    np.testing.assert_allclose(found[:, 2:], waves([month(one) for one in born]), atol=1e-6)
    found, opens = packed(times, "opens", "cyclic"), moments(times, "opens")
    np.testing.assert_allclose(found, waves([hour(one) for one in opens]), atol=1e-6)


@pytest.mark.parametrize("zone", ["Europe/Berlin", None])
def test_parts_are_read_in_a_time_zone_whatever_the_session_has(
    times: Any, zone: str | None
) -> None:
    """One that is written, or that of the session that packs, which is recorded."""
    times.fetch(f"SET TimeZone = '{'Asia/Tokyo' if zone else 'America/New_York'}'")
    found = packed(times, "met", f"cyclic(hour, zone={zone})" if zone else "cyclic(hour)")
    times.fetch("SET TimeZone = 'UTC'")
    met: list[datetime | None] = moments(times, "met")
    clock = ZoneInfo(zone or "America/New_York")
    turns = [None if one is None else hour(one.astimezone(clock)) for one in met]
    np.testing.assert_allclose(found[:, :2], waves(turns), atol=1e-6)
    assert np.array_equal(found[:, 2], [one is None for one in met])
    times.fetch("SELECT cerebro_encode('times', 't', 'encoded', 'id', replace := true)")
    rows = times.fetch("SELECT features FROM encoded ORDER BY id")
    np.testing.assert_allclose(np.array([row[0] for row in rows])[:, 1:], found, atol=1e-7)
    times.fetch(
        "SELECT cerebro_pack_columns('times', 'again', 'y', NULL, encoding_of := 't', "
        'encodings := \'{"id": "none", "met": "cyclic(hour)"}\', replace := true)'
    ) if zone is None else None


@pytest.mark.parametrize(
    ("name", "method", "message"),
    [
        ("born", "cyclic(hour)", "'born' of type date: got the part 'hour'; allowed: weekday, month, elapsed"),
        ("lasts", "cyclic", "'lasts' of type interval: got 'cyclic'; allowed: for dates, times"),
        ("seen", "cyclic(zone=UTC)", "got zone=UTC; allowed: for timestamp with time zone only"),
        ("met", "cyclic(zone=Nowhere)", "got zone=Nowhere; allowed: a time zone of the server"),
        ("met", "cyclic(minute)", "allowed: cyclic"),
        ("y", "cyclic", "'y', which is the dependent"),
    ],
)  # fmt: skip
def test_parts_that_there_are_not(times: Any, name: str, method: str, message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        packed(times, name, method)
