"""Architectures that the check accepts are refused by Keras in words, or built, within limits."""

from __future__ import annotations

import contextlib
import math

import pytest
from fuzz import mutations
from fuzz.harness import OUTSIDE, attempt, share
from hypothesis import assume, given

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.errors import CerebroError

pytestmark = pytest.mark.slow

# So small that what they allow is built at once.
LIMITS = ArchitectureLimits(parameters=50_000, elements=50_000, layers=40)


@share(0.02)
@given(mutations.architectures())
def test_accepted_architectures(text: str) -> None:
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.sizes import check_size

    config = None
    with contextlib.suppress(CerebroError):
        config = check_architecture(text, LIMITS)
    assume(config is not None)
    if attempt("sizes", _fits, check_size, config, forbidden=OUTSIDE):
        model = attempt("sizes, models", models.build, config, 0, forbidden=OUTSIDE)
        if model is not None:
            assert sum(math.prod(weight.shape) for weight in model.weights) <= LIMITS.parameters
            attempt("sizes, facts", models.facts_of, model, forbidden=OUTSIDE)


def _fits(check_size: object, config: object) -> bool:
    check_size(config, LIMITS)  # type: ignore[operator]
    return True
