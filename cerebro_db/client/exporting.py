"""Modules of PyTorch as architectures: exported in this process, twice, with a free batch size."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_LONGEST = 300


def is_module(model: Any) -> bool:
    """True for a module of PyTorch, which whoever made it has imported."""
    found = sys.modules.get("torch.nn")
    return found is not None and isinstance(model, found.Module)


def exported(module: Any, example_inputs: Sequence[Any] | None) -> tuple[str, bytes]:
    """The JSON of a module and its weights; it is exported in train mode and in eval mode.

    Args:
        module: of ``torch.nn``.
        example_inputs: a tensor of some rows for each input.

    Raises:
        InvalidArgument: there are no inputs, or ``torch.export`` refuses the module.
        InvalidArchitecture: the program has something in it that is not allowed.
    """
    from cerebro_db.configs.aten.archive import read_both

    inputs = _inputs(example_inputs)
    if (
        "tensorflow" in sys.modules
    ):  # whose LLVM and that of Triton, which the export looks for, end a process
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type]
    modes = [(one, one.training) for one in module.modules()]
    try:
        train = _program(module.train(), inputs)
        evaluation = _program(module.eval(), inputs)
    finally:
        for one, mode in modes:
            one.training = mode
    return read_both(train, evaluation, ArchitectureLimits())


def _inputs(given: Sequence[Any] | None) -> tuple[Any, ...]:
    """The inputs with two rows or more: of one row ``torch.export`` takes the size for a constant."""
    import torch

    tensors = isinstance(given, tuple | list) and all(
        isinstance(one, torch.Tensor) for one in given
    )
    if not given or not tensors or not all(one.dim() and len(one) for one in given):
        raise InvalidArgument(
            f"example_inputs: got {shown(given)}; allowed with a PyTorch module: a tuple with a tensor of some rows for "
            "each of its inputs",
            "for example example_inputs=(torch.zeros(2, 1, 28, 28),)",
        )
    return tuple(one if len(one) > 1 else torch.cat([one, one]) for one in given)


def _program(module: Any, inputs: tuple[Any, ...]) -> bytes:
    import torch

    batch = torch.export.Dim("batch")
    file = io.BytesIO()
    try:
        program = torch.export.export(
            module, inputs, dynamic_shapes=tuple({0: batch} for _ in inputs)
        )
        torch.export.save(program, file)
    except Exception as error:  # whatever it raises is about the module
        first = next(iter(str(error).strip().splitlines()), "")[:_LONGEST]
        raise InvalidArgument(
            f"model: torch.export refuses it: {type(error).__name__}: {first}",
            "torch.export.export(module, example_inputs) shows more; the batch size must be free",
        ) from None
    return file.getvalue()
