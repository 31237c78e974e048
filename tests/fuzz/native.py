"""Trains architectures that pass the checks, each in a process of its own that may crash.

Reads JSON from stdin: a list of architectures. Writes a list: of each "refused", "trained", an error
of Python, or the signal that ended the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from typing import Any

from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.errors import CerebroError
from cerebro_db.training.environment import configure

LIMITS = ArchitectureLimits(parameters=200_000, elements=200_000, layers=40)
SECONDS = 60
ABORT = "abort"  # stands for a model that ends the process, to see that it is told
_ROWS, _BATCH = 5, 2


def _train(model: Any) -> str:
    if model == ABORT:
        os.abort()
    import numpy as np

    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.backends.tensorflow.sizes import check_size
    from cerebro_db.training.recipe import Recipe
    from cerebro_db.training.scores.targets import TargetFacts

    try:
        config = check_architecture(json.dumps(model), LIMITS)
        check_size(config, LIMITS)
    except CerebroError:
        return "refused"
    from cerebro_db.training.backends.tensorflow.models import build

    shapes = [tuple(one.shape[1:]) for one in build(config, 0).outputs]
    recipe = Recipe(
        config, fingerprint(config), parse_compile_params("loss='mse',optimizer='SGD(lr=0.1)'"),
        parse_fit_params(f"batch_size={_BATCH},epochs=1"), TargetFacts("float", 0, shapes[0]),
        jit=False, steps_per_call=2,
    )  # fmt: skip
    program = Program(recipe)
    program.load(program.initial_state(recipe, 0, None))
    program.prepare(recipe.compile_params, recipe.fit_params)
    row = program._inputs.row
    rows = np.random.default_rng(0).normal(size=(_ROWS, *row)).astype(np.float32)
    program.train(rows[:4], np.zeros((4, *shapes[0]), np.float32))
    program.train(rows[:3], np.zeros((3, *shapes[0]), np.float32))
    scorer = Scorer(recipe)
    scorer.predict(rows)
    scorer.measure(rows, np.zeros((_ROWS, *shapes[0]), np.float32))
    scorer._forward(rows[:0])  # no rows
    return "trained"


def _child(model: Any, writer: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (6 * 2**30, 6 * 2**30))
    try:
        answer = _train(model)
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"[:300]
    os.write(writer, answer.encode())
    os._exit(0)


def _tried(model: Any) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(model, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else answer


def main() -> None:
    """Try each of the architectures."""
    configure(threads=1)
    with contextlib.suppress(CerebroError):  # imports the rest, computes nothing
        pass
    found = [_tried(model) for model in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
