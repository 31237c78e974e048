"""Static estimates from a model's size: seconds of a hop, steps of a call, and when to compile.

Plans must not depend on how fast a machine happens to be, so nothing is measured at run time. The
constants fit the machine they were measured on; only the ratios between configurations matter there.
Where seconds matter, as for groups of workers, a speed says how many times as fast steps are here.
"""

from __future__ import annotations

import math

from cerebro_db.configs.architectures.memory import ArchitectureFacts

__all__ = [
    "ArchitectureFacts",
    "hop_seconds",
    "joined_step_seconds",
    "step_seconds",
    "steps_per_call",
    "use_jit",
]

# A step of a dense net spends this outside its arithmetic; one with convolutions far more, since
# their kernels lay out their inputs anew at each call.
_STEP_SECONDS = 30e-6
_CONVOLUTION_STEP_SECONDS = 5e-3
_UPDATE_SECONDS = 1e-9
_DENSE_FLOPS = 50e9
_CONVOLUTION_FLOPS = 38e9
# One pass forward and two for the gradients, each a multiplication and an addition.
_FLOPS_PER_MULTIPLY_ADD = 3 * 2

# What a step costs beside, where its gradients are exchanged: two calls into a graph, of which a compiled
# loop has none; the gradients, which are copied, summed and applied one by one; and waiting for each other.
_GRADIENT_CALLS_SECONDS = 1.5e-3
_EXCHANGE_SECONDS = 12e-9
_MEETING_SECONDS = 0.5e-3
# Between hosts: bytes a second of an assumed network of 1 Gbit/s, and waiting for its answers.
_NETWORK_BYTES = 125e6
_NETWORK_MEETING_SECONDS = 0.5e-3
_BYTES_PER_NUMBER = 4

_CALL_SECONDS = 0.25
_CALL_BYTES = 16 * 2**20
_MAX_STEPS = 2048

_COMPILE_SECONDS = 3.0
_SAVED_SECONDS_PER_STEP = 0.13e-3


def hop_seconds(facts: ArchitectureFacts, rows: int, batch_size: int, epochs: int) -> float:
    """Estimates how long one configuration trains on a partition of `rows` rows."""
    steps = math.ceil(rows / batch_size)
    return epochs * (steps * _fixed_seconds(facts) + rows * _row_seconds(facts))


def steps_per_call(facts: ArchitectureFacts, batch_size: int, row_bytes: int) -> int:
    """Returns how many mini-batches one call of a compiled program covers.

    Enough that the call itself costs nothing, few enough that a cancel is seen soon and that the
    features of the call fit into little memory.
    """
    seconds = _fixed_seconds(facts) + batch_size * _row_seconds(facts)
    steps = min(_CALL_SECONDS / seconds, _CALL_BYTES / max(1, batch_size * row_bytes))
    return max(1, min(_MAX_STEPS, int(steps)))


def use_jit(facts: ArchitectureFacts, planned_steps: int) -> bool:
    """Returns whether a program is compiled by XLA.

    Never with convolutions, which it makes slower on a CPU; nor with random layers, as XLA draws
    other numbers than plain Keras; otherwise where the steps that are planned repay the
    compilation: from about 23,000 of them.

    Args:
        planned_steps: over all epochs, and all configurations that would share the program if XLA
            compiled it, which are of one batch size.
    """
    if facts.has_convolution or facts.has_random:
        return False
    return planned_steps * _SAVED_SECONDS_PER_STEP >= _COMPILE_SECONDS


def _fixed_seconds(facts: ArchitectureFacts) -> float:
    start = _CONVOLUTION_STEP_SECONDS if facts.has_convolution else _STEP_SECONDS
    return start + facts.parameters * _UPDATE_SECONDS


def _row_seconds(facts: ArchitectureFacts) -> float:
    flops = _CONVOLUTION_FLOPS if facts.has_convolution else _DENSE_FLOPS
    return facts.multiply_adds * _FLOPS_PER_MULTIPLY_ADD / flops


def step_seconds(facts: ArchitectureFacts, rows: int, speed: float = 1.0) -> float:
    """Estimates how long one worker takes for a step on a batch of `rows` rows.

    Args:
        speed: how many times as fast the machine is as the one that the constants are of.
    """
    return (_fixed_seconds(facts) + rows * _row_seconds(facts)) / speed


def joined_step_seconds(
    facts: ArchitectureFacts,
    rows: int,
    size: int,
    processors: int,
    neighbours: int = 0,
    speed: float = 1.0,
) -> float:
    """Estimates how long `size` workers take for a step on a batch that they share.

    Each computes the gradients of its rows, one at a time where there are fewer processors; then they
    exchange them, and each takes the same step.

    Args:
        facts: of the model.
        rows: of the batch.
        size: of the group.
        processors: trainers that compute at the same time.
        neighbours: workers that share the network of a host; 0 where all of them are on one.
        speed: as of ``step_seconds``; of the exchange nothing is measured.
    """
    own = step_seconds(facts, math.ceil(rows / size), speed) + _GRADIENT_CALLS_SECONDS
    own += facts.parameters * _EXCHANGE_SECONDS
    seconds = own * max(1.0, size / processors) + _MEETING_SECONDS
    if not neighbours:
        return seconds
    # Each sends its gradients to those who sum them, and its sums to all, through the same wire.
    sent = 2 * (size - 1) / size * _BYTES_PER_NUMBER * facts.parameters * min(size, neighbours)
    return seconds + sent / _NETWORK_BYTES + _NETWORK_MEETING_SECONDS
