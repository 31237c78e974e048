"""Groups of parameters by patterns of their names, with a learning rate and a weight decay of their own."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, structs

from cerebro_db.configs.arguments import number, unknown
from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

PARAM_GROUPS = "param_groups"
_ARGUMENTS = {
    argument.name: argument
    for argument in (
        number("lr", None), number("lr_factor", None), number("weight_decay", None)
    )
}  # fmt: skip
_ALIASES = {"learning_rate": "lr"}
_MOST, _LONGEST = 100, 200
_EXAMPLE = "{'*.bias': {'weight_decay': 0.0}, 'layer1': {'lr_factor': 0.1}}"


class ParameterGroup(Struct, frozen=True):
    """Learning rate and weight decay of the parameters whose name, or that of a module around them, fits a pattern.

    Attributes:
        pattern: with ``*``, ``?`` and ``[abc]``; case matters.
        lr: the learning rate; what changes the rate of the others changes it in proportion.
        lr_factor: by which the learning rate of the others is multiplied.
        weight_decay: in place of that of the optimizer.
    """

    pattern: str
    lr: float | None = None
    lr_factor: float | None = None
    weight_decay: float | None = None


Groups = tuple[ParameterGroup, ...]


def parse_groups(value: object, what: str) -> Groups:
    """Groups from a dictionary of patterns; those that were parsed are left as they are.

    Raises:
        InvalidArgument: it is no such dictionary, or an argument is wrong.
    """
    if isinstance(value, tuple) and all(isinstance(one, ParameterGroup) for one in value):
        return value
    if value is None:
        return ()
    good = isinstance(value, dict) and len(value) <= _MOST
    if not good or not all(_is_pattern(key) for key in value):  # type: ignore[attr-defined]
        raise InvalidArgument(
            f"{what}: got {PARAM_GROUPS}={shown(value)}; it must be a dictionary of up to {_MOST} patterns of names, such "
            f"as {_EXAMPLE}"
        )
    return tuple(_group(key, one, what) for key, one in value.items())  # type: ignore[attr-defined]


def _is_pattern(key: object) -> bool:
    return isinstance(key, str) and 0 < len(key) <= _LONGEST


def _group(pattern: str, given: object, what: str) -> ParameterGroup:
    what = f"{what}: {PARAM_GROUPS}: {shown(pattern)}"
    if not isinstance(given, dict) or not given:
        raise InvalidArgument(
            f"{what}: got {shown(given)}; it must be a dictionary such as {{'lr_factor': 0.1}}"
        )
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = _ALIASES.get(key, key)
        if name not in _ARGUMENTS:
            raise unknown(what, "argument", str(key), _ARGUMENTS)
        values[name] = float(_ARGUMENTS[name].validated(value, what) or 0.0)
    if {"lr", "lr_factor"} <= set(values):
        raise InvalidArgument(f"{what}: got lr and lr_factor; allowed: one of them")
    return ParameterGroup(pattern, **values)


def check_rates(spec: OptimizerSpec, groups: Groups) -> None:
    """Refuse rates beside a schedule.

    Raises:
        InvalidArgument: naming the first one.
    """
    for group in groups:
        if group.lr is not None and spec.schedule is not None:
            raise InvalidArgument(
                f"{PARAM_GROUPS}: {shown(group.pattern)}: got lr={group.lr} beside a schedule of the learning rate; "
                "allowed: lr_factor"
            )


def is_of(name: str, pattern: str) -> bool:
    """True if a pattern fits a parameter, or a module that it is in."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))


def settings_of(name: str, groups: Sequence[ParameterGroup]) -> ParameterGroup:
    """Settings of one parameter: of each argument the value of the first pattern that fits and has it."""
    found: dict[str, float] = {}
    for group in groups:
        if is_of(name, group.pattern):
            own = structs.asdict(group)
            del own["pattern"]
            if "lr" in found or "lr_factor" in found:  # the two are one argument
                own["lr"] = own["lr_factor"] = None
            found = {key: one for key, one in own.items() if one is not None} | found
    return ParameterGroup("", **found)
