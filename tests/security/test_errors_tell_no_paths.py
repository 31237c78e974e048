"""Errors of all kinds tell users nothing of where on the server files lie."""

from __future__ import annotations

import os
import sys

from cerebro_db.trainers.failures import described


def test_an_unexpected_error() -> None:
    """A defect is told in one line; its traceback is for the server's log, which no client can ask for."""
    place = f"{sys.prefix}/lib/secret"
    try:
        os.listdir(place)
    except FileNotFoundError as error:
        told = described(error)
    assert told["sqlstate"] == "38000"
    assert "unexpected error" in told["message"]
    assert "FileNotFoundError" in told["message"]
    assert sys.prefix not in told["message"] + told["hint"]
    assert "Traceback" in told["log"]
