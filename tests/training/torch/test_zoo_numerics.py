"""Nets of torchvision, timm and transformers train to the bits of the same loop in plain PyTorch, two epochs long."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from training.torch import zoo
from training.torch.nets import Exported, begun, torch
from training.torch.test_numerics import LOGITS, assert_equal

pytestmark = pytest.mark.slow
ROWS, BATCH, PART = 20, 8, 12


def _vit() -> zoo.Built:
    from torchvision.models import VisionTransformer

    net = VisionTransformer(32, 8, 2, 2, 16, 32, dropout=0.1, num_classes=zoo.CLASSES)
    torch.nn.init.normal_(net.heads.head.weight)  # which begins as zeros
    return net, (torch.randn(2, 3, 32, 32),)


NETS: dict[str, tuple[str, Callable[[], zoo.Built]]] = {
    "resnet18": ("torchvision", lambda: zoo.torchvision_net("resnet18")),
    "mobilenet_v3_small": ("torchvision", lambda: zoo.torchvision_net("mobilenet_v3_small")),
    "vit": ("torchvision", _vit),
    "convnext": ("timm", zoo.timm_convnext),
    "bert": ("transformers", zoo.TRANSFORMERS["bert"]),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD(lr=0.01,momentum=0.9)": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adam(lr=0.001)": lambda p: torch.optim.Adam(p, lr=0.001),
    "AdamW(lr=0.001)": lambda p: torch.optim.AdamW(p, lr=0.001),
    "RMSprop(lr=0.001)": lambda p: torch.optim.RMSprop(p, lr=0.001),
}


def _batches() -> list[slice]:
    """Where batches begin and end: each call ends with a batch that may be shorter."""
    calls = [(start, min(start + PART, ROWS)) for start in range(0, ROWS, PART)]
    return [slice(s, min(s + BATCH, end)) for start, end in calls for s in range(start, end, BATCH)]


def _eager(module: Any, optimizer: Any, rows: Any, ids: Any) -> None:
    torch.manual_seed(7)
    module.train()
    for _ in range(2):
        for batch in _batches():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(rows[batch]), ids[batch]).backward()
            optimizer.step()


def _ours(recipe: Any, net: Exported, rows: np.ndarray, ids: np.ndarray) -> Any:
    program = begun(recipe, net.weights)
    for _ in range(2):
        for start in range(0, ROWS, PART):
            program.train(rows[start : start + PART], ids[start : start + PART])
            program.load(program.save())
    return program.save()


@pytest.mark.parametrize("name", NETS)
def test_nets(torch_recipe: Any, name: str) -> None:
    library, build = NETS[name]
    pytest.importorskip(library, reason=f"{library} is not installed")
    torch.manual_seed(3)
    module, (example,) = build()
    net = Exported.both(module, example)
    rows = torch.cat([example] * (ROWS // 2)).roll(1, 1)
    rows = rows if rows.dtype == torch.long else rows + torch.randn_like(rows) / 2
    ids = torch.randint(0, zoo.CLASSES, (ROWS,))
    for text, optimizer in OPTIMIZERS.items():
        theirs = copy.deepcopy(module)
        _eager(theirs, optimizer(theirs.parameters()), rows, ids)
        recipe = torch_recipe(net, f"{LOGITS},optimizer='{text}'", f"batch_size={BATCH}")
        found = _ours(recipe, net, rows.float().numpy(), ids.int().numpy())
        assert_equal(theirs, found)
