"""Models in Keras' own files, read as data: a zip of JSON and HDF5, which Keras never sees."""

from __future__ import annotations

import ctypes
import io
import json
import math
import os
import resource
import select
import signal
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits, read_json
from cerebro_db.configs.messages import shown
from cerebro_db.configs.zips import DAMAGED
from cerebro_db.errors import CerebroError, InvalidArgument, hinted
from cerebro_db.training import state as states
from cerebro_db.training.backends.tensorflow import models
from cerebro_db.training.backends.tensorflow.sizes import check_size

_POLL_SECONDS = 0.05
_DONE, _REFUSED = b"+", b"-"
_SET_DEATH_SIGNAL = 1
_STATM = Path("/proc/self/statm")


def in_child(
    work: Callable[[], bytes], memory: int, seconds: int, tick: Callable[[], None], what: str
) -> bytes:
    """Result of ``work`` in a fork of this process.

    Args:
        work: uses nothing that threads of this process may hold, such as TensorFlow.
        memory: bytes that it may take beside those that this process has.
        seconds: of processor time that it may take.
        tick: called while waiting; an exception of it ends the child.
        what: names the work in messages.

    Raises:
        InvalidArgument: what ``work`` refused, or that the child did not come to an end.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(work, writer, memory, seconds)
    os.close(writer)
    try:
        answer = _read(reader, tick)
    finally:
        os.close(reader)
        ended = _end(pid)
    if answer[:1] == _DONE:
        return answer[1:]
    if answer[:1] == _REFUSED:
        raise InvalidArgument(f"{what}: {answer[1:].decode(errors='replace')}")
    raise InvalidArgument(f"{what}: reading it ended with {ended}", hint="it may be damaged")


def _child(work: Callable[[], bytes], writer: int, memory: int, seconds: int) -> None:
    """Read the file in the child process; never returns."""
    try:
        # A server that starts anew waits for whoever has the memory of the old one.
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        _limit(memory, seconds)
        answer = _DONE + work()
    except CerebroError as error:
        answer = _REFUSED + error.message.encode(errors="replace")
    except MemoryError:
        answer = _REFUSED + b"it takes too much memory"
    except BaseException as error:
        answer = _REFUSED + f"{type(error).__name__}: {str(error)[:500]}".encode(errors="replace")
    try:
        view = memoryview(answer)
        while view:
            view = view[os.write(writer, view) :]
    finally:
        os._exit(0)


def _limit(memory: int, seconds: int) -> None:
    pages = int(_STATM.read_text().split()[0])
    size = pages * resource.getpagesize() + memory
    for what, most in (
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _read(reader: int, tick: Callable[[], None]) -> bytes:
    """Read what the child writes until it ends."""
    parts: list[bytes] = []
    while True:
        tick()
        if not select.select([reader], [], [], _POLL_SECONDS)[0]:
            continue
        part = os.read(reader, 2**20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _end(pid: int) -> str:
    """End the child, if it has not; how it ended."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
    except (ChildProcessError, ProcessLookupError):  # someone else has waited for it
        return "an error"
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
_MEMBERS = (CONFIG, METADATA, WEIGHTS)
# The record at the end of a zip: signature, entries, bytes of the directory, length of a comment.
_END = struct.Struct("<4s6xHI4xH")
_MAX_DIRECTORY = 4096
_ENCRYPTED = 0x1
# Beside the weights an HDF5 file has its own structures, and may have the slots of an optimizer.
_MAX_SLOTS, _LAYER_BYTES, _EXTRA_BYTES = 8, 2**16, 2**22
_CHILD_BYTES, _CHILD_SECONDS = 2**28, 120
Wanted = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


@hinted("model.save('model.keras') of Keras 3 writes such a file; it may be damaged")
def read(
    data: bytes, limits: ArchitectureLimits, memory_mb: int | None, tick: Callable[[], None]
) -> tuple[str, bytes]:
    """The architecture in a file, as JSON, and its weights, float32 in the order of ``get_weights()``.

    Args:
        data: a ``.keras`` file.
        limits: how large the architecture may be.
        memory_mb: megabytes that this process may use; None for any.
        tick: called now and then.

    Raises:
        InvalidArchitecture: the architecture is refused.
        InvalidArgument: the file is no such file, or its weights are not those of the architecture.
    """
    archive = _archive(data)
    config = check_architecture(_architecture(archive, limits), limits)
    check_size(config, limits, memory_mb)
    tick()
    model = models.build(config, seed=0)
    models.facts_of(model)  # refuses open shapes
    _load(model, archive, tick)
    arrays = [np.asarray(weight, np.float32).tobytes() for weight in model.get_weights()]
    return json.dumps(config, sort_keys=True), b"".join(arrays)


def _architecture(archive: zipfile.ZipFile, limits: ArchitectureLimits) -> str:
    """The JSON of the architecture, not checked, without the addresses that Keras leaves in it."""
    try:
        text = _member(archive, CONFIG, 4 * limits.characters).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"file: {CONFIG} is not UTF-8") from None
    return json.dumps(_without_addresses(read_json(text, limits)))


