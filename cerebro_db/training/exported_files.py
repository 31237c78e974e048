"""Files of exported models, which are no larger than a value of the server may be."""

from __future__ import annotations

from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidData

# A value of the server ends at 1 GB.
_MAX_BYTES = 2**30 - 2**20


def check_size(file: bytes, wanted: Format) -> None:
    """Refuse a file that cannot be handed out.

    Raises:
        InvalidData: it is too large.
    """
    if len(file) > _MAX_BYTES:
        raise InvalidData(
            f"got a model of {len(file)} bytes as {wanted}; at most {_MAX_BYTES} can be handed out",
            hint="model_weights and model_arch of the model table have the model as well",
        )
