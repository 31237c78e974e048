"""Weights of Keras models with a learning rate or a weight decay of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.frameworks import compile_params_in
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.tensorflow import BACKEND
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.targets import TargetFacts
from tests.training.conftest import CLASSES, FEATURES, net

LOSS = "loss='sparse_categorical_crossentropy'"


def trained(text: str) -> Any:
    """The weights before and after three batches of a net of two dense layers, by their names."""
    import json

    recipe = Recipe(
        json.loads(net()),
        "dense",
        compile_params_in(net(), f"{LOSS},{text}"),
        parse_fit_params("batch_size=8"),
        TargetFacts("class", CLASSES, ()),
        False,
        3,
    )
    program = BACKEND.program(recipe)
    program.prepare(recipe.compile_params, recipe.fit_params)
    program.load(program.initial_state(recipe, 7, None))
    generator = np.random.default_rng(3)
    before = program.save()
    rows = generator.normal(size=(24, FEATURES)).astype(np.float32)
    program.train(rows, generator.integers(0, CLASSES, 24).astype(np.int32))
    return before, program.save()


# The same by an optimizer for each pattern, which is what Keras itself has.
@pytest.mark.parametrize(
    ("groups", "others"),
    [
        (
            "optimizer='SGD(lr=0.1,weight_decay=0.1)',param_groups={'*.bias': {'weight_decay': 0.0}, '*': {'lr': 0.02}}",
            "SGD(0.02,weight_decay=0.1), {'.*/bias': SGD(0.02)}",
        ),
        (
            "optimizer='AdamW(lr=0.01)',param_groups={'*.bias': {'lr_factor': 0.5}}",
            "AdamW(0.01), {'.*/bias': AdamW(0.005)}",
        ),
        (
            "optimizer='Adam(lr=0.01)',param_groups={'*.kernel': {'weight_decay': 0.2}}",
            "Adam(0.01), {'.*/kernel': Adam(0.01,weight_decay=0.2)}",
        ),
    ],
)
def test_groups_are_optimizers_of_their_own(groups: str, others: str) -> None:
    _, found = trained(groups)
    _, wanted = trained(f'optimizer="MultiOptimizer(OptimizerMap({others}))"')
    for name in (one for one in found if one.startswith("weights/")):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, atol=1e-7, err_msg=name)


def test_a_rate_of_zero_trains_nothing_of_its_group() -> None:
    before, after = trained("optimizer='Adam',param_groups={'*.kernel': {'lr': 0.0}}")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert any("bias" in name for name in changed)
    assert not any(name.startswith("weights/") and "kernel" in name for name in changed)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimizer='Adam',param_groups={'head': {'lr': 0.1}}", "which fits no weight that trains"),
        ("optimizer='Muon',param_groups={'*': {'lr': 0.1}}", "got the optimizer Muon"),
        (
            "optimizer='SGD(lr=ExponentialDecay(0.1, 9, 0.5))',param_groups={'*': {'lr': 0.1}}",
            "allowed: lr_factor",
        ),
    ],
)
def test_groups_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        trained(text)
