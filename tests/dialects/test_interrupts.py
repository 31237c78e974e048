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
