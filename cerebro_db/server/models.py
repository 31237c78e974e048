"""What looks into models and states, in a worker or, without TensorFlow, anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from cerebro_db.configs.architecture import check_architecture
from cerebro_db.server.host import entry
from cerebro_db.training import state as states


@entry
def inspect(plpy: Any, gd: dict[str, Any], model_arch: str, model_weights: bytes | None) -> str:
    """Build a model and tell its size, work and shapes as JSON."""
    config = check_architecture(model_arch)
    from cerebro_db.training import models
    from cerebro_db.training.environment import configure, shielded

    configure(threads=1)
    with shielded():
        model = models.build(config, seed=0)
        if model_weights is not None:
            models.set_weights(model, model_weights)
        return models.facts_of(model).to_json()


@entry
def state_weights(plpy: Any, gd: dict[str, Any], state: bytes) -> bytes:
    """The weights of a state as float32."""
    arrays = states.from_bytes(state).items()
    weights = [array for name, array in arrays if name.startswith("weights/")]
    return b"".join(array.astype(np.float32).tobytes() for array in weights)
