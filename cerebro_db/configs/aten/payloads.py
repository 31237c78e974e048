"""Tensors of an archive: raw numbers of a storage, and which of them a tensor has."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.aten.graph import BYTES, DTYPES
from cerebro_db.configs.messages import shown

if TYPE_CHECKING:  # drivers begin without arrays
    import numpy as np

_STRIDED, _BFLOAT16 = 7, "bfloat16"
_MOST_DIMENSIONS = 16


class Layout(NamedTuple):
    """Place of a tensor in its storage: offset, sizes and strides, counted in numbers."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Payload(NamedTuple):
    """A tensor of an archive.

    Attributes:
        path: of the file with its storage.
        meta: its layout.
        trainable: whether a module trains it.
    """

    path: str
    meta: Layout
    trainable: bool


def as_json(data: bytes) -> dict[str, Any]:
    """The object of a JSON text."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        refuse(f"got JSON that cannot be read: {str(error)[:80]}")
    if not isinstance(found, dict):
        refuse("got JSON that is no object")
    return found


def payloads_of(config: dict[str, Any]) -> dict[str, Payload]:
    """The tensors that a ``..._config.json`` describes, by name."""
    try:
        return {str(name): _payload(name, one) for name, one in config["config"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        refuse(
            f"got a description of tensors that torch.export does not write: {shown(str(error))}"
        )


def _payload(name: str, one: dict[str, Any]) -> Payload:
    if one["use_pickle"] is not False:
        refuse(
            f"got {shown(name)} as a pickle, which is never read; allowed: raw numbers",
            "tensors of usual types on the CPU are saved as raw numbers",
        )
    meta, path = one["tensor_meta"], one["path_name"]
    if not isinstance(path, str) or "/" in path:
        raise ValueError(path)
    if meta["layout"] != _STRIDED or meta["dtype"] not in DTYPES:
        refuse(f"got {shown(name)} of dtype {shown(meta['dtype'])} and layout {shown(meta['layout'])}; "
               "allowed: plain tensors of numbers")  # fmt: skip
    sizes, strides = ([_whole(size) for size in meta[kind]] for kind in ("sizes", "strides"))
    if len(sizes) != len(strides) or len(sizes) > _MOST_DIMENSIONS:
        raise ValueError(f"{len(strides)} strides")
    layout = Layout(
        DTYPES[meta["dtype"]], tuple(sizes), tuple(strides), _whole(meta["storage_offset"])
    )
    return Payload(path, layout, bool(one["is_param"]) and bool(meta["requires_grad"]))


def _whole(size: Any) -> int:
    value = size["as_int"]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"the size {value!r}")
    return value


def array_of(name: str, payload: Payload, data: bytes) -> np.ndarray:
    """The numbers of a tensor; those of bfloat16 are refused, as NumPy has none."""
    import numpy as np

    layout = payload.meta
    if layout.dtype == _BFLOAT16:
        refuse(f"got {shown(name)} of type bfloat16; allowed: float32 and others that NumPy has",
               "module.float() makes all parameters float32")  # fmt: skip
    size = BYTES[layout.dtype]
    steps = zip(layout.shape, layout.strides, strict=True)
    last = layout.offset + sum((count - 1) * stride for count, stride in steps)
    if 0 in layout.shape:
        return np.zeros(layout.shape, layout.dtype)
    if (last + 1) * size > len(data):
        refuse(
            f"got {shown(name)} of the shape {shown(list(layout.shape))}, which is not in its {len(data)} bytes"
        )
    if math.prod(layout.shape) > len(data) // size:
        refuse(
            f"got {shown(name)}, a tensor that repeats numbers of its storage; allowed: contiguous ones"
        )
    numbers = np.frombuffer(data, np.dtype(layout.dtype), len(data) // size)[layout.offset :]
    # That of a dimension of one number may be anything.
    steps = zip(layout.shape, layout.strides, strict=True)
    strides = tuple(stride * size if count > 1 else 0 for count, stride in steps)
    found = np.lib.stride_tricks.as_strided(numbers, layout.shape, strides, writeable=False)
    # A copy, as the storage may be of many other tensors.
    return np.array(found, order="C")


def as_floats(name: str, array: np.ndarray) -> bytes:
    """float32 of a weight or buffer.

    Raises:
        InvalidArchitecture: they would be other numbers.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        found = array.astype(np.float32)
        same = array.dtype.kind == "f" or np.array_equal(found.astype(array.dtype), array)
    if not same:
        refuse(
            f"got {shown(name)} with whole numbers beyond those that float32 holds; allowed: up to 16777216"
        )
    return found.tobytes()
