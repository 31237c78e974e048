"""What is chosen by what a server can do, without one."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import pytest

from cerebro_db.configs import messages
from cerebro_db.errors import InvalidArgument
from cerebro_db.install.script import Script
from cerebro_db.postgres.dialects.choice import DIALECTS, IDENTITY, dialect_of
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


def test_the_server_shows_controls_as_codes() -> None:
    """As the program does; psql writes what the server sends to the terminal."""
    hostile = "got \x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e\x7f\ud800: umläut\tand\nline"
    error = failures.failure(_plpy(commit=None), "22023", hostile, hostile, hostile)
    assert f"{type(error).__name__}: {error}" == messages.visible(hostile)
    assert error.hint == error.detail == failures.visible(hostile)  # type: ignore[attr-defined]
    assert failures.failure(_plpy(commit=None), "22023", "a: b").hint is None  # type: ignore[attr-defined]


def test_only_settings_that_a_server_has_are_set() -> None:
    def names(version: int, name: str) -> set[str]:
        settings = dialect_of(version, name).session_settings()
        return {text.split()[1] for text in settings}

    old, new = names(90426, "greenplum6"), names(150000, "postgresql")
    assert {"optimizer", "gp_vmem_idle_resource_timeout"} <= old - new
    assert {"jit", "idle_in_transaction_session_timeout", "idle_session_timeout"} <= new - old


@pytest.mark.parametrize("name", DIALECTS)
class TestEachDialect:
    """What holds of every dialect that is registered."""

    def test_is_found_by_its_name(self, name: str) -> None:
        dialect = dialect_of(150000, name)
        assert type(dialect) is DIALECTS[name]
        assert f"THEN '{name}'" in IDENTITY

    def test_has_every_room_of_postgresql(self, name: str) -> None:
        dialect, plain = dialect_of(150000, name), dialect_of(150000, "postgresql")
        for room in ("hosts", "packing", "training", "direct", "prediction"):
            assert isinstance(getattr(dialect, room), type(getattr(plain, room)))

    def test_installs_every_object_that_others_have(self, name: str) -> None:
        """What one dialect replaces, or leaves out, has the same functions and views for its users."""

        def public(script: Script) -> set[str]:
            text = "".join(step.sql for step in script.steps())
            return set(
                re.findall(r"CREATE (?:OR REPLACE )?(?:FUNCTION|VIEW) (cerebro\.[a-z]\w*)", text)
            )

        assert public(Script(dialect=name)) == public(Script())

    def test_its_script_is_for_it_alone(self, name: str) -> None:
        text = Script(dialect=name).text()
        assert f"IF found <> '{name}'" in text


def test_a_new_dialect_is_a_class_and_its_own_sql(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file takes the place of the one of its name, another is added in the order of names; capabilities are overridden."""
    objects = tmp_path / "objects"
    objects.mkdir()
    (objects / "620_locks.sql").write_text("-- locks of {{ dialect.name }}")
    (objects / "621_more.sql").write_text("-- more")

    class Other(DIALECTS["postgresql"]):  # type: ignore[misc, name-defined]
        name = "other"
        sql = tmp_path
        triggers_write = False

    monkeypatch.setitem(DIALECTS, "other", Other)
    plain = {step.name: step.sql for step in Script().steps()}
    found = {step.name: step.sql for step in Script(dialect="other").steps()}
    names = list(found)
    assert found["objects/620_locks.sql"] == "-- locks of other"
    assert names.index("objects/621_more.sql") == names.index("objects/620_locks.sql") + 1
    assert set(names) - set(plain) == {"objects/621_more.sql"}
    assert "CREATE TRIGGER tell_change" in plain["objects/640_jobs.sql"]
    assert "CREATE TRIGGER tell_change" not in found["objects/640_jobs.sql"]


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="dialect: got 'oracle'; allowed: "):
        Script(dialect="oracle")


def test_workers_are_bound_where_partitions_lie_on_segments() -> None:
    assert dialect_of(90426, "greenplum6").training.binds_workers
    assert not dialect_of(150000, "postgresql").training.binds_workers


def test_this_process_is_no_such_server() -> None:
    assert not backend.raises_interrupts()
    assert backend.segment() is None
