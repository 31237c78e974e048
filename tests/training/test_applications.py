"""The nets of keras.applications: all pass the check, and some are trained.

Their JSON is stored, as Keras needs minutes to make it: ``python -m tests.training.test_applications`` writes it anew.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.nets import APPLICATIONS, LENET, NETS, check_net
from cerebro_db.errors import InvalidArgument
from tests.training.conftest import SOFTMAX

pytestmark = pytest.mark.slow

STORED = Path(__file__).parent / "data" / "applications.json.xz"
WIDE = ("InceptionV3", "InceptionResNetV2", "Xception")
CLASSES = 5


def side(name: str) -> int:
    """The least width and height of an image."""
    return 75 if name in WIDE else 32


def made(name: str) -> dict[str, Any]:
    """The JSON of a net, with names that do not depend on what was made before."""
    import keras

    from cerebro_db.training.backends.tensorflow.nets import net

    keras.backend.clear_session()
    found: dict[str, Any] = json.loads(net(name, (side(name), side(name), 3), CLASSES, "softmax"))
    return found


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(lzma.decompress(STORED.read_bytes()))
    return found


def test_all_are_stored(stored: Any) -> None:
    import keras

    functions = {
        name
        for name in dir(keras.applications)
        if name[0].isupper() and callable(getattr(keras.applications, name))
    }
    assert set(stored) == set(APPLICATIONS) == functions


@pytest.mark.parametrize("name", APPLICATIONS)
def test_all_pass_the_check(stored: Any, name: str) -> None:
    config = check_architecture(json.dumps(stored[name]), ArchitectureLimits())
    assert len(fingerprint(config)) == 64


def test_what_is_stored_is_what_keras_makes(stored: Any) -> None:
    assert made("MobileNetV3Small") == stored["MobileNetV3Small"]


# Of these the first has operators, the second layers of its own; the third pads and pools.
@pytest.mark.parametrize("name", ["MobileNetV3Small", LENET])
def test_some_are_trained(stored: Any, recipe: Callable[..., Any], name: str) -> None:
    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.backends.tensorflow.sizes import check_size
    from cerebro_db.training.scores.targets import TargetFacts

    model = stored[name] if name in stored else made(name)
    size = check_size(check_architecture(json.dumps(model)), ArchitectureLimits())
    assert size.parameters > 10_000
    one = recipe(json.dumps(model), SOFTMAX, "batch_size=2", TargetFacts("class", CLASSES, ()))
    program = Program(one)
    program.load(program.initial_state(one, 1, None))
    program.prepare(one.compile_params, one.fit_params)
    rows = np.random.default_rng(1).normal(size=(4, side(name), side(name), 3)).astype(np.float32)
    before = program.save()
    assert np.isfinite(program.train(rows, np.array([0, 1, 2, 4], np.int32)))
    changed = [key for key, value in program.save().items() if (value != before[key]).any()]
    assert len(changed) > 10
    (told,) = Scorer(one).predict(rows)
    np.testing.assert_allclose(told.sum(axis=1), 1.0, atol=1e-4)


@pytest.mark.parametrize("name", ["InceptionResNetV2", "ConvNeXtTiny"])
def test_those_with_layers_of_their_own_are_built(stored: Any, name: str) -> None:
    from cerebro_db.training.backends.tensorflow.sizes import made as built
    from cerebro_db.training.backends.tensorflow.sizes import without_values

    with without_values():
        model = built(check_architecture(json.dumps(stored[name])))
    assert model.output_shape == (None, CLASSES)


def test_names_of_nets() -> None:
    assert check_net(" resnet50 ") == "ResNet50"
    assert len(NETS) == 41
    with pytest.raises(InvalidArgument, match="the name of a net") as refused:
        check_net("ResNet51")
    assert "'ResNet50'" in (refused.value.hint or "")


def test_rows_that_a_net_does_not_take() -> None:
    from cerebro_db.training.backends.tensorflow.nets import net

    with pytest.raises(InvalidArgument, match=r"got ResNet50 for rows of the shape \[8, 8, 3\]"):
        net("ResNet50", (8, 8, 3), 2, "softmax")


if __name__ == "__main__":
    from cerebro_db.training.environment import configure

    configure(threads=1)
    text = json.dumps(
        {name: made(name) for name in APPLICATIONS}, sort_keys=True, separators=(",", ":")
    )
    STORED.write_bytes(lzma.compress(text.encode(), preset=9))
