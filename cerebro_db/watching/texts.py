"""Numbers as short texts: sparklines, bars, durations; and values as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cerebro_db.configs.messages import duration

__all__ = ["bar", "duration", "number", "parameters", "plain", "short", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_NOT_A_NUMBER = "×"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """A curve as a line of bars, the highest value as the highest bar: its last ``width`` values."""
    shown = list(values)[-width:]
    finite = [one for one in shown if math.isfinite(one)]
    if not finite:
        return _NOT_A_NUMBER * len(shown)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(
        _NOT_A_NUMBER
        if not math.isfinite(one)
        else _BARS[round((one - low) / span * (len(_BARS) - 1)) if span > 0 else len(_BARS) // 2]
        for one in shown
    )


def bar(share: float, width: int = 20) -> str:
    """A share from 0 to 1 as a bar."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def number(value: float | None) -> str:
    """A result with four digits; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def parameters(values: Mapping[str, Any], names: Sequence[str] | None = None) -> str:
    """Hyperparameters such as ``optimizer=Adam learning_rate=0.01``.

    Args:
        values: of a configuration.
        names: which of them; None for all.
    """
    shown = [name for name in (values if names is None else names) if name in values]
    return " ".join(f"{name}={short(values[name])}" for name in shown)


def short(value: object) -> str:
    """A value of a hyperparameter."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """A value as JSON can have it; what is not a number is null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.isoformat() if isinstance(value, datetime | date) else value
