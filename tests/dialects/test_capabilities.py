"""What is chosen by what a server can do, without one."""

from __future__ import annotations

import types
from typing import Any

import pytest

from cerebro_db.postgres.dialects.choice import dialect_of
from cerebro_db.relay import backend, failures


class _Error(Exception):
    pass


class _SpiError(_Error):
    pass


def _plpy(**more: Any) -> Any:
    return types.SimpleNamespace(Error=_Error, SPIError=_SpiError, **more)


@pytest.mark.parametrize(
    ("sqlstate", "number"), [("22012", 33816706), ("00000", 0), ("XX000", 2600)]
)
def test_sqlstates_are_packed_like_the_servers(sqlstate: str, number: int) -> None:
    assert failures._packed(sqlstate) == number
    assert failures._unpacked(number) == sqlstate


def test_errors_carry_what_the_server_reads() -> None:
    newer = failures.failure(_plpy(commit=None), "22023", "got 1", "allowed: 2")
    assert (newer.sqlstate, newer.hint) == ("22023", "allowed: 2")  # type: ignore[attr-defined]
    older = failures.failure(_plpy(), "22023", "got 1", "allowed: 2")
    assert isinstance(older, _SpiError)
    number = failures._packed("22023")
    assert older.spidata == (number, None, "allowed: 2", None, 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("got 1; allowed: 2", "got 1; allowed: 2"),
        ("no worker", "cerebro: no worker"),
        ("a: b: c", "a: b: c"),
        (": empty", ": empty"),
    ],
)
def test_the_server_shows_the_message_as_it_is(message: str, told: str) -> None:
    error = failures.failure(_plpy(commit=None), "22023", message)
    assert f"{type(error).__name__}: {error}" == told


def test_only_settings_that_a_server_has_are_set() -> None:
    def names(version: int, has_segments: bool) -> set[str]:
        settings = dialect_of(version, has_segments).session_settings()
        return {text.split()[1] for text in settings}

    old, new = names(90426, True), names(150000, False)
    assert {"optimizer", "gp_vmem_idle_resource_timeout"} <= old - new
    assert {"jit", "idle_in_transaction_session_timeout", "idle_session_timeout"} <= new - old


def test_workers_are_bound_where_partitions_lie_on_segments() -> None:
    assert dialect_of(90426, True).training.binds_workers
    assert not dialect_of(150000, False).training.binds_workers


def test_this_process_is_no_such_server() -> None:
    assert not backend.raises_interrupts()
    assert backend.segment() is None
