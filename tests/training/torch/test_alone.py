"""PyTorch computes where TensorFlow is not installed."""

from __future__ import annotations

import subprocess
import sys

from tests.training.torch.nets import Exported, plain, rows

WORK = """
import sys

sys.modules |= {"tensorflow": None, "keras": None}  # to import these is an ImportError

from cerebro_db.configs import frameworks
from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.configs.names import Format
from cerebro_db.training.backends import backend
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.targets import TargetFacts
from cerebro_db.training.state import from_bytes
from tests.training.conftest import Data, hop

assert frameworks.installed() == ("torch",)
torch, data = backend("torch"), Data()
torch.set_environment()
torch.set_up(1, False)
config = frameworks.check_architecture(sys.stdin.read())
params = frameworks.framework_of(config).compile_params("loss='cross_entropy',optimizer='SGD()',metrics=['accuracy']")
fit, targets = parse_fit_params("batch_size=8"), TargetFacts("class", 3, ())
recipe = Recipe(config, fingerprint(config), params, fit, targets, False, 100)
state = from_bytes(hop(recipe, data, None)[0])
scorer = torch.scorer(recipe)
scorer.load(state, params)
assert scorer.predict(data.features[0])[0].shape == (37, 3)
assert torch.export(recipe, state, Format.PT2, {}, lambda: None)
"""


def test_it_trains_predicts_and_exports_alone() -> None:
    import torch

    text = Exported(plain(), torch.from_numpy(rows(2)[0])).text
    done = subprocess.run(
        [sys.executable, "-c", WORK], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
