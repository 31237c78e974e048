"""Sizes of what a function is given are bounded before the server's own process takes memory for it."""

from __future__ import annotations

import psycopg2
import pytest
from reasons import NO_SUCH_SQL

from cerebro_db.relay.calls import MOST_NUMBERS_BYTES
from tests.security.conftest import Person

BYTES = "decode(repeat('00', {}), 'hex')"
PEAK = r"pg_read_file('/proc/' || pg_backend_pid() || '/status')"


@pytest.mark.parametrize("kind", ["real", "integer"])
@pytest.mark.parametrize(
    ("size", "allowed"),
    [(4, True), (8 * 2**20, True), (MOST_NUMBERS_BYTES + 4, False), (200 * 2**20, False)],
)
def test_bytes_that_become_an_array(alice: Person, kind: str, size: int, allowed: bool) -> None:
    call = f"SELECT array_length(cerebro_convert_bytea_to_{kind}_array({BYTES.format(size)}), 1)"
    if allowed:
        assert alice.value(call) == size // 4
        return
    error = alice.refused(call)
    assert error.pgcode == "22023"
    assert f"data: got {size} bytes; allowed: up to {MOST_NUMBERS_BYTES}" in str(error)
    assert f"substring(data FROM 1 FOR {MOST_NUMBERS_BYTES})" in str(error.diag.message_hint)


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_a_refused_size_takes_no_memory(alice: Person, root: Person) -> None:
    pid = alice.value("SELECT pg_backend_pid()")

    def peak() -> int:
        status = root.value("SELECT pg_read_file(%s)", (f"/proc/{pid}/status",))
        return next(
            int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")
        )

    alice.value("SELECT array_length(cerebro_convert_bytea_to_real_array('\\x00000000'), 1)")
    before = peak()
    alice.refused(f"SELECT cerebro_convert_bytea_to_real_array({BYTES.format(100 * 2**20)})")
    # The value itself, its text and their copies; an array of it would be 2,500 MB.
    assert peak() - before < 900


def test_features_of_a_row(alice: Person) -> None:
    most = 2**24
    for array, count in (
        (f"array_fill(0::float8, ARRAY[{most + 1}])", most + 1),
        ("array_fill(0::float8, ARRAY[4100, 4100])", 4100 * 4100),
    ):
        error = alice.refused(f"SELECT cerebro_predict_row('out', {array})")
        assert error.pgcode == "22023"
        assert f"features: got {count} numbers; allowed: up to {most}" in str(error)
    assert "shape" in str(
        alice.refused("SELECT cerebro_predict_row('out', array_fill(0::float8, ARRAY[1000, 3]))")
    )


@pytest.mark.not_on_segments(NO_SUCH_SQL)
def test_images_keep_to_the_setting_whatever_a_call_says(alice: Person, root: Person) -> None:
    """An internal function, which members may call with any number of pixels."""
    import io

    from PIL import Image

    data = io.BytesIO()
    Image.new("L", (40, 40)).save(data, "PNG")
    call = "SELECT length(cerebro._image_array(%s, ARRAY[40, 40, 1], 'encoded', 1000000))"
    root.rows("SELECT cerebro.cerebro_set('max_image_pixels', '1500')")
    try:
        alice.connection.reset()
        alice.connection.autocommit = True  # which it has reset, too
        error = alice.refused(call, (psycopg2.Binary(data.getvalue()),))
        assert error.pgcode.startswith("22")
        assert "1500" in str(error) or "1600" in str(error), error
    finally:
        root.rows("SELECT cerebro.cerebro_set('max_image_pixels', NULL)")
