"""What every kind of encoded column promises; one that is registered is tested here without another line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from psycopg2 import errors
from servers import Caller

from cerebro_db.columns.recorded import parse_recorded, recorded_text
from cerebro_db.columns.values import Values
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.packing import pack
from cerebro_db.packing.encoding_rows import create_encoder, encode
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.requests.packing import (
    EncodeRequest,
    EncoderRequest,
    PackColumnsRequest,
    PackValidationRequest,
)
from cerebro_db.requests.predicting import PredictionRequest
from cerebro_db.scoring.prediction import predict
from tests.columns.conftest import KINDS
from tests.models.conftest import Network
from tests.networks import side_by_side

# Columns of each kind of values: NULL, NaN and infinities where the type has them, values that are equal and written
# otherwise, and such as the training rows do not have.
SAMPLES = {
    Values.NUMBER: {
        "whole": "nullif(id % 5, 0)",
        "small": "CASE id % 6 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE (id / 8.0)::text END::real",
        "exact": "CASE WHEN id % 7 > 0 THEN id / 4.0 END::numeric",
    },
    Values.BOOLEAN: {"flag": "CASE WHEN id % 5 > 0 THEN id % 2 = 0 END"},
    Values.TIME: {
        "day": "CASE WHEN id % 9 = 0 THEN 'infinity' ELSE date '2020-01-01' + id % 4 END",
        "moment": "CASE WHEN id % 8 > 0 THEN timestamptz '2020-01-01 00:00+00' + id % 4 * interval '1 h' END",
        "hour": "CASE WHEN id % 8 > 0 THEN time '06:00' + id % 3 * interval '1 h' END",
    },
    Values.CATEGORY: {
        "word": "(ARRAY['', 'oslo', E'it''s $$ \\\\ 100%%', NULL])[1 + id % 4]",
        "code": "('00000000-0000-0000-0000-00000000000' || id % 3)::uuid",
    },
}
ROWS = 40


@pytest.fixture(scope="module")
def samples(db: Any) -> Any:
    listed = ", ".join(
        f"{sql} AS {name}" for each in SAMPLES.values() for name, sql in each.items()
    ).replace("%%", "%")
    rows = f"SELECT id, {listed}, id * 0.25::real AS y FROM generate_series({{}}, {{}}) id"
    db.fetch(f"CREATE TABLE samples AS {rows.format(1, ROWS)}")
    db.fetch(f"CREATE TABLE later AS {rows.format(ROWS - 8, ROWS + 8)}")
    db.fetch(
        "UPDATE later SET whole = 1000, small = 'Infinity', exact = 'NaN', day = '-infinity', word = 'new', "
        "code = '10000000-0000-0000-0000-000000000000' WHERE id % 2 = 0"
    )
    return db


@pytest.fixture(autouse=True)
def _with_samples(samples: Any) -> None:
    """All tests are about these tables."""


def columns_of(method: str) -> list[str]:
    """Columns that a kind takes."""
    return [name for values in KINDS[method].takes for name in SAMPLES[values]]


def packed(caller: Caller, method: str, output: str, names: list[str] | None = None) -> None:
    """Pack columns by one method, and the id as it is."""
    names = columns_of(method) if names is None else names
    methods = {"id": "none", **dict.fromkeys(names, method)}
    request = PackColumnsRequest(
        "samples", output, "y", ", ".join(methods), num_partitions=2, encodings=json.dumps(methods), replace=True,
    )  # fmt: skip
    pack.pack(caller, request)


def by_id(samples: Any, table: str) -> np.ndarray:
    """Features of a packed table, input after input, in the order of the rows' ids, which are the first feature."""
    inputs = samples.value(f"SELECT independent_varname FROM {table}_summary")
    features = np.hstack([samples.unpack(table, name, "y").features for name in inputs])
    return features[np.argsort(features[:, 0])]


def encoded(caller: Caller, samples: Any, source: str) -> np.ndarray:
    """Features of a table by cerebro_encode, and by a function of cerebro_create_encoder: the same."""
    samples.fetch("DROP TABLE IF EXISTS encoded")
    with control_session(caller.pool, caller.search_path) as session, transaction(session):
        request = EncodeRequest(source, "contract", "encoded", "id")
        encode(session, request, caller.notice)
        function = EncoderRequest(source, "contract", "features_of", replace=True)
        create_encoder(session, function, caller.notice)
    inputs = samples.value("SELECT independent_varname FROM contract_summary")
    of_rows = samples.fetch(f"SELECT {' || '.join(inputs)} FROM encoded ORDER BY id")
    of_function = samples.fetch(f"SELECT features_of(s) FROM {source} s ORDER BY id")
    assert of_rows == of_function
    return np.array([row[0] for row in of_rows]).astype(np.float32)


