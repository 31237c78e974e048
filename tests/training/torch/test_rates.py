"""Rates of parameters: schedules, groups, clipping, averages; each as in a loop of plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from training.torch.nets import Exported, begun, rows, torch
from training.torch.test_numerics import LOGITS, assert_equal

from cerebro_db.configs.frameworks import compile_params_in
from cerebro_db.configs.functions.torch_schedules import TorchSchedule, parse_any_schedule
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.errors import InvalidArchitecture, InvalidArgument
from cerebro_db.training.backends.torch import BACKEND
from cerebro_db.training.hop import scheduled_rate

lr_scheduler = torch.optim.lr_scheduler
ROWS, BATCH = 40, 8
# The schedule in a text, and as torch makes it.
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR(0.1, 3)": lambda o: lr_scheduler.StepLR(o, 3),
    "StepLR(0.1, step_size=2, gamma=0.5)": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR(0.1, [2, 5])": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
    "ConstantLR(0.1, total_iters=4)": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
    "LinearLR(0.1, 0.5, 1.0, 6)": lambda o: lr_scheduler.LinearLR(o, 0.5, 1.0, 6),
    "torch.optim.lr_scheduler.ExponentialLR(0.1, 0.9)": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR(0.1, 8, 2.0)": lambda o: lr_scheduler.PolynomialLR(o, 8, 2.0),
    "CosineAnnealingLR(0.1, 7, 0.01)": lambda o: lr_scheduler.CosineAnnealingLR(o, 7, 0.01),
    "CosineAnnealingWarmRestarts(0.1, 3)": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CosineAnnealingWarmRestarts(0.1, T_0=2, T_mult=2, eta_min=0.001)": lambda o: (
        lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2, 0.001)
    ),
    "OneCycleLR(0.1, 20)": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 20, cycle_momentum=False),
    "OneCycleLR(0.1, total_steps=20, anneal_strategy='linear', three_phase=True)": lambda o: (
        lr_scheduler.OneCycleLR(
            o, 0.1, 20, anneal_strategy="linear", three_phase=True, cycle_momentum=False
        )
    ),
}  # fmt: skip


def _rates(optimizer: Any, scheduler: Any, count: int) -> list[float]:
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("text", SCHEDULES)
def test_schedules_have_the_rates_of_torch(text: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    wanted = _rates(optimizer, SCHEDULES[text](optimizer), 19)
    spec = parse_any_schedule(text, "lr")
    assert isinstance(spec, TorchSchedule)
    assert parse_any_schedule(repr(spec), "lr") == spec
    np.testing.assert_allclose(
        [spec.rate(step) for step in range(19)], wanted, rtol=1e-12, atol=1e-18
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LambdaLR(0.1)", "it is code"),
        ("ReduceLROnPlateau(0.1)", "callback of that name"),
        ("StepLR(0.1)", "step_size"),
        ("StepLR(step_size=3)", "initial_learning_rate"),
        ("OneCycleLR(0.1, 20, cycle_momentum=True)", "cycle_momentum"),
        ("OneCycleLR(0.1, 20, anneal_strategy='up')", "anneal_strategy"),
        ("Step(0.1)", "unknown learning-rate schedule"),
    ],
)
def test_schedules_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        parse_any_schedule(text, "lr")


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_schedules_of_torch_may_count_epochs(framework: str) -> None:
    (callback,) = parse_fit_params("callbacks=[LearningRateScheduler(StepLR(0.1, 2))]").callbacks
    rates = [scheduled_rate(callback, epoch, 0.1, framework) for epoch in (1, 2, 3)]
    assert rates == pytest.approx([0.1, 0.1, 0.01], rel=1e-12)


def test_keras_models_have_schedules_of_torch_only_by_epochs() -> None:
    with pytest.raises(InvalidArgument, match="StepLR"):
        compile_params_in("{}", f"{LOGITS},optimizer='SGD(lr=StepLR(0.1, 2))'")


# -- training ------------------------------------------------------------------------------------
def _eager(net: Exported, make: Any, after: Any = None, clip: Any = None) -> Any:
    """A module after five batches; what is done to gradients before and to anything after a step."""
    module = copy.deepcopy(net.module).train()
    optimizer = make(module)
    done = None if after is None else after(module, optimizer)
    features, ids = rows(ROWS)
    for start in range(0, ROWS, BATCH):
        optimizer.zero_grad()
        found = module(torch.from_numpy(features[start : start + BATCH]))
        wanted = torch.from_numpy(ids[start : start + BATCH]).long()
        torch.nn.functional.cross_entropy(found, wanted).backward()
        if clip is not None:
            clip(module.parameters())
        optimizer.step()
        if done is not None:
            done()
    return module


def _ours(recipe: Any, net: Exported, text: str) -> Any:
    """The state after the same batches, in two calls."""
    program = begun(recipe(net, f"{LOGITS},{text}"), net.weights)
    features, ids = rows(ROWS)
    for part in (slice(0, 24), slice(24, ROWS)):
        program.train(features[part], ids[part])
        program.load(program.save())
    return program.save()


@pytest.mark.parametrize("text", ["OneCycleLR(0.1, 8)", "CosineAnnealingLR(0.1, 4)"])
def test_training_on_a_schedule(torch_recipe: Any, plain_net: Exported, text: str) -> None:
    makers = {
        "OneCycleLR(0.1, 8)": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 8, cycle_momentum=False)
    }
    make = makers.get(text, lambda o: lr_scheduler.CosineAnnealingLR(o, 4))
    module = _eager(
        plain_net,
        lambda module: torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
        lambda module, optimizer: make(optimizer).step,
    )
    found = _ours(torch_recipe, plain_net, f"optimizer='SGD(lr={text},momentum=0.9)'")
    for name, tensor in module.state_dict().items():
        np.testing.assert_allclose(found[f"weights/{name}"], tensor.numpy(), rtol=1e-6, atol=1e-7)


GROUPS = "param_groups={'*.bias': {'weight_decay': 0.0}, '2': {'lr': 0.001}}"


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("AdamW(lr=0.01,weight_decay=0.1)", lambda g: torch.optim.AdamW(g, lr=0.01, weight_decay=0.1)),
        (
            "SGD(lr=0.01,momentum=0.9,weight_decay=0.1)",
            lambda g: torch.optim.SGD(g, lr=0.01, momentum=0.9, weight_decay=0.1),
        ),
    ],
)  # fmt: skip
def test_groups_are_those_of_torch(
    torch_recipe: Any, plain_net: Exported, name: str, make: Any
) -> None:
    def groups(module: Any) -> Any:
        first, last = module[0], module[2]
        return make(
            [
                {"params": [first.weight]},
                {"params": [first.bias], "weight_decay": 0.0},
                {"params": [last.weight], "lr": 0.001},
                {"params": [last.bias], "lr": 0.001, "weight_decay": 0.0},
            ]
        )

    module = _eager(plain_net, groups)
    assert_equal(module, _ours(torch_recipe, plain_net, f"optimizer='{name}',{GROUPS}"))


def test_groups_follow_a_schedule(torch_recipe: Any, plain_net: Exported) -> None:
    def groups(module: Any) -> Any:
        first, last = module[0].parameters(), module[2].parameters()
        return torch.optim.Adam([{"params": first, "lr": 0.1 * 0.5}, {"params": last}], lr=0.1)

    module = _eager(plain_net, groups, lambda _, o: lr_scheduler.StepLR(o, 2, 0.5).step)
    text = "optimizer='Adam(lr=StepLR(0.1, 2, 0.5))',param_groups={'0': {'lr_factor': 0.5}}"
    assert_equal(module, _ours(torch_recipe, plain_net, text))


def test_groups_of_one_program_may_differ(torch_recipe: Any, plain_net: Exported) -> None:
    text = f"{LOGITS},optimizer='SGD(lr=0.1)'"
    recipes = [
        torch_recipe(plain_net, text + more) for more in ("", ",param_groups={'0': {'lr': 0.0}}")
    ]
    assert BACKEND.program_key(recipes[0]) == BACKEND.program_key(recipes[1])
    program = begun(recipes[0], plain_net.weights)
    start = program.save()
    program.prepare(recipes[1].compile_params, recipes[1].fit_params)
    program.train(*rows(8))
    kept = {name for name, one in program.save().items() if np.array_equal(one, start[name])}
    assert {"weights/0.weight", "weights/0.bias"} <= kept
    assert "weights/2.weight" not in kept


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("{'0': {'lr': 0.1, 'lr_factor': 2}}", "one of them"),
        ("{'0': {'rate': 0.1}}", "unknown argument 'rate'"),
        ("{'0': {}}", "must be a dictionary"),
        ("{'0': {'lr': -1}}", "lr=-1"),
        ("['0']", "dictionary of up to 100 patterns"),
    ],
)
def test_groups_that_are_refused(plain_net: Exported, groups: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        compile_params_in(plain_net.text, f"{LOGITS},optimizer='SGD',param_groups={groups}")


def test_groups_of_nothing_are_refused(plain_net: Exported) -> None:
    from cerebro_db.configs.frameworks import check_groups

    params = compile_params_in(plain_net.text, f"{LOGITS},optimizer='SGD',{GROUPS}")
    check_groups(plain_net.architecture, params.param_groups)
    other = compile_params_in(
        plain_net.text, f"{LOGITS},optimizer='SGD',param_groups={{'head': {{'lr': 0.1}}}}"
    )
    with pytest.raises(InvalidArchitecture, match="no module"):
        check_groups(plain_net.architecture, other.param_groups)
    with pytest.raises(InvalidArgument, match="allowed: lr_factor"):
        compile_params_in(plain_net.text, f"{LOGITS},optimizer='SGD(lr=StepLR(0.1, 2))',{GROUPS}")


def test_gradients_are_clipped_as_torch_does(torch_recipe: Any, plain_net: Exported) -> None:
    utils = torch.nn.utils
    for text, clip in (
        ("clipvalue=0.01", lambda p: utils.clip_grad_value_(p, 0.01)),
        ("global_clipnorm=0.1", lambda p: utils.clip_grad_norm_(p, 0.1)),
    ):
        module = _eager(
            plain_net, lambda module: torch.optim.SGD(module.parameters(), lr=0.1), clip=clip
        )
        assert_equal(module, _ours(torch_recipe, plain_net, f"optimizer='SGD(lr=0.1,{text})'"))


def test_averages_of_weights_are_those_of_torch(torch_recipe: Any, plain_net: Exported) -> None:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    averaged = []

    def average(module: Any, optimizer: Any) -> Any:
        averaged.append(AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9)))
        return lambda: averaged[0].update_parameters(module)

    module = _eager(plain_net, lambda m: torch.optim.Adam(m.parameters(), lr=0.01), average)
    text = "optimizer='Adam(lr=0.01,use_ema=True,ema_momentum=0.9)'"
    found = _ours(torch_recipe, plain_net, text)
    assert_equal(module, found)
    for name, tensor in averaged[0].module.state_dict().items():
        np.testing.assert_allclose(
            found[f"averages/{name}"], tensor.numpy(), rtol=1e-6, atol=1e-7, err_msg=name
        )
