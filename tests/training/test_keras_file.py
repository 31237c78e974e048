"""Files of Keras, read as data: good ones come back, and those made to harm are refused."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import resource
import signal
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.errors import CerebroError, InvalidArchitecture, InvalidArgument
from cerebro_db.training.backends.tensorflow.keras_file import in_child

pytestmark = pytest.mark.slow

LIMITS = ArchitectureLimits(parameters=100_000)
FIRST = "layers/dense/vars/0"


def read(data: bytes) -> tuple[str, bytes]:
    from cerebro_db.training.backends.tensorflow.keras_file import read

    return read(data, LIMITS, None, lambda: None)


@pytest.fixture(scope="module")
def model(tensorflow: None) -> Any:
    """A compiled model with layers of several kinds, trained a little."""
    import keras

    layers = keras.layers
    rows = keras.Input((4,))
    inner = keras.Sequential([keras.Input((5,)), layers.Dense(5), layers.BatchNormalization()])
    one = layers.Dropout(0.1)(inner(layers.Dense(5, activation="relu")(rows)))
    model = keras.Model(rows, layers.Dense(2, activation="softmax")(one))
    model.compile(keras.optimizers.AdamW(), "sparse_categorical_crossentropy")
    model.fit(np.ones((8, 4)), np.zeros(8), verbose=0)
    return model


@pytest.fixture(scope="module")
def saved(model: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file that Keras writes of it, optimizer included."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model.save(path)
    return path.read_bytes()


def members(data: bytes) -> dict[str, bytes]:
    """The files of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_a_file_of_keras(model: Any, saved: bytes) -> None:
    import keras

    text, weights = read(saved)
    again = keras.models.model_from_json(text)
    flat = np.frombuffer(weights, np.float32)
    np.testing.assert_array_equal(
        flat, np.concatenate([w.ravel() for w in model.get_weights()]).astype(np.float32)
    )
    start, values = 0, []
    for weight in again.weights:
        values.append(flat[start : start + weight.numpy().size].reshape(weight.shape))
        start += weight.numpy().size
    again.set_weights(values)
    rows = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_allclose(
        again.predict(rows, verbose=0), model.predict(rows, verbose=0), atol=1e-6
    )


def test_compressed_and_without_metadata(saved: bytes) -> None:
    files = members(saved)
    del files["metadata.json"]
    assert read(zipped(files, zipfile.ZIP_DEFLATED)) == read(saved)


# -- the zip -----------------------------------------------------------------------------------


def with_file(name: str, content: bytes) -> Callable[[dict[str, bytes]], bytes]:
    return lambda files: zipped(files | {name: content})


def without(name: str) -> Callable[[dict[str, bytes]], bytes]:
    return lambda files: zipped({key: value for key, value in files.items() if key != name})


def declared_smaller(files: dict[str, bytes]) -> bytes:
    """A zip that says that its config is small and holds a large one."""
    bomb = zipped(files | {"config.json": b" " * 50_000_000}, zipfile.ZIP_DEFLATED)
    return bomb.replace(struct.pack("<I", 50_000_000), struct.pack("<I", 1000))


def twice(files: dict[str, bytes]) -> bytes:
    """A zip with two configs, of which programs may look at different ones."""
    return zipped({"config.jsoN": files["config.json"], **files}).replace(
        b"config.jsoN", b"config.json"
    )


def many(files: dict[str, bytes]) -> bytes:
    return zipped(files | {f"x{number}": b"" for number in range(70_000)})


