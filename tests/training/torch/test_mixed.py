"""Nets that compute in bfloat16 where ``torch.autocast`` does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from training.torch.nets import FEATURES, Exported, begun, mlp, rows, torch
from training.torch.test_numerics import LOGITS, Transformer, assert_equal, cnn

from cerebro_db.training.backends.torch import BACKEND

NETS = {"mlp": (mlp, (FEATURES,)), "cnn": (cnn, (1, 8, 8)), "transformer": (Transformer, (5, 8))}


@pytest.mark.parametrize("name", NETS)
def test_training_is_that_of_autocast(torch_recipe: Any, name: str) -> None:
    build, shape = NETS[name]
    torch.manual_seed(3)
    net = Exported(build().train(), torch.zeros(2, *shape))
    features, ids = rows(40, shape)
    module = copy.deepcopy(net.module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(7)
    for start in range(0, 40, 8):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            found = module(torch.from_numpy(features[start : start + 8]))
        wanted = torch.from_numpy(ids[start : start + 8]).long()
        torch.nn.functional.cross_entropy(found.float(), wanted).backward()
        optimizer.step()
    text = f"{LOGITS},optimizer='SGD(lr=0.1,momentum=0.9)'"
    mixed = torch_recipe(net, f"{text},dtype_policy='mixed_bfloat16'")
    program, plain = begun(mixed, net.weights), begun(torch_recipe(net, text), net.weights)
    assert program.train(features, ids) != plain.train(features, ids)
    state = program.save()
    assert_equal(module, state)
    scorer = BACKEND.scorer(mixed)
    scorer.load(state, mixed.compile_params)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = module.eval()(torch.from_numpy(features)).float().numpy()
    assert abs(scorer.predict(features)[0] - wanted).max() < 0.05
    assert scorer.predict(features)[0].dtype == "float32"
