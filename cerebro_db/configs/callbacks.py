"""Callbacks of fit parameters: those that ask for what a run does anyway, and why others may not be."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.grammar import Call, parse_call, parse_keywords
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

__all__ = ["parse_callbacks"]

_PREFIXES = tuple(
    f"{start}callbacks." for start in ("", "keras.", "tf.keras.", "tensorflow.keras.")
)
# A configuration whose loss is no number fails within the same hop, with or without it.
ALLOWED = ("TerminateOnNaN",)
_METRICS = "callbacks that act on metrics are not in this release"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "BackupAndRestore": "cerebro_resume goes on with a run",
        "CSVLogger": "cerebro.metrics has what it would write",
        "EarlyStopping": f"{_METRICS}; cerebro_cancel(run_id, mst_key) stops one configuration",
        "LambdaCallback": "it runs code that is not part of Keras",
        "LearningRateScheduler": "give the optimizer a schedule, as in Adam(ExponentialDecay(0.01, 1000, 0.9))",
        "ModelCheckpoint": "the states of a run are kept after each hop",
        "ProgbarLogger": "cerebro.progress tells how far a run is",
        "ReduceLROnPlateau": _METRICS,
        "RemoteMonitor": "it sends data to another machine",
        "TensorBoard": "it writes files on the server; cerebro.metrics has what it would show",
    }
)  # fmt: skip


def parse_callbacks(value: object, what: str) -> tuple[str, ...]:
    """The names of callbacks, from a list of calls or of their texts; each once, in order.

    Raises:
        InvalidArgument: one is not known, or not allowed.
    """
    # MADlib's users write the list as a text.
    read = parse_keywords(f"callbacks={value}", what) if isinstance(value, str) else {}
    calls = read.get("callbacks", value)
    calls = [calls] if isinstance(calls, Call) else calls
    if not isinstance(calls, list | tuple):
        raise InvalidArgument(
            f"{what}: got callbacks={shown(value)}; it must be a list such as [TerminateOnNaN()]"
        )
    return tuple(dict.fromkeys(_callback(call, what) for call in calls))


def _callback(value: object, what: str) -> str:
    call = parse_call(value, f"{what}: callbacks") if isinstance(value, str) else value
    if not isinstance(call, Call):
        raise InvalidArgument(f"{what}: got the callback {shown(value)}; it must be a name")
    name = call.name
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    if name in REFUSED:
        raise InvalidArgument(f"{what}: got the callback {name!r}; {REFUSED[name]}")
    if name not in ALLOWED:
        raise unknown(what, "callback", call.name, [*ALLOWED, *REFUSED])
    if call.arguments or call.values:
        raise InvalidArgument(f"{what}: got {shown(call)}; {name} has no arguments")
    return name