@pytest.mark.parametrize("method", KINDS)
def test_a_raw_row_has_the_same_features_everywhere(
    samples: Any, caller: Caller, network: Network, method: str
) -> None:
    """Packed, packed with the training table, encoded, by a function of a row, and as a model sees them."""
    packed(caller, method, "contract")
    trained = by_id(samples, "contract")
    assert np.isfinite(trained).all()
    request = PackColumnsRequest(
        "samples", "again", "y", None, encoding_of="contract", replace=True
    )
    pack.pack(caller, request)
    again = by_id(samples, "again")
    assert np.array_equal(again, encoded(caller, samples, "samples"))
    if method != "target":  # whose training rows do not know their own target
        assert np.array_equal(trained, again)
    validation = PackValidationRequest("later", "followed", "y", None, "contract", replace=True)
    pack.pack(caller, validation)
    later = by_id(samples, "followed")
    assert np.isfinite(later).all()
    assert np.array_equal(later, encoded(caller, samples, "later"))
    shapes = [shape for (shape,) in samples.value("SELECT input_shapes FROM contract_summary")]
    net = network((shapes[0],), (1, "linear")) if len(shapes) == 1 else side_by_side(*shapes)
    _check_predictions(samples, caller, net)


def _check_predictions(samples: Any, caller: Caller, net: str) -> None:
    """Predictions of raw rows, of one row, and of the packed rows are the same."""
    recorded = samples.value("SELECT encoding FROM contract_summary")
    samples.fetch("DROP TABLE IF EXISTS nets, m, m_info, m_summary, raw, packed_answers")
    # The server's own processes do not know the kind of these tests.
    samples.fetch("UPDATE contract_summary SET encoding = NULL")
    samples.fetch("SELECT cerebro_load_model('nets', %s)", (net,))
    samples.fetch(
        "SELECT cerebro_fit('contract', 'm', 'nets', 1, 'loss=''mse'',optimizer=''SGD(1e-9)''', "
        "'batch_size=64', 1)"
    )
    of_row = _by_row(samples)
    text = json.dumps(recorded)
    for table in ("contract_summary", "m_summary"):
        samples.fetch(f"UPDATE {table} SET encoding = %s", (text,))
    predict(caller, PredictionRequest("m", "later", "id", None, "raw", "response"))
    of_rows = samples.fetch("SELECT id, estimated FROM raw ORDER BY id")
    flat = [np.ravel(row[1])[0] for row in of_rows]
    if of_row is not None:
        assert [row[0] for row in of_row] == [row[0] for row in of_rows]
        np.testing.assert_allclose([row[1] for row in of_row], flat, rtol=1e-5)
    predict(caller, PredictionRequest("m", "followed", None, None, "packed_answers", "response"))
    of_packed = samples.fetch("SELECT estimated FROM packed_answers")
    assert sorted(np.ravel(row[0])[0] for row in of_packed) == sorted(flat)


def _by_row(samples: Any) -> list[tuple[Any, ...]] | None:
    """Predictions of one row at a time; None where trainers have no network, which segments need for that."""
    query = "SELECT id, (cerebro_predict_row('m', features_of(s))).estimated[1] FROM later s ORDER BY id"
    try:
        return samples.fetch(query)  # type: ignore[no-any-return]
    except errors.FeatureNotSupported:
        assert "Greenplum" in samples.value("SELECT version()")
        return None


@pytest.mark.parametrize("method", KINDS)
def test_what_is_recorded_is_enough(samples: Any, caller: Caller, method: str) -> None:
    """It comes back as it was, says what each feature is, and makes the same SQL."""
    packed(caller, method, "told")
    text = json.dumps(samples.value("SELECT encoding FROM told_summary"))
    found = parse_recorded(text, "told")
    assert parse_recorded(recorded_text(found), "told") == found
    shapes = samples.value("SELECT input_shapes FROM told_summary")
    described = list(found.described())
    assert {(row["input"], row["position"]) for row in described} == {
        (name, place)
        for name, (size,) in zip(found.parts, shapes, strict=True)
        for place in range(1, size + 1)
    }
    columns = samples.value("SELECT input_columns FROM told_summary")
    for (size,), pieces in zip(shapes, columns, strict=True):
        ends = [piece["first"] + piece["width"] for piece in pieces]
        assert [piece["first"] for piece in pieces] == [0, *ends[:-1]]
        assert ends[-1] == size
    assert {row["column_name"] for row in described} == {"id", *columns_of(method)}
    listed = samples.fetch("SELECT position, feature FROM told_encoding ORDER BY position, code")
    assert sorted(listed) == sorted((row["position"], row["feature"]) for row in described)
    for column in found.columns:
        assert column.statistics is not None
        assert column.statistics.rows == ROWS
        assert bool(column.statistics.missing) == column.has_missing
        assert column.ids == 0 or column.part != "features"


@pytest.mark.parametrize("method", KINDS)
def test_columns_that_it_does_not_take_are_refused_before_any_work(
    caller: Caller, method: str
) -> None:
    for values in set(Values) - set(KINDS[method].takes):
        for name in SAMPLES[values]:
            with pytest.raises(
                InvalidArgument, match=f"encodings, '{name}' of type .*: got '{method}'; allowed"
            ):
                packed(caller, method, "refused", [name])
    assert not caller.told


@pytest.mark.parametrize("method", KINDS)
def test_a_column_without_a_value_is_refused(samples: Any, caller: Caller, method: str) -> None:
    for name in columns_of(method):
        samples.fetch("DROP VIEW IF EXISTS nothing")
        samples.fetch(
            f"CREATE VIEW nothing AS SELECT y, nullif({name}, {name}) AS {name} FROM samples"
        )
        methods = json.dumps({name: method})
        with pytest.raises(
            InvalidData,
            match=f"column '{name}': got no value in {ROWS} rows; allowed: at least one",
        ):
            pack.pack(caller, PackColumnsRequest("nothing", "none", "y", name, encodings=methods))
