"""Operations of ATen that reach beyond their tensors where sizes do not fit: they are checked before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.backends.torch.recurrent import operation

Arguments = Mapping[str, Any]


def checked(name: str) -> Callable[..., Any]:
    """The operation, which refuses sizes that do not fit."""
    whole, fits = operation(name), _FITTING[name]
    call, names = whole._op, [one.name for one in whole._schema.arguments]

    def run(*given: Any, **named: Any) -> Any:
        if not fits({**dict(zip(names, given, strict=False)), **named}):
            raise InvalidArchitecture(
                f"model architecture: got {name} with sizes that are not those of its tensors; allowed: those that "
                "torch.export writes"
            )
        return call(*given, **named)

    return run


def _are_of(given: Arguments, names: tuple[str, ...], count: int) -> bool:
    """True if all that are given of some tensors have so many numbers, side by side."""
    found = (given.get(name) for name in names)
    return all(one is None or tuple(one.shape) == (count,) for one in found)


def _channels_fit(given: Arguments) -> bool:
    rows = given["input"]
    names = ("weight", "bias", "running_mean", "running_var")
    return rows.dim() > 1 and _are_of(given, names, rows.shape[1])


def _groups_fit(given: Arguments) -> bool:
    sizes = [given[name] for name in ("N", "C", "HxW")]
    whole = min(sizes) > 0 and math.prod(sizes) == given["input"].numel()
    return whole and _are_of(given, ("weight", "bias"), given["C"])


def _scales_fit(given: Arguments) -> bool:
    """True if each scale is that of the sizes, which are rounded."""
    scales = (given.get(name) for name in ("scales_h", "scales_w"))
    each = zip(given["self"].shape[2:], given["output_size"], scales, strict=False)
    return all(scale is None or abs(size * scale - wanted) <= 1 for size, wanted, scale in each)


_FITTING: Mapping[str, Callable[[Arguments], bool]] = {
    "native_batch_norm.default": _channels_fit,
    "_native_batch_norm_legit.default": _channels_fit,
    "_native_batch_norm_legit.no_stats": _channels_fit,
    "_native_batch_norm_legit_functional.default": _channels_fit,
    "_native_batch_norm_legit_no_training.default": _channels_fit,
    "native_group_norm.default": _groups_fit,
    "upsample_nearest2d.default": _scales_fit,
    "upsample_bilinear2d.default": _scales_fit,
    "upsample_bicubic2d.default": _scales_fit,
}
GUARDED = frozenset(_FITTING)
