"""The constant by which features are divided."""

from __future__ import annotations

import math

from cerebro_db.errors import InvalidArgument


def check_divisor(divisor: float | None) -> float:
    """The constant, where it is one.

    Raises:
        InvalidArgument: it is NULL, 0 or not finite.
    """
    if divisor is None or not math.isfinite(divisor) or divisor == 0.0:
        raise InvalidArgument(
            f"normalizing_const: got {'NULL' if divisor is None else repr(divisor)}; "
            "allowed: a finite number except 0"
        )
    return divisor
