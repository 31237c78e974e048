"""Fixtures of the tests of PyTorch; modules of tests skip themselves where it is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.training.scores.targets import TargetFacts


@pytest.fixture(scope="session", autouse=True)
def tensorflow_for_all() -> None:
    """Nothing here needs TensorFlow."""


@pytest.fixture(autouse=True)
def tensorflow_of_slow_tests(request: pytest.FixtureRequest) -> None:
    """Tests marked slow are run only by ``pytest -m slow tests/training/torch``."""
    wanted = "slow" in request.config.getoption("-m")
    if request.node.get_closest_marker("slow") and not wanted:
        pytest.skip("slow tests of PyTorch are run by -m slow")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Compute as a trainer does."""
    from cerebro_db.training.backends.torch import environment

    environment.set_up(1, False)


@pytest.fixture(scope="session")
def full_net() -> Any:
    """A net with batch normalization and dropout."""
    from training.torch.nets import FEATURES, Exported, mlp, torch

    torch.manual_seed(7)
    return Exported(mlp().train(), torch.zeros(2, FEATURES))


@pytest.fixture(scope="session")
def plain_net() -> Any:
    """A net without anything random."""
    from training.torch.nets import FEATURES, Exported, plain, torch

    torch.manual_seed(7)
    return Exported(plain().train(), torch.zeros(2, FEATURES))


@pytest.fixture(scope="session")
def torch_recipe() -> Callable[..., Any]:
    """Makes recipes from nets and parameter texts that name what torch has."""
    from training.torch.nets import CLASSES

    from cerebro_db.configs.frameworks import compile_params_in
    from cerebro_db.training.recipe import Recipe

    def make(net: Any, compile_params: str, fit_params: str = "batch_size=8") -> Recipe:
        return Recipe(
            net.architecture,
            str(hash(net.text)),
            compile_params_in(net.text, compile_params),
            parse_fit_params(fit_params),
            TargetFacts("class", CLASSES, ()),
            False,
            3,
        )

    return make


@pytest.fixture(scope="session")
def recipe() -> Callable[..., Any]:
    """Makes recipes from nets and parameter texts."""
    from training.torch.nets import CLASSES, SOFTMAX

    from cerebro_db.training.recipe import Recipe

    def make(
        net: Any,
        compile_params: str = SOFTMAX,
        fit_params: str = "batch_size=8",
        targets: TargetFacts | None = None,
    ) -> Recipe:
        return Recipe(
            net.architecture,
            str(hash(net.text)),
            parse_compile_params(compile_params),
            parse_fit_params(fit_params),
            targets or TargetFacts("class", CLASSES, ()),
            False,
            3,
        )

    return make
