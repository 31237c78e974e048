"""Usual nets of torchvision, timm and transformers are exported, read, checked, and compute what they compute in PyTorch.

Most are marked slow: ``pytest -m slow tests/training/torch``. docs/pytorch.md lists what is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import pytest
from training.torch import zoo
from training.torch.nets import exported, torch

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.aten import archive
from cerebro_db.errors import InvalidArchitecture
from cerebro_db.training.backends.torch import BACKEND
from cerebro_db.training.backends.torch.net import Net

LIMITS = ArchitectureLimits()


def read(built: zoo.Built) -> tuple[Any, str, bytes]:
    """A module that was exported in both modes: with its architecture and its weights."""
    module, inputs = built
    files = [exported(module.train(), *inputs), exported(module.eval(), *inputs)]
    return (module, *archive.read_both(*files, LIMITS))


def check(built: zoo.Built) -> None:
    """Both graphs give the outputs of the module to the bit, dropout and left-out layers included."""
    module, text, weights = read(built)
    config = json.loads(text)
    facts = BACKEND.facts(config, LIMITS, None, weights)
    assert facts.parameters == len(weights) // 4
    net = Net(config)
    net.set_weights(weights)
    # Of another number of rows than it was exported with.
    rows = [torch.cat([one, one[:1]]) for one in built[1]]
    with torch.no_grad():
        for run, mode in ((net.evaluate, module.eval()), (net.train, module)):
            module.train(run == net.train)
            torch.manual_seed(3)
            (found,) = run(rows)
            torch.manual_seed(3)
            assert torch.equal(found, mode(*rows))


def named(names: Iterable[str], quick: tuple[str, ...] = ()) -> list[Any]:
    """Parameters of a test; all but a few are slow."""
    marks = {name: () if name in quick else pytest.mark.slow for name in names}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


def classifiers() -> list[str]:
    """The nets of torchvision that are not too large for a test."""
    if find_spec("torchvision") is None:
        return ["resnet18"]
    import torchvision.models as models

    return [name for name in models.list_models(module=models) if name not in zoo.LARGE]


@pytest.mark.parametrize("name", named(classifiers(), ("resnet18", "mobilenet_v3_small")))
def test_torchvision(name: str) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    check(zoo.torchvision_net(name))


@pytest.mark.parametrize("name", named(zoo.TRANSFORMERS, ("bert", "gpt2")))
def test_transformers(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    check(zoo.TRANSFORMERS[name]())


@pytest.mark.slow
def test_timm() -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    check(zoo.timm_convnext())


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.REFUSED)
def test_what_is_refused_names_the_operation(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    build, words = zoo.REFUSED[name]
    with pytest.raises(InvalidArchitecture, match=words):
        read(build())
