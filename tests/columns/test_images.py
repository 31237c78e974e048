"""Images as arrays, without a database: sizes, modes, what is refused before it takes memory."""

from __future__ import annotations

import io
import struct
import sys
import tracemalloc
import zlib

import numpy as np
import pytest

from cerebro_db.columns import image_reading as images
from cerebro_db.columns.images import ImageFormat, image_encoding
from cerebro_db.errors import InvalidArgument, InvalidData, MissingPackage
from cerebro_db.training.buffers import parse_arrays


def read(data, shape, kind="encoded"):
    wire = images.image_wire(data, image_encoding("x", kind, shape))
    return np.asarray(parse_arrays(wire, 1, shape)).reshape(shape)


def stored(values, kind="PNG", mode=None):
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.fromarray(values)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, kind)
    return file.getvalue()


def png(width, height, body=b""):
    """A PNG that says it is of some size."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def with_clear_colour(depth, colour, body, clear):
    """A PNG of one row of four pixels, one of whose colours is transparent."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 1, depth, colour, 0, 0, 0))
    clear = chunk(b"tRNS", np.array(clear, ">u2").tobytes())
    data = chunk(b"IDAT", zlib.compress(b"\0" + body)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + clear + data


@pytest.mark.parametrize(
    ("depth", "body", "clear", "grey"),
    [
        (1, b"\x40", 1, [0, 255, 0, 0]),
        (2, b"\x1b", 1, [0, 85, 170, 255]),
        (4, b"\x1f\x20", 15, [17, 255, 34, 0]),
        (8, b"\x01\x02\x03\x04", 2, [1, 2, 3, 4]),
        # The lower bits count, though they are not read.
        (16, b"\x12\x34\x12\x35\x00\x00\x12\xff", 0x1235, [18, 18, 0, 18]),
    ],
)
def test_a_transparent_grey_of_any_depth(depth, body, clear, grey):
    data = with_clear_colour(depth, 0, body, [clear])
    found = read(data, (1, 4, 4))[0]
    assert found[:, 3].tolist() == [255, 0, 255, 255]
    assert found[:, :3].tolist() == [[value] * 3 for value in grey]
    assert read(data, (1, 4))[0].tolist() == grey
    assert read(data, (1, 4, 3))[0, :, 0].tolist() == grey


@pytest.mark.parametrize("depth", [8, 16])
def test_a_transparent_colour_of_any_depth(depth):
    wide = np.array([[1, 2, 3], [9, 8, 7], [1, 2, 4], [0, 0, 0]]) * (256 if depth == 16 else 1)
    body = wide.astype(">u2" if depth == 16 else "u1").tobytes()
    data = with_clear_colour(depth, 2, body, wide[1])
    found = read(data, (1, 4, 4))[0]
    assert found[:, 3].tolist() == [255, 0, 255, 255]
    assert found[0, :3].tolist() == [1, 2, 3]


COLOURS = np.arange(6 * 5 * 3, dtype=np.uint8).reshape(6, 5, 3)


def test_raw_bytes_are_values():
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(read(values.tobytes(), (2, 3, 4), "raw"), values)
    with pytest.raises(InvalidData, match=r"holds 23 bytes; allowed: 24, .*\(2, 3, 4\)"):
        read(values.tobytes()[:-1], (2, 3, 4), "raw")


def test_a_png_comes_back_as_it_was():
    assert np.array_equal(read(stored(COLOURS), (6, 5, 3)), COLOURS)
    assert np.array_equal(read(stored(COLOURS[:, :, 0]), (6, 5)), COLOURS[:, :, 0])
    assert np.array_equal(read(stored(COLOURS[:, :, 0]), (6, 5, 3)), COLOURS[:, :, :1].repeat(3, 2))
    assert (read(stored(COLOURS), (6, 5, 4))[:, :, 3] == 255).all()


def test_a_jpeg_is_about_what_it_was():
    values = np.full((16, 16, 3), (200, 30, 90), np.uint8)
    assert np.abs(read(stored(values, "JPEG"), (16, 16, 3)) - values.astype(int)).max() < 5


def progressive(scans, more=b""):
    """A JPEG with so many scans: its last one, again and again."""
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.fromarray(np.full((16, 16), 90, np.uint8)).save(file, "JPEG", progressive=True)
    first, *parts = file.getvalue().removesuffix(b"\xff\xd9").split(b"\xff\xda")
    parts += parts[-1:] * (scans - len(parts))
    start = first[:2] + more + first[2:]
    return b"\xff\xda".join([start, *parts]) + b"\xff\xd9"


def test_a_jpeg_has_so_many_scans():
    assert read(progressive(64), (16, 16)).mean() == pytest.approx(90, abs=3)
    many = progressive(65)
    with pytest.raises(InvalidData, match="JPEG of more than 64 scans; allowed: 64") as refused:
        read(many, (16, 16))
    assert refused.value.hint


def test_what_looks_like_a_scan_in_a_comment_is_none():
    comment = b"\xff\xda" * 100
    comment = b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
    assert read(progressive(10, comment), (16, 16)).mean() == pytest.approx(90, abs=3)


@pytest.mark.parametrize("mode", ["1", "P", "LA", "L"])
def test_other_modes(mode):
    values = np.zeros((8, 8), np.uint8)
    values[:4] = 255
    assert np.array_equal(read(stored(values, mode=mode), (8, 8)), values)


def test_sixteen_bits_keep_the_upper_eight():
    values = np.arange(0, 65536, 1024, dtype=np.uint16).reshape(8, 8)
    assert np.array_equal(read(stored(values), (8, 8)), values >> 8)


def test_images_are_resized():
    values = np.zeros((40, 80), np.uint8)
    values[:, 40:] = 200
    found = read(stored(values), (4, 6, 1))
    assert found.shape == (4, 6, 1)
    assert (found[:, 0] == 0).all()
    assert (found[:, -1] == 200).all()


DAMAGED = {
    "nothing": b"",
    "text": b"no image at all",
    "gif": b"GIF89a" + bytes(40),
    "head only": png(4, 4)[:20],
    "no pixels": png(4, 4),
    "a postscript file": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_image(name):
    pytest.importorskip("PIL")
    image = image_encoding("x", "encoded", (4, 4))
    with pytest.raises(InvalidData, match="holds no JPEG or PNG that can be read"):
        images.image_wire(DAMAGED[name], image)
    assert images.image_fault(DAMAGED[name], image)


def test_a_truncated_image_is_refused():
    with pytest.raises(InvalidData, match="can be read"):
        read(stored(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8))[:-500], (8, 8))


@pytest.mark.parametrize("size", [(8193, 8193), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_bombs_are_refused_before_they_take_memory(size):
    pytest.importorskip("PIL")
    data = png(*size, bytes(1000))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidData, match=r"pixels|can be read"):
            read(data, (4, 4))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_pillow_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackage, match="Pillow") as caught:
        images.require_pillow()
    assert "cerebro-db[images]" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("encoded", (4,)),
        ("encoded", (4, 4, 2)),
        ("encoded", (4, 4, 3, 1)),
        ("encoded", (8193, 1)),
        ("encoded", (8192, 8192)),
        ("encoded", (0, 4)),
        ("encoded", None),
        ("encoded", (4, None)),
        ("raw", ()),
        ("raw", (2**31, 2**31)),
        ("raw", (-1, -4)),
        ("raw", (1, 1, 1, 1, 1)),
        ("raw", (True, 4)),
        ("gif", (4, 4)),
        (None, (4, 4)),
        (["raw"], (4, 4)),
    ],
)
def test_shapes_and_formats_that_cannot_be(kind, shape):
    with pytest.raises(InvalidArgument, match=r"image_shape: got|image_format: got"):
        image_encoding("x", kind, shape)
    assert image_encoding("x", "raw", [3]).format is ImageFormat.RAW
