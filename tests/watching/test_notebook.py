"""The notebook of the documentation runs from top to bottom."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.watching.conftest import Watched

NOTEBOOK = Path(__file__).parents[2] / "docs" / "python.ipynb"


def test_the_notebook_can_be_executed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")
    pytest.importorskip("pandas", reason="the notebook shows frames of pandas")
    monkeypatch.setenv("DSN", watched.dsn)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells)  # kept without what machines told
    nbclient.NotebookClient(
        book, timeout=300, resources={"metadata": {"path": os.fspath(tmp_path)}}
    ).execute()
    shown: list[dict[str, Any]] = [
        {name: str(text) for name, text in output.get("data", {}).items()}
        for cell in book.cells
        for output in cell.get("outputs", ())
    ]
    pages = [one.get("text/html", "") for one in shown]
    assert any("<progress" in page for page in pages)  # beside the call
    assert any("val_accuracy" in page and "<table" in page for page in pages)
    assert any(page.startswith("<iframe srcdoc=") for page in pages)
    assert any(re.match(r"<Model \d+ of run \d+: ", one.get("text/plain", "")) for one in shown)