def _without_addresses(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_addresses(child) for child in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_addresses(child)
        for key, child in value.items()
        if key != "shared_object_id" or not isinstance(child, int)
    }


def _archive(data: bytes) -> zipfile.ZipFile:
    """The zip, whose directory is small: a large one would take much memory when it is opened."""
    if len(data) < _END.size:
        raise InvalidArgument(f"file: got {len(data)} bytes, which are no .keras file")
    signature, entries, size, comment = _END.unpack_from(data, len(data) - _END.size)
    is_large = data[-_END.size - 20 : -_END.size - 16] == b"PK\x06\x07"
    if signature != b"PK\x05\x06" or comment or is_large:
        raise InvalidArgument(f"file: got {len(data)} bytes, which are no .keras file")
    if entries > len(_MEMBERS) or size > _MAX_DIRECTORY:
        raise InvalidArgument(
            f"file: got a zip of {entries} files; allowed: {', '.join(_MEMBERS)}",
            hint="files of layers with assets, such as vocabularies, cannot be read",
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except DAMAGED as error:
        raise InvalidArgument(f"file: got a damaged zip: {shown(str(error))}") from None
    names = sorted(archive.namelist())
    if names != sorted(_MEMBERS) and names != sorted((CONFIG, WEIGHTS)):
        raise InvalidArgument(
            f"file: got a zip of {shown(names)}; allowed: {', '.join(_MEMBERS)}, each once"
        )
    return archive


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A file of the zip; no more than is allowed is ever unpacked, whatever the zip declares."""
    info = archive.getinfo(name)
    if info.flag_bits & _ENCRYPTED or info.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):
        raise InvalidArgument(
            f"file: {name} is encrypted, or packed in another way than Keras does"
        )
    if info.file_size > most:
        raise InvalidArgument(f"file: {name} has {info.file_size} bytes; allowed: up to {most}")
    try:
        with archive.open(info) as member:
            data = member.read(most + 1)
    except Exception as error:  # whatever zipfile and zlib raise is about the bytes
        raise InvalidArgument(f"file: {name} is damaged: {shown(str(error))}") from None
    if len(data) != info.file_size:
        raise InvalidArgument(f"file: {name} has another size than the zip says")
    return data


def _load(model: keras.Model, archive: zipfile.ZipFile, tick: Callable[[], None]) -> None:
    """Give a model the weights of the file.

    Keras writes a file of the model's own, which tells the names of all data sets. Their values are
    copied from the other file, and Keras reads its own one: it never sees what was handed in.
    """
    with tempfile.TemporaryDirectory(prefix="cerebro-") as folder:
        path = Path(folder) / WEIGHTS
        model.save_weights(path)
        with h5py.File(path, "r+") as ours:
            wanted = _data_sets(ours)
            own = sum(math.prod(shape) * dtype.itemsize for shape, dtype in wanted.values())
            extra = _LAYER_BYTES * (len(wanted) + 1) + _EXTRA_BYTES
            data = _member(archive, WEIGHTS, _MAX_SLOTS * own + extra)
            tick()
            memory = 2 * len(data) + 4 * own + _CHILD_BYTES
            found = in_child(
                lambda: read_arrays(data, wanted), memory, _CHILD_SECONDS, tick, f"file: {WEIGHTS}"
            )
            for name, array in states.from_bytes(found).items():
                ours[name][...] = array
        model.load_weights(path)


def _data_sets(file: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of each data set of a file of our own."""
    found: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = (item.shape, item.dtype)

    file.visititems(look)
    return found


def read_arrays(data: bytes, wanted: Wanted) -> bytes:
    """The arrays of an HDF5 file that somebody handed in, in the format of states.

    Raises:
        InvalidArgument: one is missing, is something else, or lies elsewhere.
    """
    with h5py.File(io.BytesIO(data), "r") as file:
        return states.to_bytes({name: _array(file, name, *wanted[name]) for name in wanted})


def _array(file: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    found = _data_set(file, name)
    if found.shape != shape or found.dtype != dtype:
        raise InvalidArgument(
            f"{name} is {found.dtype}{found.shape}; the architecture has {dtype}{shape}"
        )
    plan = found.id.get_create_plist()
    plain = plan.get_layout() in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS)
    # Other layouts unpack to more than is there, run filters, or lie in other files.
    if not plain or plan.get_nfilters() or plan.get_external_count() or found.is_virtual:
        raise InvalidArgument(f"{name} is stored in another way than Keras does")
    size = math.prod(shape) * dtype.itemsize
    if found.id.get_storage_size() != size:
        raise InvalidArgument(f"{name} has {found.id.get_storage_size()} bytes; allowed: {size}")
    return np.asarray(found[()])


def _data_set(file: Any, name: str) -> Any:
    """A data set, reached through groups of this file and by no other link."""
    place = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise InvalidArgument(f"it has no data set {name}")
        if not isinstance(link, h5py.HardLink):
            raise InvalidArgument(f"{name} is behind a link; allowed: data sets of the file itself")
        place = place[part]
    if not isinstance(place, h5py.Dataset):
        raise InvalidArgument(f"{name} is no data set")
    return place
