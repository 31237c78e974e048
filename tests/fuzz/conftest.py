"""Tells at the end how many inputs were tried."""

from __future__ import annotations

from typing import Any

from fuzz.harness import counts


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line after the results."""
    total = sum(count for kind, count in counts.items() if "," not in kind)
    if total:
        parts = "; ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))
        terminalreporter.write_line(f"fuzz: {total} inputs tried ({parts})")