ZIPS: dict[str, tuple[Callable[[dict[str, bytes]], bytes], str]] = {
    "nothing": (lambda files: b"", "0 bytes"),
    "no zip": (lambda files: b"x" * 1000, "no .keras file"),
    "cut off": (lambda files: zipped(files)[:-30], "no .keras file"),
    "a comment": (lambda files: zipped(files)[:-2] + b"\1\0x", "no .keras file"),
    "no directory": (lambda files: zipped(files)[-22:], "damaged|a zip of"),
    "no weights": (without("model.weights.h5"), "a zip of"),
    "no config": (without("config.json"), "a zip of"),
    "assets": (with_file("assets/x.txt", b"x"), "a zip of 4 files"),
    "a way out": (lambda f: zipped({"../config.json": b"{}", **f}), "a zip of"),
    "twice": (twice, "a zip of"),
    "many": (many, "no .keras file|a zip of"),
    "a bomb": (with_file("config.json", b" " * 20_000_000), r"has 20000000 bytes"),
    "a bomb that lies": (declared_smaller, "config.json (is damaged|has another size)"),
    "weights that are too large": (
        with_file("model.weights.h5", b"\0" * 6_000_000), "model.weights.h5 has 6000000 bytes"
    ),
    "no text": (with_file("config.json", b"\xff\xfe"), "not UTF-8"),
    "bz2": (lambda files: zipped(files, zipfile.ZIP_BZIP2), "packed in another way"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ZIPS)
def test_zips(kind: str, saved: bytes) -> None:
    make, message = ZIPS[kind]
    with pytest.raises(InvalidArgument, match=message):
        read(make(members(saved)))


def test_a_changed_byte_of_the_zip_is_never_an_error_of_ours(saved: bytes) -> None:
    generator = np.random.default_rng(7)
    for place in [*generator.integers(0, len(saved), 5), *range(len(saved) - 150, len(saved), 15)]:
        damaged = bytearray(saved)
        damaged[place] ^= 0xFF
        with contextlib.suppress(CerebroError):
            read(bytes(damaged))


# -- the architecture ----------------------------------------------------------------------------


def test_the_architecture_is_checked_like_any_other(saved: bytes) -> None:
    files = members(saved)
    config = json.loads(files["config.json"])
    config["config"]["layers"][1]["class_name"] = "Lambda"
    with pytest.raises(InvalidArchitecture, match="Lambda"):
        read(zipped(files | {"config.json": json.dumps(config).encode()}))
    config = json.loads(files["config.json"])
    config["config"]["layers"][-1]["config"]["units"] = 10**6
    with pytest.raises(InvalidArchitecture, match="parameters"):
        read(zipped(files | {"config.json": json.dumps(config).encode()}))


def test_how_a_model_was_compiled_is_not_looked_at(saved: bytes) -> None:
    files = members(saved)
    config = json.loads(files["config.json"])
    config["compile_config"] = {"module": "os", "class_name": "system", "config": ["true"]}
    text, _ = read(zipped(files | {"config.json": json.dumps(config).encode()}))
    assert "compile_config" not in text


# -- the weights ---------------------------------------------------------------------------------


def external(file: Any, folder: Path) -> None:
    (folder / "secret").write_bytes(np.ones((4, 5), np.float32).tobytes())
    file.create_dataset(
        FIRST, (4, 5), np.float32, external=[(str(folder / "secret"), 0, h5py.h5f.UNLIMITED)]
    )


def external_link(file: Any, folder: Path) -> None:
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones((4, 5), np.float32)
    file[FIRST] = h5py.ExternalLink(str(folder / "other.h5"), "x")


def virtual(file: Any, folder: Path) -> None:
    with h5py.File(folder / "virtual.h5", "w") as other:
        other["x"] = np.ones((4, 5), np.float32)
    layout = h5py.VirtualLayout((4, 5), np.float32)
    layout[:] = h5py.VirtualSource(str(folder / "virtual.h5"), "x", (4, 5))
    file.create_virtual_dataset(FIRST, layout)


def soft_link(file: Any, folder: Path) -> None:
    file["elsewhere"] = np.ones((4, 5), np.float32)
    file[FIRST] = h5py.SoftLink("/elsewhere")


def linked_group(file: Any, folder: Path) -> None:
    file["aside/0"] = np.ones((4, 5), np.float32)
    del file["layers/dense/vars"]
    file["layers/dense/vars"] = h5py.SoftLink("/aside")


def texts(file: Any, folder: Path) -> None:
    file.create_dataset(FIRST, (4, 5), h5py.string_dtype())


WEIGHTS: dict[str, tuple[Callable[[Any, Path], object], str]] = {
    "missing": (lambda file, folder: None, f"no data set {FIRST}"),
    "external": (external, "stored in another way"),
    "external link": (external_link, "behind a link"),
    "virtual": (virtual, "stored in another way"),
    "soft link": (soft_link, "behind a link"),
    "linked group": (linked_group, "behind a link"),
    "group": (lambda file, folder: file.create_group(FIRST), "no data set"),
    "type": (lambda f, _: f.__setitem__(FIRST, np.dtype("f4")), "no data set"),
    "shape": (lambda f, _: f.__setitem__(FIRST, np.ones((5, 4), "f4")), r"\(4, 5\)"),
    "huge": (lambda f, _: f.create_dataset(FIRST, (10**6, 10**6), "f4"), r"\(4, 5\)"),
    "dtype": (lambda f, _: f.__setitem__(FIRST, np.ones((4, 5), "f8")), "has float32"),
    "texts": (texts, "has float32"),
    "compressed": (
        lambda f, _: f.create_dataset(FIRST, data=np.ones((4, 5), "f4"), compression="gzip"),
        "stored in another way",
    ),
    "chunks": (
        lambda f, _: f.create_dataset(FIRST, data=np.ones((4, 5), "f4"), chunks=(2, 2)),
        "stored in another way",
    ),
    "never written": (lambda f, _: f.create_dataset(FIRST, (4, 5), "f4"), "has 0 bytes"),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights(kind: str, saved: bytes, tmp_path: Path) -> None:
    change, message = WEIGHTS[kind]
    files = members(saved)
    path = tmp_path / "weights.h5"
    path.write_bytes(files["model.weights.h5"])
    with h5py.File(path, "r+") as file:
        del file[FIRST]
        change(file, tmp_path)
    with pytest.raises(InvalidArgument, match=message):
        read(zipped(files | {"model.weights.h5": path.read_bytes()}))


def test_weights_that_are_no_hdf5(saved: bytes) -> None:
    files = members(saved)
    with pytest.raises(InvalidArgument, match=r"model\.weights\.h5: "):
        read(zipped(files | {"model.weights.h5": b"x" * 5000}))


def test_damaged_weights_end_in_the_file_or_its_refusal(model: Any, saved: bytes) -> None:
    """Whatever HDF5's library does with damaged bytes, it does in a process of its own."""
    files = members(saved)
    weights = files["model.weights.h5"]
    generator = np.random.default_rng(3)
    for _ in range(10):
        damaged = bytearray(weights)
        for place in generator.integers(0, 3000, 4):
            damaged[place] = generator.integers(0, 256)
        try:
            _, found = read(zipped(files | {"model.weights.h5": bytes(damaged)}))
            assert len(found) == 4 * model.count_params()
        except InvalidArgument:
            pass


# -- the child -------------------------------------------------------------------------------------


def child(work: Callable[[], bytes], memory: int = 2**28, seconds: int = 10) -> bytes:
    return in_child(work, memory, seconds, lambda: None, "it")


def test_a_child_returns_what_it_made() -> None:
    data = os.urandom(3 * 2**20)
    assert child(lambda: data) == data


def crash() -> bytes:
    faulthandler.disable()  # pytest's, which would tell the whole test run of a fatal error
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def grow() -> bytes:
    return b"x" * 2**33


def loop() -> bytes:
    while True:
        pass


def refuse() -> bytes:
    raise InvalidArgument("got it; allowed: nothing")


def fail() -> bytes:
    raise KeyError("x")


CHILDREN = {
    crash: "it: reading it ended with SIGSEGV",
    grow: "it: it takes too much memory",
    loop: "it: reading it ended with SIG(KILL|XCPU)",
    refuse: "it: got it; allowed: nothing",
    fail: "it: KeyError: 'x'",
}


@pytest.mark.parametrize("work", CHILDREN, ids=lambda work: work.__name__)
def test_a_child_that_goes_wrong(work: Callable[[], bytes]) -> None:
    with pytest.raises(InvalidArgument, match=CHILDREN[work]):
        child(work, seconds=1)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_a_child_ends_with_who_waits_for_it() -> None:
    pids: list[int] = []

    def tick() -> None:
        pids[:] = [int(pid) for pid in children()]
        if pids:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        in_child(lambda: time.sleep(60) or b"", 2**28, 60, tick, "it")
    assert not set(map(str, pids)) & set(children())


def children() -> list[str]:
    """The processes that this thread has started and that are not gone."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
