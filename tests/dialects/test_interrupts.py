"""Interrupts that are put off where the server raises them in Python."""

from __future__ import annotations

import ctypes

import pytest

from cerebro_db.database.dialects import interrupts

HOOK = 4711


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ctypes.c_void_p:
    """The hook of a server that has one, and that nobody has interrupted."""
    found = ctypes.c_void_p(HOOK)
    monkeypatch.setattr(interrupts, "interrupts_python", lambda: True)
    monkeypatch.setattr(interrupts, "_hook", lambda: found)
    monkeypatch.setattr(interrupts, "_is_cancelled", lambda: False)
    monkeypatch.setattr(interrupts, "ends_process", lambda: False)
    return found


def test_elsewhere_nothing_is_put_off() -> None:
    with interrupts.restored():
        interrupts.put_off()
        interrupts.raise_pending()


@pytest.mark.parametrize("what", ["_is_cancelled", "ends_process"])
def test_an_interrupt_is_raised_once_and_where_it_is_asked_for(
    hook: ctypes.c_void_p, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with interrupts.restored():
        interrupts.put_off()
        assert hook.value is None
        interrupts.raise_pending()
        monkeypatch.setattr(interrupts, what, lambda: True)
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_pending()
        interrupts.raise_pending()  # what follows is not interrupted again
    assert hook.value == HOOK
    interrupts.raise_pending()  # the server raises it by itself again


def test_the_innermost_call_does_not_end_what_the_outermost_has_begun(
    hook: ctypes.c_void_p,
) -> None:
    with interrupts.restored():
        interrupts.put_off()
        with interrupts.restored():
            interrupts.put_off()
        assert hook.value is None
    assert hook.value == HOOK


def test_what_is_held_comes_when_it_is_over_whatever_the_server_does(
    hook: ctypes.c_void_p, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = ctypes.c_int32(0)
    monkeypatch.setattr(interrupts, "_holdoff", lambda: count)
    with interrupts.held():  # nothing is put off
        assert count.value == 0
    with interrupts.restored():
        interrupts.put_off()
        with interrupts.held():
            assert count.value == 1
        assert count.value == 0

        def fail() -> None:
            with interrupts.held():
                count.value = 0  # as the server does where an error is raised
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert count.value == 0
