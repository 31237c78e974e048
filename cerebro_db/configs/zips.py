"""Errors of damaged zip files."""

from __future__ import annotations

import struct
import zipfile
import zlib

# What zipfile and zlib raise where the bytes of a file contradict each other; NotImplementedError is a RuntimeError.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, ArithmeticError, EOFError, OSError, RuntimeError, ValueError,
)  # fmt: skip
