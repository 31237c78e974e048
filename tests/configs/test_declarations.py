"""Contract of all that is declared: arguments take what they declare, and refuse the rest with what is allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cerebro_db.configs.architectures.operations import OPERATIONS
from cerebro_db.configs.arguments import OBJECT, Argument, Declarations
from cerebro_db.configs.functions.callbacks import CALLBACKS
from cerebro_db.configs.functions.expression_functions import FAMILIES
from cerebro_db.configs.functions.losses import LOSSES
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.configs.functions.optimizers import OPTIMIZERS, SCHEDULES
from cerebro_db.errors import InvalidArgument

DECLARED = {
    "loss": LOSSES, "metric": METRICS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES, "callback": CALLBACKS,
}  # fmt: skip
EVERY = [pytest.param(table, id=kind) for kind, table in DECLARED.items()]


def arguments() -> Iterator[tuple[str, Argument]]:
    """Each argument that is declared, once."""
    tables = [{name: one.arguments for name, one in table.items()} for table in DECLARED.values()]
    functions = [
        {name: one.arguments for name, one in family.items()} for family in FAMILIES.values()
    ]
    seen: list[Argument] = []
    for table in (*tables, *functions, *OPERATIONS.values()):
        for name, declared in table.items():
            for argument in declared:
                if argument not in seen and argument.kind is not OBJECT:
                    seen.append(argument)
                    yield name, argument


ARGUMENTS = [pytest.param(one, id=f"{name}-{one.name}") for name, one in arguments()]


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_takes_its_default_its_bounds_and_its_choices(argument: Argument) -> None:
    for value in argument.accepted():
        found = argument.validated(value, "what")
        assert found == value or found == (value,)


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_refuses_everything_else_with_what_is_allowed(argument: Argument) -> None:
    for value in argument.refused():
        with pytest.raises(InvalidArgument) as refused:
            argument.validated(value, "what")
        assert refused.value.message.startswith(f"what: got {argument.name}=")
        assert refused.value.message.endswith(f"it must be {argument.allowed()}")


@pytest.mark.parametrize("table", EVERY)
def test_is_found_by_its_names_whatever_their_case_and_module(table: Declarations) -> None:
    for name, one in table.items():
        others = one.names or (name,)
        for given in (*others, *(f"{prefix}{name}" for prefix in table.prefixes)):
            for spelling in (given, *([] if "." in given else [given.upper()])):
                found = table.find(spelling, "what")
                assert found is one or name.lower() in table[found.name].names


@pytest.mark.parametrize("table", EVERY)
def test_refuses_names_with_the_reason_or_the_nearest(table: Declarations) -> None:
    for name, reason in table.refused.items():
        with pytest.raises(InvalidArgument, match=reason.partition("(")[0]):
            table.find(name, "what")
    with pytest.raises(InvalidArgument, match="Allowed: "):
        table.find("xyzzyx", "what")
    with pytest.raises(InvalidArgument, match="allowed are those of keras"):
        table.find("os.system", "what")
