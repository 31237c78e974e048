"""Weights out of the bytes of a state, as output tables have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import pytest

from cerebro_db.errors import InvalidState
from cerebro_db.server import training
from cerebro_db.server.training import join_state, state_weights
from cerebro_db.training.state import to_bytes

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
STATE = {
    "weights/0/kernel": KERNEL,
    "optimizer/iteration": np.array(7, dtype=np.int64),
    "weights/0/bias": np.array([0.1, 1e-300], np.float64),
    "others/0/seed": np.array([1, 2], dtype=np.uint32),
    "weights/1/half": np.array([0.1, 2], np.float16),
    "weights/1/none": np.zeros((0, 4), np.float32),
}


def weights(state: dict[str, np.ndarray], chunk: int) -> np.ndarray:
    """What a session makes of a state that comes in chunks."""
    gd: dict[str, Any] = {}
    data, token = to_bytes(state), None
    for start in range(0, len(data), chunk):
        token = join_state(None, gd, token, data[start : start + chunk])
    found = state_weights(None, gd, token)
    assert found is not None
    return np.frombuffer(found, np.float32)


@pytest.mark.parametrize("chunk", [7, 10**6])
def test_weights_of_any_type_come_as_float32_in_their_order(chunk: int) -> None:
    expected = [*KERNEL.reshape(-1), np.float32(0.1), 0, np.float32(np.float16(0.1)), 2]
    np.testing.assert_array_equal(weights(STATE, chunk), np.array(expected, np.float32))


def test_an_average_takes_the_place_of_its_weight() -> None:
    averaged = STATE | {"averages/0/kernel": KERNEL + 1}
    np.testing.assert_array_equal(weights(averaged, 10**6)[:6], (KERNEL + 1).reshape(-1))


def test_a_damaged_state_is_reported() -> None:
    data, gd = to_bytes(STATE), dict[str, Any]()
    token = join_state(None, gd, None, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InvalidState, match="checksum"):
        state_weights(None, gd, token)


def test_weights_that_no_value_can_hold_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_MAX_VALUE_BYTES", 4 * 10 - 1)
    gd: dict[str, Any] = {}
    token = join_state(None, gd, None, to_bytes(STATE))
    assert state_weights(None, gd, token) is None


# The second row fails in the trainer while the server goes on; the third one may end the statement itself.
_FAILS = """
SELECT cerebro._state_weights(cerebro.cerebro_joined_state(
           CASE i WHEN 1 THEN ''::bytea WHEN 2 THEN NULL ELSE {}::text::bytea END))
  FROM generate_series(1, 3) AS i
"""


def test_an_error_of_a_row_is_not_reported_in_a_later_statement(sql: Any) -> None:
    """Nobody waited for the row, and its statement has ended."""
    prepare = "SELECT cerebro._prepare_worker(1, false, 0, 7)"
    sql.run(prepare)
    with pytest.raises(psycopg2.DataError, match="got NULL for a chunk"):
        sql.run(_FAILS.format("i"))
    with pytest.raises(psycopg2.errors.DivisionByZero):
        sql.run(_FAILS.format("(1 / (i - 3))"))
    sql.run(prepare)
    sql.run("SELECT cerebro._join_state(77, '')")  # there is nothing of that token
    sql.run(prepare)
