"""Tables of an earlier run that are left when its models were dropped, as MADlib's users do."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest


def tables(bench: Any, name: str) -> set[str]:
    return set(
        bench.column("SELECT relname FROM pg_class WHERE relname ~ %s", (f"^{name}_?[a-z]*$",))
    )


def test_what_is_left_of_dropped_models_is_replaced(fit: Any, bench: Any) -> None:
    out, _ = fit(epochs=1)
    whole = tables(bench, out) - {f"{out}_pkey"}
    bench.run(f"DROP TABLE {out}, {out}_summary")
    again, run_id = fit(epochs=1, out=out)
    assert again == out
    assert whole <= tables(bench, out)
    assert bench.value(f"SELECT run_id FROM {out}_summary") == run_id
    left = f"dropped public.{out}_info and public.{out}_states and public.{out}_history, left of a table of models"
    assert any(left in notice for notice in bench.notices)


def test_what_belongs_to_someone_is_not(fit: Any, bench: Any) -> None:
    out, _ = fit(epochs=1)
    bench.run(f"ALTER TABLE {out} RENAME TO {out}_kept")  # its summary tells that it is whole
    with pytest.raises(psycopg2.errors.DuplicateTable, match=f"{out}_summary exists"):
        fit(epochs=1, out=out)
    bench.run(f"DROP TABLE {out}_summary, {out}_info; CREATE VIEW {out}_seen AS TABLE {out}_states")
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist):
        fit(epochs=1, out=out)
    bench.run(f"DROP TABLE {out}_states CASCADE; CREATE TABLE {out}_states (mine int)")
    with pytest.raises(psycopg2.errors.DuplicateTable, match=f"{out}_states exists"):
        fit(epochs=1, out=out)
    assert f"{out}_states" in tables(bench, out)
