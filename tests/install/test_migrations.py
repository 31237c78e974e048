"""Migrations that were released never change: a database that has them would refuse every later version."""

from __future__ import annotations

import hashlib

from cerebro_db.install import sources

# What each release has brought, as SHA-256 of the files. Add those of the next release; change none.
RELEASED = {
    "0.1.0": {
        "0001_catalog": "9272f993daf963a1bf93802f55ebc912fd49545e0c325c8c3b7e554048e801f1",
        "0002_runs_that_resume": "9d28bd98603faabe3c91b4504553288dee25ed6489ce4f73af8827739e0d27a5",
        "0004_one_model": "f64537715feb2a38c9dcd6a86978673f2597d4af6c0cbda273d9bec383e39d0d",
        "0005_registry": "e07346e7e519aa4f1093bf812306542c675c90791bc2c7bbd33c848e4c4b1e96",
        "0006_callbacks": "cdc6ed7f8b8c159e09b73ee01c553b158f8878277aa7719b9fc60f2d512d94ad",
        "0007_schedule": "0e3773992c3baf9a955becb0a003cc8c626290285e41a98e44db0f265b63deba",
        "0011_functions": "3e5f07fe1798305f8397fbec473d1f85703550d5709de1a3e1769f87765d6922",
    },
}


def test_released_migrations_are_as_they_were() -> None:
    folder = sources.sql_directory() / "migrations"
    for release, checksums in RELEASED.items():
        for name, checksum in checksums.items():
            found = hashlib.sha256((folder / f"{name}.sql").read_bytes()).hexdigest()
            assert found == checksum, f"{name} is of {release}: write another migration instead"


def test_new_migrations_come_after_the_released_ones() -> None:
    released = [name for checksums in RELEASED.values() for name in checksums]
    assert released == sorted(released)
    found = sorted(path.stem for path in (sources.sql_directory() / "migrations").glob("*.sql"))
    assert found[: len(released)] == released
    numbers = [name.partition("_")[0] for name in found]
    assert len(set(numbers)) == len(numbers)
